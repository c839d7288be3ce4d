"""Engine.replace_drafter: another file drafts, between two requests, and slots keep what they hold."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from dflash_local import Engine
from dflash_local.draft_options import DraftVocab
from dflash_local.errors import DFlashError, ModelError, PairError, RequestError

PROMPT = "<|im_start|>user\nCount from {} in steps of 3, 14 numbers.<|im_end|>\n<|im_start|>assistant\n"
LATTICE = ("dflash2", "dspark")


@pytest.fixture
def shuffled(pocket: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Makes a drafter that guesses badly of a pocket drafter: rows of its first matrix are in another order."""

    def make(name: str) -> Path:
        path = tmp_path / f"{name}-shuffled.gguf"
        shutil.copyfile(pocket[name], path)
        for tensor in GGUFReader(path, "r+").tensors:
            if tensor.name in {"fc.weight", "dflash_fc.weight"}:
                tensor.data[:] = tensor.data[np.random.default_rng(1).permutation(len(tensor.data))]
                return path
        raise AssertionError(f"{path} has no fc")

    return make


def load(pocket: dict[str, Path], drafter: Path | None, draft_vocab: DraftVocab = "auto") -> Engine:
    n_slots = 2
    return Engine(
        pocket["target"], drafter, n_ctx=1024 * n_slots, n_slots=n_slots, n_threads=1, warmup=False, lookup=False,
        cost_cache=False, budget=8, draft="chain", cache_ram=0, draft_vocab=draft_vocab,
    )  # fmt: skip


def acceptance(engine: Engine, prompt: str) -> tuple[float, list[int]]:
    """AL of an answer that always drafts, and its tokens."""
    answer = engine.generate(prompt, max_tokens=60, temperature=0, ignore_eos=True)
    return sum(answer.acceptance_lengths) / len(answer.acceptance_lengths), list(answer.tokens)


@pytest.mark.parametrize("kind", ["dflash", *LATTICE])
def test_the_other_file_drafts_from_then_on(
    pocket: dict[str, Path], shuffled: Callable[[str], Path], kind: str
) -> None:
    with load(pocket, pocket[kind]) as engine:
        good, plain = acceptance(engine, PROMPT.format(11))
    with load(pocket, shuffled(kind)) as engine:
        bad, same = acceptance(engine, PROMPT.format(11))
        assert engine.replace_drafter(pocket[kind])
        engine.erase_slot(0)
        engine.erase_slot(1)
        better, again = acceptance(engine, PROMPT.format(11))
        assert plain == same == again
        assert bad < better == pytest.approx(good)
        assert engine.replace_drafter(shuffled(kind))
        assert acceptance(engine, PROMPT.format(20))[0] < good


def test_slots_keep_their_text_and_what_the_drafter_knows_of_it(pocket: dict[str, Path]) -> None:
    """The same weights in another file: nothing is read again, and drafts are as good as without a change."""
    chat = "".join(PROMPT.format(n) + "\n" for n in range(11, 21))
    lengths = []
    for is_replaced in (False, True):
        with load(pocket, pocket["dflash"]) as engine:
            engine.generate(chat, max_tokens=1, temperature=0)
            if is_replaced:
                assert engine.replace_drafter(pocket["dflash"])
            answer = engine.generate(chat + PROMPT.format(90), max_tokens=60, temperature=0, ignore_eos=True)
            assert answer.timings.cache_n > 200
            lengths.append(answer.acceptance_lengths)
    assert lengths[0] == lengths[1]


def test_the_tokens_that_texts_consist_of_stay_known(pocket: dict[str, Path]) -> None:
    """A drafter of a part of the head has learned which tokens to propose; the next one proposes them, too."""
    with load(pocket, pocket["dflash"], draft_vocab=128) as engine:
        for n in range(11, 40):  # until enough of their tokens were missing
            engine.generate(PROMPT.format(n), max_tokens=60, temperature=0, ignore_eos=True)
        learned, _ = acceptance(engine, PROMPT.format(50))
        assert engine.replace_drafter(pocket["dflash"])
        assert acceptance(engine, PROMPT.format(50))[0] == pytest.approx(learned)
    with load(pocket, pocket["dflash"], draft_vocab=128) as engine:
        assert acceptance(engine, PROMPT.format(50))[0] < learned


def test_a_running_request_is_not_disturbed(pocket: dict[str, Path]) -> None:
    with load(pocket, pocket["dflash"]) as engine:
        stream = engine.stream(PROMPT.format(11), max_tokens=400, temperature=0, ignore_eos=True)
        next(stream)
        assert not engine.replace_drafter(pocket["dflash"])
        stream.close()


@pytest.fixture
def engine(pocket: dict[str, Path]) -> Iterator[Engine]:
    with load(pocket, pocket["dflash"]) as engine:
        before = acceptance(engine, PROMPT.format(11))
        yield engine
        engine.erase_slot(0)
        engine.erase_slot(1)
        assert acceptance(engine, PROMPT.format(11)) == before  # nothing has changed


def test_files_of_another_form_are_refused(engine: Engine, pocket: dict[str, Path], tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(pocket["dflash"].read_bytes()[:5000])
    for path, error, words in (
        (pocket["dflash2"], PairError, "DFlash 2 drafter"),
        (pocket["dflash-small"], PairError, "only"),
        (pocket["hybrid-dflash"], PairError, "target_layers"),
        (pocket["target"], PairError, "architecture"),
        (cut, ModelError, "cut.gguf"),
        (tmp_path / "absent.gguf", DFlashError, "absent.gguf"),
    ):
        with pytest.raises(error, match=words):
            engine.replace_drafter(path)


def test_an_engine_without_a_drafter_file_has_none_to_replace(pocket: dict[str, Path]) -> None:
    with load(pocket, None) as engine, pytest.raises(RequestError, match="no drafter of a file"):
        engine.replace_drafter(pocket["dflash"])
