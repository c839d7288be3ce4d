"""Does the device compute what the CPU computes, and does drafting leave the output alone there? On the pocket pairs.

Usage: python benchmarks/gpu_proof/equality.py [--ngl 99] [--limit 8]

docs/gpu.md says what is compared and what is allowed. A second process, which sees no device, scores the same answers
on the CPU and runs the drafter on the same contexts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package `benchmarks`

from benchmarks import pairs, record
from dflash_local.demo.pocket import HYBRID, bundled_pair
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError
from dflash_local.native import MAX_NODES

# The bundled pairs, and one of them in a small quantized shape, by the drafter and the type.
QUANTIZED = {f"dflash {ftype}": ("0.1b", ftype) for ftype in ("q4_k_m", "q8_0")}
PAIRS = ("dflash", HYBRID, "dflash2", "dspark", *QUANTIZED)
BLOCK = 16  # nodes of a tree, and tokens of the drafter's block
PLACES = 3  # contexts of the drafter in each answer
# Share of the CPU's largest number: rounding to f16 is far below it, a wrong parent, position or layer far above.
MOST_OFF = 0.02
MOST_OFF_QUANTIZED = 0.06  # the CPU's kernels round activations to 8 bits
# Hides all devices from a process.
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1", "GGML_VK_VISIBLE_DEVICES": ""}

Arrays = dict[str, Any]  # numpy's, by what they are


def engine(name: str, n_gpu_layers: int, threads: int) -> Engine:
    """Of a quantized pair with our kernels for few rows where the device has them, whatever was measured."""
    os.environ["DFLASH_FEW_ROWS"] = "1" if name in QUANTIZED else ""
    pair = pairs.make(None, *QUANTIZED[name], "dflash") if name in QUANTIZED else bundled_pair(name)
    layers: dict[str, Any] = {"n_gpu_layers": n_gpu_layers, "n_gpu_layers_draft": n_gpu_layers}
    return Engine(pair.target, pair.drafter, n_ctx=1024, n_threads=threads, cost_cache=False, **layers)


def gap(engine: Engine, prompt: list[int], plain: list[int], drafted: list[int]) -> float:
    """The distance of the target's logits for the two tokens at the first difference, after the common tokens; 0 if
    there is none."""
    same = next((i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), None)
    if same is None:
        return 0.0 if len(plain) == len(drafted) else float("inf")
    context = prompt + plain[:same]

    def logit(token: int, width: int) -> float:
        return float(engine.score([*context, token], len(context), width).logit[0])

    return max(abs(logit(plain[same], width) - logit(drafted[same], width)) for width in (1, BLOCK))


def lossless(engine: Engine, prompts: Sequence[dict[str, Any]], n: int) -> tuple[dict[str, Any], list[list[int]]]:
    """Plain against drafted: the findings, and the texts (prompt and plain answer)."""
    gaps, texts, differences, accepted = [], [], [], 0
    for body in prompts:
        prompt = engine.tokenize(engine.apply_chat(body).prompt)
        greedy: dict[str, Any] = {"temperature": 0, "max_tokens": n, "ignore_eos": True}
        plain = engine.generate(prompt, budget=1, **greedy).tokens
        drafted = engine.generate(prompt, budget=BLOCK, **greedy)
        accepted += drafted.timings.draft_n_accepted
        gaps.append(gap(engine, prompt, plain, drafted.tokens))
        narrow, *wide = (engine.score(prompt + plain, len(prompt), width).logit for width in (1, BLOCK, MAX_NODES))
        differences += [float(np.abs(narrow - logit).max()) for logit in wide]
        texts.append([len(prompt), *prompt, *plain])
    tolerance = max(differences)
    found = {
        "answers": len(gaps),
        "equal": gaps.count(0.0),
        "largest_gap": max(gaps),
        "tolerance": 2 * tolerance,
        "accepted": accepted,
        "lossless": max(gaps) <= 2 * tolerance and accepted > 0,
    }
    return found, texts


def numbers(engine: Engine, texts: Sequence[Sequence[int]]) -> Arrays:
    """The numbers to compare with the CPU: the target's logits of each answer's tokens in passes of 16 rows, and what
    the drafter says about several places: hidden states, candidates and their scores."""
    found: dict[str, list[Any]] = {"logits": [], "hidden": [], "ids": [], "scores": []}
    for start, *tokens in texts:
        found["logits"].append(engine.score(tokens, start, BLOCK).logit)
        for place in np.linspace(start + 1, len(tokens), PLACES, dtype=int):
            probe = engine.draft_probe(tokens[:place], BLOCK)
            found["hidden"].append(probe.hidden)
            found["ids"].append(probe.ids[1:])  # the anchor's row proposes nothing
            found["scores"].append(probe.scores[1:])
    return {
        name: np.concatenate(rows) if name in ("logits", "hidden") else np.stack(rows) for name, rows in found.items()
    }


def likeliest(ids: Any, scores: Any) -> list[int]:
    """The best token of each place of a block, in a lattice given the best one before. Candidates come in any order."""
    tokens, before = [], 0
    for row, score in zip(ids, scores, strict=True):
        before = int((score[before] if score.ndim == 2 else score).argmax())
        tokens.append(int(row[before]))
    return tokens


def common_scores(ids: Any, scores: Any, other_ids: Any, other_scores: Any) -> tuple[Any, Any]:
    """The scores of the candidates of a block that both sides have, in the same order, one after the other."""
    ours, theirs = [], []
    before: Any = [0]  # the rows of a lattice; before the first place is the anchor, whose rows are equal
    other_before: Any = [0]
    for i in range(len(ids)):
        _, here, there = np.intersect1d(ids[i], other_ids[i], return_indices=True)
        is_lattice = scores[i].ndim == 2
        ours.append(scores[i][np.ix_(before, here) if is_lattice else here].reshape(-1))
        theirs.append(other_scores[i][np.ix_(other_before, there) if is_lattice else there].reshape(-1))
        before, other_before = here, there
    a, b = np.concatenate(ours), np.concatenate(theirs)
    finite = np.isfinite(a) & np.isfinite(b)  # the logarithm of a probability may be -inf
    return a[finite], b[finite]


def compare(device: Arrays, cpu: Arrays, most_off: float = MOST_OFF) -> dict[str, Any]:
    """The largest differences as shares of the CPU's largest number, and the shares of equal candidates and of equal
    likeliest tokens, whatever order the candidates come in."""

    def off(ours: Any, theirs: Any) -> float:
        return float(np.abs(ours - theirs).max() / np.abs(theirs).max()) if len(theirs) else float("inf")

    blocks = list(zip(*(side[name] for side in (device, cpu) for name in ("ids", "scores")), strict=True))
    both = [common_scores(*block) for block in blocks]
    found = {f"{name}_off": off(device[name], cpu[name]) for name in ("logits", "hidden")}
    found["scores_off"] = off(*(np.concatenate(side) for side in zip(*both, strict=True)))
    same = [np.isin(row, other).mean() for a, _, b, _ in blocks for row, other in zip(a, b, strict=True)]
    first = [p == q for a, x, b, y in blocks for p, q in zip(likeliest(a, x), likeliest(b, y), strict=True)]
    return {
        **found,
        "same_candidates": float(np.mean(same)),
        "same_first": float(np.mean(first)),
        "parity": max(found.values()) <= most_off,
    }


def on_the_cpu(drafter: str, texts: Sequence[Sequence[int]], threads: int) -> Arrays:
    """`numbers` of a process that sees no device. Raises DFlashError."""
    with tempfile.TemporaryDirectory(prefix="equality-") as folder:
        asked, answered = Path(folder) / "asked.npz", Path(folder) / "answered.npz"
        np.savez(asked, *(np.array(text, dtype=np.int64) for text in texts))
        command = [sys.executable, __file__, "--reference", drafter, str(asked), str(answered), "-t", str(threads)]
        done = subprocess.run(command, env={**os.environ, **HIDDEN}, capture_output=True, text=True)
        if done.returncode != 0:
            raise DFlashError(f"the CPU's process failed: {done.stderr.strip()[-300:]}")
        with np.load(answered) as file:
            return dict(file)


def reference(drafter: str, asked: Path, answered: Path, threads: int) -> None:
    with np.load(asked) as file:
        texts = [file[name].tolist() for name in file.files]
    with engine(drafter, 0, threads) as cpu:
        np.savez(answered, **numbers(cpu, texts))


def examine(drafter: str, args: argparse.Namespace, prompts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The findings about one pair, or its error."""
    found: dict[str, Any] = {"pair": drafter}
    try:
        with engine(drafter, args.ngl, args.threads) as device:
            losses, texts = lossless(device, prompts, args.n_predict)
            found |= {**losses, "few_rows": any(device.info["few_rows"].values())}
            ours = numbers(device, texts)
        most_off = MOST_OFF_QUANTIZED if drafter in QUANTIZED else MOST_OFF
        return found | compare(ours, on_the_cpu(drafter, texts, args.threads), most_off)
    except DFlashError as error:
        return found | {"error": str(error)}


def sound(pair: Mapping[str, Any]) -> bool:
    return "error" not in pair and pair["lossless"] and pair["parity"]


def markdown(found: Sequence[Mapping[str, Any]], footer: str) -> str:
    head = ["pair", "answers", "equal", "largest gap", "allowed", "logits off the CPU's", "drafter's hidden states"]
    head += ["candidates' scores", "same candidates", "same first choice", "kernels for few rows", ""]
    rows, errors = [], []
    for pair in found:
        if "error" in pair:
            errors.append(f"\n{pair['pair']} failed: {pair['error']}")
            continue
        gaps = [f"{pair[name]:.3g}" for name in ("largest_gap", "tolerance")]
        shares = [f"{pair[name]:.2g}" for name in ("logits_off", "hidden_off", "scores_off")]
        equal = [f"{100 * pair[name]:.1f} %" for name in ("same_candidates", "same_first")]
        counts = [str(pair[name]) for name in ("answers", "equal")]
        verdict = "right" if sound(pair) else "**wrong**"
        few = ("ours" if pair["few_rows"] else "ggml's") if pair["pair"] in QUANTIZED else "-"
        rows.append([pair["pair"], *counts, *gaps, *shares, *equal, few, verdict])
    return "\n".join([record.table(head, rows), *errors, "", footer]) + "\n"


def parser() -> argparse.ArgumentParser:
    ap = record.parser(__doc__, "equality", n_predict=64, repeats=1)
    ap.set_defaults(limit=8)
    ap.add_argument(
        "--ngl", type=int, default=-1, metavar="N", help="layers of target and drafter on the GPU (-1: all)"
    )
    ap.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS), help="which pairs")
    ap.add_argument("--reference", nargs=3, metavar=("PAIR", "ASKED", "ANSWERED"), help=argparse.SUPPRESS)
    return ap


def main() -> int:
    ap = parser()
    args = ap.parse_args()
    if args.reference:
        drafter, asked, answered = args.reference
        reference(drafter, Path(asked), Path(answered), args.threads)
        return 0
    env = record.environment(ap, args)
    prompts = record.read_prompts(args.prompts, args.limit)
    found: list[dict[str, Any]] = []
    for drafter in args.pairs:
        found.append(examine(drafter, args, prompts))
        record.save(args.out, {**env, "pairs": found}, markdown(found, record.footer(env)))
    print(markdown(found, record.footer(env)))
    if wrong := [pair["pair"] for pair in found if not sound(pair)]:
        raise DFlashError(f"not as it should be: {', '.join(wrong)}")
    return 0


if __name__ == "__main__":
    record.run(main)
