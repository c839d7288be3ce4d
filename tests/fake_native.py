"""FakeNative: an in-memory native engine for what a real one cannot be made to do on demand (timing, death, odd bytes).

Its vocabulary: token t < 256 is the byte t; 256 is `<tool_call>`, a control token; 257 ends an answer. What it says is
scripted. An image is three rows, audio is two.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dflash_local.errors import ComputeError, RequestError
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.media.medium import Kind, Medium
from dflash_local.native import (
    AcceptRule,
    DraftMode,
    NativeChat,
    NativeEngine,
    Origin,
    PreparedRequest,
    SlotState,
    SlotStats,
    StepUpdate,
    VerifiedTree,
)
from dflash_local.native.library import utf8
from dflash_local.request_options import RequestOptions
from dflash_local.token_probs import TokenProb

CONTROL, EOG = 256, 257
N_VOCAB = 258
MARKER = "<__media_fake__>"
ROWS = {"image": 3, "audio": 2}
# What `info` tells of an engine that sees and hears.
SEES_AND_HEARS = {"media": {"vision": True, "audio": True, "marker": MARKER}}
# Made up: reading takes 8 ms, computing 1 ms a row.
COSTS = {
    "cost_verify_ms": {str(rows): float(max(8, rows)) for rows in (1, 2, 4, 8, 16, 32, 64)},
    "cost_draft_ms": {"4": 1.0, "8": 1.2},
    "cost_other_ms": 0.3,
    "cost_rebuild_ms": 0.5,
    "cost_cell_ms": 0.001,
    "cost_source": "measured",
}


def bytes_in_blocks(answer: bytes, block: int = 4) -> list[list[int]]:
    """A script: the answer's first byte from the prompt's pass, then `block` bytes a pass, then the end."""
    passes = [list(answer[:1])] + [list(answer[at : at + block]) for at in range(1, len(answer), block)]
    passes[-1].append(EOG)
    return passes


def prob_of(token: int, n: int) -> TokenProb:
    """What the fake says of a token: its id over -512, and as the likeliest those before it, which are likelier."""
    top = array("i", range(min(n, N_VOCAB)))
    return TokenProb(token, -token / 512, top, array("f", [-token / 512 for token in top]))


@dataclass
class _Slot:
    tokens: list[int] = field(default_factory=list)
    passes: list[list[int]] = field(default_factory=list)
    params: Mapping[str, Any] = field(default_factory=dict)  # of the request, by dflash_request_params' names
    prediction: list[int] = field(default_factory=list)
    running: bool = False
    n_read: int = 0
    stats: SlotStats = field(default_factory=SlotStats)

    @property
    def plain(self) -> bool:
        return bool(self.params["budget"] == 1 or self.params["draft"] == DraftMode.OFF)


def tree_of(anchor: int, accepted: Sequence[int]) -> VerifiedTree:
    """The accepted tokens, by drafter and lookup in turns, and beside each of them one of the drafter's that is
    refused: the letter's other case."""
    rows = [(anchor, -1, 1.0, 1.0, int(Origin.TARGET))]
    path = [0]
    for depth, token in enumerate(accepted):
        quoted = depth % 2 == 1
        rows.append((token, path[-1], 0.0 if quoted else 0.75, 0.5**depth, Origin.LOOKUP if quoted else Origin.DRAFTER))
        rows.append((token ^ 0x20, path[-1], 0.125, 0.0625, Origin.DRAFTER))
        path.append(len(rows) - 2)
    tokens, parents, probs, values, origins = (list(column) for column in zip(*rows, strict=True))
    return VerifiedTree(tokens, parents, probs, values, origins, path)


def _with_tree(slot: _Slot, anchor: int, update: StepUpdate, accepted: list[int]) -> StepUpdate:
    if not slot.params["return_drafts"]:
        return update
    tree = tree_of(anchor, accepted)
    n_drafted, n = len(tree.tokens) - 1, len(accepted)
    return update._replace(n_accepted=n, n_drafted=n_drafted, n_depth=n, plain_ms=0.75, tree=tree)


def _with_probs(slot: _Slot, update: StepUpdate) -> StepUpdate:
    n, start = slot.params["n_probs"], slot.params["probs_from"]
    if not n:
        return update
    prompt = slot.tokens[start : slot.stats.n_prompt] if start and update.first else []
    tokens = prompt + update.tokens + ([EOG] if update.state == SlotState.STOP else [])
    return update._replace(probs=[prob_of(token, n) for token in tokens], n_prompt_probs=len(prompt))


_DEFAULTS = RequestOptions([]).native_params()


class FakePrepared(PreparedRequest):
    """`params` are those of `prepare`; `alive` until it runs or is freed."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = {**_DEFAULTS, **params}
        self.tokens, self.prediction = list(params["tokens"]), list(self.params["prediction"])
        self.alive = True

    def free(self) -> None:
        self.alive = False

    def __del__(self) -> None:
        pass  # the garbage collector may not do the scheduler's work


class FakeNative(NativeEngine):
    """Answers every prompt with `answer(prompt bytes)`: the tokens of each pass, EOG included.

    Args:
        step_seconds: how long a step takes.
        gate: if given, each step first takes one permit of it.
        n_batch: prompt tokens that one pass reads; 0: all of them, and nothing is ever cached.
        info: more of what the engine tells of itself.
    """

    def __init__(
        self,
        answer: Callable[[bytes], list[list[int]]] | bytes = b"hello",
        *,
        n_slots: int = 1,
        n_ctx_slot: int = 4096,
        step_seconds: float = 0.0,
        gate: threading.Semaphore | None = None,
        n_batch: int = 0,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self._answer = (lambda _prompt: bytes_in_blocks(answer)) if isinstance(answer, bytes) else answer
        self._n_ctx_slot, self._more_info = n_ctx_slot, info or {}
        self._step_seconds, self._gate, self._n_batch = step_seconds, gate, n_batch
        self._slots = [_Slot() for _ in range(n_slots)]
        self.submitted: list[dict[str, Any]] = []
        self.media: list[Medium] = []  # of all prompts
        self._numbers: dict[bytes, int] = {}  # of media, by their hashes
        self.prepared: list[FakePrepared] = []
        self.on_prepare: Callable[[], None] | None = None
        self.cancelled: list[int] = []
        self.ended: list[int] = []  # slots whose thoughts were to end
        self.drafters: list[Path] = []  # that replaced others
        self.thoughtless = False
        self.fail_next_step: str | None = None
        self.fail_next_pass: str | None = None
        self.room = True
        self.n_steps = 0
        self.n_passes = {False: 0, True: 0}  # after the prompt's: drafted, plain
        self.destroyed = False

    def destroy(self) -> None:
        self.destroyed = True

    def info(self) -> dict[str, Any]:
        return {
            "n_slots": len(self._slots),
            "n_ctx_slot": self._n_ctx_slot,
            "target": {
                "n_vocab": N_VOCAB,
                "arch": "fake",
                "n_params": 1,
                "size": 1,
                "n_embd": 1,
                "n_ctx_train": self._n_ctx_slot,
            },
            "drafter": None,
            "chat_template": "fake",
            "memory": {},
            **self._more_info,
        }

    def stats(self) -> dict[str, Any]:
        """As dflash_engine_stats() tells since ABI 2, made up but for the counts."""
        phases = {"plan": 0.1, "verify": 7.0, "walk": 0.4, "commit": 0.1, "draft": 2.0, "grow": 0.2, "other": 0.2}
        drafted, plain = self.n_passes[False], self.n_passes[True]
        return {
            "steps": self.n_steps,
            **{f"t_{phase}_ms": ms * self.n_steps for phase, ms in phases.items()},
            "graphs_reused_target": drafted,
            "graphs_built_target": plain,
            "graphs_reused_drafter": drafted,
            "graphs_built_drafter": 0,
            "choices": {
                "nodes": {name: count for name, count in (("5", drafted), ("1", plain)) if count},
                "lengths": {"8": drafted} if drafted else {},
                "reasons": {
                    name: count for name, count in (("drafting pays", drafted), ("drafting is off", plain)) if count
                },
            },
            "lookup": {
                "drafted": drafted,
                "accepted": 0,
                "by_source": {"text": {"drafted": drafted, "accepted": 0}},
            },
            **COSTS,
            "cells": {"size": self._n_ctx_slot, "used": sum(slot.running for slot in self._slots)},
            "host_cache": {"conversations": 2, "bytes": 7, "limit": None},
            "choice": {
                "length": 8,
                "rate": 0.2,
                "plain_rate": 0.125,
                "drafted_rate": 0.25,
                "resting": False,
                "reason": "drafting pays" if drafted else "",
            },
            "drafter_failure": "",
        }

    def prepare(self, params: Mapping[str, Any]) -> FakePrepared:
        prepared = FakePrepared(params)
        if "refuse me" in prepared.params["sampling"]:
            raise RequestError("grammar does not parse", param="grammar")
        if prepared.params["accept"] == AcceptRule.BLOCK:
            raise RequestError(
                "field 'accept': block needs a DFlash 2, DSpark, Domino or LiliCorr drafter, and there is none",
                param="accept",
            )
        if self.on_prepare:
            self.on_prepare()
        self.prepared.append(prepared)
        return prepared

    def has_room(self, request: PreparedRequest) -> bool:
        return self.room

    def slot_choose(self, request: PreparedRequest, slots: Sequence[int]) -> int:
        assert isinstance(request, FakePrepared)
        assert not any(self._slots[slot].running for slot in slots), "a running slot is offered"

        def common(slot: int) -> int:
            n = _n_common(self._slots[slot].tokens, request.tokens)
            return n if n > 0.1 * len(request.tokens) else 0

        return max(slots, key=common)

    def submit(self, slot: int, request: PreparedRequest) -> None:
        assert isinstance(request, FakePrepared)
        assert request.alive, "submit of a request that was freed or ran already"
        state = self._slots[slot]
        assert not state.running, "submit on a running slot"
        request.alive = False
        tokens, params = request.tokens, request.params
        self.submitted.append({"slot": slot, **params})
        n_cached = min(_n_common(state.tokens, tokens), len(tokens) - 1) if self._n_batch else 0
        state.stats = SlotStats(n_prompt=len(tokens), n_cached=n_cached, t_prompt_ms=1.0)
        state.n_read = n_cached
        state.tokens, state.running, state.params = list(tokens), True, params
        state.prediction = request.prediction
        state.stats.n_prediction = len(request.prediction)
        state.passes = [list(tokens) for tokens in self._answer(bytes(t for t in tokens if 0 <= t < 256))]

    def cancel(self, slot: int) -> None:
        self.cancelled.append(slot)
        self._slots[slot].running = False

    def end_reasoning(self, slot: int) -> bool:
        self.ended.append(slot)
        return not self.thoughtless

    def replace_drafter(self, path: str | os.PathLike[str]) -> None:
        self.drafters.append(Path(path))

    def slot_clear(self, slot: int) -> int:
        count, self._slots[slot].tokens = len(self._slots[slot].tokens), []
        return count

    def step(self) -> list[StepUpdate]:
        if self._gate:
            self._gate.acquire()
        if self._step_seconds:
            time.sleep(self._step_seconds)
        if self.fail_next_step:
            raise ComputeError(self.fail_next_step)
        self.n_steps += 1
        return [_with_probs(slot, self._pass(index, slot)) for index, slot in enumerate(self._slots) if slot.running]

    def _pass(self, index: int, slot: _Slot) -> StepUpdate:
        if self.fail_next_pass:
            error, self.fail_next_pass = self.fail_next_pass, None
            slot.running = False
            return StepUpdate(index, SlotState.FAILED, [], error=error)
        slot.n_read = min(slot.n_read + self._n_batch, slot.stats.n_prompt) if self._n_batch else slot.stats.n_prompt
        if slot.n_read < slot.stats.n_prompt:
            return StepUpdate(index, SlotState.READING, [], n_past=slot.n_read)
        tokens, anchor = slot.passes.pop(0), slot.tokens[-1]
        accepted = tokens[:-1]
        first = slot.stats.n_generated == 0 and slot.stats.n_passes == 0 and len(slot.tokens) == slot.stats.n_prompt
        state = SlotState.WRITING
        if tokens and tokens[-1] == EOG:
            tokens, state = tokens[:-1], SlotState.STOP
        n_predict = slot.params["n_predict"]
        room = n_predict - slot.stats.n_generated
        if n_predict >= 0 and len(tokens) >= room:
            tokens, state = tokens[:room], SlotState.LENGTH
        slot.tokens += tokens
        slot.stats.n_generated += len(tokens)
        answer = slot.tokens[slot.stats.n_prompt :]
        slot.stats.n_prediction_accepted = len(os.path.commonprefix([answer, slot.prediction]))  # noqa: RUF071
        slot.stats.t_generate_ms += 2.0
        slot.running = state == SlotState.WRITING
        n_past = len(slot.tokens) - (state != SlotState.STOP and bool(tokens))  # the last one is not read yet
        if first:
            return StepUpdate(index, state, tokens, first=True, n_past=n_past)
        n_accepted, n_drafted = max(len(tokens) - 1, 0), 0 if slot.plain else 4
        self.n_passes[slot.plain] += 1
        slot.stats.n_passes += 1
        slot.stats.n_plain += slot.plain
        slot.stats.n_drafted += n_drafted
        slot.stats.n_accepted += n_accepted
        if slot.plain:
            update = StepUpdate(
                index, state, tokens, n_accepted, reason="drafting is off", verify_ms=1.0, n_past=n_past
            )
            return _with_tree(slot, anchor, update, [])
        update = StepUpdate(
            index,
            state,
            tokens,
            n_accepted,
            n_drafted,
            n_depth=3,
            n_denoised=8,
            reason="drafting pays",
            draft_ms=0.5,
            verify_ms=1.0,
            n_past=n_past,
        )
        return _with_tree(slot, anchor, update, accepted)

    rpc_servers = ""

    def interrupt(self) -> None:
        if self._gate:
            self._gate.release()

    def slot_stats(self, slot: int) -> SlotStats:
        copy = SlotStats()
        ctypes.pointer(copy)[0] = self._slots[slot].stats
        return copy

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return [CONTROL] if parse_special and text == "<tool_call>" else list(utf8(text, "prompt"))

    def prompt(self, text: str, add_special: bool, media: Sequence[Medium]) -> MediaPrompt:
        parts = text.split(MARKER)
        assert len(parts) == len(media) + 1
        self.media += media
        tokens = array("i", [*parts[0].encode()])
        for medium, part in zip(media, parts[1:], strict=True):
            number = self._numbers.setdefault(medium.hash, -2 - len(self._numbers))
            tokens.extend([number] * ROWS[medium.kind])
            tokens.extend(part.encode())
        kinds: tuple[Kind, ...] = ("image", "audio")
        return MediaPrompt(tokens, {kind: sum(ROWS[kind] for medium in media if medium.kind == kind) for kind in kinds})

    def token_piece(self, token: int, special: bool) -> bytes:
        if token < 256:
            return bytes([token])
        return b"<tool_call>" if special and token == CONTROL else b""

    def token_is_eog(self, token: int) -> bool:
        return token == EOG

    def chat_apply(self, template: str | None, body: str) -> dict[str, Any]:
        fields = json.loads(body)
        if any(message["role"] == "refuse" for message in fields["messages"]):
            raise RequestError("the template refuses this role", param="messages")
        prompt = "".join(f"{message['role']}: {_text_of(message)}\n" for message in fields["messages"])
        tools = fields.get("tools")
        sampling = {"preserved_tokens": ["<tool_call>"]} if tools else {}
        parser = {"tool": tools[0]["function"]["name"] if tools else ""}
        ignored = sorted({f"messages[].{name}" for message in fields["messages"] for name in message if name == "mood"})
        ignored += [f"chat_template_kwargs.{name}" for name in fields.get("chat_template_kwargs", {}) if name == "mood"]
        return {"prompt": prompt, "stops": [], "sampling": sampling, "parser": parser, "ignored": ignored}

    def chat_new(self, parser: str) -> NativeChat:
        return _FakeChat(json.loads(parser)["tool"])


def _text_of(message: Mapping[str, Any]) -> str:
    """A message's text; what stands for media is part of it."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    for part in content:
        if part["type"] not in ("text", "refusal", "media_marker"):
            raise RequestError(f"Invalid content type. {part['type']} is only supported by certain models")
    return "".join(part[part["type"] if part["type"] == "refusal" else "text"] for part in content)


def _n_common(held: list[int], prompt: list[int]) -> int:
    return len(os.path.commonprefix([held, prompt]))  # noqa: RUF071


class _FakeChat(NativeChat):
    """Everything is content, but for what stands between `<think>` and `</think>` at the start, and for what follows
    each `<tool_call>`, which is the arguments of a call to the first tool."""

    def __init__(self, tool: str) -> None:
        self._tool, self._text = tool, ""

    def push(self, text: str, is_final: bool) -> list[dict[str, Any]]:
        before = self.message()
        self._text += text
        after = self.message()
        deltas: list[dict[str, Any]] = []
        for kind in ("reasoning_content", "content"):
            if more := after.get(kind, "")[len(before.get(kind, "")) :]:
                deltas.append({kind: more})
        known = before.get("tool_calls", [])
        for index, call in enumerate(after.get("tool_calls", [])):
            arguments = call["function"]["arguments"]
            if index >= len(known):
                deltas.append({"tool_calls": [{"index": index, **call}]})
            elif more := arguments[len(known[index]["function"]["arguments"]) :]:
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": more}}]})
        return deltas

    def message(self) -> dict[str, Any]:
        text, thoughts = self._text, ""
        if text.startswith("<think>"):
            thoughts, _, text = text.removeprefix("<think>").partition("</think>")
        content, *calls = text.split("<tool_call>") if self._tool else [text]
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if thoughts:
            message["reasoning_content"] = thoughts
        if calls:
            message["tool_calls"] = [
                {"id": f"id{index}", "type": "function", "function": {"name": self._tool, "arguments": arguments}}
                for index, arguments in enumerate(calls)
            ]
        return message

    def __del__(self) -> None:
        pass
