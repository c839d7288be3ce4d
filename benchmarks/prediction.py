"""What OpenAI's predicted outputs are worth: a file of 300 lines is written again with changes, with `prediction` and
without.

Usage: python benchmarks/prediction.py [--type q4_0] [--drafter dflash] [--temperature 0.6] [--kinds written]

In one process. The pocket model is too small for real edits. So the answer comes first, and the old file is made from
it by undoing changes: names replaced, lines removed, lines inserted. That file is the prediction. Three answers:

- written: 300 lines of the model's own at `--temperature`. The file is not in the prompt.
- forced: 300 lines of Python, made from the model's short answers and enforced by a grammar, since the model would
  write something else; the file is in the prompt, where prompt lookup finds most of it.
- short: the benchmark's prompts at temperature 0, where nearly all guesses of the drafter are right.

Tokens per second are those after the first, without the prompt's time.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from dflash_local.engine import Completion, Engine, SamplingParams
from dflash_local.errors import DFlashError

N_LINES = 300
CHANGES = 12  # of a line or two each
RENAMED = 10  # further places, with one name
MOST_TOKENS = 4500
OPENING = "Write a Python context manager that logs the size."
FUNCTIONS = (
    "Write a Python function that filters {a}s above {n}.",
    "Write a Python function that finds the largest {a}.",
    "Write a recursive Python function for the factorial of {a}.",
    "Write a Python function that returns the difference of {a} and {b}.",
    "Write a Python generator that yields each {a} up to {n}.",
    "Write a Python function that averages a list of {a}s.",
    "Write a Python loop that prints every {a} in a list.",
)
NAMES = ("limit", "factor", "weight", "height", "size", "result", "value", "score", "amount", "angle", "width", "step")

# The compared settings: the engine with or without lookup, the request with or without the prediction.
PLAIN, DRAFTED, LOOKED_UP, PREDICTED = "plain", "drafter", "drafter and lookup", "prediction"
KINDS = ("written", "forced", "short")
OF_ENGINE = {False: (PLAIN, DRAFTED), True: (LOOKED_UP, PREDICTED)}


class Task(NamedTuple):
    """A chat with a known answer, and its prediction."""

    prompt: str
    sampling: SamplingParams
    n_lines: int
    max_tokens: int
    prediction: list[int]


# ---- the answers ----


def undone(text: str, n_changes: int, rng: random.Random) -> str:
    """The old file: `text` with `n_changes` changes undone, and one name replaced."""
    lines = text.replace(rng.choice(NAMES), "old", RENAMED).split("\n")
    for change in range(n_changes):
        at = rng.randrange(len(lines))
        match change % 3:
            case 0:
                del lines[at : at + 2]
            case 1:
                lines[at:at] = ["# an old remark", "old = None"]
            case 2:
                lines[at] = "old = " + lines[at][::-1]
    return "\n".join(lines)


def sampling_of(temperature: float, seed: int, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=temperature, seed=seed, **record.SAMPLING, **more)


def written(engine: Engine, temperature: float, repeat: int) -> Task:
    """N_LINES lines by the model itself; the end of text is banned, so that it goes on with other subjects."""
    prompt = chat(engine, OPENING)
    sampling = sampling_of(temperature, record.seed_of(0, repeat), ignore_eos=True)
    text, n_tokens = "", 0
    for chunk in engine.stream(engine.tokenize(prompt), sampling, max_tokens=MOST_TOKENS):
        text += chunk.text
        n_tokens += len(chunk.tokens)
        if text.count("\n") >= N_LINES:
            break
    before = undone(text, CHANGES, random.Random(repeat))
    return Task(prompt, sampling, text.count("\n"), n_tokens, as_tokens(engine, before))


def forced(engine: Engine, repeat: int) -> Task:
    """N_LINES lines of Python; a grammar allows only this text."""
    rng, lines = random.Random(repeat), list[str]()
    while len(lines) < N_LINES:
        a, b = rng.sample(NAMES, 2)
        question = FUNCTIONS[len(lines) % len(FUNCTIONS)].format(a=a, b=b, n=rng.randrange(10, 99))
        answer = engine.generate(chat(engine, question), temperature=0, max_tokens=200).text
        lines += answer.partition("\n")[2].partition("\n```")[0].split("\n") if "```" in answer else []
        lines.append("")
    text = "\n".join(lines[:N_LINES])
    before = undone(text, CHANGES, rng)
    prompt = chat(engine, f"Write this file again, with the changes.\n```python\n{before}\n```")
    allowed = " ".join(f"<[{token}]>" for token in as_tokens(engine, text))
    sampling = sampling_of(0, 0, grammar=f"root ::= {allowed}")
    return Task(prompt, sampling, N_LINES, MOST_TOKENS, as_tokens(engine, before))


def short(engine: Engine, prompts: Sequence[dict[str, Any]], n: int) -> Iterator[Task]:
    for i, body in enumerate(prompts):
        prompt = engine.apply_chat(body).prompt
        sampling = sampling_of(0, 0)
        text = engine.generate(prompt, sampling, max_tokens=n).text
        before = undone(text, 1, random.Random(i))
        yield Task(prompt, sampling, text.count("\n") + 1, n, as_tokens(engine, before))


def chat(engine: Engine, question: str) -> str:
    return engine.apply_chat({"messages": [{"role": "user", "content": question}]}).prompt


def as_tokens(engine: Engine, text: str) -> list[int]:
    return engine.tokenize(text, add_special=False, parse_special=False)


# ---- measuring ----


def answer(engine: Engine, task: Task, setting: str) -> Completion:
    """One answer, without reuse of the prompt's cache."""
    options: dict[str, Any] = {"draft": "off"} if setting == PLAIN else {}
    if setting == PREDICTED:
        options["prediction"] = task.prediction
    return engine.generate(task.prompt, task.sampling, max_tokens=task.max_tokens, cache_prompt=False, **options)


def measure(
    engine: Engine, tasks: Mapping[str, Sequence[Task]], settings: Sequence[str], repeats: int
) -> dict[str, dict[str, list[list[Completion]]]]:
    """The answers of all tasks by kind and setting, measured in turns: [repeats][tasks]."""
    found: dict[str, dict[str, list[list[Completion]]]] = {kind: {name: [] for name in settings} for kind in tasks}
    for repeat in range(repeats):
        for kind, some in tasks.items():
            for setting in settings:
                found[kind][setting].append([answer(engine, task, setting) for task in some])
                record.say(f"{repeat + 1}/{repeats} {kind}, {setting}: {speed(found[kind][setting][-1]):.1f} tok/s")
    return found


def speed(done: Sequence[Completion]) -> float:
    """Tokens per second over all of them."""
    return 1e3 * sum(one.timings.n_steps for one in done) / sum(one.timings.predicted_ms for one in done)


def figures(runs: Mapping[str, list[list[Completion]]], tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """A line per setting. The text must be the same in all of them."""
    texts = {tuple(tuple(one.tokens) for one in done) for some in runs.values() for done in some}
    if len(texts) != 1:
        raise DFlashError("the answers differ", hint="is the pair bit-exact on this machine? see `dflash-local doctor`")
    rows = []
    for setting, some in runs.items():
        timings = [one.timings for one in some[-1]]
        rows.append({
            "setting": setting,
            "lines": sum(task.n_lines for task in tasks),
            "tokens": sum(one.n_steps + 1 for one in timings),
            "al": round(sum(one.n_steps for one in timings) / sum(one.n_passes for one in timings), 3),
            "tokens_per_second": round(statistics.median(speed(done) for done in some), 2),
            "predicted": sum(one.prediction_n for one in timings),
            "accepted": sum(one.prediction_n_accepted for one in timings),
            "repeats": [round(speed(done), 2) for done in some],
        })  # fmt: skip
    return rows


def markdown(found: Mapping[str, list[dict[str, Any]]], footer: str) -> str:
    """One table; the ratio is to the fastest setting without a prediction, the median over the repeats."""
    rows = []
    for kind, lines in found.items():
        best = max(lines[:-1], key=lambda line: line["tokens_per_second"])
        for line in lines:
            over = statistics.median(record.ratios(best["repeats"], line["repeats"]))
            share = f"{line['accepted']} of {line['predicted']}" if line["predicted"] else ""
            rows.append([
                kind, str(line["lines"]), str(line["tokens"]), line["setting"], f"{line['al']:.2f}",
                f"{line['tokens_per_second']:.1f}", f"{over:.2f}", share,
            ])  # fmt: skip
    head = ["answer", "lines", "tokens", "drafts", "AL", "tok/s", "over the best without", "predicted tokens used"]
    return f"{record.table(head, rows)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "prediction", n_predict=200, repeats=3)
    record.add_pair_options(ap)
    record.add_pair_choice(ap)
    ap.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="which answers")
    ap.add_argument("--temperature", type=float, default=0.6, metavar="T", help="of the text that is written")
    args = ap.parse_args(argv)
    env = record.environment(ap, args)
    prompts = record.read_prompts(args.prompts, args.limit)
    pair = pairs.make(args.work, args.shape, args.type, args.drafter)
    tasks: dict[str, list[Task]] = {}
    runs: dict[str, dict[str, list[list[Completion]]]] = {}
    for lookup, settings in OF_ENGINE.items():
        with Engine(
            pair.target, pair.drafter, n_ctx=12288, n_threads=args.threads, lookup=lookup, cost_cache=False
        ) as engine:
            if not tasks:
                makers: dict[str, Callable[[Engine], list[Task]]] = {
                    "written": lambda engine: [written(engine, args.temperature, 0)],
                    "forced": lambda engine: [forced(engine, 0)],
                    "short": lambda engine: list(short(engine, prompts, args.n_predict)),
                }
                tasks = {kind: makers[kind](engine) for kind in args.kinds}
            for kind, found in measure(engine, tasks, settings, args.repeats).items():
                runs.setdefault(kind, {}).update(found)
    measured = {kind: figures(some, tasks[kind]) for kind, some in runs.items()}
    return record.publish(args.out, {**env, **measured}, markdown(measured, record.footer(env)))


if __name__ == "__main__":
    record.run(main)
