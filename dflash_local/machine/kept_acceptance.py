"""What a pair's drafts brought when it last ran, kept beside its pass times."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import NamedTuple

from dflash_local.convert.complete_file import complete_or_absent
from dflash_local.machine import costs
from dflash_local.throughput import StepCounts

LEAST_PASSES = 200  # fewer say little

log = logging.getLogger(__name__)


class Acceptance(NamedTuple):
    """Tokens written, and the target's passes that wrote them."""

    tokens: int
    passes: int

    @property
    def length(self) -> float:
        """AL: tokens for each pass."""
        return self.tokens / self.passes


def keep(cost_file: Path, counts: StepCounts) -> None:
    """Keep a run's counts, unless it was too short."""
    file = _file(cost_file)
    if counts.passes < LEAST_PASSES or costs.usable(file) is None:
        return
    try:
        with complete_or_absent(file) as written:
            written.write(json.dumps({"tokens": counts.tokens, "passes": counts.passes}).encode())
    except OSError as error:
        log.warning("cannot write %s: %s", file, error)


def read(cost_file: Path) -> Acceptance | None:
    """The counts of the last run that was long enough; None: there are none, or the file is damaged."""
    try:
        kept = json.loads(_file(cost_file).read_bytes())
        found = Acceptance(int(kept["tokens"]), int(kept["passes"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if 0 < found.passes <= found.tokens else None


def _file(cost_file: Path) -> Path:
    return cost_file.with_suffix(".acceptance.json")
