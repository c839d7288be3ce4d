"""Ops on the device against the CPU: ours, and those of llama.cpp that our graphs use beyond its own models'."""

from __future__ import annotations

import pytest

from benchmarks.gpu_proof.ops import Programs
from dflash_local.build import programs
from dflash_local.build.log import BuildLog
from dflash_local.native import library_path
from tests.ggml_ops.native import REPO, llama_source

pytestmark = pytest.mark.slow

SOME = {"TOP_K": ",k=[0-9]{1,2},"}  # more candidates than any sampler or tree asks for take over eight minutes
OPS = ("TOP_K", "ARGMAX", "GET_ROWS", "SET_ROWS", "GATED_DELTA_NET", "SSM_CONV", "CONCAT")


@pytest.fixture(scope="module")
def vulkan(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The programs of `make gpu-proof`, compiled against these libraries."""
    folder = tmp_path_factory.mktemp("programs")
    with BuildLog(folder / "log") as log:
        programs.build(REPO / "ggml_ops" / "tests", llama_source(), library_path().parent, folder, log)
    return Programs(folder, "Vulkan0", environment)


def test_ours(vulkan: Programs) -> None:
    """gdn_tree and gdn_commit, in all their cases."""
    op = vulkan.ours(1800)
    assert op.right > 10 and not op.failed and not op.ended and not op.unsupported, op


@pytest.mark.parametrize("name", OPS)
def test_llama_cpps(vulkan: Programs, name: str) -> None:
    op = vulkan.op(name, 1800, SOME.get(name, ""))
    assert op.right and not op.failed and not op.ended, op
