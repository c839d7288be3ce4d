"""What `doctor` says about which way drafts, and what an engine says where that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_local.convert.gguf_metadata import u32
from dflash_local.convert.target import Target
from dflash_local.diagnose.drafting_finding import look_at_drafting
from dflash_local.diagnose.finding import Level
from dflash_local.diagnose.pair import check, check_options
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import PairError
from tests.gguf_files import rewritten

NEXTN = "qwen35.nextn_predict_layers"


def found(target: Path, drafter: Path | None = None, **options: Any) -> tuple[Level, str]:
    finding = look_at_drafting(EngineOptions(model=str(target), **options), Target.read(target), drafter)
    return finding.level, finding.text


def test_ways(pocket: dict[str, Path], untrained_mtp: Path) -> None:
    trunk, dflash = pocket["hybrid-target"], pocket["hybrid-dflash"]
    lookup = "and by prompt lookup"
    assert found(trunk, dflash) == (Level.OK, f"by {dflash.name} {lookup}")
    assert found(trunk, dflash, lookup=False) == (Level.OK, f"by {dflash.name}")
    assert found(trunk, untrained_mtp) == (Level.OK, f"by the MTP layers of {untrained_mtp.name} {lookup}")
    assert found(untrained_mtp) == (Level.OK, f"by the file's own next-token (MTP) layers {lookup}")
    assert found(untrained_mtp, draft_kind="lookup") == (Level.OK, "by prompt lookup alone (--draft-kind lookup)")
    assert found(untrained_mtp, draft="off") == (Level.OK, "off: decoding is plain")
    assert found(trunk) == (Level.WARN, "drafting by prompt lookup alone: no drafter")
    assert found(trunk, lookup=False) == (Level.WARN, "decoding is plain: no drafter")


def test_layers_that_are_not_used(untrained_mtp: Path, pocket: dict[str, Path], tmp_path: Path) -> None:
    two = rewritten(untrained_mtp, tmp_path / "two.gguf", {NEXTN: u32(2)})
    level, text = found(two)
    assert level is Level.WARN
    assert text.endswith(
        "MTP layers are not used: llama.cpp computes only a single MTP layer of the architecture qwen35"
    )
    # A file may count them, and not have them.
    text = found(rewritten(pocket["hybrid-target"], tmp_path / "none.gguf", {NEXTN: u32(1)}))[1]
    assert text.endswith("MTP layers are not used: the file has no MTP layers")


@pytest.mark.parametrize(
    ("kind", "drafter", "said"),
    [
        ("mtp", "hybrid-dflash", "draft_kind is mtp, but pocket-hybrid-dflash.gguf has no MTP layers of the target"),
        ("dflash", "mtp", "draft_kind is dflash, but own-F16.gguf has MTP layers of the target"),
    ],
)
def test_another_kind_than_asked_for(
    pocket: dict[str, Path], untrained_mtp: Path, kind: str, drafter: str, said: str
) -> None:
    """The engine says it before it loads the target."""
    target, path = pocket["hybrid-target"], untrained_mtp if drafter == "mtp" else pocket[drafter]
    assert found(target, path, draft_kind=kind) == (Level.FAIL, said)
    options: Any = {"model": str(target), "drafter": str(path), "draft_kind": kind}
    with pytest.raises(PairError, match=said):
        check_options(EngineOptions(**options))


def test_what_is_missing(pocket: dict[str, Path]) -> None:
    target = pocket["hybrid-target"]
    assert found(target, draft_kind="mtp") == (Level.FAIL, "--draft-kind mtp, but the file has no MTP layers")
    assert found(target, draft_kind="dflash") == (Level.FAIL, "--draft-kind dflash, but there is no drafter")


def test_layers_of_another_target(untrained_mtp: Path, pocket: dict[str, Path], tmp_path: Path) -> None:
    check(pocket["hybrid-target"], untrained_mtp)
    wide = rewritten(pocket["hybrid-target"], tmp_path / "wide.gguf", {"qwen35.embedding_length": u32(512)})
    with pytest.raises(PairError, match="the MTP layers are 256 wide, the target 512: they are another model's"):
        check(wide, untrained_mtp)
    with pytest.raises(Exception, match="not a DFlash drafter"):
        check(pocket["target"], untrained_mtp)
