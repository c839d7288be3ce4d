"""How long `dflash-local` alone takes to list many models of other programs.

Usage: python benchmarks/first_minutes.py [--models 200] [--repeats 10]

A home folder with so many models is made: half of Ollama's, a quarter each of LM Studio's and Jan's, with the headers
and the vocabulary of a Qwen3-8B, and 5 GB long (holes, so they take no room). Each run is a new process. Before *cold*
ones the system is told to forget the models' files, manifests included (not the folders, nor Python's own files).
`--help` of the same command shows what of that is Python's start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `tests`

from tests.hub.fake_programs import gguf, jan_model, ollama_model, qwen3

SIZE = 5 << 30
KEPT = 1 << 16  # bytes of each header; what follows is not read
LIMIT_MS = 300


def make_home(home: Path, n_models: int) -> None:
    """Write the models, each with another name in its header."""
    header = qwen3(general__name="Model 000")[:KEPT]
    for number in range(n_models):
        data = header.replace(b"Model 000", f"Model {number:03}".encode())
        if number % 2:
            path = ollama_model(home / ".ollama/models", f"model{number}:8b", data, size=SIZE)
        elif number % 4:
            path = gguf(home / f".lmstudio/models/user/model{number}/model{number}-Q4_K_M.gguf", data)
        else:
            path = gguf(jan_model(home / ".local/share/Jan/data", f"user/model{number}", size_bytes=SIZE), data)
        os.truncate(path, SIZE)


def forget(home: Path) -> None:
    """Tell the system to drop what it keeps in memory of the files."""
    for path in home.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds(home: Path, words: Sequence[str], n_listed: int | None = None) -> float:
    """Run the command in that home once; it must find all models."""
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "DFLASH_CACHE": str(home / "ours")}
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dflash_local.cli", *words],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    taken = time.perf_counter() - begun
    if n_listed is not None and f"models   {n_listed} found" not in done.stdout:
        sys.exit(f"not all of {n_listed} models were found:\n{done.stdout}{done.stderr}")
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_home(home, args.models)
        times: dict[str, list[float]] = {"cold": [], "warm": [], "--help": []}
        for _ in range(args.repeats):
            forget(home)
            times["cold"].append(seconds(home, [], args.models))
            times["warm"].append(seconds(home, [], args.models))
            times["--help"].append(seconds(home, ["--help"]))
    medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{name:<8}{value:6.0f} ms, median of {args.repeats} ({1000 * max(times[name]):.0f} at most)")
    return 0 if medians["cold"] < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
