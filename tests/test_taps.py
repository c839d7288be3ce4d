"""Which targets a drafter can read: the library's list and that of pair.py, which loads no library, are what the pinned
source says."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream
from dflash_local.diagnose.pair import NO_ROLLBACK, TAPPED_ARCHS, TAPPED_TO_THE_END
from dflash_local.native import library_info
from tests.hybrid.models import HYBRIDS

NO_TARGETS = {"llama-embed"}  # taps without text: the check of a file's header refuses it


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

    def with_tap(self, index: str) -> set[str]:
        """Architectures whose graph fills t_layer_inp[index]."""
        graphs = set()
        for name, text in self.files.items():
            if name.startswith("models/"):
                for function in re.split(r"^(?=llama_model_\w+::graph)", text, flags=re.M)[1:]:
                    if f"res->t_layer_inp[{index}] =" in function:
                        graphs.add(function.split("::")[0])
        tapped = {self.names[arch] for arch, model in self.classes.items() if self.graph_of(model) in graphs}
        return tapped - NO_TARGETS

    def where(self, question: str) -> set[str]:
        """Architectures of which a function `bool question(arch)` says yes."""
        body = self.files["llama-arch.cpp"].split(f"bool {question}(")[1].split("return true")[0]
        return {self.names[arch] for arch in re.findall(r"case (LLM_ARCH_\w+):", body)}


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
    assert len(source.with_tap("il")) > 20
    assert set(library_info()["tapped_architectures"]) == source.with_tap("il")
    assert source.with_tap("il") == TAPPED_ARCHS


def test_taps_after_the_last_layer_are_those_of_the_source(source: Source) -> None:
    assert len(source.with_tap("n_layer")) > 2
    assert set(library_info()["tapped_to_the_end"]) == source.with_tap("n_layer")
    assert source.with_tap("n_layer") == TAPPED_TO_THE_END


def test_states_that_cannot_be_rolled_back_are_those_of_the_source(source: Source) -> None:
    recurrent = source.where("llm_arch_is_recurrent") | source.where("llm_arch_is_hybrid")
    assert recurrent >= HYBRIDS.keys(), "architectures whose states our tapes roll back"
    stuck = recurrent - source.where("llm_arch_supports_rs_rollback") - HYBRIDS.keys()
    assert stuck & TAPPED_ARCHS == NO_ROLLBACK
