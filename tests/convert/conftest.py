from __future__ import annotations

from pathlib import Path

import pytest

from . import samples


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A target that `samples.CONFIG` fits."""
    return samples.write_target(tmp_path / "target.gguf")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A sound DFlash checkpoint."""
    return samples.write_checkpoint(tmp_path / "drafter", samples.config())
