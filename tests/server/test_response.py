"""Answers that are not streamed."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.server.response import LONG, respond
from tests.fake_native import FakeNative


@pytest.mark.parametrize(("n_choices", "n_tokens", "beside"), [(1, LONG, False), (1, LONG + 1, True), (4, LONG, True)])
def test_much_is_parsed_beside_the_event_loop(n_choices: int, n_tokens: int, beside: bool) -> None:
    with Engine.over(FakeNative()) as engine:
        completion = replace(engine.generate("x"), tokens=[1] * n_tokens)
    threads: list[int] = []

    async def completed() -> Any:
        return completion

    async def connected() -> None:
        await asyncio.Event().wait()

    def whole(*_: Any) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {}

    request: Any = SimpleNamespace(state=SimpleNamespace(), receive=connected)
    fields: Any = SimpleNamespace(n=n_choices, stream=False, probs=SimpleNamespace(n_top=None))
    reply: Any = SimpleNamespace(passes=(), whole=whole)
    generation: Any = SimpleNamespace(completed=completed, cancel=lambda: None)
    asyncio.run(respond(request, fields, reply, [generation] * n_choices))
    assert (threads != [threading.get_ident()]) == beside
