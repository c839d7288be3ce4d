"""The public Python API: every argument of a wrong type is one RequestError that names it, and nothing runs then."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dflash_local import Engine, RequestError, SamplingParams
from dflash_local.arguments import check
from dflash_local.conversation import ChatPrompt
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import ContextLengthError, ModelError
from dflash_local.generation import Generation, Stream
from dflash_local.native import TreeRows
from dflash_local.request_options import RequestOptions
from tests.fake_native import FakeNative

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
WRONG: tuple[Any, ...] = (3, -1.5, "text", b"bytes", [object()], {"a": 1}, object(), None, True, {1, 2}, [[1]])


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine.over(FakeNative(b"hello", step_seconds=0.001)) as engine:
        yield engine


@pytest.fixture(scope="module")
def pair(pocket: dict[str, Path]) -> Iterator[Engine]:
    """A real one."""
    with Engine(pocket["target"], pocket["dflash"], n_ctx=256, n_slots=1, n_threads=1, warmup=False) as engine:
        yield engine


def good_calls(engine: Engine, folder: Path) -> dict[str, dict[str, Any]]:
    """Arguments of each method that work, but for those that have a default."""
    prompt = engine.apply_chat({"messages": MESSAGES})
    completion = engine.generate("x", max_tokens=1)
    generation = engine.submit([1], max_tokens=1)
    path, short = folder / "slot", {"max_tokens": 1}
    engine.save_slot(0, path)
    return {
        "tokenize": {"text": "x"},
        "tokenize_prompt": {"prompt": "x"},
        "tokenize_parts": {"parts": "x"},
        "token_bytes": {"tokens": [1]},
        "detokenize": {"tokens": [1]},
        "tokens_through": {"text": "x", "completion": completion, "generation": generation},
        "pieces": {},
        "submit": {"prompt_tokens": [1], **short},
        "check_options": {},
        "end_reasoning": {"generation": generation},
        "ignored": {"sampling": SamplingParams()},
        "generate": {"prompt": "x", **short},
        "stream": {"prompt": "x", **short},
        "chat": {"messages": MESSAGES, **short},
        "apply_chat": {"body": {"messages": MESSAGES}},
        "chat_tokens": {"prompt": prompt},
        "submit_chat": {"prompt": prompt, **short},
        "answer_parser": {"prompt": prompt},
        "save_slot": {"slot": 0, "path": path},
        "save_slot_soon": {"slot": 0, "path": path},
        "restore_slot": {"slot": 0, "path": path},
        "restore_slot_soon": {"slot": 0, "path": path},
        "erase_slot": {"slot": 0},
        "replace_drafter": {"path": path},
        "erase_slot_soon": {"slot": 0},
        "score": {"tokens": [1, 2], "start": 1},
        "draft_probe": {"tokens": [1, 2], "n_block": 4},
        "tree_pass": {"trees": []},
        "slot_clear": {"slot": 0},
    }


METHODS = (
    "tokenize", "tokenize_prompt", "tokenize_parts", "token_bytes", "detokenize", "tokens_through", "pieces", "submit",
    "end_reasoning", "ignored", "generate", "stream", "chat", "apply_chat", "chat_tokens", "submit_chat",
    "answer_parser", "check_options",
    "save_slot", "save_slot_soon", "restore_slot", "restore_slot_soon", "erase_slot", "erase_slot_soon", "score",
    "replace_drafter", "draft_probe", "tree_pass", "slot_clear",
)  # fmt: skip


def test_no_method_is_forgotten() -> None:
    public = {
        name
        for name, function in inspect.getmembers(Engine, callable)
        if not name.startswith("_") and len(inspect.signature(function).parameters) > 1
    }
    # `watch_answers` takes a function, and `tap` an engine without a drafter (tests/train/test_taps.py).
    assert public | {"ignored"} == {*METHODS, "over", "tap", "watch_answers"}


@pytest.mark.parametrize("method", METHODS)
def test_methods(pair: Engine, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where "text" is a file that may be written
    function, good = getattr(pair, method), good_calls(pair, tmp_path)[method]
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        for wrong in WRONG:
            _refused_or_fine(lambda: function(**{**good, name: wrong}), name, parameter.annotation, wrong)  # noqa: B023


# Other words for an argument, in the errors of what takes it on.
ALSO = {
    "prompt_tokens": ("prompt",), "slot": ("id_slot",), "messages": ("messages",), "body": ("messages", "tools"),
    "parts": ("parts", "content"), "n_block": ("tokens",),
}  # fmt: skip


def _refused_or_fine(call: Callable[[], Any], name: str, annotation: Any, value: Any) -> None:
    """What the annotation allows may do what it does; all else is refused by name."""
    try:
        made = call()
    except RequestError as error:
        blamed = error.param or ""
        assert blamed.split("[")[0].split(".")[0] in (name, *ALSO.get(name, ())), (name, value, error)
        assert blamed.split("[")[0] in str(error) or (blamed == "path" and "file" in str(error))
        return
    except ModelError:  # there is no such file
        assert name == "path"
        assert isinstance(value, str)
        return
    except Exception as error:
        raise AssertionError(f"{name}={value!r}: {type(error).__name__}: {error}") from error
    allowed = str(annotation).replace("Budget", "int")
    kinds = {
        int: "int",
        str: "str",
        float: "float",
        bool: "bool",
        dict: "Mapping",
        list: "Sequence",
        type(None): "None",
    }
    assert kinds.get(type(value), "no such") in allowed or (type(value) is int and "float" in allowed), (name, value)
    if isinstance(made, Future):
        made.exception(60)  # its file lies in this test's folder
    if isinstance(made, (Generation, Stream)):
        (made.cancel if isinstance(made, Generation) else made.close)()


def test_options_that_go_through(engine: Engine) -> None:
    """Those of `submit` and of SamplingParams, by way of those that pass them on."""
    for name in (spec.name for spec in (*fields(RequestOptions), *fields(SamplingParams))):
        if name in ("prompt_tokens", "sampling"):
            continue
        for start in (lambda **o: engine.generate("x", **o), lambda **o: engine.chat(MESSAGES, **o)):
            with pytest.raises(RequestError) as caught:
                start(**{name: object()})
            assert caught.value.param == name


@pytest.mark.parametrize("name", [spec.name for spec in fields(SamplingParams)])
def test_sampling(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**cast(Any, {name: object()}))
    assert caught.value.param == name
    assert str(caught.value).startswith(f"{name} must be")


@pytest.mark.parametrize("name", [spec.name for spec in fields(EngineOptions)])
def test_engine_options(name: str) -> None:
    for wrong in (object(), b"x", [3], 1j):
        with pytest.raises(RequestError) as caught:
            EngineOptions(**cast(Any, {"model": "x", name: wrong}))
        assert caught.value.param == name


def test_integers_of_engine_options() -> None:
    """Both bounds are named where the upper one is passed."""
    for name, value, message in (
        ("n_ctx", -1, "n_ctx must be at least 0, got -1"),
        ("n_ctx", 2**31, "n_ctx must be between 0 and 2147483647, got 2147483648"),
        ("n_batch", 2**32, "n_batch must be between 1 and 2147483647, got 4294967296"),
        ("cache_ram", 2**31, "cache_ram must be between -1 and 2147483647, got 2147483648"),
    ):
        with pytest.raises(RequestError) as caught:
            EngineOptions(**cast(Any, {"model": "x", name: value}))
        assert (caught.value.message, caught.value.param) == (message, name)
    assert EngineOptions("x", n_ctx=2**31 - 1).n_ctx == 2**31 - 1


@pytest.mark.parametrize(
    "prompt", [b"\1\2\3\4", bytearray(4), memoryview(b"abcd"), {1: 2}, {1, 2}, iter([1]), [1.0], ["x"], [True], [None],
               np.zeros((2, 2), np.int32), np.zeros(2), [2**40]],
)  # fmt: skip
def test_what_is_no_prompt(engine: Engine, prompt: Any) -> None:
    for start in (engine.submit, engine.generate, engine.stream):
        with pytest.raises(RequestError, match="prompt") as caught:
            start(prompt)
        assert caught.value.param in ("prompt", "prompt_tokens")


def test_what_is_a_prompt(engine: Engine) -> None:
    for prompt in ("a", [97], (97,), range(97, 98), np.array([97]), np.array([97], np.uint8)):
        assert engine.generate(cast(Any, prompt)).prompt_tokens == 1


@pytest.mark.parametrize("wrong", [None, 1.5, True, [1], b"x", np.bool_(True)])
def test_parts_of_a_prompt(engine: Engine, wrong: Any) -> None:
    for method, name in ((engine.tokenize_prompt, "prompt"), (engine.tokenize_parts, "parts")):
        with pytest.raises(RequestError, match="must be a string or an integer") as caught:
            method(cast(Any, ["a", 1, wrong]))
        assert caught.value.param == f"{name}[2]"
        assert method(cast(Any, ["a", 1, np.int64(2)])) == [97, 1, 2]


def test_token_ids_are_not_checked_one_by_one(engine: Engine) -> None:
    """There may be many, and too many are refused by their number."""

    class Unread(list[int]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError

    for hint in (Sequence[int], Sequence[str | int], Sequence[int] | None):
        check("x", Unread([1]), hint)
    with pytest.raises(ContextLengthError, match=f"the prompt has {engine.n_ctx_slot} tokens"):
        engine.tokenize_prompt([1] * engine.n_ctx_slot)
    with pytest.raises(ContextLengthError, match=f"at least {engine.n_ctx_slot} tokens"):
        engine.tokenize_prompt([*[1] * engine.n_ctx_slot, "x"])


def test_what_no_json_can_say_is_named(engine: Engine) -> None:
    for name, value in (
        ("tools", [object()]), ("tools", [{"a": float("inf")}]), ("response_format", {"a": {1}}),
        ("chat_template_kwargs", {"a": 1j}),
    ):  # fmt: skip
        with pytest.raises(RequestError, match=name) as caught:
            engine.chat(MESSAGES, **cast(Any, {name: value}))
        assert caught.value.param == name
    with pytest.raises(RequestError) as caught:
        engine.generate("x", logit_bias=cast(Any, {"a": object()}))
    assert caught.value.param == "logit_bias"


def test_a_results_timeout(engine: Engine) -> None:
    with pytest.raises(RequestError, match="timeout must be a number"):
        engine.submit([1]).result(timeout="soon")  # type: ignore[arg-type]


# ---- streams ----


def _settles(engine: Engine) -> bool:
    end = time.monotonic() + 10
    while engine.n_running + engine.n_waiting and time.monotonic() < end:
        time.sleep(0.002)
    return engine.n_running + engine.n_waiting == 0


@pytest.mark.parametrize("how", ["close", "forget", "with", "after one"])
@pytest.mark.parametrize("chat", [False, True])
def test_a_stream_that_is_closed_ends_its_request_whether_it_has_begun_or_not(how: str, chat: bool) -> None:
    """One slot: what runs on would keep the next request waiting."""
    with Engine.over(FakeNative(lambda _: [[97]] * 200_000, n_slots=1, n_ctx_slot=10**6, step_seconds=0.001)) as engine:
        stream = engine.chat(MESSAGES, stream=True) if chat else engine.stream("x")
        if how == "after one":
            next(stream)
        if how in ("close", "after one"):
            stream.close()
            stream.close()
            assert list(stream) == []
        elif how == "with":
            with stream:
                pass
        del stream
        assert _settles(engine)
        assert engine.submit([1], max_tokens=1).result(10).finish_reason == "length"


def test_a_stream_that_ends_is_whole(engine: Engine) -> None:
    assert "".join(chunk.text for chunk in engine.stream("x")) == "hello"
    assert "".join(change.content or "" for change in engine.chat(MESSAGES, stream=True)) == "hello"


@pytest.mark.parametrize("name", TreeRows._fields)
def test_rows_of_a_tree(pair: Engine, name: str) -> None:
    tree = TreeRows(slot=0, tokens=[1], parents=[-1])
    for wrong in (object(), b"x", "x", [object()], [2**40]):
        with pytest.raises(RequestError) as caught:
            pair.tree_pass([tree._replace(**cast(Any, {name: wrong}))])
        assert caught.value.param == name


def test_a_prompt_that_is_rendered_is_no_other_object(engine: Engine) -> None:
    with pytest.raises(RequestError, match="prompt must be a ChatPrompt"):
        engine.submit_chat("x")  # type: ignore[arg-type]
    assert isinstance(engine.apply_chat({"messages": MESSAGES}), ChatPrompt)


def test_paths_may_be_paths() -> None:
    assert EngineOptions(Path("x")).model == Path("x")
