"""Files of hidden states: what is written comes back, of more of them than may be open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dflash_local.train.shards import Shard, TappedText, read_shards, write_shard

N_FILES = 300
READ = """
import resource, sys
from pathlib import Path
from dflash_local.errors import DFlashError
from dflash_local.train.shards import Shard, read_shards

resource.setrlimit(resource.RLIMIT_NOFILE, (128, int(sys.argv[2])))
shards = [Shard(path, 0, 1, "") for path in sorted(Path(sys.argv[1]).iterdir())]
try:
    print(sum(text.taps.size for text in read_shards(shards)))
except DFlashError as error:
    print(error)
"""


def written(folder: Path, n: int) -> list[Shard]:
    """Shards of a text of two tokens each, with two values of one layer and one likely token."""
    shards = [Shard(folder / f"{number:05}.safetensors", number, number + 1, "") for number in range(n)]
    for number, shard in enumerate(shards):
        taps, ids = np.full((2, 2), number, np.uint16), np.full((2, 1), number, np.int32)
        text = TappedText(np.array([1, number], np.int32), 1, taps, ids, np.zeros((2, 1), np.float32))
        write_shard(shard, [text])
    return shards


def test_shards_come_back(tmp_path: Path) -> None:
    shards = written(tmp_path, 3)
    for number, text in enumerate(read_shards(shards)):
        assert text.tokens.tolist() == [1, number] and text.taps.tolist() == [[number] * 2] * 2
        assert text.ids.tolist() == [[number]] * 2 and text.log_probs.tolist() == [[0.0]] * 2
        assert (text.taps.dtype.name, text.ids.dtype.name) == ("uint16", "int32")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize("most", [600, 200])
def test_more_files_than_may_be_open(most: int, tmp_path: Path) -> None:
    """The limit is raised, with one descriptor for each file; where it may not be, it is said how."""
    written(tmp_path, N_FILES)
    run = subprocess.run([sys.executable, "-c", READ, tmp_path, str(most)], capture_output=True, text=True, check=True)
    if most > N_FILES or sys.version_info >= (3, 13):
        assert run.stdout.strip() == str(4 * N_FILES)
    else:
        assert "300 files of hidden states at once, and this process may open 128" in run.stdout
        assert "ulimit -n 428" in run.stdout
