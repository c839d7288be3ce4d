"""BestValues: the best drafter of a run as numbers, from which it can be written again in other types or forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.train.drafter_file import HISTORY, Values
from dflash_local.train.tensors_file import map_tensors, read_notes, write_tensors


@dataclass(frozen=True)
class BestValues:
    """`values` by their checkpoint names; `history` as the GGUF has it; `share` of the fit that was over."""

    values: Values
    history: Mapping[str, Any]
    share: float

    @classmethod
    def read(cls, path: Path, gguf: Path) -> BestValues | None:
        """Those of the drafter in `gguf`, which is there. None: there are none, as in folders of earlier versions, or a
        kill fell between the two files. Raises ConvertError, ModelError if they are damaged."""
        if not path.exists():
            return None
        values = {name: np.array(value, np.float32) for name, value in map_tensors(path).items()}
        notes = read_notes(path)
        kept = cls(values, json.loads(notes["history"]), float(notes["share"]))
        return kept if history_of(gguf) == kept.history else None

    def write(self, path: Path) -> None:
        """Raises DFlashError if the disk is full."""
        values = {name: np.asarray(value, np.float32) for name, value in self.values.items()}
        write_tensors(path, values, {"history": json.dumps(self.history), "share": str(self.share)})


def history_of(gguf: Path) -> dict[str, Any]:
    """What a drafter that was trained here says of that."""
    history: dict[str, Any] = json.loads(read_metadata(gguf)[HISTORY].data)
    return history
