"""What an instance does when its router stops it, or is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dflash_local.server.children import frames

CHILD = """
import sys, threading
from pathlib import Path
from dflash_local.server.children.parent import Parent

parent = Parent()
parent.on_gone = Path(sys.argv[1]).rmdir
parent.obey()
threading.Event().wait()
"""


@pytest.mark.parametrize("is_stopped", [True, False])
def test_only_without_its_parent_it_clears_up(tmp_path: Path, is_stopped: bool) -> None:
    folder = tmp_path / "sockets"  # the router's, in which its other instances will have theirs
    folder.mkdir()
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdin=subprocess.PIPE)
    assert child.stdin is not None
    if is_stopped:
        child.stdin.write(frames.pack({"do": "stop"}))
        child.stdin.flush()
    else:
        child.stdin.close()
    assert child.wait(20) == 1
    assert folder.exists() is is_stopped
    child.stdin.close()
