"""The systems to compare through HTTP: all are loaded, one at a time works."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeVar

from benchmarks.http_load import Answer, LoadError, LoadResult, Server, run_load
from dflash_local.demo.shapes import Pair

PLAIN, OURS, BUDGET_1 = "plain", "dflash-local", "dflash-local, budget 1"
# Of the same server, by fields of the request.
OWN_PLAIN, OWN_CHAIN, OWN_TREE = (f"{OURS}, {shape}" for shape in ("no drafts", "chain", "tree"))
VARIANTS = {OWN_PLAIN: {"draft": "off"}}
# Servers of their own: what one has learned of a text, the default would know of it when it comes next.
OWN_SHAPES = {OWN_CHAIN: "chain", OWN_TREE: "tree"}
UPSTREAM_N_MAX = (3, 7, 15)
IDLE_CPU_LIMIT = 0.05  # CPU seconds per second of an idle server
SETTLE = 0.01  # seconds between two systems' turns: thread pools spin for a moment after their last graph

T = TypeVar("T")


def upstream(n_max: int) -> str:
    return f"upstream n_max {n_max}"


UPSTREAM = tuple(upstream(n) for n in UPSTREAM_N_MAX)
# The longest drafts once more: ended at the first token that is less likely (of 0.2, 0.4, 0.6 and 0.8 the fastest), and
# with n-grams in the drafter's place where there are some.
P_MIN = "0.4"
UPSTREAM_P_MIN, UPSTREAM_N_GRAMS = (f"{UPSTREAM[-1]}, {more}" for more in (f"p_min {P_MIN}", "n-grams"))
SWEEP = (*UPSTREAM, UPSTREAM_P_MIN, UPSTREAM_N_GRAMS)


def upstream_server(bins: Path, common: Sequence[str], *flags: str) -> list[str]:
    """argv of upstream's server with the flags of all servers and its own; it keeps no host cache of finished prompts
    (-cram)."""
    return [str(bins / "llama-server"), *common, *flags, "-cram", "0", "--fit", "off", "--no-webui", "-lv", "2"]


# A drafter that is listed for the target's name is taken otherwise.
NO_DRAFTER = ("--draft-kind", "lookup")
NO_DRAFTS = ("--draft", "off", "--lookup", "off")


def our_server(common: Sequence[str], *flags: str) -> list[str]:
    """argv of our server."""
    return [sys.executable, "-m", "dflash_local.cli", "serve", *common, *flags]


def common_flags(target: Path, n_ctx: int, threads: int, clients: int = 1) -> list[str]:
    """The flags of all servers of a target, with a slot of `n_ctx` tokens for each client."""
    sizes = ["-c", str(n_ctx * clients), "-np", str(clients), "-t", str(threads)]
    return ["-m", str(target), *sizes, "-fa", "on"]


@dataclass(frozen=True)
class Setting:
    """The common settings of all servers: one slot per client, `n_ctx` tokens each."""

    pair: Pair
    bins: Path  # upstream's programs
    clients: int = 1
    threads: int = 2
    n_ctx: int = 1024
    n_gpu_layers: int | None = None  # of target and drafter; None: each server's default
    mmproj: Path | None = None  # the target's projector

    def common(self) -> list[str]:
        """The flags of all servers."""
        layers = [] if self.n_gpu_layers is None else ["-ngl", str(self.n_gpu_layers)]
        projector = [] if self.mmproj is None else ["--mmproj", str(self.mmproj)]
        return [*common_flags(self.pair.target, self.n_ctx, self.threads, self.clients), *layers, *projector]

    def _drafter(self) -> list[str]:
        layers = [] if self.n_gpu_layers is None else ["-ngld", str(self.n_gpu_layers)]
        return ["-md", str(self.pair.drafter), *layers]

    def plain(self) -> list[str]:
        """argv of upstream's server without a drafter, with its fastest setting here: one K/V buffer for all slots."""
        return upstream_server(self.bins, self.common(), "--kv-unified")

    def upstream(self, n_max: int, *flags: str, kinds: str = "draft-dflash") -> list[str]:
        """argv of upstream's server with the drafter."""
        return [*self.plain(), *self._drafter(), "--spec-type", kinds, "--spec-draft-n-max", str(n_max), *flags]

    def ours(self, *flags: str) -> list[str]:
        """argv of our server with the drafter, untuned; it measures this machine at its start instead of reading an old
        file."""
        return our_server(self.common(), "--no-cost-cache", *self._drafter(), *flags)

    def commands(self) -> dict[str, list[str]]:
        """argv of plain, upstream's draft lengths and ours."""
        return {PLAIN: self.plain(), **{upstream(n): self.upstream(n) for n in UPSTREAM_N_MAX}, OURS: self.ours()}

    def sweep(self) -> dict[str, list[str]]:
        """`commands`, and upstream's longest drafts with more."""
        longest = UPSTREAM_N_MAX[-1]
        return {
            **self.commands(),
            UPSTREAM_P_MIN: self.upstream(longest, "--spec-draft-p-min", P_MIN),
            UPSTREAM_N_GRAMS: self.upstream(longest, kinds="draft-dflash,ngram-mod"),
        }


class Systems:
    """Servers by name; a context manager that starts and ends them."""

    def __init__(
        self, commands: Mapping[str, list[str]], clients: int = 1, patience: float = 600.0,
        variants: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """`patience`: seconds for which a server may be silent. `variants`: further systems, which are our server with
        these fields in each request."""
        self.clients, self.patience, self._variants = clients, patience, variants
        self.servers: dict[str, Server] = {}
        self._commands = commands
        self._stack = ExitStack()

    def __enter__(self) -> Systems:
        with ExitStack() as stack:
            logs = Path(stack.enter_context(TemporaryDirectory(prefix="servers-")))
            for name, argv in self._commands.items():
                self.servers[name] = stack.enter_context(Server(name, argv, logs / f"{name.replace(' ', '_')}.log"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def names(self) -> list[str]:
        return [*self.servers, *self._variants]

    def turn(self, name: str, bodies: Sequence[dict[str, Any]]) -> LoadResult:
        """One system answers; the others idle."""
        time.sleep(SETTLE)
        if (fields := self._variants.get(name)) is not None:
            name, bodies = OURS, [{**body, **fields} for body in bodies]
        return run_load(self.servers[name].port, bodies, self.clients, self.patience)

    def answers(
        self, bodies: Sequence[dict[str, Any]], turn: int, names: Sequence[str] | None = None
    ) -> dict[str, list[Answer]]:
        """The answers of each system (of `names`) to all requests, one request after the other, in the order of turn
        `turn` and the following ones."""
        found: dict[str, list[Answer]] = {name: [] for name in names or self.names}
        for i, body in enumerate(bodies):
            for name in order([*found], turn + i):
                found[name] += self.turn(name, [body]).answers
        return found

    def speeds(self, bodies: Sequence[dict[str, Any]], kinds: Sequence[str], turn: int) -> dict[str, dict[str, float]]:
        """Tokens per second after an answer's first token, by the request's kind and by system."""
        found = self.answers(bodies, turn)
        return {
            kind: {name: speed(pick(answers, kinds, kind)) for name, answers in found.items()}
            for kind in dict.fromkeys(kinds)
        }

    def warm_up(self, bodies: Sequence[dict[str, Any]]) -> None:
        """Get a first answer from each system. Raises LoadError if an idle server uses the CPU, which is unfair."""
        for name in self.names:
            self.turn(name, bodies)
        time.sleep(2.0)  # servers end what they put off until they had started
        check_idle({name: server.cpu_seconds for name, server in self.servers.items()}, 1.0)


def pick(given: Sequence[T], kinds: Sequence[str], kind: str) -> list[T]:
    """The prompts of a kind, or the answers to them; `kinds` are those of all."""
    return [one for one, its_kind in zip(given, kinds, strict=True) if its_kind == kind]


def speed(answers: Sequence[Answer]) -> float:
    """Tokens per second: all tokens after each answer's first over all time since then, so long answers weigh more."""
    return sum(answer.n_tokens - 1 for answer in answers) / sum(answer.generate for answer in answers)


def acceptance_length(answers: Sequence[Answer]) -> float:
    """AL: tokens after each answer's first, for each pass after its prompt's."""
    return sum(answer.n_tokens - 1 for answer in answers) / sum(answer.passes for answer in answers)


def check_idle(clocks: Mapping[str, Callable[[], float]], seconds: float) -> None:
    """Raises LoadError if one of these processes, by its CPU seconds, would slow down the working one."""
    before = {name: clock() for name, clock in clocks.items()}
    time.sleep(seconds)
    for name, clock in clocks.items():
        if (idle := (clock() - before[name]) / seconds) > IDLE_CPU_LIMIT:
            raise LoadError(f"{name} uses {idle:.0%} of a core while it is idle; the comparison would not be fair")


def order(items: Sequence[T], i: int) -> list[T]:
    """The order in turn `i`: rotated, and reversed in every other round of rotations."""
    n_rounds, shift = divmod(i, len(items))
    turned = [*items[shift:], *items[:shift]]
    return turned[::-1] if n_rounds % 2 else turned
