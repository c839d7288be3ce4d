"""Gemma 4's assistant, which attends to its target's cache: caches that are full, packed or copied, and files that do
not fit. What it drafts and the texts: test_parity.py, test_text.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine, SamplingParams
from dflash_local.convert.target import Target
from dflash_local.diagnose.assistants import Assistant
from dflash_local.diagnose.drafting_finding import look_at_drafting
from dflash_local.diagnose.finding import Level
from dflash_local.diagnose.pair import compare_files, read_drafter
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import ModelError, PairError
from dflash_local.native import NativeEngine
from dflash_local.plan.memory_plan import MemoryPlan
from dflash_local.server.router.folder import best_drafter
from tests.fuzz import gguf_image
from tests.fuzz.architectures import EMBD, HEAD
from tests.parity.f32 import F32
from tests.trees.models import find

from .assistant import LAYERS, WIDTH, path_of
from .assistant import assistant as assistant_of
from .models import ASSISTED, numbers, put
from .test_refusals import changed, engine, halved, keyed
from .test_text import words

GREEDY = SamplingParams(temperature=0, ignore_eos=True)
EXACT: dict[str, Any] = {"swa_full": True, "lookup": False}


@pytest.fixture
def target(model: Callable[[str], Path]) -> Path:
    return model(ASSISTED)


@pytest.fixture
def assistant(target: Path) -> Path:
    path = path_of(target)
    assert path
    return path


def make(target: Path, assistant: Path | None, **options: Any) -> Engine:
    settings = {"n_slots": 2, "n_ctx": 512, "n_batch": 64, "n_ubatch": 64, "n_threads": 1, "warmup": False, **options}
    return Engine(target, assistant, **settings)


def test_it_is_measured_while_loading(target: Path, assistant: Path) -> None:
    with make(target, assistant, warmup=True, cost_cache=False, n_slots=3, **EXACT) as engine:
        assert engine.stats()["cost_drafters_ms"]["mtp"]
        assert engine.generate(words(1, 20), GREEDY, max_tokens=40).timings.draft_n > 0


def test_windows_reuse_their_cells(target: Path, assistant: Path) -> None:
    """Far beyond the window, and the cells that its cache has."""
    with make(target, None, n_ctx=2048, **F32) as plain, make(target, assistant, n_ctx=2048, **F32) as drafting:
        for seed in range(3):
            prompt = words(seed, 100 + 60 * seed)
            want = plain.generate(prompt, GREEDY, max_tokens=150).tokens
            got = drafting.generate(prompt, GREEDY, max_tokens=150, budget=8)
            assert got.tokens == want and got.timings.draft_n_accepted > 30


def test_a_full_cache(target: Path, assistant: Path) -> None:
    """Up to the last cell, where no place is left to draft in."""
    with make(target, None, n_slots=1, n_ctx=256, **EXACT) as plain:
        want = plain.generate(words(1, 30), GREEDY, max_tokens=400)
    with make(target, assistant, n_slots=1, n_ctx=256, **EXACT) as drafting:
        for budget in (2, 16):
            got = drafting.generate(words(1, 30), GREEDY, max_tokens=400, budget=budget)
            assert (got.tokens, got.finish_reason) == (want.tokens, want.finish_reason)


def test_the_cache_is_packed_under_it(target: Path, assistant: Path) -> None:
    """Cells that move take K and V with them; an assistant has nothing else there."""
    options = {"n_ctx": 256, "share_ctx": True, "kv_unified": True, "cache_ram": 0, **EXACT}
    with make(target, None, **options) as plain, make(target, assistant, **options) as drafting:
        first = drafting.generate(words(1, 150), GREEDY, max_tokens=5, id_slot=0)
        stays = words(2, 60)
        stays += drafting.generate(stays, GREEDY, max_tokens=20, budget=8, id_slot=1).tokens
        assert len(first.tokens) == 5 and drafting.stats()["kv_packs"] == 0
        drafting.generate(words(3, 20), GREEDY, max_tokens=5, id_slot=0)  # leaves room, but below
        got = drafting.generate(stays, GREEDY, max_tokens=90, budget=8, id_slot=1)
        assert got.cached_tokens > 70 and drafting.stats()["kv_packs"] > 0
        assert got.tokens == plain.generate(stays, GREEDY, max_tokens=90).tokens
        assert got.timings.draft_n_accepted > 30


def test_conversations_come_back(target: Path, assistant: Path, tmp_path: Path) -> None:
    """From the host cache and from a slot file, and are drafted for as if they had stayed."""
    stays, moves, fresh = (make(target, assistant, n_ctx=1024, **EXACT) for _ in range(3))
    say = partial(Engine.generate, sampling=GREEDY, max_tokens=30, budget=8)
    prompt = words(1, 40)
    first, _ = (say(drafting, prompt, id_slot=0) for drafting in (stays, moves))
    moves.save_slot(0, tmp_path / "slot")
    fresh.restore_slot(1, tmp_path / "slot")
    turn = prompt + first.tokens + words(2, 7)
    expected = say(stays, turn, id_slot=0)
    for drafting, slot in ((moves, 0), (fresh, 1)):
        again = say(drafting, turn, id_slot=slot)
        assert again.cached_tokens == expected.cached_tokens > 0
        assert again.tokens == expected.tokens
        assert again.timings.draft_n_accepted >= expected.timings.draft_n_accepted - 2
    for one in (stays, moves, fresh):
        one.close()


def test_a_plan_knows_it(target: Path, assistant: Path) -> None:
    """Its weights, and no context of its own."""
    options = EngineOptions(model=str(target), drafter=str(assistant), n_ctx=512)
    parts, alone = (MemoryPlan.of(some).placement["CPU"] for some in (options, replace(options, drafter=None)))
    assert parts["drafter"] > 4 * 160_000 and "drafter_context" not in parts
    assert parts["context"] == alone["context"]


# ---- files that do not fit ----


def refused(target: Path, assistant: Path, match: str) -> None:
    with pytest.raises(PairError, match=match):
        engine(target, "auto", assistant)


def test_another_target(target: Path, assistant: Path, model: Callable[[str], Path], tmp_path: Path) -> None:
    refused(model("hy_v3-1"), assistant, "is an assistant of gemma4 models, and the target's architecture is hy_v3")
    with pytest.raises(PairError, match=r"draft_kind is dflash, but .* has MTP layers"):
        engine(target, "dflash", assistant)
    with pytest.raises(ModelError, match=r"drafts for a Gemma 4 model and is none: .* with -m, and this file with -md"):
        engine(assistant, "auto")
    other = Target.read(model("hy_v3-1"))
    assert [finding.level for finding in compare_files(other, read_drafter(assistant, other))] == [Level.FAIL]
    assert {finding.level for finding in compare_files(Target.read(target), Assistant.read(assistant))} == {Level.OK}
    assert best_drafter(target, [assistant]) == assistant
    assert best_drafter(other.path, [assistant]) is None
    found = look_at_drafting(EngineOptions(model=str(target)), Target.read(target), assistant)
    assert found.level is Level.OK and f"by the MTP layers of {assistant.name}" in found.text
    halves = changed(assistant, tmp_path / "halves.gguf", halved_head)
    refused(target, halves, r"vocabulary has 64 tokens, the target's 128")


def halved_head(made: Any) -> None:
    put(made, "output.weight", numbers(find(made, "token_embd.weight")))
    halved(made)
    made.tensors = [tensor for tensor in made.tensors if tensor.name != b"output.weight"]


FULL_HEADS = [keyed(f"attention.{part}_length", HEAD) for part in ("key", "value")] + [
    keyed("rope.dimension_count", HEAD)
]
WINDOWS = "attention.sliding_window_pattern"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ([keyed(WINDOWS, [False] * LAYERS), *FULL_HEADS], "has wrong shape|no layer with"),
        ([keyed("attention.head_count_kv", 1)], "reads 1 heads of 16 .* layer 2 has 2 heads of 16"),
        ([keyed("embedding_length_out", EMBD + 1)], "has wrong shape|embedding_length_out is 65"),
        ([keyed("embedding_length_out", WIDTH)], "embedding_length_out"),
        ([keyed("nextn_predict_layers", LAYERS - 1)], "nextn_predict_layers"),
        ([keyed("nextn_predict_layers", 0)], "nextn_predict_layers"),
        ([keyed("attention.key_length_swa", 2 * HEAD)], "n_embd_head_k == n_embd_head_v"),
    ],
)
def test_keys_of_another_shape(target: Path, assistant: Path, tmp_path: Path, changes: Any, match: str) -> None:
    with pytest.raises((PairError, ModelError), match=match):
        engine(target, "auto", changed(assistant, tmp_path / "other.gguf", *changes))


@pytest.mark.parametrize("windows", [(True,) * LAYERS, (False, False, True), (False,) * LAYERS])
def test_layers_with_and_without_windows(target: Path, tmp_path: Path, windows: tuple[bool, ...]) -> None:
    path = tmp_path / "assistant.gguf"
    path.write_bytes(assistant_of(gguf_image.read(target), windows).encode()[0])
    if not any(windows):
        refused(target, path, "sliding_window_pattern has no layer with a window")
        return
    with make(target, None, **EXACT) as plain, make(target, path, **EXACT) as drafting:
        want = plain.generate(words(4, 30), GREEDY, max_tokens=60).tokens
        got = drafting.generate(words(4, 30), GREEDY, max_tokens=60, budget=8)
        assert got.tokens == want and got.timings.draft_n_accepted > 10


def test_a_target_without_such_layers(target: Path, assistant: Path, tmp_path: Path) -> None:
    """Its last layers must be one with a window and one without, whose K and V the assistant reads."""
    for pattern in ([False, True] * 2, [True] * 4, [False] * 4):
        with pytest.raises((PairError, ModelError)):
            engine(changed(target, tmp_path / "target.gguf", keyed(WINDOWS, pattern)), "auto", assistant)


def test_every_tensor_is_needed(target: Path, assistant: Path, tmp_path: Path) -> None:
    for tensor in gguf_image.read(assistant).tensors:

        def without(made: Any, name: bytes = tensor.name) -> None:
            made.tensors = [other for other in made.tensors if other.name != name]

        with pytest.raises(ModelError, match=r"not found|missing"):
            engine(target, "auto", changed(assistant, tmp_path / "cut.gguf", without))


def test_odd_numbers(target: Path, assistant: Path, tmp_path: Path) -> None:
    """Each number of the header replaced by others: one sentence, or an engine that answers."""
    made = gguf_image.read(assistant)
    prefix = "gemma4-assistant."
    for known in [one for one in made.pairs if one.key.decode().startswith(prefix)]:
        for value in (0, 1, 3, 1 << 20):
            path = changed(assistant, tmp_path / "odd.gguf", keyed(known.key.decode().removeprefix(prefix), value))
            try:
                native: NativeEngine = engine(target, "auto", path)
            except (ModelError, PairError):
                continue
            request = {"tokens": words(1, 9), "n_predict": 9, "budget": 8, "sampling": '{"temperature": 0}'}
            native.submit(0, native.prepare(request))
            assert [update for step in iter(native.step, []) for update in step]
            native.destroy()
