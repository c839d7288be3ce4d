"""Long prompts on real models: the time to the first token, and decoding after it, by the tokens of the prompt.

Usage: python benchmarks/long_context.py [--models qwen2.5-coder smollm2] [--contexts 1000 4000 16000]

The prompts are source files of this checkout, as many as fit, and a task about the first of them. Each system reads the
files once and keeps what it has read, so the second task shows an answer's speed alone. Prompt lookup without a
drafter; models are those of real_models.py, and a context that is too long for one of them is left out.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.http_load import LoadError
from benchmarks.lookup import OURS_OFF
from benchmarks.record import say
from benchmarks.rivals import UPSTREAM_LOOKUP
from benchmarks.systems import (
    NO_DRAFTER,
    NO_DRAFTS,
    OURS,
    PLAIN,
    Systems,
    common_flags,
    order,
    our_server,
    upstream_server,
)
from dflash_local import native
from dflash_local.build import peer
from dflash_local.diagnose.memory import Sizes

N_GRAMS = "upstream, n-grams"
FIRST = "dflash_local/file_lock.py"  # what the tasks are about: the farthest text
TASKS = {
    "explain": f"Explain in a few sentences what {FIRST} is for and how it works.",
    "edit": f"Write the whole file {FIRST} once more, with the parameter `waiting` renamed to `on_wait`.",
}
ROOT = record.HERE.parent
REST = 600  # tokens of the context beside the files: the task, the template, the answer


def commands(target: Path, bins: Path, threads: int, n_ctx: int) -> dict[str, list[str]]:
    """argv of every system."""
    common = common_flags(target, n_ctx, threads)
    return {
        PLAIN: upstream_server(bins, common),
        N_GRAMS: upstream_server(bins, common, *UPSTREAM_LOOKUP["ngram-simple 8, 32"]),
        OURS_OFF: our_server(common, "--no-cost-cache", *NO_DRAFTS),
        OURS: our_server(common, *NO_DRAFTER, "--no-cost-cache"),
    }


def files(target: Path, n_tokens: int) -> str:
    """FIRST and the modules of the package after it, as many whole lines as `n_tokens` tokens have room for."""
    modules = sorted((ROOT / "dflash_local").rglob("*.py"))
    lines: list[str] = []
    with native.vocabulary_of(target) as vocab:
        for file in (ROOT / FIRST, *(module for module in modules if module != ROOT / FIRST)):
            for line in (f"# {file.relative_to(ROOT)}\n", *file.read_text(encoding="utf-8").splitlines(keepends=True)):
                n_tokens -= len(native.vocab_tokenize(vocab, line, add_special=False, parse_special=False))
                if n_tokens < 0:
                    return "".join(lines)
                lines.append(line)
    raise LoadError("the package has too few lines")


def measure(systems: Systems, text: str, n: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Of each system: the seconds of its first tokens, and by task the tokens per second after them."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in systems.names}
    for repeat in range(repeats):
        for name in order(systems.names, repeat):
            for i, (task, words) in enumerate(TASKS.items()):
                # Another beginning in each repeat: it is read again.
                content = f"Here are files, part {repeat + 1}.\n{text}\n{words}"
                message = {"messages": [{"role": "user", "content": content}]}
                (body,) = record.requests([message], n, 0.0, cache_prompt=True)
                (answer,) = systems.turn(name, [body]).answers
                if i == 0:
                    found[name]["first"].append(answer.ttft)
                found[name][task].append((answer.n_tokens - 1) / answer.generate)
    return found


def row(title: str, n_context: int, found: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """A line of the record: medians by what was measured and by system, and ours over the better of upstream's."""
    of = {what: {name: statistics.median(found[name][what]) for name in found} for what in ("first", *TASKS)}
    over = {task: of[task][OURS] / max(of[task][PLAIN], of[task][N_GRAMS]) for task in TASKS}
    first = of["first"][OURS] / min(of["first"][PLAIN], of["first"][N_GRAMS])
    return {"model": title, "context": n_context, "medians": of, "over_best": over, "first_over_best": first}


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    systems = (PLAIN, N_GRAMS, OURS_OFF, OURS)
    head = ["model", "prompt, tokens", "", *systems, "ours over upstream's best"]
    lines = []
    for r in rows:
        for what, of in r["medians"].items():
            is_first = what == "first"
            name = "first token, s" if is_first else f"{what}, tok/s"
            ratio = r["first_over_best"] if is_first else r["over_best"][what]
            shown = [f"{of[system]:.1f}" for system in systems]
            lines.append([r["model"] if is_first else "", f"{r['context']}" if is_first else "", name, *shown,
                          f"{ratio:.2f}"])  # fmt: skip
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "long_context", n_predict=200, repeats=3)
    real_models.add_models_option(ap)
    ap.add_argument("--contexts", nargs="+", type=int, default=[1000, 4000, 16000], metavar="N", help="tokens of files")
    args = ap.parse_args(argv)
    bins, table = peer.build(), record.Table(ap, args, markdown)
    for name in args.models:
        target, title = real_models.fetch(name), real_models.MODELS[name].title
        contexts = [n for n in args.contexts if n + REST <= Sizes(target)("context_length")]
        for n_context in contexts:
            with Systems(commands(target, bins, args.threads, n_context + REST), patience=3600.0) as systems:
                systems.warm_up(record.requests([{"messages": [{"role": "user", "content": "Hello"}]}], 8, 0.0))
                found = measure(systems, files(target, n_context), args.n_predict, args.repeats)
            r = row(title, n_context, found)
            say(f"{title}, {n_context}: {r['over_best']}, first token {r['first_over_best']:.2f}")
            table.add(r)
    return table.show()


if __name__ == "__main__":
    record.run(main)
