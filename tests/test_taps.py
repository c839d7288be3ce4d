"""Which targets a drafter can read, and which can draft for themselves: the library's lists and those of
architectures.py, which loads no library, are what the pinned source says."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream
from dflash_local.diagnose.architectures import (
    MTP_ARCHS,
    MTP_CHAINS,
    NO_LOOKUP,
    NO_ROLLBACK,
    TAPPED_ARCHS,
    TAPPED_TO_THE_END,
)
from dflash_local.native import library_info
from tests.hybrid.models import HYBRIDS

# Graphs with taps that are not offered, and why.
NO_TEXT = {
    "llama-embed", "gemma-embedding", "modern-bert", "neo-bert", "eurobert",  # embeddings
    "dream", "llada", "llada-moe", "rnd1",  # diffusion
    "qwen3tts", "pockettts",  # speech
}  # fmt: skip
# Recurrent, of one state per sequence that nothing rolls back: nothing could be drafted.
STUCK = {"falcon-h1", "granitehybrid", "jamba", "kimi-linear", "mamba", "mamba2", "plamo2"}
# tests/taps has no model of them, or not of all that goes into their first layer.
UNPROVEN = {
    "bloom", "chameleon", "deepseek2-ocr", "dots3note", "gpt2", "graniteswitch", "minicpm3", "mpt", "plm", "starcoder",
}  # fmt: skip
PATCHED = {"glm5-next"}  # whose graph gets its taps from patches/0015
NOT_OFFERED = NO_TEXT | STUCK | UNPROVEN
# The norm before attention is the first of the layer, and reads its input (ggml_ops/llama/layer_input.h).
FIRST_NORM = re.compile(r"build_norm\(\s*(\w+),\s*(?:model\.layers\[il\]|layer)\.attn_norm,")


class Source:
    """What the pinned llama.cpp says of its architectures."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.names = dict(re.findall(r'\{ (LLM_ARCH_\w+), +"(\S+)"', files["llama-arch.cpp"]))
        self.classes = dict(
            re.findall(r"case (LLM_ARCH_\w+):\s+return new (llama_model_\w+)\(", files["llama-model.cpp"])
        )
        parts = re.split(r"^struct (llama_model_\w+) : public (\w+) \{$", files["models/models.h"], flags=re.M)[1:]
        self.structs = {parts[i]: (parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)}

    def graph_of(self, model: str) -> str:
        """The class whose graph a model's class builds: its own, one that it names, or that of its base."""
        base, body = self.structs[model]
        if named := re.search(r"using graph = (llama_model_\w+)::graph", body):
            return self.graph_of(named[1])
        return model if re.search(r"struct graph\b", body) or base not in self.structs else self.graph_of(base)

    def graphs(self, question: Callable[[str], bool]) -> set[str]:
        """Architectures whose graph has a function of which `question` is true."""
        graphs = set()
        for name, text in self.files.items():
            if name.startswith("models/"):
                for function in re.split(r"^(?=llama_model_\w+::graph)", text, flags=re.M)[1:]:
                    if question(function):
                        graphs.add(function.split("::")[0])
        return {self.names[arch] for arch, model in self.classes.items() if self.graph_of(model) in graphs}

    def with_tap(self, index: str) -> set[str]:
        """Architectures whose graph fills t_layer_inp[index]."""
        return self.graphs(lambda function: f"res->t_layer_inp[{index}] =" in function)

    def where(self, question: str) -> set[str]:
        """Architectures of which a function `bool question(arch)` says yes."""
        body = self.files["llama-arch.cpp"].split(f"bool {question}(")[1].split("return true")[0]
        return {self.names[arch] for arch in re.findall(r"case (LLM_ARCH_\w+):", body)}


def begins_with_norm(function: str) -> bool:
    """Whether a graph's layers begin with the norm before attention, of what the layer before gave out."""
    _, loop, layer = function.partition("for (int il = 0; il < n_layer; ++il) {")
    first = layer.partition("build_norm(")
    norm = FIRST_NORM.match("".join(first[1:]))
    if not loop or not norm:
        return False
    *_, last = re.findall(r"\bcur += (\w+);", first[0]) or [""]
    return norm[1] == "inpL" or (norm[1] == "cur" and last == "inpL")


@pytest.fixture(scope="module")
def source(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    with BuildLog(tmp_path_factory.mktemp("log") / "log") as log:
        archive = Upstream.read(repo / "patches" / "UPSTREAM").fetch(log)
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            folder, _, name = member.name.partition("/vendor/llama.cpp/src/")
            if "/" not in folder and re.fullmatch(r"models/.*\.(cpp|h)|llama-(arch|model)\.cpp", name):
                file = tar.extractfile(member)
                assert file is not None
                files[name] = file.read().decode()
    return Source(files)


def test_tapped_architectures_are_those_of_the_source(source: Source) -> None:
    own, ours = source.with_tap("il") | PATCHED, source.graphs(begins_with_norm)
    assert len(own) > 20 and len(ours) > 90
    assert own | ours >= NOT_OFFERED
    assert set(library_info()["tapped_architectures"]) == (own | ours) - NOT_OFFERED == TAPPED_ARCHS


def test_taps_after_the_last_layer_are_those_of_the_source(source: Source) -> None:
    assert len(source.with_tap("n_layer")) > 2
    assert set(library_info()["tapped_to_the_end"]) == source.with_tap("n_layer")
    assert source.with_tap("n_layer") == TAPPED_TO_THE_END


def test_states_that_cannot_be_rolled_back_are_those_of_the_source(source: Source) -> None:
    recurrent = source.where("llm_arch_is_recurrent") | source.where("llm_arch_is_hybrid")
    assert recurrent >= HYBRIDS.keys(), "architectures whose states our tapes roll back"
    stuck = recurrent - source.where("llm_arch_supports_rs_rollback") - HYBRIDS.keys()
    assert stuck & TAPPED_ARCHS == NO_ROLLBACK
    assert stuck == NO_LOOKUP


def test_next_token_layers_are_those_of_the_library() -> None:
    info = library_info()
    assert set(info["mtp_architectures"]) == MTP_ARCHS > MTP_CHAINS == set(info["mtp_chains"])
    assert MTP_ARCHS <= TAPPED_ARCHS - NO_ROLLBACK
