"""What a pass of 8 rows and a drafter's pass cost beside a pass of one row, on real models.

Usage: python benchmarks/few_rows.py [--models smollm2 ...]

The drafters have the shape of published ones and know nothing: what a pass costs does not depend on its weights. Each
is loaded with a part of the target's output projection (--draft-vocab) and with all of it, in turns; the engine
measures its passes at load.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.convert.target import Target
from dflash_local.draft_options import DraftVocab
from dflash_local.engine import Engine
from dflash_local.native import quantize_rows
from dflash_local.train.drafter_file import DrafterFile, choose_mask_token, new_settings, spread_taps

LAYERS, BLOCK, OUTTYPE = 5, 16, "q4_0"
ROWS, LENGTH = 8, 8  # of the target's pass, and of the drafter's block
LIMIT = 2.0  # times a pass of one row
HEADS: tuple[DraftVocab, ...] = ("auto", "all")
N_CTX = 2048


def write_drafter(path: Path, target: Path) -> None:
    """A drafter that knows nothing."""
    about = Target.read(target)
    shape = {"layers": LAYERS, "block": BLOCK, "taps": spread_taps(about.n_layer)}
    mask_token = choose_mask_token(about, set())
    settings = new_settings(about, read_metadata(target), "dflash", mask_token=mask_token, **shape)  # type: ignore[arg-type]
    file = DrafterFile.new(settings, about, "untrained", 1)
    file.write(path, file.values, OUTTYPE, {}, quantize_rows)


def costs(target: Path, drafter: Path, draft_vocab: DraftVocab, threads: int) -> dict[str, float]:
    """Milliseconds of passes, and the tokens that the drafter may propose."""
    with Engine(
        target, drafter, n_ctx=N_CTX, n_threads=threads, cost_cache=False, draft_vocab=draft_vocab, lookup=False
    ) as engine:
        stats = engine.stats()
        return {
            "one": stats["cost_verify_ms"]["1"],
            "rows": stats["cost_verify_ms"][str(ROWS)],
            "draft": stats["cost_draft_ms"][str(LENGTH)],
            "tokens": engine.info["drafter"]["n_vocab_draft"],
        }


def row(title: str, found: Mapping[DraftVocab, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Medians of one model, and both passes over one row."""
    medians = {head: {name: statistics.median(one[name] for one in of) for name in of[0]} for head, of in found.items()}
    one = min(of["one"] for of in medians.values())  # the head changes nothing about it
    over = {head: (of["rows"] + of["draft"]) / one for head, of in medians.items()}
    return {"model": title, "one": one, "heads": medians, "over": over}


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    head = ("model", "1 row, ms", "8 rows, ms", "8 over 1", "drafts of", "drafter, ms", "both over 1", "at most 2")
    lines = []
    for r in rows:
        for name, of in r["heads"].items():
            first, over = name == HEADS[0], r["over"][name]
            lines.append(
                [
                    r["model"] if first else "", f"{r['one']:.2f}" if first else "", f"{of['rows']:.2f}",
                    f"{of['rows'] / r['one']:.2f}", f"{of['tokens']:,.0f} tokens", f"{of['draft']:.2f}", f"{over:.2f}",
                    record.verdict(over <= LIMIT) if first else "",
                ]
            )  # fmt: skip
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "few_rows", n_predict=1, repeats=5)
    real_models.add_models_option(ap)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    for name in args.models:
        target = real_models.fetch(name)
        found: dict[DraftVocab, list[dict[str, float]]] = defaultdict(list)
        with tempfile.TemporaryDirectory(prefix="few-rows-") as folder:
            drafter = Path(folder) / "drafter.gguf"
            write_drafter(drafter, target)
            for repeat in range(args.repeats):
                for head in HEADS if repeat % 2 == 0 else HEADS[::-1]:
                    found[head].append(costs(target, drafter, head, args.threads))
        table.add(row(real_models.MODELS[name].title, {head: found[head] for head in HEADS}))
        record.say(str(table.rows[-1]["over"]))
    return table.show()


if __name__ == "__main__":
    record.run(main)
