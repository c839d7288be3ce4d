"""The parts, the most important first, with their purpose, command and time limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
FULL_MINUTES = 25.0


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
    limit: float  # seconds, if all parts have FULL_MINUTES
    command: tuple[str, ...]
    pair: PairName | None = None
    fixed: bool = False  # the limit is the user's, whatever the minutes

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
    seconds: Mapping[str, float]  # by shape, for a pair at one temperature
    equality: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()


SIZES = {
    "cuda": Sizes("CUDA0", ("8b", "27b"), "27b", 99, 8, 100, {"8b": 90.0, "27b": 165.0}),
    "cpu": Sizes(
        "CPU",
        ("0.1b",),
        "0.1b",
        0,
        2,
        24,
        {"0.1b": 240.0},
        ("--limit", "2", "-n", "24", "--pairs", "dflash", "hybrid", "dflash q4_k_m"),
        ("--ops", "RMS_NORM", "SWIGLU", "SSM_CONV", "SILU"),
        ("--shape", "0.1b", "--types", "q8_0"),
    ),
}
TYPES = ("q4_k_m", "q8_0")


def share(part: Part, waiting: Sequence[Part], seconds: float) -> float:
    """The limit of a part that is about to run when `waiting`, itself included, have `seconds` in all: its own, or its
    share of these, which grows with the time that earlier parts leave."""
    if part.fixed:
        return min(part.limit, seconds)
    left = seconds - sum(other.limit for other in waiting if other.fixed)
    return min(part.limit, max(0.0, left) * part.limit / sum(other.limit for other in waiting if not other.fixed))


def plan(device: str, out: Path, threads: int, limits: Mapping[str, float]) -> list[Part]:
    """All parts for a device, in the order in which they run if all is ready: first those without a pair, while pairs
    are inflated. `limits` replaces some parts' seconds."""
    sizes = SIZES[device]
    engine = ("--ngl", str(sizes.n_gpu_layers), "-t", str(threads))
    on_device = ("--device", sizes.backend, "-t", str(threads))

    def own(name: str, what: str, limit: float, *flags: str) -> Part:
        """A script of this folder."""
        command = (sys.executable, str(HERE / f"{name}.py"), *flags, "-o", str(out / name))
        return Part(name, what, limit, command)

    equality = "parity with the CPU and drafted text equal to plain text, on the pocket pairs"
    tuned = "from how many rows on the matrix kernels are faster (doctor --tune)"
    steps = "where the time of a step goes, what crosses the bus, graphs that were reused"
    compare_first, *compare = _comparisons(sizes, out, engine)
    parts = [
        own("equality", equality, 210.0, *engine, *sizes.equality),
        own("ops", "every op on the device against the CPU", 100.0, *on_device, *sizes.ops),
        own("tuned", tuned, 90.0, *on_device, *sizes.tuned),
        compare_first,
        Part("steps", steps, 90.0, _steps(sizes, out, engine), PairName(sizes.dense[0], TYPES[0], "dflash")),
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
            parts.append(Part(name, what, limit, command, PairName(shape, ftype, drafter)))
    return parts


def _steps(sizes: Sizes, out: Path, engine: tuple[str, ...]) -> tuple[str, ...]:
    script, shape = str(HERE.parent / "steps.py"), sizes.dense[0]
    return (
        sys.executable, script, "--shape", shape, "--type", TYPES[0], "--limit", "2", "-n", str(sizes.tokens),
        *engine, "-o", str(out / "steps"),
    )  # fmt: skip
