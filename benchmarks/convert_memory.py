"""Peak memory of a conversion, on a synthetic checkpoint of several gigabytes.

Usage: python benchmarks/convert_memory.py [--gigabytes 3] [--outtypes f16 q8_0] [--folder DIR]

Writes a sharded DFlash checkpoint (bfloat16, the shapes of a drafter for an 8b model, with as many layers as the size
requires) and the GGUF header of a target with 151,936 tokens, converts in a separate process and reads that process's
peak resident memory. The limit is twice the largest tensor plus 300 MB. Exits with 1 if a peak is above it. Needs about
twice the size on disk, freed at the end.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFValueType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.convert import OUTTYPES
from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.gguf_metadata import array, string, u32
from dflash_local.convert.names import tensors
from dflash_local.convert.target import Target
from dflash_local.convert.writer import write_gguf
from dflash_local.demo.shapes import SHAPES, Shape
from dflash_local.train.tensors_file import write_tensors

RESULT = record.RESULTS / "convert_memory"
MB = 1_000_000
N_TAPS = 5
CHILD = """
import json, re, sys
from pathlib import Path
from dflash_local.convert import convert

def peak():  # bytes; unlike ru_maxrss, /proc does not count the parent's memory
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\\s*(\\d+) kB", status.read_text())[1]) * 1024
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

before = peak()
convert(sys.argv[1], sys.argv[2], sys.argv[3], outtype=sys.argv[4])
print(json.dumps([before, peak()]))
"""


@dataclass(frozen=True)
class Measurement:
    """One conversion. Sizes in bytes; `idle` is the process's peak before it."""

    outtype: str
    checkpoint: int
    largest_tensor: int
    limit: int
    idle: int
    peak: int
    seconds: float

    @property
    def row(self) -> list[str]:
        sizes = (self.checkpoint, self.largest_tensor, self.limit, self.idle, self.peak)
        return [self.outtype, *(f"{size / MB:,.0f}" for size in sizes), f"{self.seconds:.1f}"]


HEAD = ("outtype", "checkpoint MB", "largest tensor MB", "limit MB", "idle process MB", "peak MB", "seconds")


def write_checkpoint(folder: Path, target: Target, shape: Shape, n_bytes: int, shard_bytes: int) -> tuple[int, int]:
    """A checkpoint of at least `n_bytes` in shards; returns its size and that of its largest tensor."""
    config: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "block_size": 16,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": list(range(1, 7 * N_TAPS, 7))},
        "head_dim": shape.head,
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "max_position_embeddings": 40960,
        "num_attention_heads": shape.n_head,
        "num_hidden_layers": 1,
        "num_key_value_heads": shape.n_head_kv,
        "num_target_layers": shape.n_layer,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "vocab_size": shape.n_vocab,
    }
    specs = list(tensors(DrafterConfig.read(config, target), ()))
    while sum(2 * math.prod(spec.shape) for spec in specs) < n_bytes:
        config["num_hidden_layers"] += 1
        specs = list(tensors(DrafterConfig.read(config, target), ()))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    shards: list[dict[str, npt.NDArray[np.uint16]]] = [{}]
    row = (np.random.default_rng(0).normal(size=1 << 18).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for spec in specs:
        if sum(array.nbytes for array in shards[-1].values()) > shard_bytes:
            shards.append({})
        # All rows are the same, since only the size of weights matters: an array takes no memory.
        shards[-1][spec.source] = np.broadcast_to(row[: spec.shape[-1]], spec.shape)
    weight_map = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        weight_map.update(dict.fromkeys(shard, file))
        write_tensors(folder / file, shard, {})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    sizes = [array.nbytes for shard in shards for array in shard.values()]
    return sum(sizes), max(sizes)


def write_target(path: Path, shape: Shape) -> Path:
    """The header of a target's GGUF, with a tokenizer of real size."""
    tokens = [f"token{i}" for i in range(shape.n_vocab)]
    metadata = {
        "general.architecture": string("qwen3"),
        "qwen3.block_count": u32(shape.n_layer),
        "qwen3.embedding_length": u32(shape.n_embd),
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.tokens": array(GGUFValueType.STRING, tokens),
        "tokenizer.ggml.token_type": array(GGUFValueType.INT32, [1] * len(tokens)),
        "tokenizer.ggml.merges": array(GGUFValueType.STRING, [f"{token} {token}" for token in tokens]),
    }
    write_gguf(path, metadata, [])
    return path


def measure(
    folder: Path, outtypes: list[str], n_bytes: int, shape: Shape = SHAPES["8b"], shard_bytes: int = 1000 * MB
) -> Iterator[Measurement]:
    """Convert a checkpoint of `n_bytes` in the empty `folder` to each of `outtypes`, and empty `folder` again."""
    checkpoint, output = folder / "checkpoint", folder / "out.gguf"
    target = write_target(folder / "target.gguf", shape)
    try:
        size, largest = write_checkpoint(checkpoint, Target.read(target), shape, n_bytes, shard_bytes)
        for outtype in outtypes:
            start = time.monotonic()
            command = [sys.executable, "-c", CHILD, str(checkpoint), str(target), str(output), outtype]
            idle, peak = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            seconds = round(time.monotonic() - start, 1)
            yield Measurement(outtype, size, largest, 2 * largest + 300 * MB, idle, peak, seconds)
            output.unlink()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        for path in (output, target):
            path.unlink(missing_ok=True)


def main() -> int:
    ap = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    ap.add_argument("--gigabytes", type=float, default=3.0, help="size of the checkpoint (default: %(default)s)")
    types, default = "types to convert to (default: f16 q8_0)", ["f16", "q8_0"]
    ap.add_argument("--outtypes", nargs="+", choices=OUTTYPES, default=default, help=types)
    ap.add_argument("--folder", type=Path, help="where to put the files (default: the system's temporary folder)")
    args = ap.parse_args()
    origin, done = record.origin(), list[Measurement]()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for measurement in measure(Path(folder), args.outtypes, int(args.gigabytes * 1000 * MB)):
            done.append(measurement)
            record.say(str(measurement))
    text = f"{record.table(HEAD, [one.row for one in done])}\n\n{record.place(origin)}; {record.code(origin)}.\n"
    record.publish(RESULT, {**origin, "rows": [asdict(one) for one in done]}, text)
    return int(any(measurement.peak > measurement.limit for measurement in done))


if __name__ == "__main__":
    record.run(main)
