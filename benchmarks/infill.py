"""Suggestions of an editor (/infill) against upstream's server: the same session of edits, request by request.

Usage: python benchmarks/infill.py [--model GGUF] [--repeats N] [--greedy] [--time-limit]

benchmarks/editing.py makes the requests, in the shape of llama.vscode's. All servers are resident and take turns at
every request; each keeps its own cache, as for one user. Chunks that are sent ahead are not timed. For equal texts
`seed` is added to the requests and `t_max_predict_ms` left out, since a faster server would write more in that time;
--time-limit leaves it in. --greedy makes `top_k` 1.
"""

from __future__ import annotations

import http.client
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.editing import Request, session, totals
from benchmarks.http_load import LoadError, Server
from benchmarks.record import say
from benchmarks.systems import SETTLE, Systems, common_flags, order, our_server
from dflash_local.baseline import HOST
from dflash_local.build import peer

UPSTREAM, OURS, OURS_OFF, OURS_ANSWERS = (
    "upstream", "dflash-local", "dflash-local, lookup off", "dflash-local, lookup of answers",
)  # fmt: skip
ANSWERS = "100000"  # tokens of earlier answers
N_CTX = 16384
BATCH = ["-b", "1024", "-ub", "1024"]  # with --cache-reuse 256, upstream's own --fim-qwen-1.5b-default
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Suggestion:
    """One answer. Times in seconds: `latency` is the client's, to the last byte; `first` the server's, until the prompt
    was read; `passes` after the prompt's."""

    text: str
    latency: float
    first: float
    n_prompt: int
    n_tokens: int
    passes: int


def commands(target: Path, bins: Path, threads: int, only: Sequence[str]) -> dict[str, list[str]]:
    """argv of the systems of these names."""
    common = [*common_flags(target, N_CTX, threads), *BATCH]
    upstream = [str(bins / "llama-server"), *common, "--cache-reuse", "256", "--fit", "off", "--no-webui", "-lv", "2"]
    ours = our_server(common, "--no-cost-cache")
    every = {
        UPSTREAM: upstream,
        OURS_OFF: [*ours, "--lookup", "off"],
        OURS: ours,
        OURS_ANSWERS: [*ours, "--lookup-answers", ANSWERS],
    }
    return {name: argv for name, argv in every.items() if name in only}


def ask(server: Server, body: Mapping[str, Any]) -> Suggestion:
    """One request. Raises LoadError: it failed."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=600.0)
    start = time.perf_counter()
    connection.request("POST", "/infill", json.dumps(body).encode(), {"Content-Type": "application/json"})
    response = connection.getresponse()
    data = response.read()
    latency = time.perf_counter() - start
    connection.close()
    if response.status != 200:
        raise LoadError(f"{server.name}: HTTP {response.status}: {data[:2000].decode(errors='replace')}")
    answer = json.loads(data)
    timings = answer["timings"]
    passes = answer.get("dflash", {}).get("passes_n", max(0, timings["predicted_n"] - 1))
    first = timings["prompt_ms"] / 1e3
    return Suggestion(answer["content"], latency, first, timings["prompt_n"], timings["predicted_n"], passes)


def measure(systems: Systems, requests: Sequence[Request], turn: int) -> dict[str, list[Suggestion]]:
    """Every system's suggestions; they take turns at each request."""
    found: dict[str, list[Suggestion]] = defaultdict(list)
    for index, request in enumerate(requests):
        for name in order(systems.names, turn + index):
            time.sleep(SETTLE)
            suggestion = ask(systems.servers[name], request.body)
            if request.is_awaited:
                found[name].append(suggestion)
        if not request.is_awaited:
            say(f"{index + 1} of {len(requests)} requests")
    return found


def percentile(values: Sequence[float], part: float) -> float:
    """The least value that this part of all does not exceed."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def row(name: str, runs: Sequence[Mapping[str, Sequence[Suggestion]]]) -> dict[str, Any]:
    """One line of the table, over all repeats; speeds over upstream's."""
    of = [one for run in runs for one in run[name]]
    base = [one for run in runs for one in run[UPSTREAM]]
    latency, theirs = [one.latency for one in of], [one.latency for one in base]
    return {
        "system": name,
        "median": statistics.median(latency), "p95": percentile(latency, 0.95),
        "first": statistics.median(one.first for one in of), "first_p95": percentile([one.first for one in of], 0.95),
        "prompt": sum(one.n_prompt for one in of) / len(of), "tokens": sum(one.n_tokens for one in of) / len(of),
        "al": sum(one.n_tokens - 1 for one in of) / max(1, sum(one.passes for one in of)),
        "equal": sum(one.text == other.text for one, other in zip(of, base, strict=True)) / len(of),
        "over_median": statistics.median(theirs) / statistics.median(latency),
        "over_p95": percentile(theirs, 0.95) / percentile(latency, 0.95),
    }  # fmt: skip


def markdown(data: Mapping[str, Any]) -> str:
    head = ("system", "to the last token, median s", "p95 s", "over upstream", "p95 over upstream",
            "to the first token, median s", "p95 s", "prompt tokens read", "tokens", "AL", "same text")  # fmt: skip
    rows = [
        (
            r["system"], f"{r['median']:.2f}", f"{r['p95']:.2f}", f"{r['over_median']:.2f}", f"{r['over_p95']:.2f}",
            f"{r['first']:.2f}", f"{r['first_p95']:.2f}", f"{r['prompt']:.0f}", f"{r['tokens']:.1f}",
            f"{r['al']:.2f}", f"{r['equal']:.0%}",
        )
        for r in data["rows"]
    ]  # fmt: skip
    count = ", ".join(f"{n} {what}" for what, n in data["session"].items())
    return f"{record.table(head, rows)}\n\n{data['model']}. A session: {count}. {record.footer(data)}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "infill", n_predict=128, repeats=3)
    ap.add_argument("--model", type=Path, metavar="GGUF", help="another model (default: Qwen2.5-Coder-1.5B-Instruct)")
    ap.add_argument("--systems", nargs="+", default=[UPSTREAM, OURS_OFF, OURS, OURS_ANSWERS], metavar="NAME")
    ap.add_argument("--greedy", action="store_true", help="top_k 1")
    ap.add_argument("--time-limit", action="store_true", help="keep t_max_predict_ms")
    args = ap.parse_args(argv)
    target = args.model or real_models.fetch("qwen2.5-coder")
    changes: dict[str, Any] = {"n_predict": args.n_predict, **({"top_k": 1} if args.greedy else {})}
    changes |= {} if args.time_limit else {"t_max_predict_ms": -1}
    bins, runs = peer.build(), []
    for repeat in range(args.repeats):
        requests = list(session(ROOT, repeat, seed=record.seed_of(0, repeat), **changes))[: args.limit]
        with Systems(commands(target, bins, args.threads, args.systems)) as systems:
            runs.append(measure(systems, requests, repeat))
        say("; ".join(f"{name} {statistics.median(o.latency for o in of):.2f} s" for name, of in runs[-1].items()))
    rows = [row(name, runs) for name in args.systems]
    data = {
        **record.environment(ap, args), "model": target.name, "session": totals(requests), "rows": rows,
        "runs": [{name: [[round(x, 4) for x in (o.latency, o.first)] + [o.n_prompt, o.n_tokens, o.passes] for o in of]
                  for name, of in run.items()} for run in runs],
    }  # fmt: skip
    return record.publish(args.out, data, markdown(data))


if __name__ == "__main__":
    record.run(main)
