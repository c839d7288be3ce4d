"""Keys that one path writes and another reads: lists that would drift apart, compared."""

from __future__ import annotations

import ast
import inspect
import re
import tarfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream
from dflash_local.convert import config, conversion, gemma4, names, packaging, relabel, rope, target
from dflash_local.convert.kinds import dflash2, domino, dspark, lilicorr
from dflash_local.convert.kinds.kind import Kind
from dflash_local.convert.relabel import _IMPLIED, _SAME

# Of a drafter, read by no engine: other programs and `doctor` know kinds of drafters by them.
ONLY_TOLD = {"has_confidence_head"}
# Read by llama.cpp's loader of drafters, and of no meaning for those that run here.
NOT_OURS = {
    "hyper_connection.count", "hyper_connection.sinkhorn_iterations", "hyper_connection.epsilon",  # DeepSeek-V4's
    "attention.q_lora_rank", "attention.output_group_count", "attention.output_lora_rank", "attention.compress_ratios",
    "expert_feed_forward_length", "expert_shared_count", "expert_weights_scale", "expert_weights_norm",
    "expert_gating_func", "swiglu_clamp_exp", "swiglu_clamp_shexp",
}  # fmt: skip
# Said anew by the rewriter, from other keys or the tensors.
ANEW = {"target_layers", "sample_from_anchor", "has_confidence_head"}
# Of Qwen3Config, of no meaning for a drafter that is run.
TRAINING = {
    "attention_dropout", "bos_token_id", "eos_token_id", "initializer_range", "pad_token_id", "tie_word_embeddings",
    "use_cache",
}  # fmt: skip


def written() -> set[str]:
    """Keys that the converter writes, without "dflash."."""
    functions = [names.metadata, names._rope, *(kind.metadata for kind in (
        Kind, dflash2.DFlash2, domino.Domino, dspark.DSpark, lilicorr.LiliCorr))]  # fmt: skip
    return {key for function in functions for key in keys_in(function) if not key.startswith("general.")}


def keys_in(code: Any) -> set[str]:
    """Keys that the code of a function or module gives a value: in dicts that it writes down, and one by one."""
    found = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code)))):
        if isinstance(node, ast.Dict):
            found |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= {node.slice.value} if isinstance(node.slice, ast.Constant) else set()
    return {key for key in found if isinstance(key, str)}


@pytest.fixture(scope="module")
def source(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of the pinned llama.cpp."""
    with BuildLog(tmp_path_factory.mktemp("log") / "log") as log:
        archive_path = Upstream.read(repo / "patches" / "UPSTREAM").fetch(log)
    with tarfile.open(archive_path) as archive:
        found = {}
        for member in archive:
            name = member.name.partition("vendor/llama.cpp/src/")[2]
            if name in ("llama-arch.cpp", "llama-model.cpp", "models/dflash.cpp"):
                file = archive.extractfile(member)
                assert file
                found[name] = file.read().decode()
    return found


def read_upstream(source: dict[str, str], file: str) -> set[str]:
    """Keys of an architecture that a file of the pinned llama.cpp reads."""
    known = dict(re.findall(r'\{ (LLM_KV_\w+), +"%s\.(\S+)"', source["llama-arch.cpp"]))
    used = re.findall(r"ml\.(?:get_key|get_key_or_arr|get_arr)\((LLM_KV_\w+)", source[file])
    return {known[name] for name in used if name in known}


def read_here(repo: Path) -> set[str]:
    """Keys that our model of a drafter reads beside llama.cpp's loader."""
    text = (repo / "ggml_ops" / "llama" / "drafter_model.cpp").read_text()
    return set(re.findall(r'(?:find_key|number)\(model, "([a-z0-9_.]+)"', text))


def test_what_the_converter_writes_is_read(repo: Path, source: dict[str, str]) -> None:
    read = read_upstream(source, "llama-model.cpp") | read_upstream(source, "models/dflash.cpp") | read_here(repo)
    assert len(written()) > 30
    assert written() - read == ONLY_TOLD


def test_what_is_read_of_a_drafter_is_rewritten(repo: Path, source: dict[str, str]) -> None:
    """Nothing that would change a drafter is dropped on the way from another dialect."""
    kept = {key for key in written() | read_upstream(source, "models/dflash.cpp") | read_here(repo)
            if not (_SAME.fullmatch(key) or key in _IMPLIED)}  # fmt: skip
    unknown = {key for key in kept if key.startswith("lilicorr_")}  # no other dialect has it
    assert kept - NOT_OURS - unknown == {"domino_prefix_length"}  # refused by name
    assert len(unknown) == 5
    assert ANEW <= _IMPLIED
    assert written() & _IMPLIED <= keys_in(relabel), "neither copied nor said anew"


def test_what_transformers_knows_of_a_drafter_is_read() -> None:
    from transformers import Qwen3Config

    readers = (config, conversion, gemma4, packaging, rope, target)
    nodes = (node for module in readers for node in ast.walk(ast.parse(inspect.getsource(module))))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    fields = {name for name in inspect.signature(Qwen3Config).parameters if name in vars(Qwen3Config())}
    own = fields - set(inspect.signature(Qwen3Config.__mro__[1]).parameters)
    assert {"hidden_size", "sliding_window", "attention_bias", "rope_parameters"} <= own
    assert own - texts == TRAINING
