"""The same prompts plain and drafted, in one process: the gain from drafting, and what the controller chose.

Plain is this engine's own budget-1 path: the question answered here is "what does the drafter bring me?". Other ways of
drafting are baselines: upstream's own server answers the same prompts, in turns with us (baseline.py).
"""

from __future__ import annotations

import csv
import io
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dflash_local import __version__
from dflash_local.baseline import Baseline, Reply, UpstreamServer
from dflash_local.build.commit import running_commit
from dflash_local.draft_options import Budget
from dflash_local.errors import RequestError
from dflash_local.keywords import SubmitChatKeywords
from dflash_local.machine.hardware import default_threads, this_machine
from dflash_local.stats import PHASES, EngineStats, tokens_per_second

if TYPE_CHECKING:
    from dflash_local.engine import Engine, Step
    from dflash_local.sampling import SamplingParams

PLAIN, DRAFTED = "plain", "drafted"
_BEGINNING = 60  # characters of a prompt that a report quotes

# For runs without a prompt file. Mixed, because acceptance differs much between code, lists and prose.
DEFAULT_PROMPTS = (
    "Write a Python function that returns the largest number of a list.",
    "Explain in three sentences why the sky is blue.",
    "Count from 10 to 40 in steps of 3.",
    'Give a JSON object with the fields "name", "age" and "city" for three invented people.',
    "Translate into French: The library opens at nine and closes at six.",
)


@dataclass(frozen=True)
class Run:
    """One answer. Times in seconds; `n_steps` tokens came after the first, `lengths` of them with each target pass.

    `lengths` is empty for upstream's server, which reports only the number of passes.
    """

    text: str
    n_steps: int
    generate: float  # from the first token to the last
    ttft: float  # from the request to the first token
    n_drafted: int
    lengths: tuple[int, ...]
    steps: tuple[Step, ...] = ()  # if they were traced
    passes: int = 0  # of the target, after the prompt's; 0: as many as `lengths`

    @property
    def n_passes(self) -> int:
        return self.passes or len(self.lengths)

    def to_dict(self) -> dict[str, Any]:
        """The fields of a record; `tokens` counts those after the first, `seconds` is the time since it."""
        return {
            "tokens": self.n_steps,
            "seconds": self.generate,
            "passes": self.n_passes,
            "drafted": self.n_drafted,
            "ttft_ms": 1e3 * self.ttft,
        }

    @classmethod
    def of(cls, reply: Reply) -> Run:
        """From a reply of upstream's server. Each of its passes gives one token besides the accepted ones."""
        n_steps = max(reply.n_tokens - 1, 0)
        passes = max(n_steps - reply.n_accepted, 1)
        return cls(reply.text, n_steps, reply.generate, reply.prompt, reply.n_drafted, (), passes=passes)


@dataclass(frozen=True)
class Summary:
    """One way of decoding over all prompts and repeats.

    `tokens_per_second` counts tokens after each answer's first, over the time since it: the median of the repeats. `al`
    is the acceptance length. `acceptance[d]` is the share of target passes in which at least d + 1 draft tokens were
    accepted.
    """

    tokens_per_second: float
    ttft_ms: float
    al: float
    acceptance: tuple[float, ...]
    tokens: int
    drafted: int

    @classmethod
    def of(cls, repeats: Sequence[Sequence[Run]]) -> Summary:
        """From the runs of each repeat."""
        runs = [run for repeat in repeats for run in repeat]
        lengths = [length for run in runs for length in run.lengths]
        deepest = max(lengths, default=0)
        passes = sum(run.n_passes for run in runs)
        return cls(
            tokens_per_second=statistics.median(speed(repeat) for repeat in repeats),
            ttft_ms=1e3 * statistics.median(run.ttft for run in runs),
            al=sum(run.n_steps for run in runs) / passes if passes else 0.0,
            # Each pass also gives one token of the target's own.
            acceptance=tuple(sum(length > d for length in lengths) / len(lengths) for d in range(1, deepest)),
            tokens=sum(run.n_steps + 1 for run in runs),
            drafted=sum(run.n_drafted for run in runs),
        )


def speed(runs: Sequence[Run]) -> float:
    """Tokens per second over all runs."""
    return tokens_per_second(sum(run.n_steps for run in runs), sum(run.generate for run in runs))


@dataclass(frozen=True)
class Results:
    """All results of a benchmark. `same` counts the prompts whose answers were the same both ways.

    `stats` is what the engine did and chose in the measured answers of each way of decoding. `runs` are all answers of
    each: prompts within repeats. `costs` are the milliseconds of a pass by its rows ("verify_ms") and of a drafter pass
    by the length of its block ("draft_ms"), as they were known at the end.
    """

    environment: dict[str, Any]
    summaries: dict[str, Summary]
    n_prompts: int
    same: int
    stats: dict[str, EngineStats] = field(default_factory=dict)
    baselines: Sequence[Baseline] = ()
    runs: dict[str, list[list[Run]]] = field(default_factory=dict)
    beginnings: Sequence[str] = ()  # of the prompts
    costs: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """Drafted over plain, without the prompts' passes; 0 if only one was measured."""
        return self.ratio(DRAFTED, PLAIN)

    def ratio(self, name: str, base: str) -> float:
        """One decoding's tokens per second over another's; 0 if only one was measured."""
        a, b = self.summaries.get(name), self.summaries.get(base)
        return a.tokens_per_second / b.tokens_per_second if a and b and b.tokens_per_second else 0.0

    def over_baselines(self) -> dict[str, tuple[str, float]]:
        """For each kind of baseline: its fastest draft length, and our speed (drafted, else plain) over it."""
        ours = DRAFTED if DRAFTED in self.summaries else PLAIN
        best: dict[str, str] = {}
        for baseline in self.baselines:
            if baseline.kind not in best or self.ratio(baseline.name, best[baseline.kind]) > 1:
                best[baseline.kind] = baseline.name
        return {kind: (name, self.ratio(ours, name)) for kind, name in best.items()}

    def to_json(self) -> str:
        summaries = {name: asdict(summary) for name, summary in self.summaries.items()}
        record = {
            "environment": self.environment,
            "prompts": self.n_prompts,
            "same_answers": self.same,
            "speedup": self.speedup,
            "over_baselines": {kind: {"best": name, "ratio": r} for kind, (name, r) in self.over_baselines().items()},
            **summaries,
            "engine": {
                name: asdict(stats) | {"phase_shares": stats.phase_shares()} for name, stats in self.stats.items()
            },
            "answers": {
                name: [[run.to_dict() for run in repeat] for repeat in repeats] for name, repeats in self.runs.items()
            },
            "beginnings": list(self.beginnings),
            "costs": self.costs,
        }
        return json.dumps(record, indent=1) + "\n"

    def to_csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        head = ("decoding", "tokens_per_second", "speedup", "acceptance_length", "ttft_ms", "tokens", "drafted")
        writer.writerow(head)
        for name, s in self.summaries.items():
            speeds = f"{s.tokens_per_second:.2f}", f"{self.ratio(name, PLAIN):.3f}"
            writer.writerow([name, *speeds, f"{s.al:.3f}", f"{s.ttft_ms:.2f}", s.tokens, s.drafted])
        return out.getvalue()

    def to_md(self) -> str:
        rows = ["| decoding | tok/s | speed-up | AL | TTFT, ms |", "|---|---|---|---|---|"]
        for name, s in self.summaries.items():
            speedup, al = f"{self.ratio(name, PLAIN):.2f}", f"{s.al:.2f}" if s.drafted or name == DRAFTED else "-"
            rows.append(f"| {name} | {s.tokens_per_second:.1f} | {speedup} | {al} | {s.ttft_ms:.0f} |")
        for name, ratio in self.over_baselines().values():
            rows += ["", f"{DRAFTED if DRAFTED in self.summaries else PLAIN} over {name}: **{ratio:.2f}**."]
        if drafted := self.summaries.get(DRAFTED):
            rows += ["", f"The same answer for {self.same} of {self.n_prompts} prompts."]
            positions = " ".join(f"{share:.2f}" for share in drafted.acceptance)
            rows += [f"Passes that accepted at least 1, 2, ... draft tokens: {positions or 'none'}."]
            rows += choices_md(self.stats.get(DRAFTED, EngineStats()))
        e = self.environment
        rows += [
            "",
            f"{e['target']}, drafter {e['drafter']}; temperature {e['temperature']:g}, {e['threads']} threads; "
            f"{e['machine']};",
        ]
        rows += [f"dflash-local {e['dflash_local']}, llama.cpp {e['llama']}, {e['backends']};"]
        rows += [f"commit {e['commit']}, build {e['build'] or 'not recorded'};"]
        rows += [f"medians of {e['repeats']} x {self.n_prompts} answers each way."]
        return "\n".join(rows) + "\n"


def choices_md(stats: EngineStats) -> Iterator[str]:
    """What the controller chose in drafted answers, and where the time went, as far as the library reports it."""
    if stats.nodes:
        yield from ("", *_table("nodes of a tree", stats.nodes, "passes"))
    if stats.lengths:
        yield from ("", *_table("block length", stats.lengths, "drafter passes"))
    if stats.reasons:
        yield from ("", "| reason | choices |", "|---|---|")
        total = sum(stats.reasons.values())
        for reason, n in sorted(stats.reasons.items(), key=lambda item: -item[1]):
            yield f"| {reason} | {n} ({n / total:.0%}) |"
    if stats.steps and (shares := stats.phase_shares()):
        yield from ("", f"| phase | {' | '.join(PHASES)} |", "|---" * (len(PHASES) + 1) + "|")
        yield f"| ms per step | {' | '.join(f'{stats.phase_ms[phase] / stats.steps:.3f}' for phase in PHASES)} |"
        yield f"| share | {' | '.join(f'{shares[phase]:.1%}' for phase in PHASES)} |"
    facts = [
        f"compute graphs reused: {passes.replace('_', ' ')} {share:.1%}" for passes, share in stats.reuse().items()
    ]
    if stats.lookup:
        facts.append(
            f"prompt lookup alone: {stats.lookup.get('accepted', 0)} of {stats.lookup.get('drafted', 0)} draft tokens "
            "accepted"
        )
    if stats.cost_source:
        facts.append(f"pass times at the start: {stats.cost_source}")
    if facts:
        yield from ("", "; ".join(facts) + ".")


def _table(head: str, counts: Mapping[int, int], what: str) -> tuple[str, str, str, str]:
    """One column per number, with its count and share."""
    total = sum(counts.values())
    return (
        f"| {head} | {' | '.join(map(str, counts))} |",
        "|---" * (len(counts) + 1) + "|",
        f"| {what} | {' | '.join(map(str, counts.values()))} |",
        f"| share | {' | '.join(f'{n / total:.0%}' for n in counts.values())} |",
    )


FORMATS: dict[str, Callable[[Results], str]] = {"md": Results.to_md, "json": Results.to_json, "csv": Results.to_csv}


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """One prompt a line: a JSON object with `messages` or `prompt`, or plain text, which becomes a user message.

    Raises:
        RequestError: the file cannot be read, is empty, or a line is neither.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # JSON may hold other separators of lines
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {error}", param="prompts") from None
    prompts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if not line.lstrip().startswith("{"):
            prompts.append({"messages": user_message(line)})
            continue
        try:
            prompt = json.loads(line)
        except ValueError as error:
            raise RequestError(
                f"{path}, line {number}: {error}", param="prompts", hint="give one JSON object a line, or plain text"
            ) from None
        if "messages" not in prompt and not isinstance(prompt.get("prompt"), str):
            raise RequestError(f"{path}, line {number}: neither 'messages' nor 'prompt' is there", param="prompts")
        prompts.append(prompt)
    if not prompts:
        raise RequestError(f"{path} holds no prompts", param="prompts")
    return prompts


def user_message(text: str) -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def beginning(prompt: Mapping[str, Any]) -> str:
    """The first words of a prompt, or of the conversation's last message."""
    text = prompt["messages"][-1].get("content") if prompt.get("messages") else prompt.get("prompt")
    if isinstance(text, list):
        text = " ".join(str(part.get("text", "")) for part in text)
    words = " ".join(str(text or "").split())
    return words if len(words) <= _BEGINNING else words[: _BEGINNING - 1].rstrip() + "…"


class Watcher:
    """Receives the progress of a measurement; never called while something is timed."""

    def turn(self, name: str, repeat: int) -> None:
        """A way of decoding starts a repeat, counted from 0."""

    def answered(self, name: str, run: Run) -> None:
        """An answer has been measured."""


def measure(
    engine: Engine,
    prompts: Sequence[dict[str, Any]],
    sampling: SamplingParams,
    n_predict: int,
    repeat: int = 3,
    budget: Budget = "auto",
    *,
    threads: int | None = None,
    trace: TextIO | None = None,
    baselines: Sequence[Baseline] = (),
    upstream: Callable[[Baseline], UpstreamServer] | None = None,
    watcher: Watcher | None = None,
) -> Results:
    """Answer all prompts plain and, with a drafter, drafted: `repeat` times, in turns, after one warm-up answer each.

    `trace` gets the steps of the drafted answers as JSON lines: `repeat` and `prompt` from 0, `step` from 0 within the
    answer, and the fields of Step. For each of `baselines`, `upstream` gives a server that runs during its turn.
    """
    watcher, begun = watcher or Watcher(), datetime.now(timezone.utc)
    budgets: dict[str, Budget] = {PLAIN: 1, **({DRAFTED: budget} if engine.info["drafter"] else {})}
    turn = _Turn.of(prompts, sampling, n_predict)
    others = {baseline.name: baseline for baseline in baselines}
    repeats: dict[str, list[list[Run]]] = {name: [] for name in (*budgets, *others)}
    for way in budgets.values():
        answer(engine, prompts[0], turn.sampling[0], n_predict, way)
    stats = _TurnStats(engine)
    for number in range(repeat):
        for name in list(repeats)[:: -1 if number % 2 else 1]:
            watcher.turn(name, number)
            if upstream is not None and name in others:
                repeats[name].append(_watched(turn.upstreams(upstream(others[name])), name, watcher))
            else:
                runs = turn.ours(engine, budgets[name], trace if name == DRAFTED else None, number)
                repeats[name].append(_watched(runs, name, watcher))
                stats.add(name)
    return Results(
        environment=_environment(engine, sampling, repeat, threads, n_predict, begun),
        summaries={name: Summary.of(answers) for name, answers in repeats.items()},
        n_prompts=len(prompts),
        same=_same_answers([repeats[name][0] for name in budgets]),
        stats=stats.totals,
        baselines=baselines,
        runs=repeats,
        beginnings=[beginning(prompt) for prompt in prompts],
        costs=_costs(engine.stats()),
    )


@dataclass(frozen=True)
class _Turn:
    """All prompts, in order; each has a seed of its own, the same in every turn."""

    prompts: Sequence[dict[str, Any]]
    sampling: Sequence[SamplingParams]
    n_predict: int

    @classmethod
    def of(cls, prompts: Sequence[dict[str, Any]], sampling: SamplingParams, n_predict: int) -> _Turn:
        from dflash_local.sampling import seed_of

        seed = 1 if sampling.seed is None else sampling.seed
        return cls(prompts, [replace(sampling, seed=seed_of(seed, i)) for i in range(len(prompts))], n_predict)

    def ours(self, engine: Engine, budget: Budget, trace: TextIO | None, repeat: int) -> Iterator[Run]:
        """The answers of our engine."""
        for index, (prompt, params) in enumerate(zip(self.prompts, self.sampling, strict=True)):
            run = answer(engine, prompt, params, self.n_predict, budget, trace=trace is not None)
            for i, step in enumerate(run.steps):
                print(json.dumps({"repeat": repeat, "prompt": index, "step": i, **step._asdict()}), file=trace)
            yield run

    def upstreams(self, server: UpstreamServer) -> Iterator[Run]:
        """The answers of upstream's server, after one as a warm-up."""
        asked = [(prompt, _spelled_out(p)) for prompt, p in zip(self.prompts, self.sampling, strict=True)]
        with server:
            server.answer(*asked[0], self.n_predict)
            for request in asked:
                yield Run.of(server.answer(*request, self.n_predict))


def _spelled_out(sampling: SamplingParams) -> dict[str, Any]:
    """All numbers of a request, also our defaults: upstream's server takes others from the model's file."""
    numbers = {name: value for name, value in sampling.settings().items() if type(value) in (int, float)}
    del numbers["seed"]
    return numbers | dict(json.loads(sampling.to_json()))


class _TurnStats:
    """What the engine did and chose in the turns of each way of decoding, by readings of its totals."""

    def __init__(self, engine: Engine) -> None:
        self.totals: dict[str, EngineStats] = {}
        self._engine, self._before = engine, EngineStats.of(engine.stats())

    def add(self, name: str) -> None:
        """Add what has happened since the last call."""
        after = EngineStats.of(self._engine.stats())
        difference = after - self._before
        self.totals[name] = self.totals[name] + difference if name in self.totals else difference
        self._before = after


def _watched(runs: Iterable[Run], name: str, watcher: Watcher) -> list[Run]:
    """The runs of a turn; the watcher receives each at once."""
    done = []
    for run in runs:
        watcher.answered(name, run)
        done.append(run)
    return done


def _same_answers(ways: Sequence[Sequence[Run]]) -> int:
    """The number of prompts that all ways answered alike."""
    return sum(len({run.text for run in runs}) == 1 for runs in zip(*ways, strict=True))


def answer(
    engine: Engine,
    prompt: dict[str, Any],
    sampling: SamplingParams,
    n_predict: int,
    budget: Budget,
    *,
    trace: bool = False,
    lookup: bool | None = None,
) -> Run:
    """One request, alone on the engine, without reuse of the last one. `prompt` has `messages`, `prompt` (text) or
    `tokens`."""
    options: SubmitChatKeywords = {
        "max_tokens": n_predict, "budget": budget, "cache_prompt": False, "trace": trace, "lookup": lookup,
    }  # fmt: skip
    start = time.perf_counter()
    if "messages" in prompt:
        generation = engine.submit_chat(engine.apply_chat(prompt), sampling, **options)
    else:
        tokens = prompt["tokens"] if "tokens" in prompt else engine.tokenize(prompt["prompt"])
        generation = engine.submit(tokens, sampling, **options)
    next(iter(generation), None)
    ttft = time.perf_counter() - start
    completion = generation.result()
    return Run(
        text=completion.text,
        n_steps=completion.timings.n_steps,
        generate=completion.timings.predicted_ms / 1e3,
        ttft=ttft,
        n_drafted=completion.timings.draft_n,
        lengths=tuple(completion.acceptance_lengths),
        steps=tuple(completion.steps),
    )


def _costs(stats: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The cost curves that the library reports."""
    return {name: dict(stats[f"cost_{name}"]) for name in ("verify_ms", "draft_ms") if stats.get(f"cost_{name}")}


def _environment(
    engine: Engine, sampling: SamplingParams, repeat: int, threads: int | None, n_predict: int, begun: datetime
) -> dict[str, Any]:
    from dflash_local import native
    from dflash_local.machine.devices import gpus
    from dflash_local.machine.identity import build_key

    machine, library, info = this_machine(), native.library_info(), engine.info
    return {
        "machine": str(machine),
        "cores": machine.cores,
        "threads": threads or default_threads(),
        "load": machine.load,
        "target": info["target"]["description"],
        "drafter": info["drafter"]["kind"] if info["drafter"] else "none",
        "temperature": sampling.temperature,
        "n_predict": n_predict,
        "repeats": repeat,
        "date": begun.isoformat(timespec="seconds"),
        "dflash_local": __version__,
        "llama": library.get("llama"),
        "backends": ", ".join(library.get("backends", [])),
        "devices": "; ".join(f"{device['name']}: {device['description']}" for device in gpus(library)),
        "commit": running_commit(),
        "build": build_key(),
    }
