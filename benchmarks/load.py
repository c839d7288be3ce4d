"""Sustained load: many streaming clients on all endpoints; tokens per second, refusals and the server's memory.

Usage: python benchmarks/load.py [--minutes 10] [--clients 32] [--slots 8] [--other PYTHON --repeats 5 --minutes 1]

docs/benchmarks.md says what clients ask, and what `--other`, the interpreter of another release's environment, does.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.http_load import LoadError, Server
from benchmarks.record import say
from benchmarks.systems import OURS, Systems, order
from dflash_local.baseline import HOST
from dflash_local.demo.shapes import SHAPES, Pair

Json = dict[str, Any]
OTHER = "the other release"
CHAT = "/v1/chat/completions"
KEY = {"Content-Type": "application/json"}
MEMORY_EVERY = 5.0  # seconds
# Share of a run that is ignored for memory, while caches and the allocator fill.
SETTLING = 0.25
TOOL = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Mix:
    """Requests drawn by a seed. `known`: only those that older releases support."""

    def __init__(self, prompts: Sequence[Json], n: int, *, known: bool) -> None:
        self.prompts, self.n, self.known = prompts, n, known

    def draw(self, seed: int) -> Iterator[tuple[str, Json]]:
        """An endless stream of paths and bodies."""
        rng = random.Random(seed)
        while True:
            yield rng.choice(self._requests(rng.choice(self.prompts)["messages"]))

    def _requests(self, messages: list[Json]) -> list[tuple[str, Json]]:
        """All that may be asked about a prompt; a streamed chat twice, so that it is drawn twice as often."""
        completion = {"prompt": messages[-1]["content"], "max_tokens": self.n, "temperature": 0.7, "stream": True}
        answer = {"messages": messages, "max_tokens": self.n, "temperature": 0}
        chat = {**answer, "stream": True}
        known = [(CHAT, chat), (CHAT, chat), (CHAT, answer), ("/v1/completions", completion)]
        if self.known:
            return known
        message = {"model": "m", "messages": messages}
        return [
            *known,
            ("/v1/messages", {**message, "max_tokens": self.n, "stream": True}),
            ("/v1/responses", {"input": messages, "max_output_tokens": self.n, "stream": True}),
            (CHAT, {**chat, "tools": [{"type": "function", "function": TOOL}]}),
            ("/v1/messages/count_tokens", message),
        ]


@dataclass
class Tally:
    """The results of the clients in one turn."""

    seconds: float = 0.0
    tokens: int = 0
    answers: Counter[str] = field(default_factory=Counter)  # by path
    refused: int = 0  # 503 with Retry-After
    errors: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes

    @property
    def speed(self) -> float:
        """Tokens per second of all clients together."""
        return self.tokens / self.seconds

    @property
    def growth(self) -> int:
        """Growth of the server's memory from the end of the settling time to the end: medians of a tenth each."""
        settled = self.memory[int(len(self.memory) * SETTLING) :]
        tenth = max(len(settled) // 10, 1)
        return int(statistics.median(settled[-tenth:]) - statistics.median(settled[:tenth]))


def generated(answer: Json) -> int:
    """The number of tokens in an answer, or in the event that ends it, in any API's format; 0 if unknown."""
    if "timings" in answer:
        return int(answer["timings"]["predicted_n"])
    usage = answer.get("usage") or (answer.get("response") or {}).get("usage") or {}
    return int(usage.get("output_tokens", 0))


def read(response: http.client.HTTPResponse) -> int:
    """Read an answer to its end and count its tokens. Raises ValueError for an error in a stream."""
    if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
        return generated(json.loads(response.read()))
    tokens = 0
    for raw in response:
        if raw.startswith(b"data: {") and (b'"timings"' in raw or b'"usage"' in raw or b'"error"' in raw):
            event = json.loads(raw[6:])
            if event.get("error"):
                raise ValueError(f"error inside a stream: {event['error']}")
            tokens = max(tokens, generated(event))
    return tokens


class Clients:
    """`count` clients of the server on `port`, each with its own connection, for `seconds`."""

    def __init__(self, port: int, mix: Mix, count: int, seconds: float) -> None:
        self.port = port
        self.mix = mix
        self.count = count
        self.seconds = seconds
        self.tally = Tally()
        self._lock = threading.Lock()

    def run(self, server: Server) -> Tally:
        """Send requests until the time is over; started answers are read to their end and counted."""
        start = time.monotonic()
        self.end = start + self.seconds
        threads = [threading.Thread(target=self._client, args=(seed,), daemon=True) for seed in range(self.count)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.tally.memory.append(server.memory())
            time.sleep(min(MEMORY_EVERY, max(self.end - time.monotonic(), 0.05)))
        self.tally.seconds = time.monotonic() - start
        return self.tally

    def _client(self, seed: int) -> None:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=600.0)
        for path, body in self.mix.draw(seed):
            if time.monotonic() >= self.end or self.tally.errors:
                break
            try:
                connection.request("POST", path, json.dumps(body).encode(), KEY)
                self._note(path, connection.getresponse())
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.tally.errors.append(f"{path}: {error!r}")
        connection.close()

    def _note(self, path: str, response: http.client.HTTPResponse) -> None:
        if response.status == 503 and "Retry-After" in response.headers:
            response.read()
            with self._lock:
                self.tally.refused += 1
            time.sleep(1.0)
            return
        if response.status != 200:
            raise ValueError(f"HTTP {response.status}: {response.read(500).decode(errors='replace')}")
        tokens = read(response)
        with self._lock:
            self.tally.tokens += tokens
            self.tally.answers[path] += 1


def command(pair: Pair, python: str, slots: int, threads: int) -> list[str]:
    """argv of a release's server, which measures this machine at its start instead of reading an old file."""
    sizes = ["-c", str(1024 * slots), "-np", str(slots), "-t", str(threads), "--no-cost-cache"]
    program = str(Path(python).with_name("dflash-local"))  # not `python -m`, which would import this checkout
    return [program, "serve", "-m", str(pair.target), "-md", str(pair.drafter), *sizes]


def row(name: str, tallies: Sequence[Tally]) -> Json:
    return {
        "release": name,
        "tokens_per_second": [round(tally.speed, 1) for tally in tallies],
        "answers": dict(sum((tally.answers for tally in tallies), Counter())),
        "refused": sum(tally.refused for tally in tallies),
        "memory_mib": [[m >> 20 for m in tally.memory] for tally in tallies],
        "growth_mib": [round(tally.growth / 2**20, 1) for tally in tallies],
    }


def markdown(rows: Sequence[Json], footer: str) -> str:
    lines = []
    for r in rows:
        speed, answers = statistics.median(r["tokens_per_second"]), sum(r["answers"].values())
        memory = [f"{max(r['growth_mib']):+.1f}", f"{max(m for turn in r['memory_mib'] for m in turn)}"]
        lines.append([r["release"], f"{speed:.1f}", str(answers), str(r["refused"]), *memory])
    head = ["release", "tok/s", "answers", "503s", "memory, MiB more", "most memory, MiB"]
    text = record.table(head, lines)
    if len(rows) == 2:
        ours, other = (r["tokens_per_second"] for r in rows)
        ratio = statistics.median(record.ratios(other, ours))
        text += f"\n\nThis release over the other: {ratio:.3f} (median of {len(ours)} pairs of turns)."
    return text + f"\n\nMemory grows from the end of the first quarter to the end of a turn. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "load", n_predict=64, repeats=1)
    ap.add_argument("--shape", choices=SHAPES, help="inflate the pocket pair (default: none, so HTTP dominates)")
    record.add_work_option(ap)
    record.add_pair_choice(ap)
    ap.add_argument("--clients", type=int, default=32, metavar="N", help="clients at once")
    ap.add_argument("--slots", type=int, default=8, metavar="N", help="slots of every server")
    ap.add_argument("--minutes", type=float, default=10.0, metavar="M", help="length of a turn")
    ap.add_argument(
        "--cache-ram", type=int, metavar="MIB", help="ours: bound of the host's cache, which is memory that grows"
    )
    ap.add_argument("--other", type=Path, metavar="PYTHON", help="interpreter of another release's environment")
    args = ap.parse_args(argv)
    env = record.environment(ap, args)
    prompts = record.read_prompts(args.prompts, args.limit)
    pair = pairs.make(args.work, args.shape, args.type, args.drafter)
    pythons = {OURS: sys.executable, **({OTHER: str(args.other)} if args.other else {})}
    commands = {name: command(pair, python, args.slots, args.threads) for name, python in pythons.items()}
    if args.cache_ram is not None:
        commands[OURS] += ["--cache-ram", str(args.cache_ram)]
    tallies: dict[str, list[Tally]] = {name: [] for name in commands}
    mix = Mix(prompts, args.n_predict, known=bool(args.other))
    with Systems(commands) as systems:
        for repeat in range(args.repeats):
            for name in order(systems.names, repeat):
                server = systems.servers[name]
                clients = Clients(server.port, mix, args.clients, 60 * args.minutes)
                tally = clients.run(server)
                if tally.errors:
                    raise LoadError(f"{name}: {tally.errors[0]}")
                tallies[name].append(tally)
                say(f"{repeat + 1}/{args.repeats} {name}: {tally.speed:.1f} tok/s, {tally.growth / 2**20:+.1f} MiB")
    rows = [row(*item) for item in tallies.items()]
    return record.publish(args.out, {**env, "rows": rows}, markdown(rows, record.footer(env)))


if __name__ == "__main__":
    record.run(main)
