"""Thoughts that are cut off: by their budget, with a message, and by request while they are thought."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import EngineDeadError, RequestError
from dflash_local.native import NativeEngine
from tests.engine.test_chat_shim import THINKING

PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
TAGS: dict[str, Any] = {
    "thinking_start_tag": "<think>", "thinking_end_tags": ["</think>"], "generation_prompt": "<think>",
}  # fmt: skip


@pytest.fixture(scope="module")
def native(pocket: dict[str, Path]) -> Iterator[NativeEngine]:
    native = NativeEngine({"model": str(pocket["target"]), "n_ctx": 256, "n_threads": 1, "warmup": False, "budget": 1})
    yield native
    native.destroy()


class Answer:
    """Runs step by step on slot 0."""

    def __init__(self, native: NativeEngine, n_predict: int = 40, **sampling: Any) -> None:
        self._native = native
        native.cancel(0)
        native.slot_clear(0)
        prompt = native.tokenize(PROMPT, True, True)
        fields = json.dumps({"temperature": 0, "ignore_eos": True, **sampling})
        params = {"tokens": prompt, "n_predict": n_predict, "sampling": fields, "budget": 1, "cache_prompt": False}
        native.submit(0, native.prepare(params))
        self.tokens: list[int] = []

    def steps(self, count: int = 1000) -> str:
        for _ in range(count):
            updates = self._native.step()
            if not updates:
                break
            for update in updates:
                assert not update.error, update.error
                self.tokens += update.tokens
        return b"".join(self._native.token_piece(token, False) for token in self.tokens).decode("utf-8", "replace")


def test_a_message_comes_before_the_end_of_a_budget(native: NativeEngine) -> None:
    plain = Answer(native, reasoning_budget_tokens=4, **TAGS).steps()
    told = Answer(native, reasoning_budget_tokens=4, reasoning_budget_message=" Enough now.\n", **TAGS).steps()
    thoughts = plain[: plain.index("</think>")]
    assert told.startswith(f"{thoughts} Enough now.\n</think>")
    without = Answer(native, reasoning_budget_message=" Enough now.\n", **TAGS).steps()
    assert "Enough" not in without  # no budget, no end
    # the names of control tokens in it are text
    told = Answer(native, reasoning_budget_tokens=4, reasoning_budget_message="<|im_end|>", **TAGS).steps()
    assert told.startswith(f"{thoughts}<|im_end|></think>")


@pytest.mark.parametrize("budget", [0, 1, 3])
@pytest.mark.parametrize("message", ["", " Enough now.\n"])
def test_what_the_template_writes_may_use_the_budget_up(native: NativeEngine, budget: int, message: str) -> None:
    """A line end behind the tag, or the thoughts of a continued message: the message is whole."""
    for written in ("<think>\n", "<think>\n0 + 4 + 0 = 4"):
        asked = {**TAGS, "generation_prompt": written, "reasoning_budget_message": message}
        text = Answer(native, reasoning_budget_tokens=budget, **asked).steps()
        thoughts = text[: text.index("</think>")]
        assert thoughts.endswith(message)
        n_own = len(native.tokenize(thoughts.removesuffix(message), False, True))
        assert n_own == max(0, budget - len(native.tokenize(written, False, True)) + 1)


def test_what_the_template_writes_counts(native: NativeEngine) -> None:
    written = "<think>\n0 + 4 + 0 = 4"
    n_written = len(native.tokenize(written, False, True)) - 1
    plain = Answer(native, **{**TAGS, "generation_prompt": written})
    plain.steps()
    cut = Answer(native, reasoning_budget_tokens=n_written + 3, **{**TAGS, "generation_prompt": written})
    cut.steps()
    assert cut.tokens[:3] == plain.tokens[:3]
    assert native.tokenize("</think>", False, True) == cut.tokens[3:4]


def test_thoughts_that_the_template_ended_are_not_ended_again(native: NativeEngine) -> None:
    """New ones have their own limit."""
    ended = {**TAGS, "generation_prompt": "<think>\n\n</think>\n\n"}
    plain = Answer(native, **ended).steps()
    assert Answer(native, reasoning_budget_tokens=0, **ended).steps() == plain
    thinks = Answer(native, reasoning_budget_tokens=0, logit_bias={"<think>": 1e6}, **ended).steps()
    assert thinks.startswith("<think></think>" * 2)


@pytest.mark.parametrize(
    ("message", "why"),
    [("x" * 5000, "longer than 4096"), (7, "must be a string"), (" So:</think>\n", "contains </think>")],
)
def test_bad_messages_are_refused(native: NativeEngine, message: Any, why: str) -> None:
    sampling = json.dumps({"reasoning_budget_message": message, **TAGS})
    with pytest.raises(RequestError, match=why) as caught:
        native.prepare({"tokens": [1], "n_predict": 8, "sampling": sampling})
    assert caught.value.param == "reasoning_budget_message"


def test_thoughts_end_when_told(native: NativeEngine) -> None:
    whole = Answer(native, **TAGS).steps()
    assert "</think>" not in whole
    for sampling in ({}, {"reasoning_budget_message": " So:"}, {"reasoning_budget_tokens": 500}):
        answer = Answer(native, **TAGS, **sampling)
        thoughts = answer.steps(10)
        assert native.end_reasoning(0)
        message = sampling.get("reasoning_budget_message", "")
        text = answer.steps()
        assert text.startswith(f"{thoughts}{message}</think>")
        assert len(answer.tokens) == 40
        assert not native.end_reasoning(0)  # the slot is idle


def test_there_may_be_no_thoughts_to_end(native: NativeEngine) -> None:
    answer = Answer(native, **{**TAGS, "generation_prompt": ""})  # it has not begun to think
    thoughts = answer.steps(5)
    assert not native.end_reasoning(0)
    assert answer.steps().startswith(thoughts)
    assert "</think>" not in answer.steps()
    answer = Answer(native, reasoning_budget_tokens=2, **TAGS)  # it is done with it
    answer.steps(30)
    assert not native.end_reasoning(0)
    answer = Answer(native)  # a template without tags
    answer.steps(3)
    assert not native.end_reasoning(0)
    answer.steps()


def test_thoughts_may_end_before_they_begin(native: NativeEngine) -> None:
    """While the prompt is read, which may take minutes."""
    answer = Answer(native, **TAGS)
    assert native.end_reasoning(0)
    assert answer.steps().startswith("</think>")


@pytest.mark.parametrize("accept", ["match", "block"])
def test_drafted_thoughts_end_as_plain_ones(pocket: dict[str, Path], accept: Any) -> None:
    """Told after the prompt has been read, wherever the draft was; with a seed the rest is plain decoding's text."""
    texts = []
    for drafter in (None, pocket["dflash2"]):
        if drafter is None and accept == "block":
            continue
        with Engine(pocket["target"], drafter, n_ctx=512, n_threads=1, warmup=False, accept=accept) as engine:
            sampling = {**TAGS, "reasoning_budget_message": " Enough."}
            tokens = engine.tokenize(PROMPT)
            fixed = engine.generate(
                tokens, seed=7, ignore_eos=True, max_tokens=64, reasoning_budget_tokens=0, **sampling
            )
            generation = engine.submit(
                tokens, _sampling(seed=7, ignore_eos=True, temperature=0.9, **sampling), max_tokens=200
            )
            next(iter(generation))
            ended = engine.end_reasoning(generation)
            text = generation.result().text
            assert ended == (" Enough.</think>" in text)
            assert not engine.end_reasoning(generation)
            texts.append(fixed.text)
            assert fixed.text.startswith(" Enough.</think>")
    assert len(set(texts)) == 1


def test_a_chat_ends_its_thoughts(pocket: dict[str, Path]) -> None:
    template = THINKING.replace("assistant\\n' }}{%- if enable", "assistant\\n<think>\\n' }}{%- if enable")
    with Engine(pocket["target"], n_ctx=512, n_threads=1, warmup=False, chat_template=template) as engine:
        prompt = engine.apply_chat({"messages": [{"role": "user", "content": "What is 48 plus 24?"}]})
        generation = engine.submit_chat(prompt, _sampling(ignore_eos=True, temperature=0), max_tokens=300)
        next(iter(generation))
        assert engine.end_reasoning(generation)
        message = engine.answer_parser(prompt).parse(generation.result()).message
        assert message["reasoning_content"]
        assert message["content"]
    with pytest.raises(EngineDeadError):
        engine.end_reasoning(generation)


def _sampling(**fields: Any) -> Any:
    from dflash_local.sampling import SamplingParams

    return SamplingParams(**fields)
