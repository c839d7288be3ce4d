"""Makes the inflated pairs in the background, in the order in which parts need them, while other parts run.

The files have tens of gigabytes: each is started only if the disk has room, and deleted after its last part.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import IO

from benchmarks.gpu_proof.parts import HERE, PairName

AT_ONCE = 2
# GiB of a pair; the others are small.
ROOM = {("8b", "q4_k_m"): 6, ("8b", "q8_0"): 10, ("27b", "q4_k_m"): 19, ("27b", "q8_0"): 33}


class Inflater:
    """A context manager: entering starts the work, leaving stops what still runs. `folder` has nothing but pairs: what
    is unfinished there is deleted."""

    def __init__(self, pairs: Sequence[PairName], folder: Path, environment: Mapping[str, str], logs: Path) -> None:
        self.folder, self._environment, self._logs = folder, dict(environment), logs
        self._waiting = list(dict.fromkeys(pairs))
        self._ended: dict[PairName, str] = {}  # with the reason if it failed
        self._running: dict[PairName, subprocess.Popen[bytes] | None] = {}  # None: about to start
        self._kept: set[PairName] = set()  # of those that are done
        self._seconds: dict[str, float] = {}
        self._changed = threading.Condition()
        self._closed = self._paused = False
        self._paused_at = self._stood = 0.0  # since when, and for how many seconds before

    def __enter__(self) -> Inflater:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clean()
        for _ in range(AT_ONCE):
            threading.Thread(target=self._work, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            running = [process for process in self._running.values() if process]
            self._changed.notify_all()
        for process in running:
            process.kill()
            process.wait()
        self._clean()
        with suppress(OSError):  # it is not empty: pairs are kept for the next run
            self.folder.rmdir()

    def _clean(self) -> None:
        """Delete gigabytes that killed processes have left."""
        for unfinished in self.folder.glob("tmp*"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def has(self, pair: PairName) -> bool:
        """Is the pair done, or failed?"""
        with self._changed:
            return pair in self._ended

    def why_missing(self, pair: PairName) -> str:
        """Why a pair cannot be used; "" if it is there."""
        with self._changed:
            return self._ended.get(pair, "its pair was not inflated in time")

    def wait(self, pairs: Collection[PairName], seconds: float) -> None:
        """Wait until one of the pairs is done, or has failed, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._ended.keys().isdisjoint(pairs), seconds)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is made meanwhile: it would take memory and disk from what is measured."""
        self._pause(True)
        try:
            yield
        finally:
            self._pause(False)

    def _pause(self, paused: bool) -> None:
        with self._changed:
            if paused:
                self._paused_at = time.monotonic()
            else:
                self._stood += time.monotonic() - self._paused_at
            self._paused = paused
            for process in self._running.values():
                if process:
                    process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)
            self._changed.notify_all()

    @property
    def seconds(self) -> dict[str, float]:
        """How long each pair took that is done, without the time in which it stood still."""
        with self._changed:
            return dict(self._seconds)

    def _now(self) -> float:
        """A clock that stands still while nothing is made."""
        with self._changed:
            return (self._paused_at if self._paused else time.monotonic()) - self._stood

    def drop(self, pair: PairName) -> None:
        """Delete a pair that no part needs any longer."""
        with self._changed:
            self._kept.discard(pair)
        for folder in self._folders(pair):
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self, pair: PairName) -> list[Path]:
        """Where the pair is, if it is there: of an interrupted run, too."""
        return [*self.folder.glob(f"{pair.name}-{pair.drafter}-*")]

    def _work(self) -> None:
        while pair := self._take():
            log = self._logs / f"inflate-{pair.drafter}-{pair.name}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            start = self._now()
            with log.open("wb") as file:
                status = self._start(pair, file).wait()
            with self._changed:
                del self._running[pair]
                if status == 0:
                    self._seconds[f"{pair.drafter} {pair.name}"] = round(self._now() - start, 1)
                    self._kept.add(pair)
                self._ended[pair] = "" if status == 0 else f"its pair could not be inflated (log: {log.name})"
                self._changed.notify_all()

    def _start(self, pair: PairName, log: IO[bytes]) -> subprocess.Popen[bytes]:
        # Other parts have priority.
        command = ["nice", "-n", "19", sys.executable, str(HERE.parent / "pairs.py"), *astuple(pair), str(self.folder)]
        with self._changed:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._environment
            )
            self._running[pair] = process
            if self._closed:
                process.kill()
            elif self._paused:
                process.send_signal(signal.SIGSTOP)
            return process

    def _take(self) -> PairName | None:
        """The next pair, once nothing is measured and the disk has room for it besides the running ones. One that is
        there already comes first and needs none; one for which nothing can make room has failed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self._paused)
                if self._closed or not self._waiting:
                    return None
                needed = sum(ROOM.get((pair.shape, pair.ftype), 1) for pair in (self._waiting[0], *self._running))
                has_room = shutil.disk_usage(self.folder).free > needed << 30
                if pair := next(filter(self._folders, self._waiting), self._waiting[0] if has_room else None):
                    self._waiting.remove(pair)
                    self._running[pair] = None
                    return pair
                if not self._running and not self._kept:
                    self._ended[self._waiting.pop(0)] = f"the disk has no room for its pair ({needed} GiB)"
                    self._changed.notify_all()
                    continue
            time.sleep(1.0)
