"""The progress bar of `dflash-local bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dflash_local.bench import DRAFTED, PLAIN, Run, Watcher

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def watching(n_answers: int, n_repeats: int, *, quiet: bool) -> Iterator[Watcher]:
    """A bar on standard error while the block runs, if that is a terminal and not `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield Watcher()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("answers,"),
        TimeRemainingColumn(compact=True),
        TextColumn("left  {task.fields[speeds]}"),
    )
    # Drawn between answers only: a thread that redraws would disturb the measurement.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        yield _Bar(progress, n_answers, n_repeats)


class _Bar(Watcher):
    """One bar over all answers, with the speeds so far."""

    def __init__(self, progress: Progress, n_answers: int, n_repeats: int) -> None:
        self._progress, self._n_repeats = progress, n_repeats
        self._sums: dict[str, tuple[int, float]] = {}  # tokens, seconds
        self._task = progress.add_task("warming up", total=n_answers, speeds="")
        progress.refresh()

    def turn(self, name: str, repeat: int) -> None:
        self._progress.update(self._task, description=f"repeat {repeat + 1} of {self._n_repeats}: {name}", refresh=True)

    def answered(self, name: str, run: Run) -> None:
        tokens, seconds = self._sums.get(name, (0, 0.0))
        self._sums[name] = tokens + run.n_steps, seconds + run.generate
        ours = ((name, *self._sums[name]) for name in (PLAIN, DRAFTED) if name in self._sums)
        speeds = ", ".join(f"{name} {n / taken:.1f}" for name, n, taken in ours if taken)
        self._progress.update(self._task, advance=1, speeds=f"{speeds} tok/s" if speeds else "", refresh=True)
