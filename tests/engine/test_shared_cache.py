"""Conversations and their cache: slots that share one, who waits, who leaves, what comes back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_local.diagnose.memory import Sizes, default_context
from dflash_local.engine import Completion, Engine, SamplingParams
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import RequestError
from dflash_local.native import AcceptRule, DraftMode, NativeEngine, StepUpdate
from tests.fast import some_fast
from tests.patience import PATIENCE

GREEDY = SamplingParams(temperature=0)
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
PROMPT = "<|im_start|>user\nWhat is {} plus 24?<|im_end|>\n<|im_start|>assistant\n"
Make = Callable[..., Engine]


def words(seed: object, n: int) -> list[int]:
    """Token ids of ordinary words."""
    rng = random.Random(str(seed))
    return [rng.randrange(300, 1600) for _ in range(n)]


def question(engine: Engine, number: int) -> list[int]:
    return engine.tokenize(PROMPT.format(number))


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """The engine takes no step meanwhile: all that is submitted starts at once, on the busiest machine too."""
    waits, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        waits.set()
        goes_on.wait(60)

    engine._scheduler.call(wait)
    assert waits.wait(60)
    try:
        yield
    finally:
        goes_on.set()


@pytest.fixture(scope="module")
def make(pocket: dict[str, Path]) -> Iterator[Make]:
    """An engine over the pocket pair whose slots share `n_ctx` tokens, closed at the end."""
    engines: list[Engine] = []

    def create(n_ctx: int = 1024, *, hybrid: bool = False, **options: Any) -> Engine:
        files = ("hybrid-target", "hybrid-dflash") if hybrid else ("target", "dflash")
        settings: dict[str, Any] = {"n_slots": 4, "kv_unified": True, "n_threads": 1, "warmup": False, **options}
        engines.append(Engine(pocket[files[0]], pocket[files[1]], n_ctx=n_ctx, **settings))
        return engines[-1]

    yield create
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def alone(pocket: dict[str, Path]) -> Iterator[Callable[..., Completion]]:
    """What a request says to a slot of its own that has never held anything."""
    with Engine(pocket["target"], pocket["dflash"], n_ctx=4096, n_threads=1, warmup=False) as engine:
        yield lambda tokens, sampling=GREEDY, **options: engine.generate(
            tokens, sampling, cache_prompt=False, **options
        )


@pytest.fixture(scope="module")
def shared(make: Make) -> Engine:
    return make()


def moved(engine: Engine) -> dict[str, int]:
    return dict(engine.stats()["moved"])


def test_each_slot_may_use_the_whole_context(shared: Engine, alone: Any) -> None:
    assert (shared.n_slots, shared.n_ctx_slot, shared.info["n_ctx"]) == (4, 1024, 1024)
    prompt = words("whole", 900)
    done = shared.generate(prompt, GREEDY, max_tokens=40)
    assert done.tokens == alone(prompt, max_tokens=40).tokens
    with pytest.raises(RequestError, match="1024"):
        shared.generate(words("whole", 1024))


def test_without_sharing_each_slot_has_its_part(make: Make) -> None:
    for options in ({"kv_unified": None}, {"kv_unified": False}):
        engine = make(2048, warmup=False, **options)
        assert (engine.n_ctx_slot, engine.info["n_ctx"], engine.info["ctx_shared"]) == (512, 2048, False)


def test_a_limit_for_each_slot(make: Make) -> None:
    assert make(1024, n_ctx_slot=300).n_ctx_slot == 300
    engine = make(0, n_ctx_slot=300)
    assert (engine.n_ctx_slot, engine.info["n_ctx"]) == (300, 1200)


def test_requests_wait_for_room(make: Make, alone: Any) -> None:
    """Two prompts that do not fit side by side run one after the other, also with a free slot."""
    engine = make()
    prompts = [words(f"wait {i}", 600) for i in range(3)]
    with held(engine):
        generations = [engine.submit(prompt, GREEDY, max_tokens=30) for prompt in prompts]
    most = 0
    while not all(generation.done for generation in generations):
        most = max(most, engine.n_running)
    assert most == 1
    for prompt, generation in zip(prompts, generations, strict=True):
        assert generation.result().tokens == alone(prompt, max_tokens=30).tokens


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1, seed=7)], ids=["greedy", "sampled"])
def test_answers_that_outgrow_the_cache_wait_on_the_host(make: Make, alone: Any, sampling: SamplingParams) -> None:
    """Nobody fails and nothing is cut: the newest wait until there is room, and say what they say alone."""
    engine = make()
    prompts = [words(f"grow {i}", 60) for i in range(4)]
    # without lookup: a text that repeats itself would be done before the others have grown
    options: dict[str, Any] = {"sampling": replace(sampling, ignore_eos=True), "max_tokens": 450, "lookup": False}
    with held(engine):
        generations = [engine.submit(prompt, **options) for prompt in prompts]
    answers = [generation.result(120) for generation in generations]
    assert moved(engine)["set_aside"] > 0
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.finish_reason == "length" and len(answer.tokens) == 450
        assert answer.tokens == alone(prompt, **options).tokens


def test_an_answer_that_waits_on_the_host_can_be_cancelled(make: Make) -> None:
    engine = make()
    with held(engine):
        generations = [engine.submit(words(f"cancel {i}", 60), ENDLESS, max_tokens=600) for i in range(3)]
    while not moved(engine)["set_aside"]:
        time.sleep(0.001)
    generations[2].cancel()
    assert generations[2].result(PATIENCE).finish_reason == "cancelled"
    assert [generation.result(60).finish_reason for generation in generations[:2]] == ["length"] * 2
    assert engine.generate(words("cancel 2", 60), GREEDY, max_tokens=5).tokens


def test_the_last_answer_alone_ends_with_the_context(make: Make) -> None:
    done = make(300).generate(words("end", 60), GREEDY, ignore_eos=True)
    assert done.finish_reason == "length"
    assert done.prompt_tokens + len(done.tokens) == 300


@pytest.mark.parametrize("n_slots", some_fast([1, 4], [4]))
def test_a_conversation_comes_back_from_the_host(make: Make, alone: Any, n_slots: int) -> None:
    """Its text, and the drafter's context: as many tokens are accepted as if it had stayed."""
    engine = make(1024, n_slots=n_slots)
    first = question(engine, 48) + words("long", 500)
    drafting: dict[str, Any] = {"max_tokens": 60, "budget": 16}  # no choices by measured times
    answer = engine.generate(first, ENDLESS, **drafting)
    turn = first + answer.tokens + question(engine, 31)
    stayed = make(1024, n_slots=1)
    stayed.generate(first, ENDLESS, **drafting)
    expected = stayed.generate(turn, ENDLESS, **drafting)

    for i in range(4):  # everybody else's conversations take the room
        engine.generate(words(f"other {i}", 700), GREEDY, max_tokens=4, draft="off")
    before = moved(engine)
    assert before["saved"] >= 1
    back = engine.generate(turn, ENDLESS, **drafting)
    assert moved(engine)["restored"] == before["restored"] + 1
    assert back.cached_tokens == expected.cached_tokens >= len(first) + 58
    assert back.tokens == expected.tokens == alone(turn, ENDLESS, max_tokens=60).tokens
    assert back.acceptance_lengths == expected.acceptance_lengths


def test_what_gives_its_beginning_away_stays_on_the_host(make: Make) -> None:
    engine = make(1024, n_slots=1)
    first = words("long", 500)
    for prompt in (first, words("other", 700)):
        engine.generate(prompt, GREEDY, max_tokens=4, draft="off")
    assert engine.generate(first[:100] + words("another end", 50), GREEDY, max_tokens=4).cached_tokens == 100
    assert engine.generate(first, GREEDY, max_tokens=4).cached_tokens == 499


def test_without_host_memory_it_is_read_again(make: Make, alone: Any) -> None:
    engine = make(1024, cache_ram=0)
    first = words("forgotten", 500)
    engine.generate(first, GREEDY, max_tokens=4)
    for i in range(3):
        engine.generate(words(f"other {i}", 700), GREEDY, max_tokens=4)
    again = engine.generate(first, GREEDY, max_tokens=20)
    assert (again.cached_tokens, moved(engine)["saved"]) == (0, 0)
    assert again.tokens == alone(first, max_tokens=20).tokens


@pytest.mark.parametrize("caches", [False, True])
def test_the_host_keeps_only_what_its_request_wants_to_be_cached(make: Make, caches: bool) -> None:
    engine = make(1024, n_slots=1)
    first = words("kept", 200)
    engine.generate(first, GREEDY, max_tokens=4, cache_prompt=caches)
    engine.generate(words("next", 200), GREEDY, max_tokens=4)
    assert (moved(engine)["saved"], engine.stats()["host_cache"]["conversations"]) == (caches, caches)
    assert engine.generate(first, GREEDY, max_tokens=4).cached_tokens == (199 if caches else 0)


def test_a_saved_slot_is_kept_on_the_host_whatever_ran_before(make: Make, tmp_path: Path) -> None:
    engine = make(1024, n_slots=1)
    first = words("file", 200)
    engine.generate(first, GREEDY, max_tokens=4)
    engine.save_slot(0, tmp_path / "slot")
    engine.erase_slot(0)
    engine.generate(words("not kept", 100), GREEDY, max_tokens=4, cache_prompt=False)
    engine.restore_slot(0, tmp_path / "slot")
    engine.generate(words("next", 200), GREEDY, max_tokens=4)
    assert moved(engine)["saved"] == 1
    assert engine.generate(first, GREEDY, max_tokens=4).cached_tokens == 199


def test_idle_slots_may_be_forgotten_at_once(make: Make) -> None:
    engine = make(1024, cache_idle_slots=False)
    for i in range(3):
        engine.generate(words(f"other {i}", 700), GREEDY, max_tokens=4)
    assert moved(engine)["left"] >= 1 and moved(engine)["saved"] == 0


def test_the_host_keeps_no_more_than_it_may(make: Make) -> None:
    engine = make(1024, cache_ram=1, n_slots=1)
    for i in range(6):
        engine.generate(words(f"full {i}", 700), GREEDY, max_tokens=4)
    cache = engine.stats()["host_cache"]
    assert cache["limit"] == 2**20 >= cache["bytes"] and moved(engine)["saved"] >= (cache["conversations"] > 0)


def test_a_beginning_is_shared_between_slots(make: Make, alone: Any) -> None:
    """A second conversation with the same long beginning neither reads it again nor costs the first one its cache."""
    engine = make()
    beginning = words("system", 500)
    one, two = beginning + words("one", 100), beginning + words("two", 60)
    engine.generate(one, ENDLESS, max_tokens=20)
    used = engine.stats()["cells"]["used"]
    second = engine.generate(two, ENDLESS, max_tokens=20)
    assert second.cached_tokens == 500 and moved(engine)["shared"] == 1
    assert engine.stats()["cells"]["used"] < used + 100  # the beginning is there once
    assert second.tokens == alone(two, ENDLESS, max_tokens=20).tokens
    first = engine.generate(one, ENDLESS, max_tokens=20)
    assert first.cached_tokens == len(one) - 1
    assert first.tokens == alone(one, ENDLESS, max_tokens=20).tokens


@pytest.mark.parametrize("unified", [True, False], ids=["one cache", "a cache each"])
def test_a_long_conversation_is_not_copied_for_a_short_beginning(make: Make, unified: bool) -> None:
    """Of shared cells every beginning is taken over."""
    engine = make(4096, n_slots=2, kv_unified=unified, cache_ram=0)
    system = words("system", 40)
    long = system + words("long", 900)
    engine.generate(long, GREEDY, max_tokens=4, id_slot=0)
    short = engine.generate(system + words("short", 50), GREEDY, max_tokens=4, id_slot=1)
    assert (short.cached_tokens, moved(engine)["shared"]) == ((40, 1) if unified else (0, 0))
    half = engine.generate(long[:500] + words("half", 50), GREEDY, max_tokens=4, id_slot=1)
    assert (half.cached_tokens, moved(engine)["shared"]) == (500, 1 + unified)


def test_a_long_conversation_stays_on_the_host_for_a_short_beginning(make: Make) -> None:
    engine = make(1024, n_slots=1)
    system = words("system", 40)
    long = system + words("long", 900)
    for prompt in (long, words("other", 700)):
        engine.generate(prompt, GREEDY, max_tokens=4, draft="off")
    assert engine.generate(system + words("short", 50), GREEDY, max_tokens=4).cached_tokens == 0
    assert moved(engine)["restored"] == 0
    assert engine.generate(long, GREEDY, max_tokens=4).cached_tokens == 939


@pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
def test_requests_with_one_prompt_share_its_reading(make: Make, hybrid: bool) -> None:
    engine = make(hybrid=hybrid, cache_ram=0)
    prompt = words("choices", 400)
    samplings = [SamplingParams(temperature=1, seed=seed) for seed in range(4)]
    expected = [engine.generate(prompt, sampling, max_tokens=30, cache_prompt=False) for sampling in samplings]
    for slot in range(4):
        engine.slot_clear(slot)
    before = engine.stats()["rows"]
    with held(engine):
        generations = [engine.submit(prompt, sampling, max_tokens=1) for sampling in samplings]
    answers = [generation.result(60) for generation in generations]
    assert [answer.cached_tokens for answer in answers] == [0, *([384 if hybrid else 399] * 3)]
    assert engine.stats()["rows"] - before == 400 + 3 * (16 if hybrid else 1)

    for slot in range(4):
        engine.slot_clear(slot)
    with held(engine):
        generations = [engine.submit(prompt, sampling, max_tokens=30) for sampling in samplings]
    assert [generation.result(60).tokens for generation in generations] == [answer.tokens for answer in expected]


def test_prompts_are_read_in_the_order_of_their_arrival(make: Make) -> None:
    """A pass has no room for both: the first answer is there before the second prompt is read."""
    engine = make(4096, n_slots=2, n_batch=16, n_ubatch=16)
    first, second = (engine.submit(words(f"order {i}", 1500), GREEDY, max_tokens=1, draft="off") for i in range(2))
    second.result()
    assert first.done


def test_who_follows_a_reader_that_goes_away_reads_on(make: Make, alone: Any) -> None:
    engine = make(n_batch=16, n_ubatch=16)
    prompt = words("leader", 800)
    step = engine._native.step

    def step_until_it_goes() -> list[StepUpdate]:
        updates = step()
        if engine._native.stats()["rows"] >= 200:
            reader.cancel()
        return updates

    with held(engine):
        reader, follower = (engine.submit(prompt, GREEDY, max_tokens=10) for _ in range(2))
        engine._native.step = step_until_it_goes  # type: ignore[method-assign]
    assert follower.result(60).tokens == alone(prompt, max_tokens=10).tokens
    assert 0 < follower.result().cached_tokens < 799


def test_a_new_turn_stays_in_its_slot_and_another_conversation_does_not_cut_it(make: Make) -> None:
    """Who continues all of a prompt goes on where it is; who leaves it earlier begins in an empty slot, if there is
    one."""
    engine = make(2048)
    system = words("same system", 400)
    first = system + words("first", 50)
    answer = engine.generate(first, ENDLESS, max_tokens=100)
    engine.generate(system + words("second", 50), ENDLESS, max_tokens=4)
    assert len({seq for _, _, seqs in cells(engine) for seq in seqs}) == 2
    again = engine.generate(first + words("no thoughts", 30), ENDLESS, max_tokens=4)  # the answer is left out
    assert again.cached_tokens == len(first)
    assert len({seq for _, _, seqs in cells(engine) for seq in seqs}) == 2
    assert len(answer.tokens) == 100


def cells(engine: Engine) -> list[Any]:
    return list(engine.cells()["caches"][0]["streams"][0]["cells"])


def test_a_slot_can_be_named(make: Make) -> None:
    engine = make()
    prompts = [words(f"named {i}", 100) for i in range(2)]
    for _ in range(2):
        for slot, prompt in ((2, prompts[0]), (1, prompts[1])):
            engine.generate(prompt, GREEDY, max_tokens=3, id_slot=slot)
    assert engine.generate(prompts[0], GREEDY, max_tokens=3, id_slot=2).cached_tokens == 99
    for slot in (-1, 4):
        with pytest.raises(RequestError) as caught:
            engine.generate(prompts[0], id_slot=slot)
        assert caught.value.param == "id_slot"


@pytest.mark.parametrize("n_slots", some_fast([1, 4], [4]))
def test_a_hybrid_conversation_comes_back(make: Make, n_slots: int) -> None:
    """Whole, or from the checkpoint near its prompt's end."""
    engine = make(1024, hybrid=True, n_slots=n_slots)
    first = words("hybrid", 400)
    answer = engine.generate(first, ENDLESS, max_tokens=40)
    turns = [first + answer.tokens + words("more", 30), first + words("other", 30)]
    expected = [engine.generate(turn, ENDLESS, max_tokens=20, cache_prompt=False).tokens for turn in turns]
    for turn, tokens, n_least in zip(turns, expected, (438, 384), strict=True):
        for slot in range(n_slots):
            engine.slot_clear(slot)
        engine.generate(first, ENDLESS, max_tokens=40)
        for i in range(3):
            engine.generate(words(f"between {i}", 700), ENDLESS, max_tokens=2)
        before = moved(engine)["restored"]
        done = engine.generate(turn, ENDLESS, max_tokens=20)
        assert done.tokens == tokens
        assert done.cached_tokens >= n_least and moved(engine)["restored"] == before + 1


def test_small_batches_are_accepted(pocket: dict[str, Path], alone: Any) -> None:
    """Trees need 64 rows, whatever prompts may have."""
    with Engine(
        pocket["target"], pocket["dflash"], n_ctx=512, n_batch=16, n_ubatch=16, n_threads=1, warmup=False
    ) as engine:
        prompt = words("batch", 100)
        before = engine.stats()["passes"]
        done = engine.generate(prompt, GREEDY, max_tokens=30, budget=32)
        assert done.tokens == alone(prompt, max_tokens=30).tokens
        assert engine.stats()["passes"] - before == 7 + len(done.acceptance_lengths)  # 16 rows of the prompt at a time


@pytest.mark.parametrize(
    ("options", "n_ctx", "limit"),
    [
        ({"n_slots": -1}, 4096, "training"),
        ({"n_slots": 2}, 8192, "training"),
        ({"n_slots": -1, "host_memory": 30 * 2**20}, 4096, "training"),  # never less than this
        ({"n_slots": 64, "n_ctx_slot": 2000}, 128000, "training"),
        ({"n_slots": 64, "host_memory": 10**9}, None, "memory"),
        ({"n_slots": 64, "host_memory": 10**9, "cache_type_k": "q8_0"}, None, "memory"),
        ({"n_slots": -1, "n_ctx": 700}, 700, "given"),
    ],
)
def test_the_default_context(pocket: dict[str, Path], options: dict[str, Any], n_ctx: int | None, limit: str) -> None:
    """What the model was trained with (4096 tokens), as far as half of what its weights leave free holds it; doctor
    says the same."""
    settings: dict[str, Any] = {"n_threads": 1, "warmup": False, "flash_attn": "on", **options}
    with Engine(pocket["target"], **settings) as engine:
        info = engine.info
    assert info["ctx_limit"] == limit
    if n_ctx is None:
        per_token = info["memory"]["context"] / info["n_ctx"]
        spare = options["host_memory"] - info["memory"]["target"]
        assert info["n_ctx"] * per_token == pytest.approx(spare / 2, rel=0.01)
        n_ctx = default_context(EngineOptions(pocket["target"], **settings), Sizes(pocket["target"]), spare)
    assert info["n_ctx"] == pytest.approx(n_ctx, abs=256)


def test_a_drawn_chain_counts_whole_or_not_at_all(pocket: dict[str, Path]) -> None:
    """Block verification where a prompt leaves cells for a part of the chain: this pass is plain. With one candidate,
    it writes what greedy decoding writes."""
    native = NativeEngine({
        "model": str(pocket["target"]), "drafter": str(pocket["dflash2"]), "n_ctx": 512, "n_slots": 2,
        "share_ctx": True, "n_threads": 1, "warmup": False, "cache_ram": 0,
    })  # fmt: skip
    chains = {"budget": 16, "draft": DraftMode.CHAIN, "accept": AcceptRule.BLOCK, "lookup": 0}
    only = {"sampling": SamplingParams(temperature=1, top_k=1, ignore_eos=True).to_json(), **chains}
    try:
        prompt = native.tokenize("".join(PROMPT.format(i) for i in range(3)), True, True)

        def begin() -> list[int]:
            """After four passes."""
            for slot in (0, 1):
                native.cancel(slot)
                native.slot_clear(slot)
            native.submit(0, native.prepare({"tokens": prompt, "n_predict": 60, **only}))
            return [token for _ in range(5) for update in native.step() for token in update.tokens]

        begun = begin()
        (next_pass,) = native.step()
        rest = [token for _ in range(50) for update in native.step() for token in update.tokens]
        text = begun + next_pass.tokens + rest
        assert next_pass.n_drafted > 3 and len(text) == 60

        n = next_pass.n_drafted
        for room in (1, 2, n - 1, n, n + 1):
            written = begin()
            cells = native.stats()["cells"]
            other = words(room, cells["size"] - cells["used"] - room)
            native.submit(1, native.prepare({"tokens": other, "n_predict": 0, **only}))
            writer = next(update for update in native.step() if update.slot == 0)
            assert writer.error is None
            assert writer.n_drafted == (n if room > n else 0)
            assert written + writer.tokens == text[: len(written) + len(writer.tokens)]
    finally:
        native.destroy()
