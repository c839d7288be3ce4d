"""Makes the inflated pairs in the background, in the order in which parts need them, while other parts run.

The files have tens of gigabytes: each is started only if the disk has room, and deleted after its last part.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from benchmarks.gpu_proof.parts import HERE, PairName

AT_ONCE = 2
# GiB of a pair; the others are small.
ROOM = {("8b", "q4_k_m"): 6, ("8b", "q8_0"): 10, ("27b", "q4_k_m"): 19, ("27b", "q8_0"): 33}


class Inflater:
    """A context manager: entering starts the work, leaving stops what still runs."""

    def __init__(self, pairs: Sequence[PairName], folder: Path, environment: Mapping[str, str], logs: Path) -> None:
        self.folder, self._environment, self._logs = folder, dict(environment), logs
        self._waiting = list(dict.fromkeys(pairs))
        self._ended: dict[PairName, str] = {}  # with the reason if it failed
        self._running: dict[PairName, subprocess.Popen[bytes]] = {}
        self._seconds: dict[str, float] = {}
        self._changed = threading.Condition()
        self._closed = False

    def __enter__(self) -> Inflater:
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(AT_ONCE):
            threading.Thread(target=self._work, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            running = list(self._running.values())
            self._changed.notify_all()
        for process in running:
            process.kill()

    def has(self, pair: PairName) -> bool:
        """Is the pair done, or failed?"""
        with self._changed:
            return pair in self._ended

    def wait(self, pair: PairName, seconds: float) -> str:
        """Wait for the pair, at most `seconds`. Returns why it is missing, else ""."""
        with self._changed:
            if not self._changed.wait_for(lambda: pair in self._ended, seconds):
                return f"its pair was not inflated within {seconds:.0f} s"
            return self._ended[pair]

    @property
    def seconds(self) -> dict[str, float]:
        """How long each pair took that is done."""
        with self._changed:
            return dict(self._seconds)

    def drop(self, pair: PairName) -> None:
        """Delete a pair that no part needs any longer."""
        for folder in self.folder.glob(f"{pair.shape}-{pair.ftype}-{pair.drafter}-*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _work(self) -> None:
        while pair := self._take():
            log = self._logs / f"inflate-{pair.drafter}-{pair.name}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            start = time.monotonic()
            with log.open("wb") as file:
                # Measurements of other parts have priority.
                command = ["nice", "-n", "19", sys.executable, str(HERE.parent / "pairs.py"), *astuple(pair)]
                process = subprocess.Popen(
                    [*command, str(self.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                )
                with self._changed:
                    self._running[pair] = process
                status = process.wait()
            with self._changed:
                del self._running[pair]
                if status == 0:
                    self._seconds[f"{pair.drafter} {pair.name}"] = round(time.monotonic() - start, 1)
                self._ended[pair] = "" if status == 0 else f"its pair could not be inflated (log: {log.name})"
                self._changed.notify_all()

    def _take(self) -> PairName | None:
        """The next pair, once the disk has room for it besides the running ones."""
        while True:
            with self._changed:
                if self._closed or not self._waiting:
                    return None
                needed = sum(ROOM.get((pair.shape, pair.ftype), 1) for pair in (self._waiting[0], *self._running))
                if shutil.disk_usage(self.folder).free > needed << 30:
                    return self._waiting.pop(0)
            time.sleep(1.0)
