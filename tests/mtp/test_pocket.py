"""The pocket targets with their trained MTP layers, hybrid and dense: alone, in a file of their own, and beside a
DFlash drafter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dflash_local.demo.pocket import as_hy_v3, join_mtp
from dflash_local.draft_options import draft_kind_id
from dflash_local.engine import Completion, Engine, SamplingParams
from dflash_local.errors import PairError, RequestError
from dflash_local.native import DraftMode, NativeEngine, Origin
from tests.engine.test_slot_files import draft_of

GREEDY = SamplingParams(temperature=0)
SEEDED = SamplingParams(temperature=1, seed=3)
Make = Callable[..., Engine]


class Files(NamedTuple):
    """A target without its layer, its drafters, and the target with the layer in one file."""

    target: Path
    dflash: Path
    mtp: Path
    joined: Path


@pytest.fixture(scope="module", params=["hybrid", "dense"])
def files(request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("mtp")
    if request.param == "hybrid":
        target, dflash, mtp = (pocket[f"hybrid-{part}"] for part in ("target", "dflash", "mtp"))
    else:
        target, dflash, mtp = as_hy_v3(pocket["target"], folder / "hy_v3.gguf"), pocket["dflash"], pocket["mtp"]
    return Files(target, dflash, mtp, join_mtp(target, mtp, folder / "joined.gguf"))


@pytest.fixture(scope="module")
def make(files: Files) -> Iterator[Make]:
    """Engines over the joined file, closed at the end."""
    engines: list[Engine] = []

    def create(drafter: Path | None = None, model: Path = files.joined, **options: Any) -> Engine:
        settings: dict[str, Any] = {"n_ctx": 1024, "n_threads": 1, "warmup": False, "lookup": False}
        engines.append(Engine(model, drafter, **{**settings, **options}))
        return engines[-1]

    yield create
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def questions(repo: Path) -> list[list[dict[str, str]]]:
    lines = (repo / "benchmarks" / "prompts.jsonl").read_text().splitlines()[:4]
    return [json.loads(line)["messages"] for line in lines]


def answers(
    engine: Engine, questions: list[list[dict[str, str]]], sampling: SamplingParams = GREEDY, **options: Any
) -> list[Completion]:
    prompts = [engine.apply_chat({"messages": question}).prompt for question in questions]
    return [engine.generate(prompt, sampling, max_tokens=80, **options) for prompt in prompts]


def tokens(completions: list[Completion]) -> list[list[int]]:
    return [completion.tokens for completion in completions]


def acceptance(completions: list[Completion]) -> float:
    steps, passes = (sum(getattr(c.timings, name) for c in completions) for name in ("n_steps", "n_passes"))
    return steps / passes


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_the_text_is_plain_text(make: Make, questions: list[list[dict[str, str]]], sampling: SamplingParams) -> None:
    engine = make()
    assert engine.info["drafter"]["kind"] == "mtp"
    plain = tokens(answers(engine, questions, sampling, draft="off"))
    for options in ({"budget": 4}, {"budget": 16}, {"budget": 16, "draft": "chain"}, {}):
        assert tokens(answers(engine, questions, sampling, **options)) == plain, options
    assert engine.stats()["drafter_failure"] == ""


def test_acceptance(make: Make, questions: list[list[dict[str, str]]]) -> None:
    """As trained: with chains of 12, a mean of 8.1 over 40 prompts."""
    engine = make()
    for least, options in ((6, {"budget": 16}), (6, {"budget": 16, "draft": "chain"}), (2.5, {"budget": 4})):
        assert acceptance(answers(engine, questions, **options)) > least, options


def test_slots_that_share_a_prefix_share_its_rows(make: Make, questions: list[list[dict[str, str]]]) -> None:
    """The target holds the prefix once, and the layers have not many more cells than it."""
    engine = make(n_slots=4, share_ctx=True, n_ctx=768)
    said = [engine.tokenize(engine.apply_chat({"messages": question}).prompt) for question in questions]
    prefix = (said[0] * 30)[:420]
    endless = SamplingParams(temperature=0, ignore_eos=True)
    engine.generate(prefix, GREEDY, max_tokens=1)

    def at_once(**more: Any) -> list[Completion]:
        running = [engine.submit(prefix + one[:20], endless, max_tokens=50, budget=8, **more) for one in said]
        return [generation.result() for generation in running]

    done = at_once()
    assert engine.stats()["drafter_failure"] == ""
    assert sum(completion.cached_tokens for completion in done) > 4 * 400
    assert tokens(done) == tokens(at_once(draft="off"))
    assert acceptance(done) > 1.2


def test_a_slot_that_is_set_aside_leaves_its_rows(make: Make, questions: list[list[dict[str, str]]]) -> None:
    """To the other one, whose rows would not fit beside them."""
    engine = make(n_slots=2, share_ctx=True, n_ctx=2560)
    said = [engine.tokenize(engine.apply_chat({"messages": question}).prompt) for question in questions]
    endless = SamplingParams(temperature=0, ignore_eos=True)
    lengths = ((1100, 1200), (900, 400))
    running = [
        engine.submit((one * 90)[:n_prompt], endless, max_tokens=n, budget=8)
        for one, (n_prompt, n) in zip(said, lengths, strict=False)
    ]
    done = [generation.result() for generation in running]
    assert [len(completion.tokens) for completion in done] == [1200, 400]
    assert engine.stats()["moved"]["set_aside"] > 0
    assert engine.stats()["drafter_failure"] == ""
    # It gets them back: as many are accepted as alone.
    alone = engine.generate((said[1] * 90)[:900], endless, max_tokens=400, budget=8, cache_prompt=False)
    assert alone.tokens == done[1].tokens and acceptance([done[1]]) > 0.97 * acceptance([alone])


def test_taps_of_a_slot_that_is_set_aside_wait(files: Files, tmp_path: Path) -> None:
    """It is set aside while it reads its prompt: a part is rows of the layers, and its last taps are not yet."""
    native = NativeEngine({
        "model": str(files.joined), "draft_kind": draft_kind_id("mtp"), "n_ctx": 1024, "n_slots": 2, "share_ctx": True,
        "n_batch": 64, "n_ubatch": 64, "n_threads": 1, "warmup": False, "cache_ram": 0, "lookup": False,
    })  # fmt: skip
    sampling = SamplingParams(temperature=0, ignore_eos=True).to_json()
    plain = {"sampling": sampling, "draft": DraftMode.OFF}
    try:
        native.submit(0, native.prepare({"tokens": list(range(300, 400)), "n_predict": 40, **plain}))
        while native.slot_stats(0).n_generated == 0:
            native.step()
        cells = native.stats()["cells"]
        n_prompt = cells["size"] - cells["used"] - 7  # seven passes later the other slot needs its cells
        native.submit(1, native.prepare({"tokens": list(range(400, 400 + n_prompt)), "n_predict": 0, **plain}))
        for _ in iter(native.step, []):
            pass
        assert native.stats()["moved"]["set_aside"] > 0
        native.slot_save(1, tmp_path / "slot")
        held = draft_of(tmp_path / "slot")
        assert held["begin"] == 0 and held["end"] > 500
    finally:
        native.destroy()


def test_a_file_of_its_own(make: Make, files: Files, questions: list[list[dict[str, str]]]) -> None:
    whole, split = make(), make(files.mtp, files.target)
    both = [answers(engine, questions, budget=16) for engine in (whole, split)]
    assert tokens(both[0]) == tokens(both[1]) and acceptance(both[0]) == acceptance(both[1])
    assert split.info["drafter"]["kind"] == "mtp" and len(split.info["drafters"]) == 1


def test_two_drafters_take_turns(make: Make, files: Files, questions: list[list[dict[str, str]]]) -> None:
    """A fixed budget is the first drafter's; without one both are tried, and one of them drafts most."""
    engine = make(files.dflash, n_slots=2, kv_unified=True, warmup=True, cost_cache=False)
    assert [drafter["kind"] for drafter in engine.info["drafters"]] == ["dflash", "mtp"]
    alone = {kind: make(files.dflash if kind == "dflash" else None) for kind in ("dflash", "mtp")}
    plain = tokens(answers(engine, questions, draft="off"))
    assert acceptance(answers(engine, questions, budget=16)) == acceptance(
        answers(alone["dflash"], questions, budget=16)
    )
    assert engine.stats()["choices"]["drafters"]["mtp"] == 0
    for _ in range(3):
        assert tokens(answers(engine, questions)) == plain
    used = engine.stats()["choices"]["drafters"]
    assert used["dflash"] > 0 and used["mtp"] > 0
    prompts = [engine.apply_chat({"messages": question}).prompt for question in questions]
    together = [engine.submit(engine.tokenize(prompt), GREEDY, max_tokens=80) for prompt in prompts]
    assert [generation.result(60).tokens for generation in together] == plain


def test_conversations_keep_both_contexts(
    make: Make, files: Files, questions: list[list[dict[str, str]]], tmp_path: Path
) -> None:
    """In the host cache and in slot files: a conversation that comes back is drafted for as one that stayed."""
    options = {"n_slots": 2, "kv_unified": True}
    stays, moves, fresh = (make(files.dflash, **options) for _ in range(3))
    prompt = stays.apply_chat({"messages": questions[0]}).prompt

    def say(engine: Engine, text: str, slot: int = 0) -> Completion:
        return engine.generate(text, GREEDY, max_tokens=60, budget=12, id_slot=slot)

    for engine in (stays, moves):
        first = say(engine, prompt)
    moves.save_slot(0, tmp_path / "slot")
    fresh.restore_slot(1, tmp_path / "slot")
    turn = prompt + first.text + "\nNow "
    expected = say(stays, turn)
    for engine, slot in ((moves, 0), (fresh, 1)):
        again = say(engine, turn, slot)
        assert again.cached_tokens == expected.cached_tokens > 0
        assert again.tokens == expected.tokens and again.acceptance_lengths == expected.acceptance_lengths
    with pytest.raises(RequestError, match="drafter"):
        make(**options).restore_slot(0, tmp_path / "slot")


def test_who_drafted_is_told(make: Make, files: Files, questions: list[list[dict[str, str]]]) -> None:
    """By timings, and by the origin of each node of a tree."""
    for drafter, origin in ((None, Origin.MTP), (files.dflash, Origin.DRAFTER)):
        (answer,) = answers(make(drafter), questions[:1], budget=8, return_drafts=True, trace=True)
        nodes = [by for step in answer.steps if step.tree for by in step.tree.origins[1:]]
        by_layers = origin is Origin.MTP
        assert set(nodes) == {origin}
        assert answer.timings.mtp_n == (answer.timings.draft_n if by_layers else 0)
        assert answer.timings.mtp_n_accepted == (answer.timings.draft_n_accepted if by_layers else 0)
        assert answer.timings.draft_n_accepted > 0


def test_a_part_of_the_head(make: Make, questions: list[list[dict[str, str]]]) -> None:
    """Fewer tokens may be proposed; which ones follows the texts."""
    whole, part = make(), make(draft_vocab=400)
    assert part.info["drafter"]["n_vocab_draft"] == 400 < whole.info["drafter"]["n_vocab_draft"]
    both = [answers(engine, questions * 3, budget=8) for engine in (whole, part)]
    assert tokens(both[0]) == tokens(both[1])
    assert acceptance(both[1][8:]) > 0.8 * acceptance(both[0][8:])


def test_kinds_that_are_not_there(make: Make, files: Files) -> None:
    assert make(draft_kind="lookup", lookup=True).info["drafter"] is None
    dflash, mtp = files.dflash, files.mtp
    for drafter, model, kind, why in (
        (None, files.target, "mtp", "has no MTP layers"),
        (dflash, None, "mtp", "has no MTP layers of the target"),
        (mtp, None, "dflash", "has MTP layers of the target"),
    ):
        with pytest.raises(PairError, match=why):
            make(drafter, **({"model": model} if model else {}), draft_kind=kind)
    with pytest.raises(RequestError, match="there is no drafter"):
        make(draft_kind="dflash")
    with pytest.raises(RequestError, match="lookup is off"):
        make(draft_kind="lookup")
