"""Where the time of a plainly decoded token goes: samples of perf, taken of our server while it answers.

Usage: python benchmarks/one_token.py [--models smollm2 ...]

Needs Linux' perf and the symbols of the last native build, which its installed libraries lack. A part that all compute
threads share counts with its mean over them, so that the parts are milliseconds of a token.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.http_load import LoadError, Server, run_load
from benchmarks.systems import common_flags, our_server
from dflash_local.cache_dir import cache_dir
from dflash_local.native import library_path

PERIOD_MS = 0.2  # of CPU time between two samples of a thread
N_CTX = 2048
# The first that matches "library symbol" names the part.
PARTS = {
    "products": r"packed|panel|multiply|dot_products|float_gemm|vec_dot|compute_forward_mul_mat",
    "attention": r"attention|flash_attn|soft_max",
    "norms, RoPE, activations, KV writes": "libggml-cpu.*"
    "(norm|rope|glu|silu|quantize|set_rows|get_rows|scale|_add|dup|fused|exp)",
    "waiting for the other thread": r"wait|barrier|pause|yield|futex|schedule|spin",
    "graphs and batches": r"libllama|libggml-base|libggml-cpu|libggml\.",
    "sampling and the step": r"libdflash",
    "Python and HTTP": r"python|_ctypes|\.cpython|_asyncio|_socket|uvloop|httptools|_queue",
}
REST = "kernel and libc"


def part_of(symbol: str) -> str:
    """The part of "library symbol"."""
    return next((part for part, words in PARTS.items() if re.search(words, symbol)), REST)


def milliseconds(samples: Iterable[tuple[str, str]], n_tokens: int, n_threads: int) -> dict[str, float]:
    """Milliseconds per token by part, from (thread, "library symbol") of each sample. The `n_threads` busiest threads
    compute."""
    by_thread: dict[str, Counter[str]] = defaultdict(Counter)
    for thread, symbol in samples:
        by_thread[thread][part_of(symbol)] += 1
    busiest = sorted(by_thread, key=lambda thread: -by_thread[thread].total())[:n_threads]
    found: dict[str, float] = defaultdict(float)
    shared = {part for part in (*PARTS, REST) if all(by_thread[thread][part] for thread in busiest)}
    for thread, parts in by_thread.items():
        for part, n in parts.items():
            found[part] += n / (n_threads if thread in busiest and part in shared else 1)
    return {part: found[part] * PERIOD_MS / n_tokens for part in (*PARTS, REST)}


def symbols(folder: Path) -> Path:
    """A folder in which perf finds, at the path of each installed library, the same library with its symbols."""
    built = {path.name: path for path in (cache_dir() / "work" / "cpu" / "build").rglob("lib*.so")}
    for library in library_path().parent.glob("lib*.so"):
        place = folder / library.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if library.name in built and not place.exists():
            place.symlink_to(built[library.name])
    return folder


def sample(pid: int, seconds: float, folder: Path) -> list[tuple[str, str]]:
    """(thread, "library symbol") of each sample of a process. Raises LoadError if perf cannot be run."""
    data = folder / "perf.data"
    clock = ["-e", "cpu-clock", "-c", str(round(PERIOD_MS * 1e6))]
    try:
        subprocess.run(["perf", "record", "-q", *clock, "-o", data, "-p", str(pid), "--", "sleep", str(seconds)],
                       check=True, capture_output=True)  # fmt: skip
        text = subprocess.run(
            ["perf", "script", "--symfs", symbols(folder / "symbols"), "-i", data, "-F", "tid,ip,sym,dso"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise LoadError(f"perf cannot be run here: {error}") from None
    return [found for line in text.splitlines() if (found := _parsed(line))]


def _parsed(line: str) -> tuple[str, str] | None:
    """A line such as ` 4711  7f5 dflash::step (/lib/libdflash.so)`."""
    words = re.fullmatch(r"\s*(\d+)\s+[0-9a-f]+ (.*) \((.*)\)\s*", line)
    return (words[1], f"{Path(words[3]).name} {words[2]}") if words else None


def measure(path: Path, bodies: Sequence[dict[str, Any]], threads: int, folder: Path) -> dict[str, Any]:
    """One model: a token's milliseconds by the server's clock, and by part."""
    argv = our_server(common_flags(path, N_CTX, threads), "--no-cost-cache", "--lookup", "off")
    with Server("ours", argv, folder / "server.log") as server:
        run_load(server.port, bodies[:1], 1)
        (alone,) = run_load(server.port, bodies[:1], 1).answers
        load = threading.Thread(target=run_load, args=(server.port, bodies, 1))
        load.start()
        samples = sample(server.pid, alone.generate, folder)
        load.join()
    n_tokens = alone.n_tokens - 1  # after the first, as in `generate`
    return {"token_ms": 1e3 * alone.generate / n_tokens, "parts_ms": milliseconds(samples, n_tokens, threads)}


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    head = ["ms of one token", *(r["model"] for r in rows)]
    lines = [[part, *(f"{r['parts_ms'][part]:.3f}" for r in rows)] for part in rows[0]["parts_ms"]]
    lines.append(["together", *(f"{sum(r['parts_ms'].values()):.2f}" for r in rows)])
    lines.append(["by the server's clock", *(f"{r['token_ms']:.2f}" for r in rows)])
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "one_token", n_predict=512, repeats=1, limit=2)
    real_models.add_models_option(ap)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    bodies = record.requests(record.read_prompts(args.prompts, args.limit), args.n_predict, 0.0, ignore_eos=True)
    with tempfile.TemporaryDirectory(prefix="one-token-") as folder:
        for name in args.models:
            found = measure(real_models.fetch(name), bodies, args.threads, Path(folder))
            table.add({"model": real_models.MODELS[name].title, **found})
    return table.show()


if __name__ == "__main__":
    record.run(main)
