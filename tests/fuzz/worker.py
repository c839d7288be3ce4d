"""The process that the fuzzer may lose: loads damaged models one after the other and reports on each, one JSON line.

    python -m tests.fuzz.worker TARGET DRAFTER target|drafter FOLDER ITEM...

Damages TARGET or DRAFTER; the other one stays sound. An ITEM is a range of seeds for mutations.py (`0:150`) or the name
of a case in regressions.py. A sound pair stays loaded all the time and must give its first answer again after every
damaged file, as a server's next request would; every 50 files a sound pair is loaded afresh. The line {"item": n}
announces a file, so that the reader knows which one ended the process.

pair.check would refuse most damaged pairs before libdflash sees them. It must do so in order, too; afterwards it looks
away, so that the native checks, which callers of the C API rely on alone, are fuzzed as well.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from dflash_local.diagnose import pair
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError

from .gguf_image import Image, read
from .mutations import mutate
from .regressions import CASES

PROMPT = "def add(a, b):\n"
FRESH_EVERY = 50
WARM_EVERY = 10
CPU_SECONDS = 60  # of one file: an endless loop
WALL_SECONDS = 900  # of one file: a deadlock; a busy or suspended machine must not look like one


def open_pair(target: Path, drafter: Path, *, warmup: bool = False) -> Engine:
    """An engine over what libdflash accepts; drafter `-` means none."""
    second = None if drafter == Path("-") else drafter
    with mock.patch.object(pair, "check"):
        return Engine(target, second, n_ctx=512, n_batch=64, n_ubatch=64, n_threads=1, n_threads_batch=1, warmup=warmup)


def answer(engine: Engine) -> list[int]:
    return engine.generate(PROMPT, max_tokens=16, temperature=0.0, cache_prompt=False).tokens


def use(target: Path, drafter: Path, *, warmup: bool) -> str:
    """What a user would do with the pair. Returns how far it got: an error is a fine result, as long as it is one of
    ours."""
    if drafter != Path("-"):
        with suppress(DFlashError):
            pair.check(target, drafter)
    try:
        engine = open_pair(target, drafter, warmup=warmup)
    except DFlashError as error:
        return f"refused: {error.message}"
    with engine:
        try:
            engine.generate(PROMPT, max_tokens=8, temperature=1.0, seed=1)
            engine.generate([0, 1, 2, 3] * 10, max_tokens=4, temperature=0.0)
        except DFlashError as error:
            return f"failed: {error.message}"
        try:
            engine.chat([{"role": "user", "content": "hi"}], max_tokens=4)
        except DFlashError as error:
            return f"no chat: {error.message}"
    return "answered"


def watch(cpu: float, wall: float) -> None:
    """End the process, with tracebacks, once it used that much time from now on; 0: do not."""
    signal.setitimer(signal.ITIMER_PROF, cpu)
    faulthandler.cancel_dump_traceback_later()
    if wall:
        faulthandler.dump_traceback_later(wall, exit=True)


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def damaged_files(sound: Image, items: list[str]) -> Iterator[tuple[str, str, bytes]]:
    """Name, description and content of each file."""
    for item in items:
        if item in CASES:
            edited = sound.copy()
            CASES[item].edit(edited)
            yield item, item, edited.encode()[0]
        else:
            first, end = map(int, item.split(":"))
            for seed in range(first, end):
                yield str(seed), *mutate(sound, seed)


def main(target: Path, drafter: Path, role: str, folder: Path, items: list[str]) -> None:
    sound = read(target if role == "target" else drafter)
    damaged = folder / "damaged.gguf"
    witness = open_pair(target, drafter)
    expected = answer(witness)
    for count, (item, what, raw) in enumerate(damaged_files(sound, items)):
        damaged.write_bytes(raw)
        say(item=item, what=what)
        watch(CPU_SECONDS, WALL_SECONDS)
        files = (damaged, drafter) if role == "target" else (target, damaged)
        result = use(*files, warmup=count % WARM_EVERY == 0)
        again = answer(witness)
        if count % FRESH_EVERY == 0:
            with open_pair(target, drafter) as fresh:
                again = again if answer(fresh) == expected else []
        watch(0, 0)
        say(item=item, result=result, witness=again == expected, rss=psutil.Process().memory_info().rss)
    witness.close()


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5:])
