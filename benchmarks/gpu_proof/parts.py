"""The parts, the most important first, with their purpose, command and time limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
FULL_MINUTES = 35.0
SHORT_MINUTES = 15.0  # with less, large pairs come last


@dataclass(frozen=True)
class PairName:
    """An inflated pair that a part measures."""

    shape: str
    ftype: str
    drafter: str

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.ftype}"


@dataclass(frozen=True)
class Part:
    """One process with a time limit. Its results are `out`/NAME.json and NAME.md."""

    name: str
    what: str
    limit: float  # seconds
    command: tuple[str, ...]
    pair: PairName | None = None
    timed: bool = False  # it measures times, so no pair is made beside it
    fixed: bool = False  # the limit is the user's, whose seconds are kept for it

    @property
    def title(self) -> tuple[str, str]:
        return self.name, self.what


@dataclass(frozen=True)
class Sizes:
    """The work for a device: shapes, layers on the GPU, and the amount of prompts."""

    backend: str  # ggml's name of the device
    dense: tuple[str, ...]
    hybrid: str
    n_gpu_layers: int
    prompts: int
    tokens: int
    seconds: Mapping[str, float]  # by shape, for a pair at one temperature: mostly the loads of seven servers
    equality_seconds: float = 120.0
    equality: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()


SIZES = {
    "cuda": Sizes("CUDA0", ("8b", "27b"), "27b", 99, 8, 100, {"8b": 125.0, "27b": 230.0}),
    "cpu": Sizes(
        "CPU",
        ("0.1b",),
        "0.1b",
        0,
        2,
        24,
        {"0.1b": 240.0},
        210.0,
        ("--limit", "2", "-n", "24", "--pairs", "dflash", "hybrid", "dflash q4_k_m"),
        ("--ops", "RMS_NORM", "SWIGLU", "SSM_CONV", "SILU"),
        ("--shape", "0.1b", "--types", "q8_0", "--more", ""),
    ),
}
TYPES = ("q4_k_m", "q8_0")


def share(part: Part, waiting: Sequence[Part], seconds: float) -> float:
    """The limit of a part that is about to run when `waiting`, itself included, have `seconds` in all: its own while
    there is time, since the first parts are the most important and most take less. What a user gave other parts is
    kept for them."""
    kept = 0.0 if part.fixed else sum(other.limit for other in waiting if other.fixed)
    return min(part.limit, max(0.0, seconds - kept))


def shares(waiting: Sequence[Part], seconds: float) -> list[float]:
    """The limits of all parts if each takes all of its own."""
    limits: list[float] = []
    for i, part in enumerate(waiting):
        limits.append(share(part, waiting[i:], seconds - sum(limits)))
    return limits


def plan(
    device: str, out: Path, threads: int, limits: Mapping[str, float], minutes: float = FULL_MINUTES
) -> list[Part]:
    """All parts for a device, in the order in which they run if all is ready: first those without a pair, while pairs
    are inflated. `limits` replaces some parts' seconds. In less than SHORT_MINUTES the smallest shape comes first: its
    pairs are soon made."""
    sizes = SIZES[device]
    engine = ("--ngl", str(sizes.n_gpu_layers), "-t", str(threads))
    on_device = ("--device", sizes.backend, "-t", str(threads))

    def own(name: str, what: str, limit: float, *flags: str, timed: bool = False) -> Part:
        """A script of this folder."""
        command = (sys.executable, str(HERE / f"{name}.py"), *flags, "-o", str(out / name))
        return Part(name, what, limit, command, timed=timed)

    equality = "parity with the CPU and drafted text equal to plain text, on the pocket pairs"
    tuned = "which kernel is fastest for how many rows, and its share of the memory rate (doctor --tune)"
    steps = "where the time of a step goes, what crosses the bus, graphs that were reused"
    compare_first, *compare = _comparisons(sizes, out, engine)
    if minutes < SHORT_MINUTES:
        compare.sort(key=lambda part: part.pair is not None and part.pair.shape != sizes.dense[0])
    pair = PairName(sizes.dense[0], TYPES[0], "dflash")
    parts = [
        own("equality", equality, sizes.equality_seconds, *engine, *sizes.equality),
        own("ops", "every op on the device against the CPU", 100.0, *on_device, *sizes.ops),
        own("tuned", tuned, 120.0, *on_device, *sizes.tuned, timed=True),
        compare_first,
        Part("steps", steps, 90.0, _steps(sizes, out, engine), pair, timed=True),
        *compare,
    ]
    return [replace(part, limit=limits[part.name], fixed=True) if part.name in limits else part for part in parts]


def _comparisons(sizes: Sizes, out: Path, engine: tuple[str, ...]) -> list[Part]:
    """Eight cells: three shapes in two types at temperature 0, and two of the pairs at temperature 1 as well."""
    parts = []
    for ftype in TYPES:
        models = [*((shape, "dflash") for shape in sizes.dense), (sizes.hybrid, "hybrid")]
        for shape, drafter in models:
            temperatures = ("0", "1") if ftype == TYPES[0] and drafter != "hybrid" else ("0",)
            # No dots, which would begin a suffix.
            name = f"compare-{'hybrid-' if drafter == 'hybrid' else ''}{shape}-{ftype}".replace(".", "_")
            at = " and ".join(temperatures)
            command = (
                sys.executable, str(HERE.parent / "compare_upstream.py"), "--shape", shape, "--types", ftype,
                "--drafters", drafter, "--temperatures", *temperatures, "--one-by-one", "--repeats", "1", "--limit",
                str(sizes.prompts), "-n", str(sizes.tokens), *engine, "-o", str(out / name),
            )  # fmt: skip
            what = f"{drafter} in the shape of {shape}, {ftype.upper()}, temperature {at}, against upstream's server"
            limit = sizes.seconds[shape] * (0.6 + 0.4 * len(temperatures))
            parts.append(Part(name, what, limit, command, PairName(shape, ftype, drafter), timed=True))
    return parts


def _steps(sizes: Sizes, out: Path, engine: tuple[str, ...]) -> tuple[str, ...]:
    script, shape = str(HERE.parent / "steps.py"), sizes.dense[0]
    return (
        sys.executable, script, "--shape", shape, "--type", TYPES[0], "--limit", "2", "-n", str(sizes.tokens),
        *engine, "-o", str(out / "steps"),
    )  # fmt: skip
