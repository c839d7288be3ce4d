"""MTP layers that cannot draft: the target loads without them, or one sentence says what is wrong. No assertion of ggml
ends the process."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.diagnose.architectures import MTP_ARCHS, MTP_CHAINS
from dflash_local.draft_options import DraftKind, draft_kind_id
from dflash_local.errors import ModelError, PairError
from dflash_local.native import NativeEngine
from tests.fuzz import gguf_image
from tests.fuzz.architectures import EMBD, pair
from tests.fuzz.gguf_image import Image
from tests.trees.models import N_VOCAB, find, tokenizer

from .models import ARCHS, NAMES, WITHOUT_GRAPH, numbers, put, without_trunk

Model = Callable[[str], Path]
Change = Callable[[Image], None]


def engine(path: Path, kind: DraftKind, drafter: Path | None = None) -> NativeEngine:
    params = {"model": str(path), "n_ctx": 256, "n_threads": 1, "warmup": False, "draft_kind": draft_kind_id(kind)}
    return NativeEngine(params | ({"drafter": str(drafter)} if drafter else {}))


def answers(native: NativeEngine) -> bool:
    request = {"tokens": [1, 2, 3, 4], "n_predict": 5, "sampling": '{"temperature": 0, "ignore_eos": true}'}
    native.submit(0, native.prepare(request))
    return sum(len(update.tokens) for updates in iter(native.step, []) for update in updates) == 5


def check_without(path: Path, why: str, *, whole: bool = False) -> None:
    """The model answers without its MTP layers, and draft_kind=mtp is refused. `whole`: llama.cpp's loader wants all
    tensors, whether it loads them or not."""
    with pytest.raises(PairError, match=f"draft_kind is mtp, but .* cannot draft: .*{why}"):
        engine(path, "mtp")
    if whole:
        with pytest.raises(ModelError, match=r"could not be loaded: .* tensor 'blk.\d.*' not found"):
            engine(path, "auto")
        return
    native = engine(path, "auto")
    assert native.info()["drafter"] is None and answers(native)
    native.destroy()


def changed(source: Path, path: Path, *changes: Change) -> Path:
    made = gguf_image.read(source)
    for change in changes:
        change(made)
    path.write_bytes(made.encode()[0])
    return path


def keyed(key: str, value: Any) -> Change:
    def change(made: Image) -> None:
        full = f"{made.architecture.decode()}.{key}"
        made.pairs = [known for known in made.pairs if known.key != full.encode()] + [pair(full, value)]

    return change


def without(*parts: str) -> Change:
    """The tensors blk.*.PART are gone."""

    def change(made: Image) -> None:
        made.tensors = [tensor for tensor in made.tensors if not tensor.name.decode().endswith(parts)]

    return change


def doubled(made: Image) -> None:
    """The last layer twice."""
    arch = made.architecture.decode()
    last, more = f"blk.{ARCHS[arch].trunk}.", f"blk.{ARCHS[arch].trunk + 1}."
    for tensor in [tensor for tensor in made.tensors if tensor.name.startswith(last.encode())]:
        put(made, tensor.name.decode().replace(last, more), numbers(tensor))
    keyed("block_count", ARCHS[arch].trunk + 2)(made)
    keyed("nextn_predict_layers", 2)(made)


def apart(made: Image) -> None:
    """Q, K and V of the MTP layer each on its own."""
    joint = numbers(find(made, "blk.2.attn_qkv.weight"))
    without("blk.2.attn_qkv.weight")(made)
    n_q = EMBD
    for name, rows in (("q", joint[:n_q]), ("k", joint[n_q : n_q + 32]), ("v", joint[n_q + 32 :])):
        put(made, f"blk.2.attn_{name}.weight", rows)


def test_all_architectures_are_tried(repo: Path) -> None:
    known = (repo / "ggml_ops/llama/mtp_layers.h").read_text()
    assert re.findall(r'\{ "([\w-]+)", (?:true|false), ', known) == sorted(ARCHS) == sorted(MTP_ARCHS)
    assert {arch for arch, made in ARCHS.items() if len(made.heads) > 1} == MTP_CHAINS


@pytest.mark.parametrize("arch", WITHOUT_GRAPH)
def test_no_graph(model: Model, arch: str) -> None:
    check_without(model(f"{arch}-1"), f"llama.cpp does not compute the MTP layers of the architecture {arch}")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("deepseek4")])
def test_a_key_without_tensors(model: Model, tmp_path: Path, name: str) -> None:
    def change(made: Image) -> None:
        kept = without_trunk(gguf_image.read(model(name))).tensors
        gone = {tensor.name for tensor in kept if tensor.name.startswith(b"blk.")}
        made.tensors = [tensor for tensor in made.tensors if tensor.name not in gone]

    whole = name.startswith(("nemotron", "qwen"))
    check_without(changed(model(name), tmp_path / "trunk.gguf", change), "the file has no MTP layers", whole=whole)


FFN = tuple(f"blk.{i}.ffn_{part}.weight" for i in (2, 3, 4) for part in ("gate_inp", "gate", "up", "down"))
EXPERTS = tuple(f"blk.2.ffn_{part}.weight" for part in ("gate_exps", "up_exps", "gate_up_exps"))
SECTIONS = keyed("rope.dimension_sections", [4, 2, 2, 0])
SCALED = (keyed("attention.temperature_scale", 0.5), keyed("attention.temperature_length", 64))
CASES: dict[str, tuple[str, Sequence[Change], str]] = {
    "one of two is computed": ("glm4moe-1", [doubled], "computes only a single MTP layer .* the file has 2"),
    "no enorm": ("qwen35-1", [without("nextn.enorm.weight")], "the tensor blk.2.nextn.enorm.weight is missing"),
    "no hnorm": ("glm4moe-1", [without("nextn.hnorm.weight")], "the tensor blk.2.nextn.hnorm.weight is missing"),
    "no second eh_proj": ("hy_v3-2", [without("blk.3.nextn.eh_proj.weight")], "blk.3.nextn.eh_proj.weight is missing"),
    "no first eh_proj": ("mimo2-3", [without("blk.2.nextn.eh_proj.weight")], "the file has no MTP layers"),
    "q, k and v apart": ("mimo2-1", [apart], "blk.2.attn_qkv.weight is missing"),
    "mimo2 without a dense layer": ("mimo2-3", [without(*FFN)], "blk.2.ffn_gate.weight is missing"),
    "step35 without any": ("step35-3", [without(*FFN)], "blk.2.ffn_gate.weight is missing"),
    "hy_v3 without any": ("hy_v3-2", [without(*FFN)], "blk.2.ffn_gate.weight is missing"),
    "hy_v3 without experts": ("hy_v3-1", [without(*EXPERTS)], "blk.2.ffn_gate_exps.weight is missing"),
    "glm4moe with M-RoPE": ("glm4moe-1", [SECTIONS], "with this glm4moe.rope.dimension_sections"),
    "scaled attention": ("deepseek2-1", SCALED, "with this deepseek2.attention.temperature_scale"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_layers_that_cannot_draft(model: Model, tmp_path: Path, case: str) -> None:
    name, changes, why = CASES[case]
    path = changed(model(name), tmp_path / "target.gguf", *changes)
    check_without(path, why, whole=".nextn." in why)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("deepseek2-1", "leading_dense_block_count", 3), ("glm4moe-1", "leading_dense_block_count", 3),
        ("deepseek2-1", "attention.q_lora_rank", 0), ("deepseek2-1", "attention.key_length_mla", 0),
        ("deepseek4-1", "hash_layer_count", 3), ("deepseek4-1", "attention.compress_ratios", [0, 4, 4]),
    ],
)  # fmt: skip
def test_keys_that_no_graph_supports(model: Model, tmp_path: Path, name: str, key: str, value: Any) -> None:
    """The trunk's tensors do not fit these files any more, so nothing loads."""
    path = changed(model(name), tmp_path / "target.gguf", keyed(key, value))
    with pytest.raises((PairError, ModelError), match=key):
        engine(path, "mtp")
    with pytest.raises(ModelError):
        engine(path, "auto")


@pytest.mark.parametrize("kind", ["auto", "mtp"])
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_shape(model: Model, tmp_path: Path, name: str, kind: DraftKind) -> None:
    def change(made: Image) -> None:
        put(made, f"blk.{NAMES[name].trunk}.nextn.eh_proj.weight", np.ones((EMBD, EMBD)))

    with pytest.raises(ModelError, match=r"eh_proj.weight' has wrong shape"):
        engine(changed(model(name), tmp_path / "target.gguf", change), kind)


def test_more_layers_than_there_are(model: Model, tmp_path: Path) -> None:
    path = changed(model("qwen35-1"), tmp_path / "target.gguf", keyed("nextn_predict_layers", 3))
    with pytest.raises(ModelError, match="nextn_predict_layers"):
        engine(path, "auto")


@pytest.mark.parametrize("kind", ["auto", "mtp"])
def test_layers_of_another_target(model: Model, tmp_path: Path, kind: DraftKind) -> None:
    """As the drafter: a file of another architecture, one without MTP layers, one of another vocabulary."""
    target, split = model("hy_v3-1"), tmp_path / "mtp.gguf"
    with pytest.raises(PairError, match="glm4moe"):
        engine(target, kind, model("glm4moe-1"))
    split.write_bytes(without_trunk(gguf_image.read(target)).encode()[0])
    none = changed(split, tmp_path / "none.gguf", without("nextn.eh_proj.weight"))
    with pytest.raises(PairError, match="has the target's architecture, but cannot draft: the file has no MTP layers"):
        engine(target, kind, none)
    with pytest.raises(PairError, match=f"vocabulary has {N_VOCAB // 2} tokens, the target's {N_VOCAB}"):
        engine(target, kind, changed(split, tmp_path / "halved.gguf", halved))


def halved(made: Image) -> None:
    """A vocabulary of half the words."""
    for name in ("token_embd.weight", "output.weight"):
        put(made, name, numbers(find(made, name))[: N_VOCAB // 2])
    made.pairs = [known for known in made.pairs if not known.key.startswith(b"tokenizer.")]
    made.pairs += tokenizer(N_VOCAB // 2).pairs
