"""The number of rows from which a device's matrix kernel beats its vector kernel: measured, kept on disk, set at every
start.

A device may have two kernels for products with quantized weights, one for few rows and one for many
(ggml_ops/tune/kernel_timing.h). The backend guesses where they cross, or has measured it elsewhere; `dflash-local
doctor --tune` measures it here. The result is kept in one small file per machine, valid for one build, and every engine
sets it before it measures its pass times.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dflash_local import native
from dflash_local.build.upstream import cache_dir
from dflash_local.convert.complete_file import complete_or_absent
from dflash_local.demo.shapes import SHAPES
from dflash_local.errors import RequestError
from dflash_local.machine.hardware import this_machine, usable_cores
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

Table = dict[str, dict[str, int]]
"""Device -> type -> rows from which the matrix kernel is used."""

log = logging.getLogger(__name__)


# ---- measurement -----------------------------------------------------------------------------------------------------


def matrices(shape: str) -> list[tuple[int, int]]:
    """Columns and inner dimension (m, k) of the matrices to time: "MxK" itself, or the feed-forward of one of SHAPES,
    which is most of its weights.

    Raises:
        RequestError: it is neither.
    """
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
    """Time both kernels of `device` on the matrices of `shape`; `params` are further fields of native.TuneParams.

    Returns:
        device, type, shape, now (the current count), rows_max (means never), vector_ms and matrix_ms: milliseconds of
        a product with each of the matrices, for 1, 2, ... rows; None where the vector kernel cannot be used.
    """
    sizes = matrices(shape)
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
        name: [None if None in row else sum(row) for row in zip(*(run[name] for run in runs), strict=True)]
        for name in ("vector_ms", "matrix_ms")
    }
    return {
        "device": device,
        "type": first_run["type"],
        "shape": shape,
        "now": first_run["rows"],
        "rows_max": first_run["rows_max"],
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
        if vector is not None
    ]

    def loss(rows: int) -> float:
        return sum(max(0.0, (vector if n < rows else matrix) - 1 - MARGIN) for n, vector, matrix in ratios)

    counts = range(1, max((n for n, *_ in ratios), default=0) + 2)
    best = min(counts, key=loss)
    return now if loss(now) <= loss(best) else best


# ---- on disk ---------------------------------------------------------------------------------------------------------


def tuned_file() -> Path:
    """The file of this machine with these devices.

    Raises:
        NativeLibraryError: the patched llama.cpp is missing.
    """
    conditions = [
        this_machine().cpu,
        usable_cores(),
        [[device["name"], device["description"]] for device in _devices()],
    ]
    name = hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:24]
    return cache_dir() / "tuned" / f"{name}.json"


def read_table() -> tuple[Table, str]:
    """The kept table of this machine and build, and the reason if it is ignored, else "". An empty table without a
    reason: none is kept."""
    file = tuned_file()
    try:
        document = json.loads(file.read_text(encoding="utf-8") if file.stat().st_size <= _MOST_BYTES else "")
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"{file} cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        return {}, f"{file} is damaged"
    if not isinstance(document, dict) or document.get("format") != FORMAT or not _is_table(document.get("rows")):
        return {}, f"{file} is damaged"
    if document.get("build") != build_identity():
        return {}, f"{file} was measured with another build"
    return document["rows"], ""


def keep(table: Table) -> Path:
    """Add to the kept table, and return its file.

    Raises:
        OSError: the cache folder cannot be written.
    """
    file = tuned_file()
    before, _ = read_table()
    rows = {device: {**before.get(device, {}), **table.get(device, {})} for device in {**before, **table}}
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, "build": build_identity(), "rows": rows}, indent=1)
    with complete_or_absent(file) as written:
        written.write(text.encode())
    return file


def apply() -> Table:
    """Set the counts of the kept table, for the whole process, and reset all others to the devices' defaults. Returns
    the counts that were set."""
    table, ignored = read_table()
    if ignored:
        log.warning("%s: ignored (run: dflash-local doctor --tune)", ignored)
    counts: Table = {}
    for device in _devices():
        device_counts = table.get(device["name"], {})
        for weights in TYPES:
            rows = native.matrix_rows(device["name"], weights, device_counts.get(weights, 0))
            if rows and weights in device_counts:
                counts.setdefault(device["name"], {})[weights] = rows
    return counts


def choices(device: str, types: Sequence[str] = TYPES) -> list[str]:
    """The `types` for which the device has two kernels."""
    return [weights for weights in types if native.matrix_rows(device, weights)]


def in_force() -> Table:
    """The current counts, tuned or not, of all devices and types with two kernels."""
    counts = {
        device["name"]: {weights: rows for weights in TYPES if (rows := native.matrix_rows(device["name"], weights))}
        for device in _devices()
    }
    return {device: types for device, types in counts.items() if types}


def _devices() -> list[dict[str, Any]]:
    return list(native.library_info()["devices"])


def _is_table(rows: object) -> bool:
    return isinstance(rows, dict) and all(
        isinstance(types, dict)
        and all(weights in TYPES and type(count) is int and 1 <= count <= MOST_ROWS for weights, count in types.items())
        for types in rows.values()
    )
