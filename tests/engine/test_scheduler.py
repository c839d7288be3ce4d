"""The engine thread: who gets a slot, what reaches whom, and what happens when things end badly. Over FakeNative."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable

import pytest

from dflash_local.engine import Engine, SamplingParams, Step
from dflash_local.errors import (
    ComputeError,
    ContextLengthError,
    EngineDeadError,
    QueueFullError,
    RequestError,
    ResultTimeoutError,
)
from dflash_local.generation import Chunk, Generation
from dflash_local.native import PreparedRequest, SlotState, SlotStats, StepUpdate
from dflash_local.request_options import RequestOptions
from dflash_local.text_stream import TextStream
from tests.fake_native import CONTROL, EOG, FakeNative, FakePrepared, bytes_in_blocks
from tests.patience import PATIENCE, wait_until


def test_generate() -> None:
    with Engine.over(FakeNative(b"hello world")) as engine:
        done = engine.generate("hi")
    assert (done.text, done.finish_reason, done.prompt_tokens) == ("hello world", "stop", 2)
    assert bytes(done.tokens) == b"hello world"
    assert done.acceptance_lengths == [4, 4, 2]
    timings = done.timings.to_dict()
    assert (timings["predicted_n"], timings["draft_n"], timings["draft_n_accepted"]) == (11, 12, 7)
    assert done.timings.drafting()["acceptance_length"] == pytest.approx(10 / 3)
    assert timings["predicted_per_second"] == pytest.approx(1e3 * 10 / timings["predicted_ms"])


def test_stream_gives_one_chunk_per_pass() -> None:
    with Engine.over(FakeNative(b"hello world")) as engine:
        chunks = list(engine.stream("hi"))
    assert [chunk.text for chunk in chunks] == ["h", "ello", " wor", "ld"]
    assert [chunk.accepted for chunk in chunks] == [None, 3, 3, 1]


def test_no_pass_after_the_prompt_has_no_acceptance_length() -> None:
    with Engine.over(FakeNative(b"x")) as engine:
        assert engine.generate("hi", max_tokens=1).timings.acceptance_length is None


def test_a_trace_has_every_pass_and_costs_nothing_unasked() -> None:
    with Engine.over(FakeNative(b"hello world")) as engine:
        traced, untraced, plain = (
            engine.generate("hi", trace=True),
            engine.generate("hi"),
            engine.generate("hi", trace=True, draft="off"),
        )
    assert [step.n_tokens for step in traced.steps] == traced.acceptance_lengths
    assert traced.steps[0] == Step(
        4, n_nodes=5, n_depth=3, n_denoised=8, n_accepted=3, reason="drafting pays", draft_ms=0.5, verify_ms=1.0
    )
    assert untraced.steps == []
    assert [(step.n_nodes, step.n_denoised, step.reason) for step in plain.steps] == [(1, 0, "drafting is off")] * 3
    timings = plain.timings.drafting()
    assert (timings["plain_n"], timings["nodes_mean"], timings["depth_mean"], timings["denoised_mean"]) == (
        3,
        1,
        None,
        None,
    )


def test_progress_and_timings_are_told_when_asked_for() -> None:
    with Engine.over(FakeNative(b"hello", n_batch=4)) as engine:
        prompt = b"0123456789"
        assert all(not chunk.progress and not chunk.timings for chunk in engine.stream(list(prompt)))
        asked = list(engine.stream(list(b"01 3456789"), progress=True, timings=True))
        read = [chunk.progress for chunk in asked if chunk.progress]
        assert [(one.total, one.cache, one.processed) for one in read] == [(10, 2, 2), (10, 2, 6), (10, 2, 10)]
        assert [one.time_ms for one in read] == sorted(one.time_ms for one in read)
        assert [bool(chunk.progress) for chunk in asked] == [True] * 3 + [False] * 2
        assert [chunk.timings.predicted_n for chunk in asked[3:] if chunk.timings] == [1, 5]
        done = engine.generate(list(b"x" * 9), progress=True)
        assert (done.text, done.acceptance_lengths) == ("hello", [4])


class Encoding(FakeNative):
    """The first five steps read nothing: a medium of the prompt is not encoded yet."""

    def step(self) -> list[StepUpdate]:
        if self.n_steps < 5:
            self.n_steps += 1
            return [StepUpdate(0, SlotState.READING, [])]
        return super().step()


def test_a_step_that_waits_for_a_medium_does_not_count() -> None:
    with Engine.over(Encoding(b"hello")) as engine:
        asked = list(engine.stream("0123456789", progress=True))
        assert [chunk.progress.processed for chunk in asked if chunk.progress] == [0, 10]
        assert (engine.counters.steps, engine.counters.busy_slot_steps) == (2, 2)


class Following(FakeNative):
    """The first step takes over 8 tokens of slot 0's prompt, which another slot has read meanwhile."""

    def step(self) -> list[StepUpdate]:
        if self.n_steps == 0:
            self._slots[0].n_read = self._slots[0].stats.n_cached = 8
        return super().step()


def test_a_prefix_that_another_slot_was_reading_counts_as_cached() -> None:
    with Engine.over(Following(n_batch=2)) as engine:
        asked = list(engine.stream("0123456789ab", progress=True, timings=True))
        read = [chunk.progress for chunk in asked if chunk.progress]
        assert [(one.cache, one.processed) for one in read] == [(0, 0), (8, 10), (8, 12)]
        assert [chunk.timings.prompt_n for chunk in asked if chunk.progress and chunk.timings] == [0, 2, 4]
        assert engine.throughput.total.prompt_tokens == 4
        (use,) = engine._scheduler.slots()
        assert use is not None and (use.n_cached, use.n_read) == (8, 12)


class OnlyReading(FakeNative):
    """As libdflash does if nothing is to be generated: no pass is the first of an answer, and no time is taken."""

    def step(self) -> list[StepUpdate]:
        self._slots[0].stats.t_prompt_ms = 0.0
        return [update._replace(first=False) for update in super().step()]


def test_a_prompt_that_is_only_read_has_its_time_and_no_pass() -> None:
    with Engine.over(OnlyReading(step_seconds=0.01)) as engine:
        done = engine.generate("0123456789", max_tokens=0, trace=True)
        assert (done.timings.prompt_n, done.acceptance_lengths, done.steps) == (10, [], [])
        assert done.timings.prompt_ms >= 10
        total = engine.throughput.total
        assert (total.prompt_tokens, total.passes) == (10, 0)


def test_a_late_answer_ends_with_its_line() -> None:
    answer = b"one two\nthree four\nfive"
    with Engine.over(FakeNative(answer, step_seconds=0.02)) as engine:
        late = engine.generate("hi", time_limit_ms=1)
        assert (late.text, late.finish_reason) == ("one two\n", "length")
        assert late.timings.predicted_n == len(late.tokens) == 8
        assert engine.generate("hi", time_limit_ms=1, stop="two").text == "one "
        for limit_ms in (60_000, 0, -1):
            assert engine.generate("hi", time_limit_ms=limit_ms).text == answer.decode()


@pytest.mark.parametrize(
    ("answer", "n_indent", "text"),
    [
        (b"a\n  b\n c", 2, "a\n  b\n "),
        (b"a\n  b\n\t\tc", 2, "a\n  b\n\t\tc"),  # a tab counts as one
        (b"a\n  b\n\n  c", 2, "a\n  b\n"),  # an empty line is not indented
        (b"a\n  b\n  \n  c", 2, "a\n  b\n  \n  c"),
        (b"  a\nb", 1, "  a\n"),
        (b"ab", 9, "ab"),  # the first line is not looked at
        (b"a\n ", 2, "a\n "),  # nor one without text yet
        (b"a\nb", 0, "a\nb"),
    ],
)
def test_a_line_that_is_indented_less_ends_the_answer(answer: bytes, n_indent: int, text: str) -> None:
    for block in (1, 4, 64):
        with Engine.over(FakeNative(lambda _, size=block: bytes_in_blocks(answer, size))) as engine:  # type: ignore[misc]
            done = engine.generate("hi", n_indent=n_indent)
            assert done.text == text
            assert done.finish_reason == ("stop" if text == answer.decode() else "length")
            stopped = engine.generate("hi", n_indent=n_indent, stop=text[-1])
            assert (stopped.finish_reason, text.startswith(stopped.text)) == ("stop", True)


def test_a_completion_tells_its_slot() -> None:
    with Engine.over(FakeNative(b"hello")) as engine:
        done = engine.generate("hi")
        assert (done.slot, done.slot_tokens, done.truncated) == (0, 7, False)
        assert engine.generate("hi", max_tokens=2).slot_tokens == 3  # the last token is not read


def test_text_that_cannot_fit_is_not_even_read() -> None:
    native = FakeNative(n_ctx_slot=8)
    with Engine.over(native) as engine:
        native.tokenize = None  # type: ignore[assignment, method-assign]
        with pytest.raises(ContextLengthError, match="at least 91 tokens") as caught:
            engine.generate("x" * 1000)
        assert (caught.value.n_prompt, caught.value.n_ctx) == (91, 8)


def test_empty_answer() -> None:
    with Engine.over(FakeNative(lambda _: [[EOG]])) as engine:
        done = engine.generate("hi")
    assert (done.text, done.tokens, done.finish_reason) == ("", [], "stop")


def test_length() -> None:
    with Engine.over(FakeNative(b"hello world")) as engine:
        done = engine.generate("hi", max_tokens=7)
    assert (done.text, done.finish_reason) == ("hello w", "length")


def test_stop_string_cuts_tokens_of_the_same_pass() -> None:
    native = FakeNative(b"hello world, and more")
    with Engine.over(native) as engine:
        done = engine.generate("hi", stop=[" wo"])
        assert (done.text, done.stopped_by, done.finish_reason) == ("hello", " wo", "stop")
        assert bytes(done.tokens) == b"hello wo"  # the fake's pass brought " wor"
        assert native.cancelled == [0]
        assert engine.generate("again").text == "hello world, and more"  # the slot is free


def test_nothing_after_a_stop_string_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stop string counts, and what its pass brought after it is not even decoded."""
    read: list[bytes] = []
    push = TextStream.push

    def counted(stream: TextStream, data: bytes) -> str:
        read.append(data)
        return push(stream, data)

    monkeypatch.setattr(TextStream, "push", counted)
    with Engine.over(FakeNative(lambda _: bytes_in_blocks(b"hello world", 64))) as engine:
        done = engine.generate("hi", stop=["o", "wor"])
    assert (done.text, done.stopped_by, bytes(done.tokens)) == ("hell", "o", b"hello")
    assert b"".join(read) == b"hello"


def test_stop_string_in_the_last_pass_needs_no_cancel() -> None:
    native = FakeNative(b"hello")
    with Engine.over(native) as engine:
        assert engine.generate("hi", stop=["o"]).text == "hell"
    assert native.cancelled == []


def test_split_character_arrives_whole() -> None:
    with Engine.over(FakeNative(lambda _: [[t] for t in "é!".encode()] + [[EOG]])) as engine:
        assert [chunk.text for chunk in engine.stream("hi")] == ["", "é", "!", ""]


def test_control_tokens_are_shown_on_request_only() -> None:
    script = [[CONTROL], [*b"x", EOG]]
    with Engine.over(FakeNative(lambda _: script)) as engine:
        assert engine.generate("hi").text == "x"
        assert engine.generate("hi", special=True).text == "<tool_call>x"
        assert engine.generate("hi", special=frozenset({CONTROL})).text == "<tool_call>x"


def test_sampling_fields_reach_the_library() -> None:
    native = FakeNative()
    with Engine.over(native) as engine:
        engine.generate("hi", SamplingParams(top_k=7), temperature=0.0, seed=3, max_tokens=5, budget=2)
    sampling = '{"seed": 3, "temperature": 0.0, "top_k": 7}'
    (sent,) = native.submitted
    assert (sent["slot"], sent["n_predict"], sent["sampling"], sent["budget"]) == (0, 5, sampling, 2)


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 300]}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": [2**40]}, "prompt"),
        ({"prompt": ["x"]}, "prompt"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stop": [1]}, "stop"),
        ({"stop": ["x", "x" * 1025]}, "stop"),
        ({"budget": 0}, "budget"),
        ({"budget": "much"}, "budget"),
        ({"draft": "star"}, "draft"),
        ({"draft": 7}, "draft"),
        ({"accept": "all"}, "accept"),
        ({"accept": "block"}, "accept"),  # without a DFlash 2 drafter
        ({"draft_n_max": -1}, "draft_n_max"),
        ({"draft_n_max": True}, "draft_n_max"),
        ({"temperature": -1}, "temperature"),
        ({"grammar": "refuse me"}, "grammar"),
    ],
)
def test_bad_requests_are_refused_at_once(arguments: dict[str, object], param: str) -> None:
    native = FakeNative()
    with Engine.over(native) as engine, pytest.raises(RequestError) as caught:
        engine.generate(**{"prompt": "hi", **arguments})  # type: ignore[arg-type]
    assert caught.value.param == param
    assert native.submitted == []


def test_prompt_longer_than_the_context() -> None:
    with Engine.over(FakeNative(n_ctx_slot=8)) as engine:
        with pytest.raises(ContextLengthError, match="context length is 8 tokens, but the prompt has 8"):
            engine.generate("12345678")
        assert engine.generate("1234567").text == "hello"


def test_slots_run_together_and_the_rest_waits() -> None:
    gate = threading.Semaphore(0)
    with Engine.over(FakeNative(n_slots=2, gate=gate), max_queue=1) as engine:
        running = [engine.submit([1]) for _ in range(3)]
        wait_until(lambda: engine.n_running == 2)
        assert engine.n_waiting == 1
        with pytest.raises(QueueFullError) as caught:
            engine.submit([1])
        assert 1 <= caught.value.retry_after <= 60
        for _ in range(20):
            gate.release()
        assert [generation.result(PATIENCE).text for generation in running] == ["hello"] * 3
        assert (engine.n_running, engine.n_waiting) == (0, 0)


def test_who_names_a_slot_waits_for_it_and_holds_nobody_else_up() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(n_slots=2, gate=gate)
    with Engine.over(native) as engine:
        first = engine.submit([1], id_slot=1)
        second = engine.submit([2], id_slot=1)
        third = engine.submit([3])
        wait_until(lambda: engine.n_running == 2)
        assert [entry["slot"] for entry in native.submitted] == [1, 0] and engine.n_waiting == 1
        gate.release(20)
        assert [generation.result(PATIENCE).text for generation in (first, second, third)] == ["hello"] * 3
        assert [entry["slot"] for entry in native.submitted] == [1, 0, 1]
        with pytest.raises(RequestError, match="id_slot must be between 0 and 1"):
            engine.submit([1], id_slot=2)


def test_requests_wait_for_room_in_turn() -> None:
    """Nobody overtakes the first, who may need more of it; a slot for tests is not held up."""
    gate = threading.Semaphore(0)
    native = FakeNative(n_slots=3, gate=gate)
    with Engine.over(native) as engine:
        running = engine.submit([1])
        wait_until(lambda: engine.n_running == 1)
        native.room = False
        waiting = [engine.submit([2]), engine.submit([3])]
        gate.release()
        wait_until(lambda: native.n_steps == 1)
        assert (engine.n_running, engine.n_waiting) == (1, 2)
        waiting[0].cancel()
        native.room = True
        gate.release(20)
        assert running.result(PATIENCE).text == waiting[1].result(PATIENCE).text == "hello"
        assert waiting[0].result(PATIENCE).finish_reason == "cancelled" and len(native.submitted) == 2


def test_cancel_frees_the_slot_within_one_step() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(b"x" * 1000, gate=gate)
    with Engine.over(native) as engine:
        generation = engine.submit([1])
        gate.release(3)
        wait_until(lambda: native.n_steps == 3)
        generation.cancel()
        gate.release()  # the step that was running, if it had begun
        done = generation.result(PATIENCE)
        assert done.finish_reason == "cancelled"
        assert (native.n_steps, done.text) in ((3, "x" * 9), (4, "x" * 13))
        assert engine.n_running == 0
        generation.cancel()  # no effect any more


def test_cancel_while_reading_counts_what_was_read() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(gate=gate, n_batch=4)
    with Engine.over(native) as engine:
        generation = engine.submit(list(b"x" * 100))
        gate.release(3)
        wait_until(lambda: native.n_steps == 3)
        generation.cancel()
        gate.release()  # the step that was running, if it had begun
        timings = generation.result(PATIENCE).timings
        assert timings.prompt_n in (12, 16) and timings.prompt_ms > 0
        assert engine.counters.timings.prompt_n == timings.prompt_n


def test_cancel_shows_what_a_stop_string_held_back() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(lambda _: [[*b"a"], [*b"bST"]] + [[*b"."]] * 9, gate=gate)
    with Engine.over(native) as engine:
        generation = engine.submit([1], stop="STOP")
        gate.release(2)
        chunks = iter(generation)
        assert [next(chunks).text, next(chunks).text] == ["a", "b"]
        native._slots[0].passes[:] = [[]] * 9  # the step that was running, if it had begun, adds nothing
        generation.cancel()
        gate.release()
        done = generation.result(PATIENCE)
        assert done.text == bytes(done.tokens).decode() == "abST"
        assert "".join(chunk.text for chunk in chunks) == "ST"


def test_an_interrupted_wait_cancels_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(generation: Generation) -> None:
        raise KeyboardInterrupt

    gate = threading.Semaphore(0)
    native = FakeNative(b"x" * 1000, n_slots=2, gate=gate)
    monkeypatch.setattr(Generation, "result", interrupted)
    with Engine.over(native) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.generate("hi")
        with pytest.raises(KeyboardInterrupt):
            engine.chat([{"role": "user", "content": "hi"}])
        gate.release(2)  # the steps that were running, if they had begun
        wait_until(lambda: engine.n_running + engine.n_waiting == 0)


def test_cancel_while_waiting() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(gate=gate)
    with Engine.over(native) as engine:
        first, second = engine.submit([1]), engine.submit([1])
        second.cancel()
        gate.release(10)
        assert second.result(PATIENCE).finish_reason == "cancelled"
        assert first.result(PATIENCE).text == "hello"
        assert len(native.submitted) == 1


def test_leaving_a_stream_early_cancels_it() -> None:
    gate = threading.Semaphore(1)
    native = FakeNative(b"x" * 4000, gate=gate)
    with Engine.over(native) as engine:
        for _ in engine.stream("hi"):
            break
        gate.release(1)
        wait_until(lambda: native.cancelled == [0])


def test_the_slot_with_the_longest_common_prefix_is_chosen() -> None:
    native = FakeNative(n_slots=3)
    with Engine.over(native) as engine:
        for prompt in ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"):
            engine.generate(prompt)
        engine.generate("bbbbbbbbbbbb again")
        engine.generate("aaaaaaaaaaaa again")
        engine.generate("nothing in common")  # least recently used: the c's
    assert [entry["slot"] for entry in native.submitted] == [0, 1, 2, 1, 0, 2]


# ---- prepared requests ----


def all_freed(native: FakeNative) -> bool:
    """Whether every prepared request ran or was freed."""
    return not any(prepared.alive for prepared in native.prepared)


def test_a_request_is_prepared_once_and_on_the_callers_thread() -> None:
    native, threads = FakeNative(), []
    native.on_prepare = lambda: threads.append(threading.current_thread())
    with Engine.over(native) as engine:
        engine.generate("hi")
        list(engine.stream("hi"))
        engine.chat([{"role": "user", "content": "hi"}])
    assert threads == [threading.current_thread()] * 3
    assert len(native.submitted) == 3
    assert all_freed(native)


def test_cancelled_while_waiting_frees_the_prepared_request() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(gate=gate)
    with Engine.over(native) as engine:
        first, second = engine.submit([1]), engine.submit([1])
        wait_until(lambda: engine.n_running == 1)
        assert [prepared.alive for prepared in native.prepared] == [False, True]
        second.cancel()
        gate.release(10)
        second.result(PATIENCE)
        assert all_freed(native)
        assert first.result(PATIENCE).text == "hello"


def test_a_full_queue_frees_the_prepared_request() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(gate=gate)
    with Engine.over(native, max_queue=0) as engine:
        engine.submit([1])
        wait_until(lambda: engine.n_running == 1)
        with pytest.raises(QueueFullError):
            engine.submit([1])
        assert len(native.prepared) == 2
        assert all_freed(native)


def test_a_slot_that_refuses_frees_the_prepared_request(monkeypatch: pytest.MonkeyPatch) -> None:
    native = FakeNative()

    def refuse(slot: int, request: object) -> None:
        raise ComputeError("no")

    with Engine.over(native) as engine:
        monkeypatch.setattr(native, "submit", refuse)
        with pytest.raises(ComputeError, match="no"):
            engine.generate("hi")
        assert len(native.prepared) == 1
        assert all_freed(native)


@pytest.mark.parametrize("dies", [True, False], ids=["death", "close"])
def test_the_end_of_the_engine_frees_prepared_requests(dies: bool) -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(gate=gate)
    engine = Engine.over(native)
    generations = [engine.submit([1]) for _ in range(4)]
    wait_until(lambda: engine.n_running == 1)
    assert sum(prepared.alive for prepared in native.prepared) == 3
    if dies:
        native.fail_next_step = "the device is gone"
        gate.release()
    else:
        engine.close()
    for generation in generations:
        with pytest.raises(EngineDeadError):
            generation.result(PATIENCE)
    assert all_freed(native)
    with pytest.raises(EngineDeadError):
        engine.generate([1])
    assert all_freed(native)
    engine.close()


def test_prepared_before_the_end_and_submitted_after_it() -> None:
    """The engine ends between the two halves of `submit`."""
    native = FakeNative()
    engine = Engine.over(native)
    native.on_prepare = engine.close
    with pytest.raises(EngineDeadError):
        engine.submit([1])
    assert len(native.prepared) == 1
    assert all_freed(native)


def test_a_failed_pass_fails_its_request_only() -> None:
    native = FakeNative()
    with Engine.over(native) as engine:
        native.fail_next_pass = "out of memory"
        with pytest.raises(ComputeError, match="out of memory"):
            engine.generate("hi")
        assert engine.generate("hi").text == "hello"


def test_death_reaches_every_waiter() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(n_slots=1, gate=gate)
    engine = Engine.over(native)
    running, waiting = engine.submit([1]), engine.submit([1])
    probe = engine._scheduler.call_on_slot(lambda slot: slot)
    wait_until(lambda: engine.n_running == 1)
    native.fail_next_step = "the device is gone"
    gate.release()
    for generation in (running, waiting):
        with pytest.raises(EngineDeadError, match="the device is gone"):
            generation.result(PATIENCE)
        with pytest.raises(EngineDeadError):
            list(generation)
    with pytest.raises(EngineDeadError):
        probe.result(PATIENCE)
    with pytest.raises(EngineDeadError, match="the device is gone"):
        engine.generate("hi")
    with pytest.raises(EngineDeadError):
        engine.stats()
    assert "the device is gone" in engine.ended.result(PATIENCE).message
    assert not native.destroyed  # its text functions may still be in use
    engine.close()
    assert native.destroyed


def test_who_is_told_of_the_end_may_ask_again() -> None:
    native = FakeNative()
    engine = Engine.over(native)
    errors: list[EngineDeadError] = []

    def ask(_: object) -> None:
        with pytest.raises(EngineDeadError) as caught:
            engine.submit([1])
        errors.append(caught.value)

    engine.ended.add_done_callback(ask)
    native.fail_next_step = "the device is gone"
    with pytest.raises(EngineDeadError):
        engine.submit([1]).result(PATIENCE)
    assert ["the device is gone" in error.message for error in errors] == [True]
    engine.close()


class Speechless(FakeNative):
    """One of its tokens has no text."""

    def token_piece(self, token: int, special: bool) -> bytes:
        if token == ord("!"):
            raise ComputeError("this token has no text")
        return super().token_piece(token, special)


def test_a_step_that_fails_for_one_wakes_who_got_theirs() -> None:
    async def text(generation: Generation) -> str:
        return "".join([chunk.text async for chunk in generation])

    async def main() -> list[str | BaseException]:
        with Engine.over(Speechless(bytes_in_blocks, n_slots=2)) as engine:
            goes_on = threading.Event()
            engine._scheduler.call(goes_on.wait)  # both run in the first step
            reading = [asyncio.create_task(text(engine.submit(list(prompt)))) for prompt in (b"?", b"!")]
            await asyncio.sleep(0)  # both wait
            goes_on.set()
            return await asyncio.wait_for(asyncio.gather(*reading, return_exceptions=True), PATIENCE)

    answer, error = asyncio.run(main())
    assert answer == "?" and isinstance(error, EngineDeadError)


def test_a_cancel_that_fails_wakes_who_got_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, woken = threading.Semaphore(0), threading.Event()
    native = FakeNative(lambda _: [[*b"ST"], [*b"O"]], gate=gate)

    def fail(_: int) -> SlotStats:
        raise ComputeError("no statistics")

    with Engine.over(native) as engine:
        generation = engine.submit([1], stop="STOP")
        gate.release()
        wait_until(lambda: generation.n_tokens == 2)

        def cancel() -> bool:
            assert generation._must_wait(woken, len(generation._chunks), per_chunk=True)
            monkeypatch.setattr(native, "slot_stats", fail)
            with pytest.raises(ComputeError):
                engine._scheduler._cancel(generation)
            return woken.is_set()

        cancelled = engine._scheduler.call(cancel)
        gate.release()  # the step that was running, if it had begun
        assert cancelled.result(PATIENCE)


def test_a_slot_that_was_used_is_chosen_last() -> None:
    native = FakeNative(n_slots=2)
    with Engine.over(native) as engine:
        engine._scheduler.call_on_slot(native.slot_clear, 0, is_use=True).result(PATIENCE)
        engine.generate("hi")
        engine._scheduler.call_on_slot(native.slot_clear, 0).result(PATIENCE)
        engine.generate("no")
    assert [entry["slot"] for entry in native.submitted] == [1, 0]


def test_close_ends_what_runs() -> None:
    native = FakeNative(gate=threading.Semaphore(0))
    engine = Engine.over(native)
    generation = engine.submit([1])
    engine.close()
    with pytest.raises(EngineDeadError, match="closed"):
        generation.result(PATIENCE)
    with pytest.raises(EngineDeadError, match="closed"):
        engine.tokenize("hi")
    assert native.destroyed
    engine.close()


def test_a_pass_that_close_interrupts_ends_with_the_engine() -> None:
    native = FakeNative(gate=threading.Semaphore(0))
    native.fail_next_pass = "the pass was interrupted"
    engine = Engine.over(native)
    generation = engine.submit(list(b"x"))
    wait_until(lambda: native.submitted != [])
    engine.close()
    with pytest.raises(EngineDeadError, match="closed"):
        generation.result()


def test_a_forgotten_engine_closes_itself() -> None:
    native = FakeNative()
    engine = Engine.over(native)
    engine.generate("hi")
    del engine
    gc.collect()
    wait_until(lambda: native.destroyed)


def test_score_waits_for_an_idle_slot() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(gate=gate)
    with Engine.over(native) as engine:
        generation = engine.submit([1])
        future = engine._scheduler.call_on_slot(lambda slot: (slot, native._slots[slot].running))
        gate.release(1)
        time.sleep(0.02)
        assert not future.done()
        gate.release(10)
        assert future.result(PATIENCE) == (0, False)
        assert generation.result(PATIENCE).text == "hello"


def test_an_error_in_a_call_is_the_callers() -> None:
    with Engine.over(FakeNative()) as engine:
        with pytest.raises(ZeroDivisionError):
            engine._scheduler.call(lambda: 1 // 0).result(PATIENCE)
        assert engine.generate("hi").text == "hello"


def test_result_has_a_timeout() -> None:
    gate = threading.Semaphore(0)
    with Engine.over(FakeNative(gate=gate)) as engine:
        generation = engine.submit([1])
        with pytest.raises(TimeoutError) as late:  # the builtin one, as callers expect
            generation.result(0.01)
        assert isinstance(late.value, ResultTimeoutError)
        assert str(late.value) == "no result after 0.01 s (fix: wait again, or cancel() the request)"
        gate.release(10)
        assert generation.result(PATIENCE).text == "hello"


def test_idle_engine_sleeps() -> None:
    native = FakeNative()
    with Engine.over(native) as engine:
        engine.generate("hi")
        seconds = engine._scheduler.call(time.thread_time).result(PATIENCE)  # of a processor, of the engine's thread
        steps = native.n_steps
        time.sleep(0.2)
        assert native.n_steps == steps
        assert engine._scheduler.call(time.thread_time).result(PATIENCE) - seconds < 0.1


class Overtaken(Generation):
    """While its engine takes the waiter, another consumer has a tenth of a second to come."""

    def __init__(self) -> None:
        self.comes: threading.Thread | None = None
        super().__init__(RequestOptions([1]), FakePrepared({"tokens": [1]}), lambda _: None)

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name == "_waiting" and self.comes and not self.comes.is_alive() and not self.comes.ident:
            self.comes.start()
            self.comes.join(0.1)
        return value


def test_a_waiter_that_comes_while_another_is_taken_is_not_lost() -> None:
    generation, first, second = Overtaken(), threading.Event(), threading.Event()
    assert generation._must_wait(first, 0, per_chunk=True)
    generation.comes = threading.Thread(target=generation._must_wait, args=(second, 1), kwargs={"per_chunk": True})
    assert generation.add(Chunk("a", [], None)) is first
    generation.comes.join()
    assert generation.add(Chunk("b", [], None)) is second


def test_asyncio_consumers() -> None:
    async def main() -> None:
        with Engine.over(FakeNative(b"hello world", n_slots=2, step_seconds=0.002)) as engine:
            streamed, awaited = engine.submit([1]), engine.submit([1])
            assert [chunk.text async for chunk in streamed] == ["h", "ello", " wor", "ld"]
            assert (await awaited.completed()).text == "hello world"
            assert (await streamed.completed()).text == "hello world"

    asyncio.run(main())


def count_wakes(loop: asyncio.AbstractEventLoop) -> list[object]:
    """A list that grows with every call into `loop` from outside."""
    wakes: list[object] = []
    original = loop.call_soon_threadsafe

    def counted(callback: Callable[..., object], *args: object) -> asyncio.Handle:
        wakes.append(callback)
        return original(callback, *args)

    loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
    return wakes


def test_awaiting_the_result_wakes_the_loop_once() -> None:
    async def main() -> int:
        wakes = count_wakes(asyncio.get_running_loop())
        with Engine.over(FakeNative(b"x" * 400, step_seconds=0.001)) as engine:
            await engine.submit([1]).completed()
        return len(wakes)

    assert asyncio.run(main()) == 1


def test_many_streams_of_a_loop_share_one_wake_per_step() -> None:
    async def main() -> tuple[int, int]:
        wakes = count_wakes(asyncio.get_running_loop())
        native = FakeNative(b"x" * 200, n_slots=8, step_seconds=0.002)

        async def read(generation: object) -> str:
            return "".join([chunk.text async for chunk in generation])  # type: ignore[attr-defined]

        with Engine.over(native) as engine:
            texts = await asyncio.gather(*(read(engine.submit([1])) for _ in range(8)))
        assert texts == ["x" * 200] * 8
        return len(wakes), native.n_steps

    wakes, steps = asyncio.run(main())
    assert wakes <= steps


def test_a_closed_loop_does_not_hurt() -> None:
    gate = threading.Semaphore(0)
    with Engine.over(FakeNative(gate=gate)) as engine:
        generation = engine.submit([1])

        async def give_up() -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(generation.completed(), 0.01)

        asyncio.run(give_up())
        gate.release(10)
        assert generation.result(PATIENCE).text == "hello"


def test_counters() -> None:
    with Engine.over(FakeNative(b"hello world")) as engine:
        for _ in range(3):
            engine.generate("hi")
        counters = engine.counters
        assert (counters.requests, counters.steps, counters.busy_slot_steps) == (3, 12, 12)
        assert (counters.timings.prompt_n, counters.timings.predicted_n, counters.tokens_max) == (6, 33, 13)


def test_waiting_on_a_slot_delays_the_first_token() -> None:
    class Queued(FakeNative):
        def submit(self, slot: int, request: PreparedRequest) -> None:
            super().submit(slot, request)
            self._slots[slot].stats.t_queue_ms = 5000.0

    with Engine.over(Queued()) as engine:
        engine.generate("hi")
        assert 5 <= engine.counters.first_token_seconds.sum < 5 + PATIENCE
        assert engine.counters.queue_seconds.sum < 5


def test_hammer() -> None:
    """Many threads submit, cancel and stream at once; every answer is whole or cancelled and no slot is lost."""
    native = FakeNative(lambda prompt: bytes_in_blocks(prompt * 5, 3), n_slots=4)
    outcomes: list[bool] = []

    def work(worker: int) -> None:
        for round in range(20):
            prompt = b"%d-%d " % (worker, round)
            generation = engine.submit(list(prompt))
            if (worker + round) % 3 == 0:
                generation.cancel()
            text = "".join(chunk.text for chunk in generation)
            done = generation.result(PATIENCE)
            whole = (prompt * 5).decode()
            outcomes.append(
                text == done.text and (text == whole or (done.finish_reason == "cancelled" and whole.startswith(text)))
            )

    with Engine.over(native, max_queue=1000) as engine:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert outcomes == [True] * 320
        assert (engine.n_running, engine.n_waiting) == (0, 0)
        assert (engine._scheduler._generations, engine._scheduler._futures) == (set(), set())
        assert sorted(engine._scheduler._idle) == [0, 1, 2, 3]
