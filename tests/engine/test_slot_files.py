"""Slots as files: what comes back is what was there, with the drafter's context; any other file is refused, and changes
nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.convert.gguf_metadata import string
from dflash_local.engine import Completion, Engine, SamplingParams, SlotFile
from dflash_local.errors import QueueFullError, RequestError
from dflash_local.native import StepUpdate
from tests.convert import samples
from tests.gguf_files import numbers, rewritten
from tests.patience import PATIENCE, wait_until
from tests.trees import models

ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
SEED = SamplingParams(temperature=1, seed=4, ignore_eos=True)
PROMPT = "<|im_start|>user\nWhat is {} plus 24?<|im_end|>\n<|im_start|>assistant\n"
Make = Callable[..., Engine]

# The beginning of a file (ggml_ops/cache/slot_file.cpp).
HEAD = struct.Struct("<8s5Q6i")
FIELDS = [
    "magic", "file_size", "target", "drafter", "projector", "state_size",
    "n_tokens", "n_asked", "n_checkpoints", "n_drafts", "n_media", "rope_factors",
]  # fmt: skip
DRAFT_HEAD = struct.Struct("<3Q8i")  # before what a drafter holds
DRAFT_FIELDS = [
    "context_size", "n_taps", "segment_size", "past_begin", "n_segments", "begin", "end", "taps_pos", "taps_rows",
    "n_positions", "unused",
]  # fmt: skip


@pytest.fixture(scope="module")
def make(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """An engine with two slots over a pair, or over a tiny random target; closed at the end."""
    engines: list[Engine] = []
    folder = tmp_path_factory.mktemp("targets")

    def create(name: str = "", **options: Any) -> Engine:
        target = pocket[f"{name}target"] if name in ("", "hybrid-") else models.write(name, folder / f"{name}.gguf")
        drafter = pocket[f"{name}dflash"] if name in ("", "hybrid-") else None
        drafter = pocket[options.pop("drafter")] if isinstance(options.get("drafter"), str) else drafter
        settings: dict[str, Any] = {"n_ctx": 1024, "n_slots": 2, "kv_unified": True, "n_threads": 1, "warmup": False}
        engines.append(Engine(target, options.pop("drafter", drafter), **{**settings, **options}))
        return engines[-1]

    yield create
    for engine in engines:
        engine.close()


def words(engine: Engine, n: int) -> list[int]:
    rng = random.Random(n)
    n_vocab = int(engine.info["target"]["n_vocab"])
    return [rng.randrange(n_vocab // 5, n_vocab - 9) for _ in range(n)]


def say(engine: Engine, tokens: list[int], n: int = 40, **options: Any) -> Completion:
    return engine.generate(tokens, options.pop("sampling", ENDLESS), max_tokens=n, **options)


# Memories of all kinds: attention, with and without a drafter; sliding windows; recurrent states.
MEMORIES = ["", "hybrid-", "gemma4", "gpt-oss", "qwen35", "lfm2"]


@pytest.mark.parametrize("name", MEMORIES)
def test_a_slot_comes_back_in_another_engine(make: Make, name: str, tmp_path: Path) -> None:
    """The next turn reads what is new, says what it would have said, and drafts what it would have drafted."""
    engine = make(name)
    first = words(engine, 150)
    answer = say(engine, first, id_slot=1, draft="off")  # nothing is learned of drafts yet, by either engine
    turn = first + answer.tokens + words(engine, 20)
    saved = engine.save_slot(1, tmp_path / "slot")
    assert (saved.n_tokens, saved.n_bytes) == (len(first) + 39, (tmp_path / "slot").stat().st_size)
    assert [path.name for path in tmp_path.iterdir()] == ["slot"]

    after = [say(engine, turn, id_slot=1, sampling=sampling, budget=16) for sampling in (ENDLESS, SEED)]
    fresh = make(name)
    assert fresh.restore_slot(0, tmp_path / "slot")[:2] == saved[:2]
    back = [say(fresh, turn, id_slot=0, sampling=sampling, budget=16) for sampling in (ENDLESS, SEED)]
    read_anew = make(name)
    assert back[0].cached_tokens == after[0].cached_tokens > len(first)
    for sampling, done, stayed in zip((ENDLESS, SEED), back, after, strict=True):
        assert done.acceptance_lengths == stayed.acceptance_lengths
        assert done.tokens == stayed.tokens == say(read_anew, turn, sampling=sampling, cache_prompt=False).tokens


@pytest.mark.parametrize("name", ["hybrid-", "gemma4"])
def test_checkpoints_come_back(make: Make, name: str, tmp_path: Path) -> None:
    """Of a memory that cannot go back to any token: the next turn may leave the answer out."""
    engine = make(name)
    first = words(engine, 150)
    say(engine, first, id_slot=1)
    engine.save_slot(1, tmp_path / "slot")
    fresh = make(name)
    fresh.restore_slot(0, tmp_path / "slot")
    other = first + words(engine, 30)
    done = say(fresh, other, id_slot=0)
    assert done.cached_tokens >= 134
    assert done.tokens == say(engine, other, cache_prompt=False).tokens


def test_what_the_drafter_has_not_read_comes_back(make: Make, tmp_path: Path) -> None:
    """While nothing is drafted, hidden states wait for the drafter: they are saved, too."""
    first, engines = words(make(), 200), [make(), make()]
    for engine in engines:
        say(engine, first, id_slot=0, draft="off")
    engines[0].save_slot(0, tmp_path / "slot")
    fresh = make()
    fresh.restore_slot(1, tmp_path / "slot")
    assert draft_of(tmp_path / "slot")["taps_rows"] > 0
    turn = first + words(fresh, 10)
    stayed, back = say(engines[1], turn, id_slot=0, budget=16), say(fresh, turn, id_slot=1, budget=16)
    assert back.tokens == stayed.tokens and back.acceptance_lengths == stayed.acceptance_lengths


def test_what_a_slot_held_before_goes_to_the_host(make: Make, tmp_path: Path) -> None:
    engine = make()
    one, two = words(engine, 150), words(engine, 151)
    say(engine, one, id_slot=0)
    engine.save_slot(0, tmp_path / "slot")
    engine.erase_slot(0)
    say(engine, two, id_slot=0)
    engine.restore_slot(0, tmp_path / "slot")
    assert say(engine, one, id_slot=0).cached_tokens == 149
    assert say(engine, two, id_slot=1).cached_tokens == 150


@pytest.mark.parametrize("n_slots", [2, 3], ids=["in its slot", "in another one"])
def test_what_was_restored_stays_longest(make: Make, n_slots: int, tmp_path: Path) -> None:
    """Another conversation takes the slot or the room of one that was used before."""
    engine = make(n_slots=n_slots, cache_ram=0)
    one, two = words(engine, 300), words(engine, 301)
    say(engine, one, 4, id_slot=0)
    engine.save_slot(0, tmp_path / "slot")
    say(engine, two, 4, id_slot=1)
    engine.restore_slot(0, tmp_path / "slot")
    say(engine, words(engine, 600), 4)
    assert say(engine, one, 4).cached_tokens == 299


def test_erase(make: Make) -> None:
    engine = make()
    prompt = words(engine, 100)
    say(engine, prompt, 5, id_slot=1)
    assert engine.erase_slot(1) == 104
    assert engine.erase_slot(1) == 0
    for move in (engine.erase_slot, engine.erase_slot_soon):
        with pytest.raises(RequestError, match="slot must be between 0 and 1"):
            move(2)


def test_a_busy_slot_is_waited_for(make: Make, tmp_path: Path) -> None:
    engine = make()
    running = engine.submit(words(engine, 100), ENDLESS, max_tokens=200, id_slot=0)
    saving = engine.save_slot_soon(0, tmp_path / "slot")
    assert engine.erase_slot(1) == 0  # another one is not held up
    assert saving.result(60).n_tokens == 299 and running.done


def test_no_room_is_told_apart(make: Make, tmp_path: Path) -> None:
    """Beside a running request there may be none: a matter of time."""
    engine = make(cache_ram=0)
    say(engine, words(engine, 700), 5, id_slot=0)
    engine.save_slot(0, tmp_path / "slot")
    engine.erase_slot(0)
    step, restored = engine._native.step, list[Future[SlotFile]]()

    def step_and_restore() -> list[StepUpdate]:
        updates = step()
        if not restored and engine._native.stats()["rows"] > 1400:
            restored.append(engine.restore_slot_soon(0, tmp_path / "slot"))
        return updates

    engine._native.step = step_and_restore  # type: ignore[method-assign]
    running = engine.submit(words(engine, 600), ENDLESS, max_tokens=300, id_slot=1)
    wait_until(lambda: bool(restored))
    with pytest.raises(QueueFullError, match="no room for 704 tokens"):
        restored[0].result(PATIENCE)
    assert running.result(60).finish_reason == "length"
    assert engine.restore_slot(0, tmp_path / "slot").n_tokens == 704


def test_foreign_files(make: Make, pocket: dict[str, Path], tmp_path: Path) -> None:
    """Saved with other models or settings, or no slot at all: refused, and the slot holds what it held."""
    engine = make()
    say(engine, words(engine, 150), id_slot=0)
    engine.save_slot(0, tmp_path / "slot")
    (tmp_path / "text").write_text("no slot at all " * 20)
    (tmp_path / "empty").write_bytes(b"")
    others = [
        (make("hybrid-"), "slot", "another target"),
        (make(drafter=None), "slot", "another drafter, or without one"),
        (make(drafter=pocket["dflash2"]), "slot", "another drafter"),
        (make(n_ctx=128), "slot", "larger -c"),
        (make(cache_type_k="f32", cache_type_v="f32"), "slot", "other cache types"),
        (make(kv_unified=False), "slot", "the file was saved with another number of caches: start with"),
        (engine, "text", "no saved slot"),
        (engine, "empty", "too short"),
        (engine, "none", "cannot be read"),
        (engine, ".", "no regular file"),
    ]
    for other, file, why in others:
        prompt = words(other, 60)
        turn = prompt + say(other, prompt, 20, id_slot=1).tokens
        with pytest.raises(RequestError, match=why):
            other.restore_slot(1, tmp_path / file)
        assert say(other, turn, 20, id_slot=1).cached_tokens == 79
    with pytest.raises(RequestError, match="holds nothing"):
        make().save_slot(0, tmp_path / "nothing")


@pytest.mark.parametrize(
    ("saved", "restored"),
    [
        ({}, {"cache_type_k_draft": "f32"}),
        ({"cache_type_k_draft": "f32", "cache_type_v_draft": "f32"}, {}),
        ({}, {"draft_kind": "lookup"}),
        ({"draft_kind": "lookup"}, {}),
    ],
    ids=str,
)
def test_of_other_drafts_the_text_comes_back(
    make: Make, saved: dict[str, Any], restored: dict[str, Any], tmp_path: Path
) -> None:
    """Their context is left out: the drafter begins anew."""
    engine = make(**saved)
    first = words(engine, 150)
    turn = first + say(engine, first, id_slot=0).tokens + words(engine, 20)
    engine.save_slot(0, tmp_path / "slot")
    other = make(**restored)
    other.restore_slot(1, tmp_path / "slot")
    done = say(other, turn, id_slot=1, budget=16)
    assert done.cached_tokens == len(turn) - 21
    assert done.tokens == say(engine, turn, budget=16).tokens


def test_a_split_model_is_told_by_all_its_parts(pocket: dict[str, Path], tmp_path: Path) -> None:
    """Models that differ in a later part alone have other states."""

    def target(name: str, scale: float) -> Path:
        (tmp_path / name).mkdir()
        first = samples.write_split(pocket["target"], tmp_path / name / "m", "output_norm.weight".__eq__)
        second = first.with_name("m-00002-of-00002.gguf")
        (data,) = numbers(second).values()
        rewritten(second, second, {}, {"output_norm.weight": data * np.float32(scale)})
        return first

    files = {name: target(name, scale) for name, scale in (("one", 1.0), ("same", 1.0), ("other", 2.0))}
    assert len({path.read_bytes() for path in files.values()}) == 1
    engines = {name: Engine(path, n_ctx=256, n_threads=1, warmup=False) for name, path in files.items()}
    say(engines["one"], words(engines["one"], 50), 5, id_slot=0)
    engines["one"].save_slot(0, tmp_path / "slot")
    assert engines["same"].restore_slot(0, tmp_path / "slot").n_tokens == 54
    with pytest.raises(RequestError, match="saved with another target"):
        engines["other"].restore_slot(0, tmp_path / "slot")
    for engine in engines.values():
        engine.close()


def test_a_model_whose_file_is_replaced_stays_what_was_loaded(pocket: dict[str, Path], tmp_path: Path) -> None:
    """By a download over it: slots belong to the model in memory, and can be saved even if its file is gone."""
    path, options = tmp_path / "m.gguf", dict[str, Any](n_ctx=256, n_threads=1, warmup=False)
    path.write_bytes(pocket["target"].read_bytes())
    with Engine(path, **options) as engine:
        say(engine, words(engine, 50), 5, id_slot=0)
        engine.save_slot(0, tmp_path / "before")
        rewritten(path, tmp_path / "new.gguf", {"general.name": string("another")}).replace(path)
        engine.save_slot(0, tmp_path / "after")
        assert engine.restore_slot(0, tmp_path / "before").n_tokens == 54
        with Engine(path, **options) as other:
            for name in ("before", "after"):
                with pytest.raises(RequestError, match="saved with another target"):
                    other.restore_slot(0, tmp_path / name)
        path.unlink()
        assert engine.save_slot(0, tmp_path / "gone").n_tokens == 54
        assert engine.restore_slot(0, tmp_path / "gone").n_tokens == 54


def test_an_empty_slot_leaves_nothing_on_the_host(make: Make, tmp_path: Path) -> None:
    engine = make()
    say(engine, words(engine, 50), 5, id_slot=0)
    engine.save_slot(0, tmp_path / "slot")
    fresh = make()
    fresh.restore_slot(0, tmp_path / "slot")
    assert fresh.stats()["host_cache"]["conversations"] == 0


def test_a_memory_that_cannot_be_checked_is_not_saved(make: Make, tmp_path: Path) -> None:
    engine = make("minimax-m3")
    say(engine, words(engine, 50), 5, id_slot=0)
    with pytest.raises(RequestError, match="cannot be saved: the memory of the architecture minimax-m3"):
        engine.save_slot(0, tmp_path / "slot")


# ---- files that lie ----


def head_from(content: bytes) -> dict[str, Any]:
    return dict(zip(FIELDS, HEAD.unpack_from(content), strict=True))


def before_drafts(content: bytes) -> list[int]:
    """Sizes of the parts up to those of the drafters."""
    head = head_from(content)
    sizes = [HEAD.size, 4 * head["n_tokens"], head["state_size"]]
    for _ in range(head["n_checkpoints"]):
        sizes += [16, struct.unpack_from("<Q", content, sum(sizes) + 8)[0]]
    return sizes


def draft_from(content: bytes, at: int) -> dict[str, Any]:
    return dict(zip(DRAFT_FIELDS, DRAFT_HEAD.unpack_from(content, at), strict=True))


def draft_of(path: Path) -> dict[str, Any]:
    """What the file says of its first drafter."""
    content = path.read_bytes()
    return draft_from(content, sum(before_drafts(content)))


def signed(content: bytes) -> bytes:
    """With the checksum and the size that belong to it: nothing but what it says is wrong. `content` has neither."""
    content = content[:8] + struct.pack("<Q", len(content) + 8) + content[16:]
    sizes = before_drafts(content)
    for _ in range(head_from(content)["n_drafts"]):
        draft = draft_from(content, sum(sizes))
        segments = [draft["segment_size"]] * min(draft["n_segments"], len(content))
        sizes += [DRAFT_HEAD.size, *segments, draft["context_size"], 4 * draft["n_taps"], 12 * draft["n_positions"]]
    parts, at = [], 0
    for size in sizes:
        parts.append(content[at : at + size])
        at += size
    value = 0xCBF29CE484222325
    for part in parts:
        whole = len(part) // 8 * 8
        for word in (*struct.unpack(f"<{whole // 8}Q", part[:whole]), int.from_bytes(part[whole:], "little")):
            value = ((value ^ word) * 0x100000001B3) & (2**64 - 1)
            value ^= value >> 29
    return content + struct.pack("<Q", value)


def test_the_checksum_here_is_that_of_the_files(make: Make, tmp_path: Path) -> None:
    engine = make("hybrid-")
    say(engine, words(engine, 150), id_slot=0)
    engine.save_slot(0, tmp_path / "slot")
    content = (tmp_path / "slot").read_bytes()
    assert signed(content[:-8]) == content


NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 7, 64, 255, 1 << 20)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """A sound file without its checksum, with one to three places changed: numbers of the head, or of the parts'
    beginnings, where lengths, types and positions are, or any bytes."""
    made = bytearray(content)
    head = head_from(content)
    state = HEAD.size + 4 * head["n_tokens"]
    for _ in range(rng.randint(1, 3)):
        where = rng.random()
        if where < 0.25:
            at = rng.randrange(32, HEAD.size - 4, 4)
        elif where < 0.6:
            at = state + 4 * rng.randrange(min(120, head["state_size"] // 4))
        elif where < 0.7:
            at = HEAD.size + 4 * rng.randrange(head["n_tokens"])
        else:
            at = rng.randrange(HEAD.size, len(made) - 4)
        if rng.random() < 0.5:
            struct.pack_into("<i", made, at, rng.choice(NUMBERS))
        else:
            made[at] ^= 1 << rng.randrange(8)
    return bytes(made)


def check_mutations(make: Make, name: str, folder: Path, n: int, n_words: int = 90, **options: Any) -> None:
    """No such file ends the process or reaches another slot; a refusal leaves the slot as it was."""
    engine = make(name, **options)
    sound, other = words(engine, n_words), words(engine, 91)
    expected = say(engine, other, 12, id_slot=1).tokens
    turn = sound + say(engine, sound, 12, id_slot=0).tokens
    engine.save_slot(0, folder / "sound")
    content = (folder / "sound").read_bytes()[:-8]
    file, taken = folder / "bad", 0
    for seed in range(n):
        rng = random.Random(f"{name} {seed}")
        bad = mutate(content, rng)
        try:
            file.write_bytes(signed(bad))
        except (
            struct.error,
            MemoryError,
            OverflowError,
        ):  # lengths that lead out of the file: then the checksum is not looked at
            file.write_bytes(bad + bytes(8))
        try:
            engine.restore_slot(0, file)
            taken += 1
        except RequestError as error:
            assert "the file" in str(error)
        say(engine, turn, 4, id_slot=0)
        if seed % 10 == 0:
            assert say(engine, other, 12, id_slot=1).tokens == expected, f"{name} {seed}"
        engine.restore_slot(0, folder / "sound")
    assert say(engine, turn, 4, id_slot=0).cached_tokens >= len(turn) - 1
    assert 0 < taken < n // 2


@pytest.mark.parametrize("name", ["", "hybrid-", "gemma4"])
def test_files_that_lie(make: Make, name: str, tmp_path: Path) -> None:
    check_mutations(make, name, tmp_path, 60)


def test_files_with_mtp_layers_that_lie(make: Make, tmp_path: Path) -> None:
    check_mutations(make, "hybrid-", tmp_path, 60, drafter="hybrid-mtp")


def test_files_that_lie_about_the_history(make: Make, tmp_path: Path) -> None:
    """Of a drafter that sees less than the text."""
    check_mutations(make, "", tmp_path, 60, n_words=400, draft_ctx=16)
    assert draft_of(tmp_path / "sound")["n_segments"] > 1


def test_rows_without_bytes(make: Make, tmp_path: Path) -> None:
    """Of V, which is transposed without flash attention: the file names the bytes of a row and their number apart."""
    engine = make("", flash_attn="off")
    say(engine, words(engine, 90), 12, id_slot=0)
    engine.save_slot(0, tmp_path / "slot")
    content = (tmp_path / "slot").read_bytes()[:-8]
    begin = HEAD.size + 4 * head_from(content)["n_tokens"]
    n_layer = int(engine.info["target"]["n_layer"])
    at = content.index(struct.pack("<II", 1, n_layer), begin) + 8
    n_cells = head_from(content)["n_tokens"]
    for _ in range(n_layer):  # K
        at += 12 + n_cells * struct.unpack_from("<Q", content, at + 4)[0]
    size, row_size = struct.unpack_from("<II", content, at + 4)
    assert size in (2, 4) and row_size % 16 == 0
    (tmp_path / "slot").write_bytes(signed(content[: at + 8] + bytes(4) + content[at + 12 :]))
    with pytest.raises(RequestError, match="the file"):
        engine.restore_slot(0, tmp_path / "slot")


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_many_files_that_lie(make: Make, name: str, tmp_path: Path) -> None:
    check_mutations(make, name, tmp_path, 1500)
