"""Benchmarks start our server with flags that go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks import long_context, lookup, plain
from benchmarks.lookup import OURS_OFF
from benchmarks.systems import OURS
from dflash_local import cli
from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.named_models import Models
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import DFlashError
from dflash_local.plan.memory_plan import MemoryPlan

TARGET, BINS = Path("no-such-file.gguf"), Path("bins")


@pytest.mark.parametrize(
    "argvs",
    [
        plain.commands(TARGET, BINS, 2, {}),
        lookup.commands(TARGET, BINS, 2, {}, []),
        long_context.commands(TARGET, BINS, 2, 1024),
    ],
    ids=["plain", "lookup", "long_context"],
)
def test_the_engine_takes_them(argvs: Mapping[str, Sequence[str]]) -> None:
    """All that is wrong is that there is no model."""
    for name in {OURS, OURS_OFF} & argvs.keys():
        argv = argvs[name]
        args = cli.parse(argv[argv.index("serve") :])[1]
        options = EngineOptions(**engine_options(args, Models(str(TARGET))))
        with pytest.raises(DFlashError, match="no-such-file"):
            MemoryPlan.of(options, {})
