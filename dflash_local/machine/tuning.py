"""The numbers of rows from which a device's kernels beat one another: measured, kept on disk, set at every start.

A device may have a vector kernel for products of a row or a few with quantized weights, a matrix kernel for many, and
one of ours for up to 64 (ggml_ops/tune/kernel_timing.h). The backend guesses where the first two cross, or has measured
it elsewhere; ours serves only where it was measured to be faster. `dflash-local doctor --tune` measures here, and an
engine does so by itself for types with a kernel of ours. The result is kept in one small file per machine, valid for
one build, and every engine sets it before it measures its pass times.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from dflash_local import native
from dflash_local.cache_dir import cache_dir
from dflash_local.convert.complete_file import complete_or_absent
from dflash_local.errors import DFlashError, RequestError
from dflash_local.machine.hardware import core_limit, processor, usable_cores
from dflash_local.machine.identity import build_identity

FORMAT = 1
# A difference below this share is noise.
MARGIN = 0.03
# Quantized types that products can have, by ggml's names.
TYPES = (
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq1_s", "iq1_m", "iq2_xxs",
    "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4", "nvfp4",
)  # fmt: skip
# One more than the rows of the widest timed pass: means never.
MOST_ROWS = native.MAX_NODES + 1
_MOST_BYTES = 1 << 16
_SMALLEST_SIDE, _MOST_ELEMENTS = 256, 1 << 28  # of matrices that are timed at a start

# Squared error of our kernel's products over their square, against the matrix kernel's: beyond it something is wrong.
MOST_DIFFERENCE = 1e-3
# At a start: bytes of weights in MiB, more than most caches hold, and milliseconds for each number of rows.
_BRIEF: dict[str, Any] = {"coarse": True, "megabytes": 192, "ms": 8}

Table = dict[str, dict[str, int]]
"""Device -> type -> rows from which a kernel is used."""


class Counts(NamedTuple):
    """From how many rows on the matrix kernel and ours are used; ours serves up to 64 rows, before all others."""

    matrix: Table
    few: Table


log = logging.getLogger(__name__)


# ---- measurement -----------------------------------------------------------------------------------------------------


def matrices(shape: str) -> list[tuple[int, int]]:
    """Columns and inner dimension (m, k) of the matrices to time: "MxK" itself, or the feed-forward of one of SHAPES,
    which is most of its weights.

    Raises:
        RequestError: it is neither.
    """
    from dflash_local.demo.shapes import SHAPES  # which no start of a server needs

    if known := SHAPES.get(shape):
        if known.experts is None:
            return [(known.n_ff, known.n_embd), (known.n_embd, known.n_ff)]
    else:
        m, _, k = shape.lower().partition("x")
        if m.isdecimal() and k.isdecimal():
            return [(int(m), int(k))]
    names = ", ".join(name for name, known in SHAPES.items() if known.experts is None)
    raise RequestError(f"shape must be MxK, such as 12288x4096, or one of {names}; got {shape!r}", param="--shape")


def measure(
    device: str, weights: str, shape: str, *, progress: Callable[[float], None] = lambda done: None, **params: int
) -> dict[str, Any]:
    """Time the kernels of `device` on the matrices of `shape`; `params` are further fields of native.TuneParams.

    Returns:
        device, type, shape, now (the current count), rows_max (means never), few_now (0: no kernel of ours),
        difference (of our kernel's products), vector_ms, matrix_ms and few_ms: milliseconds of a product with each of
        the matrices, for 1, 2, ... rows; None where a kernel cannot be used or was not timed.
    """
    sizes = matrices(shape)
    params["n_threads"] = params.get("n_threads") or core_limit() or 0
    interrupted = False
    runs: list[dict[str, Any]] = []

    def on_progress(done: float) -> bool:
        nonlocal interrupted
        try:
            progress((len(runs) + done) / len(sizes))
        except KeyboardInterrupt:  # would be lost in C
            interrupted = True
        return not interrupted

    try:
        for m, k in sizes:
            runs.append(native.tune({"device": device, "type": weights, "m": m, "k": k, **params}, on_progress))
    except RequestError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    first_run = runs[0]
    times = {
        name: [None if None in row else sum(row) for row in zip(*(run[field] for run in runs), strict=True)]
        for name, field in (("vector_ms", "vector_ms"), ("matrix_ms", "matrix_ms"), ("few_ms", "few_rows_ms"))
    }
    return {
        "device": device,
        "type": first_run["type"],
        "shape": shape,
        "now": first_run["rows"],
        "rows_max": first_run["rows_max"],
        "few_now": first_run["few_rows"],
        "difference": max(run["few_rows_difference"] for run in runs),
        **times,
    }


def crossover(runs: Iterable[Mapping[str, Any]], now: int) -> int:
    """The number of rows from which the matrix kernel should be used; `runs` are results of measure() for one type and
    several shapes.

    It is the count with the least loss: the relative extra time of the used kernel over the other one, summed over all
    row counts that both kernels can compute, ignoring differences up to MARGIN. Of equal counts `now` is kept, else the
    smallest is chosen.
    """
    ratios = [
        (n, vector / matrix, matrix / vector)
        for run in runs
        for n, (vector, matrix) in enumerate(zip(run["vector_ms"], run["matrix_ms"], strict=True), 1)
        if vector is not None and matrix is not None
    ]

    def loss(rows: int) -> float:
        return sum(max(0.0, (vector if n < rows else matrix) - 1 - MARGIN) for n, vector, matrix in ratios)

    counts = range(1, max((n for n, *_ in ratios), default=0) + 2)
    best = min(counts, key=loss)
    return now if loss(now) <= loss(best) else best


def few_rows_from(runs: Iterable[Mapping[str, Any]], matrix_from: int) -> int:
    """From how many rows on our kernel should be used, if the others cross at `matrix_from`: with the least loss, as in
    crossover(). MOST_ROWS: never, which is also the answer if its products are wrong."""
    rows: list[tuple[int, float, float]] = []  # rows, milliseconds of the kernel that serves without ours, and of ours
    for run in runs:
        if not run["difference"] <= MOST_DIFFERENCE:
            return MOST_ROWS
        for n, times in enumerate(zip(run["vector_ms"], run["matrix_ms"], run["few_ms"], strict=True), 1):
            vector, matrix, few = times
            other = vector if n < matrix_from and vector is not None else matrix
            if other is not None and few is not None:
                rows.append((n, other, few))

    def loss(count: int) -> float:
        return sum(max(0.0, (few / other if n >= count else other / few) - 1 - MARGIN) for n, other, few in rows)

    return min((MOST_ROWS, *range(1, MOST_ROWS)), key=loss)


class Tuned(NamedTuple):
    """A type of weights: its results of measure(), one for each shape, each with the counts of that shape alone
    (`measured`, `few_measured`), and the counts of all together; `few_rows` is None without a kernel of ours."""

    type: str
    runs: list[dict[str, Any]]
    rows: int
    few_rows: int | None


def tune(
    device: str,
    types: Sequence[str],
    shapes: Sequence[str],
    n_threads: int,
    progress: Callable[[str, float], None],
    on_run: Callable[[dict[str, Any]], None],
) -> Iterator[Tuned]:
    """Time the kernels of `device` for each of `types`. `progress` gets the part that is under way and how much of it
    is done, `on_run` each result."""
    for weights in types:
        runs = []
        for shape in shapes:
            part = partial(progress, f"{weights} {shape}")
            run = measure(device, weights, shape, n_threads=n_threads, progress=part)
            run["measured"] = crossover([run], run["now"])
            run["few_measured"] = few_rows_from([run], run["measured"])
            runs.append(run)
            on_run(run)
        rows = crossover(runs, runs[0]["now"])
        yield Tuned(runs[0]["type"], runs, rows, few_rows_from(runs, rows) if runs[0]["few_now"] else None)


# ---- on disk ---------------------------------------------------------------------------------------------------------


def tuned_file() -> Path:
    """The file of this machine with these devices.

    Raises:
        NativeLibraryError: the patched llama.cpp is missing.
    """
    conditions = [
        processor(),
        usable_cores(),
        [[device["name"], device["description"]] for device in _devices()],
    ]
    name = hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:24]
    return cache_dir() / "tuned" / f"{name}.json"


def read_counts() -> tuple[Counts, str]:
    """The kept counts of this machine and build, and the reason if they are ignored, else "". Empty tables without a
    reason: none are kept."""
    file, nothing = tuned_file(), Counts({}, {})
    try:
        document = json.loads(file.read_text(encoding="utf-8") if file.stat().st_size <= _MOST_BYTES else "")
    except FileNotFoundError:
        return nothing, ""
    except OSError as error:
        return nothing, f"{file} cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        return nothing, f"{file} is damaged"
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return nothing, f"{file} is damaged"
    kept = Counts(document.get("rows", 0), document.get("few_rows", {}))
    if not all(map(_is_table, kept)):
        return nothing, f"{file} is damaged"
    if document.get("build") != build_identity():
        return nothing, f"{file} was measured with another build"
    return kept, ""


def keep(matrix: Table, few: Table | None = None) -> Path:
    """Add to the kept counts, and return their file.

    Raises:
        OSError: the cache folder cannot be written.
    """
    file = tuned_file()
    before, _ = read_counts()
    document = {
        "format": FORMAT,
        "build": build_identity(),
        "rows": _merged(before.matrix, matrix),
        "few_rows": _merged(before.few, few or {}),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with complete_or_absent(file) as written:
        written.write(json.dumps(document, indent=1).encode())
    return file


def _merged(before: Table, table: Table) -> Table:
    return {device: {**before.get(device, {}), **table.get(device, {})} for device in {**before, **table}}


def apply() -> Counts:
    """Set the kept counts, for the whole process, and reset all others to the devices' defaults. Returns the counts
    that were set."""
    kept, ignored = read_counts()
    if ignored:
        log.warning("%s: ignored (run: dflash-local doctor --tune)", ignored)
    few = kept.few
    if (forced := forced_few_rows()) is not None:
        few = {device["name"]: dict.fromkeys(TYPES, forced) for device in _devices()}
    return Counts(_set(kept.matrix, native.matrix_rows), _set(few, native.few_rows))


def forced_few_rows() -> int | None:
    """DFLASH_FEW_ROWS: from how many rows on our kernels serve all types, whatever was measured; 65: never.

    Raises:
        RequestError: it is no such number.
    """
    text = os.environ.get("DFLASH_FEW_ROWS", "")
    if text and not (text.isdecimal() and 1 <= int(text) <= MOST_ROWS):
        raise RequestError(f"DFLASH_FEW_ROWS must be 1 to {MOST_ROWS}, got {text!r}", param="DFLASH_FEW_ROWS")
    return int(text) if text else None


def _set(table: Table, function: Callable[[str, str, int], int]) -> Table:
    counts: Table = {}
    for device in _devices():
        device_counts = table.get(device["name"], {})
        for weights in TYPES:
            rows = function(device["name"], weights, device_counts.get(weights, 0))
            if rows and weights in device_counts:
                counts.setdefault(device["name"], {})[weights] = rows
    return counts


# ---- at a start ------------------------------------------------------------------------------------------------------


def tune_missing(model: Path) -> None:
    """Measure briefly, and keep, what is still unknown for the types of `model` on devices with kernels of ours. A
    measurement that fails leaves the defaults."""
    if forced_few_rows() is not None:
        return
    devices = [device["name"] for device in _devices() if any(native.few_rows(device["name"], t) for t in TYPES)]
    kept = read_counts()[0].few
    shapes = _largest_matrices(model) if devices else {}
    for device in devices:
        matrix: Table = {device: {}}
        few: Table = {device: {}}
        for weights, shape in shapes.items():
            if weights in kept.get(device, {}) or not native.few_rows(device, weights):
                continue
            try:
                run = measure(device, weights, shape, **_BRIEF)
            except DFlashError as error:
                log.warning("%s: the kernels for %s could not be timed: %s", device, weights, error)
                continue
            if not run["difference"] <= MOST_DIFFERENCE:
                log.warning("%s: our kernel for %s computes something else there, and is not used", device, weights)
            matrix[device][weights] = rows = crossover([run], run["now"])
            few[device][weights] = few_rows_from([run], rows)
        if few[device]:
            _try_to_keep(matrix, few)


def _try_to_keep(matrix: Table, few: Table) -> None:
    try:
        keep(matrix, few)
    except OSError as error:
        log.warning("measured numbers of rows could not be kept: %s", error)


def _largest_matrices(model: Path) -> dict[str, str]:
    """By type, the shape (MxK) of which a model's file has the most bytes."""
    from dflash_local.convert.gguf_metadata import read_header  # numpy, which few starts need

    sizes: Counter[tuple[str, str]] = Counter()
    for tensor in read_header(model)[1].values():
        weights = next((name for name in TYPES if name.lower() == tensor.type.name.lower()), "")
        if (
            weights
            and len(tensor.shape) == 2
            and min(tensor.shape) >= _SMALLEST_SIDE
            and prod(tensor.shape) <= _MOST_ELEMENTS
        ):
            sizes[weights, "x".join(map(str, tensor.shape))] += tensor.n_bytes
    return {weights: shape for (weights, shape), _ in reversed(sizes.most_common())}


def choices(device: str, types: Sequence[str] = TYPES) -> list[str]:
    """The `types` for which the device has more than one kernel."""
    return [weights for weights in types if native.matrix_rows(device, weights) or native.few_rows(device, weights)]


def in_force() -> Table:
    """The current counts, tuned or not, of all devices and types with two kernels."""
    counts = {
        device["name"]: {weights: rows for weights in TYPES if (rows := native.matrix_rows(device["name"], weights))}
        for device in _devices()
    }
    return {device: types for device, types in counts.items() if types}


def _devices() -> list[dict[str, Any]]:
    return list(native.library_info()["devices"])


def _is_table(rows: object) -> TypeGuard[Table]:
    return isinstance(rows, dict) and all(
        isinstance(types, dict)
        and all(weights in TYPES and type(count) is int and 1 <= count <= MOST_ROWS for weights, count in types.items())
        for types in rows.values()
    )
