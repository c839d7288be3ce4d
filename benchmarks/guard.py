"""Never slower than without drafts: where they can't help, ours over our own plain decoding, and over upstream's; and
the time to the first token of long prompts.

Usage: python benchmarks/guard.py [--types q4_0 ...] [--drafters dflash ...] [--cases hostile entropy ttft]

docs/benchmarks.md has the cases and their limits. Exits with 1 if one is missed.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.http_load import LoadError
from benchmarks.systems import BUDGET_1, OURS, PLAIN, Setting, Systems, order
from dflash_local.build import peer

LEARN = 100  # tokens of an answer in which the controller may adapt
PROMPT_TOKENS, LETTERS_PER_TOKEN = 3000, 3.3  # of the pocket tokenizer, on the benchmark's prompts
N_CTX = 4096  # what the pocket target was trained with
SPEED_LIMIT, TTFT_LIMIT = 0.99, 1.05
CASES = ("hostile", "entropy", "ttft")

Turn = Callable[[Systems, str, int], float]  # (systems, system, number of the turn) -> seconds


def speed_turn(prompts: Sequence[dict[str, Any]], n: int, temperature: float, **sampling: Any) -> Turn:
    """Seconds for the tokens LEARN + 1 to `n` of an answer."""

    def seconds(systems: Systems, name: str, i: int, length: int) -> float:
        (body,) = record.requests([prompts[i % len(prompts)]], length, temperature, ignore_eos=True, **sampling)
        (answer,) = systems.turn(name, [{**body, "seed": record.seed_of(i)}]).answers
        if answer.n_tokens != length:
            raise LoadError(f"{name} gave {answer.n_tokens} tokens instead of {length}")
        return answer.generate

    return lambda systems, name, i: seconds(systems, name, i, n) - seconds(systems, name, i, LEARN)


def ttft_turn(prompts: Sequence[dict[str, Any]]) -> Turn:
    """Seconds until the client has the first token after a prompt of PROMPT_TOKENS tokens."""

    def turn(systems: Systems, name: str, i: int) -> float:
        (answer,) = systems.turn(name, record.requests([long_prompt(prompts, i)], 4, 0.0, stream=True)).answers
        if not 0.9 < answer.n_prompt / PROMPT_TOKENS < 1.1:
            raise LoadError(f"{name} read a prompt of {answer.n_prompt} tokens, not about {PROMPT_TOKENS}")
        return answer.ttft

    return turn


def long_prompt(prompts: Sequence[dict[str, Any]], i: int) -> dict[str, Any]:
    """A message of about PROMPT_TOKENS tokens, made by repeating all prompts; no two messages begin alike."""
    first = i % len(prompts)
    words = [message["content"] for prompt in (*prompts[first:], *prompts[:first]) for message in prompt["messages"]]
    n_letters = int(LETTERS_PER_TOKEN * PROMPT_TOKENS)
    text = f"{i}. " + " ".join(words * (n_letters // sum(map(len, words)) + 1))
    return {"messages": [{"role": "user", "content": text[:n_letters]}]}


def measure(systems: Systems, turn: Turn, n_turns: int) -> dict[str, list[float]]:
    """Seconds by system, one number per turn; each turn starts with another system."""
    seconds: dict[str, list[float]] = {name: [] for name in systems.names}
    for i in range(n_turns):
        for name in order(systems.names, i):
            seconds[name].append(turn(systems, name, i))
    return seconds


def row(case: str, drafter: str, ftype: str, seconds: dict[str, list[float]], n_tokens: int) -> dict[str, Any]:
    """One line of the table. `n_tokens`: tokens of each turn; 0: the time itself counts."""
    totals = {name: sum(values) for name, values in seconds.items()}
    over_plain = totals[PLAIN] / totals[OURS]
    ratio = totals[BUDGET_1] / totals[OURS] if n_tokens else 1 / over_plain
    means = {name: total / len(seconds[name]) for name, total in totals.items()}
    figure = {name: n_tokens / mean if n_tokens else 1e3 * mean for name, mean in means.items()}
    return {
        "case": case,
        "drafter": drafter,
        "ftype": ftype,
        "unit": "tok/s" if n_tokens else "ms",
        "figures": {name: round(value, 2) for name, value in figure.items()},
        "ratio": round(ratio, 4),
        "over_plain": round(over_plain, 4),
        "limit": SPEED_LIMIT if n_tokens else TTFT_LIMIT,
        "held": ratio >= SPEED_LIMIT if n_tokens else ratio <= TTFT_LIMIT,
        "seconds": {name: [round(x, 6) for x in values] for name, values in seconds.items()},
    }


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    head = ["case", "drafter", "type", PLAIN, BUDGET_1, OURS, "over plain", "over own plain; of first tokens plain's",
            "limit", ""]  # fmt: skip
    lines = []
    for r in rows:
        sign = "at least" if r["unit"] == "tok/s" else "at most"
        figures = r["figures"]
        values = [f"{figures[name]:.1f} {r['unit']}" if name in figures else "" for name in (PLAIN, BUDGET_1, OURS)]
        of = [r["case"], r["drafter"], r["ftype"].upper()]
        ratios = [f"{r['over_plain']:.2f}", f"{r['ratio']:.3f}"]
        lines.append([*of, *values, *ratios, f"{sign} {r['limit']:.2f}", record.verdict(r["held"])])
    return record.table(head, lines) + f"\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "guard", n_predict=400, repeats=1, limit=8)
    record.add_pair_options(ap)
    record.add_pair_choices(ap, ["dflash"], ["q4_0", "q4_k_m", "q8_0"])
    ap.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = ap.parse_args(argv)
    if args.n_predict <= LEARN:
        ap.error(f"-n must be above {LEARN}")
    table = record.Table(ap, args, markdown)
    prompts = record.read_prompts(args.prompts, args.limit)
    bins = peer.build()
    cases: dict[str, tuple[Turn, int]] = {
        "hostile": (speed_turn(prompts, args.n_predict, 1.0), args.n_predict - LEARN),
        "entropy": (speed_turn(prompts, args.n_predict, 2.0, top_k=0, top_p=1.0, min_p=0.0), args.n_predict - LEARN),
        "ttft": (ttft_turn(record.read_prompts(args.prompts)), 0),
    }
    for ftype, drafter, case in itertools.product(args.types, args.drafters, args.cases):
        turn, n_tokens = cases[case]
        name = (pairs.HOSTILE if case == "hostile" else "") + drafter
        setting = Setting(pairs.make(args.work, args.shape, ftype, name), bins, 1, args.threads, N_CTX)
        commands = {PLAIN: setting.plain(), OURS: setting.ours()}
        if n_tokens:
            commands[BUDGET_1] = setting.ours("--budget", "1")
        with Systems(commands) as systems:
            systems.warm_up(record.requests(prompts[:1], LEARN, 1.0))
            done = row(case, drafter, ftype, measure(systems, turn, len(prompts) * args.repeats), n_tokens)
        record.say(f"{case}, {drafter} {ftype}: {done['figures']} {done['unit']}, ratio {done['ratio']:.3f}")
        table.add(done)
    return table.show()


if __name__ == "__main__":
    record.run(main)
