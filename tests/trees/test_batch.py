"""Trees as llama.cpp's batch takes them: never torn, and no other use of a sequence while its tree is open."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native_process import run_native

from .test_target_rows import EXACT

NEVER = (
    "decoded",
    "copied",
    "shifted",
    "cut",
    "saved",
    "committed gap",
    "committed beyond",
    "committed inside",
    "committed negative",
)


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss"])
def test_batches(model: Callable[[str], Path], repo: Path, name: str) -> None:
    run = run_native(repo, "tests.trees.batch", str(model(name)))
    assert run.returncode == 0, run.stderr[-2000:]
    seen = json.loads(run.stdout)
    far = {what: seen.pop(what) for what in list(seen) if what.startswith(("whole", "windows"))}
    assert len(far) == 3 and max(far.values()) < EXACT, far
    never = {f"pending: {what}" for what in NEVER} | {"committed twice"}
    assert {what for what, true in seen.items() if not true} == never
