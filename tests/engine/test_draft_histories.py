"""Whatever its slot did before, a request is drafted as in a slot that never held anything: random histories of what
may happen to a slot, in each of which trees and acceptance lengths are those of the same prompt alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dflash_local.demo.pocket import DRAFTERS, HYBRID, PAIRS
from dflash_local.engine import Engine, Generation, SamplingParams
from dflash_local.errors import QueueFullError, RequestError
from tests.engine.test_shared_cache import held
from tests.fast import some_fast
from tests.rpc.rpc_servers import rpc_servers

QUESTION = "<|im_start|>user\nCount from {} in steps of 3, 14 numbers.<|im_end|>\n<|im_start|>assistant\n"
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
BUDGET, ANSWER = 6, 30  # nodes of a chain; tokens


class Drafts(NamedTuple):
    """Of an answer: its tokens, and each pass's acceptance length and the chain with its probabilities."""

    tokens: list[int]
    lengths: list[int]
    chains: list[tuple[list[int], list[float]]]

    @classmethod
    def of(cls, generation: Generation) -> Drafts:
        """Without the last passes: blocks are of one length for all slots, and grow shorter at an answer's end."""
        trees = [chunk.step.tree for chunk in generation if chunk.step and chunk.step.tree]
        done, n, at = generation.result(60), 0, 1
        for length in done.acceptance_lengths:
            at += length
            n += at + BUDGET <= ANSWER
        chains = [(tree.tokens, tree.probs) for tree in trees[:n] if tree]
        return cls(done.tokens, done.acceptance_lengths[:n], chains)


class History:
    """What happens to the slots of an engine, by a seed. `alone`: what a prompt's drafts are without one."""

    def __init__(self, engine: Engine, alone: Callable[[list[int]], Drafts], folder: Path, seed: str) -> None:
        self.engine, self.alone, self.file, self.rng = engine, alone, folder / "slot", random.Random(seed)
        self.texts: list[list[int]] = [self.questions(20)]
        self.saved = 0  # tokens in the file
        self.log: list[str] = [seed]

    def questions(self, n: int) -> list[int]:
        return self.engine.tokenize("".join(QUESTION.format(self.rng.randrange(10, 99)) for _ in range(n)))

    def part(self, text: list[int]) -> list[int]:
        """Its beginning."""
        return text[: self.rng.randrange(1, len(text) + 1)]

    def prompt(self) -> list[int]:
        """A text again, a part of it, either with something new; or all new."""
        text = self.rng.choice(self.texts)
        kind = self.rng.randrange(5)
        if kind < 3:
            text = self.part(text) if kind else text
            text = text + self.questions(self.rng.choice([0, 1, 1, 4]))
        elif kind == 3:
            text = self.questions(self.rng.choice([2, 12, 20]))
        return text[-700:]

    def submit(self, prompt: list[int], **options: Any) -> Generation:
        self.log.append(f"{len(prompt)} tokens {options or ''}")
        settings: dict[str, Any] = {"max_tokens": ANSWER, "budget": BUDGET, "draft": "chain", **options}
        return self.engine.submit(prompt, GREEDY, return_drafts=True, **settings)

    def keep(self, prompt: list[int], tokens: list[int]) -> None:
        self.texts = [*self.texts[-5:], prompt + tokens]

    def check(self, prompt: list[int], generation: Generation) -> None:
        drafted, expected = Drafts.of(generation), self.alone(prompt)
        assert drafted == expected, "\n".join(self.log)
        self.keep(prompt, drafted.tokens)

    def ask(self) -> None:
        prompt = self.prompt()
        self.check(prompt, self.submit(prompt))

    def ask_together(self) -> None:
        """The first one's beginning may be read for all; there is room for these answers."""
        first = self.prompt()[-400:]
        prompts = [first, self.part(first) + self.questions(1)]
        with held(self.engine):
            generations = [self.submit(prompt) for prompt in prompts]
        for prompt, generation in zip(prompts, generations, strict=True):
            self.check(prompt, generation)

    def outgrow(self) -> None:
        """Answers for which there is no room side by side: trees shrink, the newest is set aside, one goes away."""
        prompts = [self.prompt()[-300:] for _ in range(3)]
        with held(self.engine):
            generations = [self.submit(prompt, max_tokens=250) for prompt in prompts]
        self.wait_for_rows(self.rng.randrange(1500), *generations)
        self.rng.choice(generations).cancel()
        for prompt, generation in zip(prompts, generations, strict=True):
            self.keep(prompt, generation.result(60).tokens)

    def wait_for_rows(self, n: int, *running: Generation) -> None:
        """Until so many more are computed, or all of these are done."""
        before = self.engine.stats()["rows"]
        while self.engine.stats()["rows"] < before + n and not all(generation.done for generation in running):
            pass

    def cancel(self) -> None:
        """While its prompt is read, or its answer is written; somebody may follow it."""
        prompt = self.prompt()
        with held(self.engine):
            reader = self.submit(prompt, max_tokens=200)
            follower = self.submit(self.part(prompt) + self.questions(1))
        self.wait_for_rows(self.rng.randrange(len(prompt) + 100), reader)
        reader.cancel()
        self.keep(prompt, reader.result(60).tokens)
        follower.result(60)
        if self.rng.random() < 0.5:
            self.check(prompt, self.submit(prompt))

    def write_otherwise(self) -> None:
        """Without drafts, so that hidden states wait; with trees; or nothing but the prompt."""
        prompt = self.prompt()
        options: dict[str, Any] = self.rng.choice(
            [{"draft": "off", "budget": 1}, {"draft": "tree", "budget": 24}, {"max_tokens": 0}]
        )
        self.keep(prompt, self.submit(prompt, **options).result(60).tokens)

    def save(self) -> None:
        slot = self.rng.randrange(self.engine.n_slots)
        with suppress(RequestError):  # it may hold nothing
            self.saved = self.engine.save_slot(slot, self.file).n_tokens
            self.log.append(f"saved {slot}")

    def restore(self) -> None:
        slot = self.rng.randrange(self.engine.n_slots)
        if self.saved:
            self.log.append(f"restored {slot}")
            with suppress(QueueFullError):
                assert self.engine.restore_slot(slot, self.file).n_tokens == self.saved

    def erase(self) -> None:
        self.engine.erase_slot(self.rng.randrange(self.engine.n_slots))

    def run(self, n: int) -> None:
        happenings = [self.ask, self.ask_together, self.outgrow, self.cancel, self.write_otherwise, self.save,
                      self.restore, self.erase]  # fmt: skip
        for _ in range(n):
            happening = self.rng.choices(happenings, [4, 2, 1, 3, 2, 1, 2, 1])[0]
            self.log.append(happening.__name__)
            happening()
        self.ask()


@contextmanager
def histories(files: tuple[Path, Path], folder: Path, **options: Any) -> Iterator[Callable[[str], History]]:
    """Makes a history of an engine of its own by its seed. Prompts longer than what the drafter sees, and a cache that
    three slots outgrow."""
    settings: dict[str, Any] = {
        "n_threads": 1, "n_batch": 16, "n_ubatch": 16, "warmup": False, "lookup": False, "draft_ctx": 64, **options,
    }  # fmt: skip
    known: dict[tuple[int, ...], Drafts] = {}
    with ExitStack() as engines:
        lone = engines.enter_context(Engine(*files, **{**settings, "n_ctx": 1024, "n_slots": 1}))

        def alone(prompt: list[int]) -> Drafts:
            key = tuple(prompt)
            if key not in known:
                generation = lone.submit(prompt, GREEDY, max_tokens=ANSWER, budget=BUDGET, draft="chain",
                                         cache_prompt=False, return_drafts=True)  # fmt: skip
                known[key] = Drafts.of(generation)
            return known[key]

        def make(seed: str) -> History:
            shape = {"n_ctx": 1024, "n_slots": 3, "kv_unified": True, **settings}
            return History(engines.enter_context(Engine(*files, **shape)), alone, folder, seed)

        yield make


SHAPES: dict[str, dict[str, Any]] = {
    "one cache": {},
    "a cache for each slot": {"n_ctx": 3072, "kv_unified": False},
    "a small host cache": {"cache_ram": 2},
    "nothing on the host": {"cache_ram": 0},
    "checkpoints": {},  # of a hybrid target
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("drafter", some_fast(DRAFTERS, ["dflash"]))
def test_no_history_changes_drafts(pocket: dict[str, Path], tmp_path: Path, shape: str, drafter: str) -> None:
    hybrid = shape == "checkpoints"
    files = ("hybrid-target", "hybrid-dflash") if hybrid else ("target", drafter)
    with histories((pocket[files[0]], pocket[files[1]]), tmp_path, **SHAPES[shape]) as history:
        history(f"{shape}, {drafter}").run(12)


@pytest.mark.parametrize("after", [160, 400])
def test_a_prompt_is_cancelled_and_asked_again(pocket: dict[str, Path], tmp_path: Path, after: int) -> None:
    """In its slot, and in one that gets it from a file."""
    with histories((pocket["target"], pocket["dflash"]), tmp_path, n_slots=2) as make:
        history = make("cancelled")
        prompt = history.questions(26)
        with held(history.engine):
            reader = history.submit(prompt, id_slot=0)
        history.wait_for_rows(after, reader)
        reader.cancel()
        reader.result(60)
        saved = history.engine.save_slot(0, history.file).n_tokens
        assert saved >= after
        for slot in (0, 1):
            history.check(prompt, history.submit(prompt, id_slot=slot))
            assert history.engine.restore_slot(1, history.file).n_tokens == saved


@pytest.mark.parametrize("drafter", PAIRS)
def test_slots_that_draft_together_draft_what_each_does_alone(
    pocket: dict[str, Path], tmp_path: Path, drafter: str
) -> None:
    """One pass of the drafter over three slots, in whichever order they began."""
    files = ("hybrid-target", "hybrid-dflash") if drafter == HYBRID else ("target", drafter)
    with histories((pocket[files[0]], pocket[files[1]]), tmp_path) as make:
        history = make(drafter)
        prompts = [history.questions(n) for n in (1, 3, 2)]
        for order in ((0, 1, 2), (2, 0, 1)):
            with held(history.engine):
                running = [history.submit(prompts[i], id_slot=slot) for slot, i in enumerate(order)]
            for i, generation in zip(order, running, strict=True):
                history.check(prompts[i], generation)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["dflash", "dspark"])
def test_no_history_changes_drafts_on_a_device(pocket: dict[str, Path], tmp_path: Path, drafter: str) -> None:
    """Where hidden states stay in its memory."""
    with rpc_servers(1) as (server,):
        options = {"rpc": server.address, "n_gpu_layers": 99}
        with histories((pocket["target"], pocket[drafter]), tmp_path, **options) as make:
            for seed in range(4):
                history = make(f"device, {seed}")
                if history.engine.info["memory"]["taps"] == 0:
                    pytest.skip("hidden states do not stay on an RPC server (tests/rpc/test_round_trips.py)")
                history.run(20)


@pytest.mark.slow
@pytest.mark.parametrize("draft_ctx", [1, 16, 64, 100, 300])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_long_history_changes_drafts(pocket: dict[str, Path], tmp_path: Path, shape: str, draft_ctx: int) -> None:
    hybrid = shape == "checkpoints"
    files = ("hybrid-target", "hybrid-dflash") if hybrid else ("target", "dflash2")
    options = {**SHAPES[shape], "draft_ctx": draft_ctx}
    with histories((pocket[files[0]], pocket[files[1]]), tmp_path, **options) as history:
        for seed in range(8):
            history(f"{shape}, {draft_ctx}, {seed}").run(40)
