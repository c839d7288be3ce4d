"""Prompt lookup: a conversation that repeats itself takes fewer passes, and says what plain decoding says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local import Engine
from tests.parity.f32 import engine_f32, widen

from .test_tokens import BLOCK, PROMPTS, SAMPLERS, assert_same, pair

LIMIT = 96


@pytest.fixture(scope="module")
def engines(
    pocket: dict[str, Path], target_f32: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Engine]]:
    """With lookup and without."""
    drafter = widen(pocket["dflash2"], tmp_path_factory.mktemp("lookup") / "drafter.gguf")
    with (
        engine_f32(target_f32, drafter, n_ctx=1024, lookup=True) as on,
        engine_f32(target_f32, drafter, n_ctx=1024, lookup=False) as off,
    ):
        yield on, off


@pytest.fixture(scope="module")
def repeated(engines: tuple[Engine, Engine]) -> list[list[int]]:
    """Conversations whose last question was asked and answered before."""

    def ask_again(text: str) -> list[int]:
        question = {"role": "user", "content": text}
        answer = engines[0].chat([question], temperature=0, max_tokens=LIMIT, budget=1).text
        again = [question, {"role": "assistant", "content": answer}, question]
        return engines[0].tokenize(engines[0].apply_chat({"messages": again}).prompt)

    return [ask_again(text) for text in PROMPTS]


def test_quotations_save_passes(engines: tuple[Engine, Engine], repeated: list[list[int]]) -> None:
    on, off = engines
    n_on = n_off = lookup_n = lookup_n_accepted = 0
    for prompt in repeated:
        plain, quoting = pair(on, prompt, temperature=0, max_tokens=LIMIT)
        drafted = off.generate(prompt, budget=BLOCK, temperature=0, max_tokens=LIMIT)
        assert_same(plain, quoting)
        assert_same(plain, drafted)
        assert plain.timings.lookup_n == drafted.timings.lookup_n == 0
        assert quoting.timings.draft_n_accepted >= quoting.timings.lookup_n_accepted
        n_on, n_off = n_on + quoting.timings.n_passes, n_off + drafted.timings.n_passes
        lookup_n += quoting.timings.lookup_n
        lookup_n_accepted += quoting.timings.lookup_n_accepted
    assert lookup_n >= lookup_n_accepted > 0
    assert n_on < 0.8 * n_off


@pytest.mark.parametrize("sampler", ["plain", "repeat penalty", "dry", "mirostat 2"])
def test_same_text_for_the_same_seed(engines: tuple[Engine, Engine], repeated: list[list[int]], sampler: str) -> None:
    """Quotations are wrong more often here, at every depth: samplers that avoid repetition leave them early."""
    verified = rejected = 0
    for seed, prompt in enumerate(repeated):
        plain, quoting = pair(engines[0], prompt, max_tokens=40, seed=seed, **{"temperature": 1.0} | SAMPLERS[sampler])
        assert_same(plain, quoting)
        verified += quoting.timings.lookup_n
        rejected += quoting.timings.lookup_n - quoting.timings.lookup_n_accepted
    assert verified > 0 and rejected > 0
