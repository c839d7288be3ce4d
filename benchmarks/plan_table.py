"""The memory of popular models on one and two cards of 24 GiB: python benchmarks/plan_table.py

Makes sparse files of the models' shapes and types without data, plans them (`dflash-local plan`), and writes
benchmarks/results/plan.json and plan.md. Nothing is loaded or measured.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.convert.gguf_metadata import Value, string, u32
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import quantizer
from dflash_local.demo.inflate import InflatedFile, inflated_files
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import SHAPES, DeltaNet, Experts, Pair, Shape
from dflash_local.engine_options import EngineOptions
from dflash_local.plan.fit import Fitted, fit
from dflash_local.plan.flags import flags
from dflash_local.plan.memory_plan import COLUMNS, HOST
from dflash_local.plan.plan_record import record as record_of
from dflash_local.plan.slot_costs import slot_costs

RESULT = record.RESULTS / "plan"
GIB = 2**30
CARDS = {"one": {"CUDA0": 24 * GIB}, "two": {"CUDA0": 24 * GIB, "CUDA1": 24 * GIB}}
TYPES = ("q4_k_m", "q8_0")
CACHES = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True)
class Model:
    """A model's sizes. `mixture`: experts in place of each feed-forward of a hybrid, and a shared one of their size."""

    shape: Shape
    n_ctx: int  # that it was trained with
    mixture: Experts | None = None


MODELS = {
    "8B": Model(SHAPES["8b"], 40960),
    "27B": Model(SHAPES["hybrid-27b"], 262144),
    "35B-A3B": Model(
        Shape(40, 2048, 6144, 16, 2, 248320, 5, 256, delta=DeltaNet(16, 32, 128)), 262144, Experts(256, 8, 512)
    ),
    "30B-A3B": Model(Shape(48, 2048, 6144, 32, 4, 151936, 5, 128, Experts(128, 8, 768)), 262144),
}


def hollow_pair(model: Model, folder: Path, ftype: str) -> Pair:
    """Files of a model's shape and types without data."""
    small = bundled_pair("hybrid" if model.shape.delta else "dflash")
    for file in inflated_files(small, folder, model.shape, ftype, drafter_type="q8_0"):
        metadata, tensors = with_context(file.model.metadata(file.type), model.n_ctx), list(file.tensors)
        if model.mixture and file.path.stem == "target":
            metadata, tensors = as_mixture(metadata, file, model.mixture)
        write_gguf(file.path, metadata, tensors, hollow=True)
    return Pair(folder / "target.gguf", folder / "drafter.gguf")


def with_context(metadata: Mapping[str, Value], n_ctx: int) -> dict[str, Value]:
    """The same keys, with a trained context of `n_ctx` tokens."""
    return {
        key: replace(value, data=n_ctx) if key.endswith(".context_length") else value for key, value in metadata.items()
    }


def as_mixture(
    metadata: Mapping[str, Value], file: InflatedFile, experts: Experts
) -> tuple[dict[str, Value], list[OutputTensor]]:
    """A qwen35 file as qwen35moe."""
    keys = {re.sub(r"^qwen35\.", "qwen35moe.", key): value for key, value in metadata.items()}
    keys |= {
        "general.architecture": string("qwen35moe"),
        "qwen35moe.expert_count": u32(experts.n),
        "qwen35moe.expert_used_count": u32(experts.n_used),
        "qwen35moe.expert_feed_forward_length": u32(experts.n_ff),
        "qwen35moe.expert_shared_feed_forward_length": u32(experts.n_ff),
    }
    tensors = [tensor for tensor in file.tensors if not re.search(r"\.ffn_(gate|up|down)\.weight$", tensor.name)]
    n_layer, n_embd = file.model.n_layer, file.model.shape.n_embd
    for i in range(n_layer):
        for name, shape in _expert_shapes(experts, n_embd):
            whole = OutputTensor(f"blk.{i}.{name}.weight", shape, GGMLQuantizationType.F32, lambda: ())
            tensors.append(quantizer.quantized(whole, file.type, n_layer=n_layer, n_expert=experts.n))
    return keys, tensors


def _expert_shapes(experts: Experts, n_embd: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    wide, narrow = (experts.n_ff, n_embd), (n_embd, experts.n_ff)
    yield "ffn_gate_inp", (experts.n, n_embd)
    yield "ffn_gate_inp_shexp", (n_embd,)
    for name, shape in (("gate", wide), ("up", wide), ("down", narrow)):
        yield f"ffn_{name}_exps", (experts.n, *shape)
        yield f"ffn_{name}_shexp", shape


def plan_all(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """The rows of all tables; for models not in `names`, those of the record."""
    before = record.load(RESULT)
    rows: list[dict[str, Any]] = []
    slots: dict[str, Any] = {}
    for name, model in MODELS.items():
        if name not in names and name in before.get("slots", {}):
            rows += [row for row in before["rows"] if row["model"] == name]
            slots[name] = before["slots"][name]
            continue
        for ftype in TYPES:
            pair = hollow_pair(model, folder, ftype)
            options = {
                cache: EngineOptions(pair.target, pair.drafter, cache_type_k=cache, cache_type_v=cache)
                for cache in CACHES
            }
            for n_cards, cards in CARDS.items():
                for cache, of_cache in options.items():
                    since = time.monotonic()
                    fitted = fit(replace(of_cache, n_slots=-1, host_memory=64 * GIB), cards)
                    rows.append({"model": name, "type": ftype, "cards": n_cards, "cache": cache} | _row(fitted))
                    record.say(f"{name} {ftype} {n_cards} {cache} {time.monotonic() - since:.1f} s")
            if ftype == TYPES[0]:
                slots[name] = {
                    cache: slot_costs(replace(of_cache, n_slots=1), CARDS["one"]) for cache, of_cache in options.items()
                }
    return {"rows": rows, "slots": slots}


def _row(fitted: Fitted) -> dict[str, Any]:
    plan = fitted.plan
    row = record_of(fitted)
    devices = [*(d.name for d in plan.devices), HOST]
    row["columns"] = {d: {name: plan.column(d, name) for name in COLUMNS} for d in devices}
    row["layers"] = plan.n_layers
    row["typed"] = re.sub(r" ?(-np 4|-kvu|-ct[kv] \w+)", "", flags(plan.options)).strip()
    return row


def markdown(result: Mapping[str, Any]) -> str:
    rows = {n: [row for row in result["rows"] if (row["cards"], row["cache"]) == (n, "f16")] for n in CARDS}
    head = ["model", "type", "flags that --fit chooses", "context", "KV in q8_0", "in q4_0", "each card", "host"]
    parts = []
    for cards, title in (("two", "Two cards of 24 GiB (a dual RTX 3090)"), ("one", "One card of 24 GiB")):
        parts += [f"**{title}**", record.table(head, [_line(row, result["rows"]) for row in rows[cards]])]
    lines = []
    for row in rows["two"]:
        for device, columns in row["columns"].items():
            sizes = [*columns.values(), sum(columns.values())]
            lines.append([row["model"], row["type"].upper(), device, *map(_gib, sizes)])
    parts += ["**Two cards, what lies there**, GiB, with KV in f16"]
    parts += [record.table(["model", "type", "where", *COLUMNS, "all"], lines)]
    names = list(dict.fromkeys(name for costs in result["slots"].values() for name in costs["f16"]))
    lines = []
    for model, costs in result["slots"].items():
        sizes = [costs["f16"].get(name, 0) for name in names]
        lines.append([model, *map(_mib, [*sizes, *(costs[cache]["KV of 1024 tokens"] for cache in CACHES[1:])])])
    head = ["model", *names, *(f"KV of 1024 tokens in {cache}" for cache in CACHES[1:])]
    origin = f"{record.place(result)}; {record.code(result)}. `python benchmarks/plan_table.py`\n"
    return "\n\n".join([*parts, "**One more slot**, MiB", record.table(head, lines), origin])


def _line(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    others = []
    for cache in CACHES[1:]:
        key = {"model": row["model"], "type": row["type"], "cards": row["cards"], "cache": cache}
        other = next(r for r in rows if key.items() <= r.items())
        places = [one["typed"].split("-c")[0] for one in (row, other)]
        others.append(f"{other['n_ctx']:,}" + ("" if places[0] == places[1] else "*"))
    needs = " + ".join(_gib(device["need"]) for device in row["devices"])
    typed = f"`{row['typed']}`" if row["typed"] else "none"
    host = _gib(sum(row["columns"][HOST].values()))
    return [row["model"], row["type"].upper(), typed, f"{row['n_ctx']:,}", *others, needs, host]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}" if size else "-"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}" if size else "-"


def main(argv: Sequence[str] | None = None) -> int:
    ap = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    ap.add_argument("--draw", action="store_true", help="only write the tables again, from the record")
    ap.add_argument("--only", choices=MODELS, nargs="+", default=list(MODELS), help="plan these again (default: all)")
    args = ap.parse_args(argv)
    if args.draw:
        planned = record.load(RESULT)
    else:
        with tempfile.TemporaryDirectory() as folder:
            planned = {**record.origin(), **plan_all(Path(folder), args.only)}
    return record.publish(RESULT, planned, markdown(planned))


if __name__ == "__main__":
    record.run(main)
