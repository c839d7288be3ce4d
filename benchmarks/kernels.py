"""Stock kernels and ours, each in its own process: the same library and the same file, with different switches in the
environment."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.systems import SETTLE, check_idle
from dflash_local.engine import Engine, TreeRows
from dflash_local.errors import DFlashError
from dflash_local.native import BUILD_HINT, MAX_NODES

Processes = dict[str, ProcessPoolExecutor]
STOCK, OURS = "stock", "ours"
NAMES = (STOCK, OURS)
PASS_ROWS = 512  # at most
# Each switches a part of ours off for stock; ggml's own repacking and AMX kernels stay on. Our process keeps the
# environment, so DFLASH_PANELS=avx2 measures the kernels of that instruction set.
SWITCHES = ("DFLASH_PANELS", "DFLASH_AMX", "DFLASH_ATTENTION", "DFLASH_FLOAT_GEMM", "DFLASH_ROPE", "DFLASH_FUSED")

_open: list[Engine] = []  # in a child: the loaded engine


@contextmanager
def processes() -> Iterator[Processes]:
    """One process per name, for `submit` of the functions below. They live until the end, and sleep without work."""
    with ExitStack() as stack:
        spawn = multiprocessing.get_context("spawn")
        yield {name: stack.enter_context(ProcessPoolExecutor(1, spawn, _switch, (name,))) for name in NAMES}


def _switch(name: str) -> None:
    if name == STOCK:
        os.environ |= dict.fromkeys(SWITCHES, "0")


def switched() -> str:
    """The switches in the environment, as a prefix of a command line."""
    return "".join(f"{switch}={os.environ[switch]} " for switch in SWITCHES if switch in os.environ)


def open_all(both: Processes, path: Path, threads: int, n_ctx: int, cells: int = 0) -> None:
    """Load a target in all processes, in place of the last one, with `cells` tokens in its cache. Raises LoadError if
    an idle process uses the CPU."""
    for process in both.values():
        process.submit(_load, path, threads, n_ctx, cells).result()
    time.sleep(0.2)
    clocks = {f"the process with {name} kernels": partial(_cpu_seconds, process) for name, process in both.items()}
    check_idle(clocks, 0.5)


def _cpu_seconds(process: ProcessPoolExecutor) -> float:
    return process.submit(time.process_time).result()


def close_all(both: Processes) -> None:
    for process in both.values():
        process.submit(_unload).result()


def _unload() -> None:
    while _open:
        _open.pop().close()


def _load(path: Path, threads: int, n_ctx: int, cells: int) -> None:
    _unload()
    _open.append(Engine(path, n_ctx=n_ctx, n_ubatch=PASS_ROWS, n_threads=threads, warmup=False, cost_cache=False))
    for first in range(0, cells, PASS_ROWS):
        _open[0].tree_pass([_chain(min(PASS_ROWS, cells - first), keep=True, want_logits=False)])


def _chain(rows: int, keep: bool, want_logits: bool) -> TreeRows:
    vocab = _open[0].n_vocab
    return TreeRows(
        0, [i * 7919 % vocab for i in range(rows)], range(-1, rows - 1), range(rows) if keep else (), want_logits
    )


def pass_times(rows: int, seconds: float) -> list[float]:
    """In a child: milliseconds of passes of `rows` rows over the cached cells, at least two, and as many as fit in
    `seconds`.

    Up to 64 rows are a verify pass, with logits for all; more are a chunk of a prompt, with logits for the last. The
    time is llama.cpp's, from taking the batch until the logits are in memory. A first pass, which builds the graph and
    reads the weights, does not count.
    """
    time.sleep(SETTLE)
    engine = _open[0]
    chain = _chain(rows, keep=False, want_logits=rows <= MAX_NODES)
    found: list[float] = []
    while len(found) < 3 or sum(found[1:]) < 1e3 * seconds:
        before = engine.stats()["t_verify_ms"]
        engine.tree_pass([chain])
        found.append(engine.stats()["t_verify_ms"] - before)
        if not found[-1]:
            raise DFlashError("this libdflash does not time such passes", hint=BUILD_HINT)
    return found[1:]


def surprise(tokens: list[int], window: int, width: int) -> np.ndarray:
    """In a child: -log p(token | earlier tokens of its window) of all tokens but the first of each window, float64.

    Windows of `window` tokens are read independently, `width` rows per pass.
    """
    engine = _open[0]
    surprises = []
    for first in range(0, len(tokens), window):
        part = tokens[first : first + window]
        engine.slot_clear(0)
        for at in range(0, len(part) - 1, width):
            rows = part[at : min(at + width, len(part) - 1)]
            (logits,) = engine.tree_pass([TreeRows(0, rows, range(-1, len(rows) - 1), range(len(rows)))])
            assert logits is not None
            wide = logits.astype(np.float64)
            top = wide.max(axis=1)
            log_sum = top + np.log(np.exp(wide - top[:, None]).sum(axis=1))
            surprises.append(log_sum - wide[np.arange(len(rows)), part[at + 1 : at + 1 + len(rows)]])
    return np.concatenate(surprises)


def tokenize(text: str) -> list[int]:
    """In a child: the target's tokens of `text`."""
    return _open[0].tokenize(text, add_special=False)
