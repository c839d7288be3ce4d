"""How often quoted tokens are right: the priors of prompt lookup, measured on answers of real models.

Usage: python benchmarks/quotations.py [--models qwen2.5-coder smollm2] [--temperatures 0 0.8] [--repeats 2]

The models answer the prompts of lookup_prompts.jsonl without drafts. Then each token of the answers is looked up as in
ggml_ops/draft/quotation.cpp, in the text itself, the model's other answers, and a corpus, the modules of Python's
standard library.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.answers import answers
from benchmarks.record import say
from dflash_local.engine import Engine

SOURCES = ("text", "answers", "corpus")
LEAST = {"text": 2, "answers": 3, "corpus": 4}  # matched tokens
MAX_MATCH = 24
RANKS = ("alone", "again", "leading", "tied", "behind")
BINS = (2, 3, 4, 6, 10, 16, MAX_MATCH)  # most matched tokens
CORPUS_TOKENS = 400_000
MOST_PLACES = 3000  # of the corpus for one pair of tokens
N_CTX = 4096

Counts = dict[tuple[str, str, int], list[int]]  # source, rank, bin -> right, all


class Answer(NamedTuple):
    """Tokens of a prompt and its answer, and where the answer begins."""

    tokens: list[int]
    start: int


class Places:
    """Places of a text by the two tokens before them."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, int], list[int]] = defaultdict(list)
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        if len(self._tokens) >= 2:
            self._after[self._tokens[-2], self._tokens[-1]].append(len(self._tokens))
        self._tokens.append(token)

    def continuations(self, text: Sequence[int], end: int, least: int) -> dict[int, list[int]]:
        """What follows text[:end] there: for each token, matched tokens of its places."""
        found: dict[int, list[int]] = defaultdict(list)
        for place in self._after.get((text[end - 2], text[end - 1]), ())[-MOST_PLACES:]:
            matched = 2
            while matched < min(MAX_MATCH, end, place) and self._tokens[place - 1 - matched] == text[end - 1 - matched]:
                matched += 1
            if matched >= least and self._tokens[place] >= 0:
                found[self._tokens[place]].append(matched)
        return found


def ranked(found: dict[int, list[int]]) -> Iterator[tuple[int, str, int]]:
    """Token, rank and matched tokens of each continuation: `rank_of` of quotation.cpp."""
    for token, matched in found.items():
        most = max(matched)
        others = [m for other, places in found.items() if other != token for m in places]
        if not others:
            rank = "again" if len(matched) > 1 else "alone"
        elif max(others) > most:
            rank = "behind"
        else:
            rank = "leading" if matched.count(most) > others.count(most) else "tied"
        yield token, rank, most


def count(counts: Counts, source: str, answer: Answer, places: Places | None) -> None:
    """Look up every token of an answer. Without `places`, in its own text."""
    text = answer.tokens
    own = Places(text[: answer.start]) if places is None else places
    for end in range(answer.start, len(text)):
        for token, rank, matched in ranked(own.continuations(text, end, LEAST[source])):
            cell = counts[source, rank, next(most for most in BINS if matched <= most)]
            cell[0] += token == text[end]
            cell[1] += 1
        if places is None:
            own.add(text[end])


def others(answers_of: Sequence[Answer], but: int) -> Places:
    """All answers but one, as earlier answers keep them: with the end of their prompts."""
    texts = (a.tokens[max(0, a.start - MAX_MATCH) :] for i, a in enumerate(answers_of) if i != but)
    return Places([token for text in texts for token in (*text, -1)])


def corpus(engine: Engine) -> Places:
    tokens: list[int] = []
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        tokens += [*engine.tokenize(file.read_text(encoding="utf-8", errors="replace"), add_special=False), -1]
        if len(tokens) > CORPUS_TOKENS:
            break
    return Places(tokens)


def answers_of(
    engine: Engine, prompts: Sequence[dict[str, Any]], n: int, temperature: float, repeats: int
) -> list[Answer]:
    bodies = [{"messages": prompt["messages"]} for prompt in prompts]
    starts = itertools.cycle(list(engine.tokenize_prompt(engine.apply_chat(body).prompt)) for body in bodies)
    done = answers(engine, bodies, n, temperature, repeats, budget=1)
    return [Answer([*start, *answer.tokens], len(start)) for answer, start in zip(done, starts, strict=False)]


def markdown(data: dict[str, Any]) -> str:
    head = ("quoted from", "continuation", *(f"up to {n}" for n in BINS[:-1]), "more")
    cells = {(row["source"], row["rank"], row["matched"]): (row["right"], row["all"]) for row in data["rows"]}
    rows = [
        (source, rank, *(_share(*cells.get((source, rank, n), (0, 0))) for n in BINS))
        for source in SOURCES
        for rank in RANKS
    ]
    return (
        f"Share of next tokens that came true, by matched tokens, and how many there were. {data['tokens']} tokens of "
        f"answers.\n\n{record.table(head, rows)}\n\n{record.footer(data)}\n"
    )


def _share(right: int, n: int) -> str:
    return f"{right / n:.2f} ({n})" if n else "–"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "quotations", n_predict=320, repeats=2, prompts=real_models.PROMPTS)
    real_models.add_models_option(ap)
    record.add_temperatures_option(ap, 0.0, 0.8)
    args = ap.parse_args(argv)
    prompts = record.read_prompts(args.prompts, args.limit)
    counts: Counts = defaultdict(lambda: [0, 0])
    n_tokens = 0
    for name in args.models:
        with Engine(real_models.fetch(name), n_ctx=N_CTX, n_threads=args.threads, warmup=False) as engine:
            mine = [
                answer
                for temperature in args.temperatures
                for answer in answers_of(engine, prompts, args.n_predict, temperature, args.repeats)
            ]
            files = corpus(engine)
        for i, answer in enumerate(mine):
            count(counts, "text", answer, None)
            count(counts, "answers", answer, others(mine, i))
            count(counts, "corpus", answer, files)
            n_tokens += len(answer.tokens) - answer.start
        say(f"{name}: {len(mine)} answers")
    rows = [
        {"source": source, "rank": rank, "matched": n, "right": right, "all": tried}
        for (source, rank, n), (right, tried) in sorted(counts.items())
    ]
    data = {**record.environment(ap, args), "tokens": n_tokens, "rows": rows}
    return record.publish(args.out, data, markdown(data))


if __name__ == "__main__":
    record.run(main)
