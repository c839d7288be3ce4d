"""Checks flags about conversations that only a template can refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams

if TYPE_CHECKING:
    from dflash_local.engine import Engine

_FLAGS = {"reasoning_format": "--reasoning-format", "chat_template_kwargs": "--chat-template-kwargs"}
_GREETING: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


def check_chat_flags(engine: Engine, chat: Mapping[str, Any]) -> None:
    """Render a conversation with the fields that the flags set, `chat`.

    Raises:
        RequestError: every chat request would fail; `param` is the flag to blame.
    """
    try:
        engine.apply_chat({**_GREETING, **chat})
    except RequestError as error:
        flag = _FLAGS.get((error.param or "").partition(".")[0])
        if flag is None and _renders(engine):
            flag = _FLAGS["chat_template_kwargs"]
        if flag is not None:  # else the template refuses the greeting itself
            raise RequestError(f"{flag} makes every chat request fail: {error.message}", param=flag) from None


def check_budget_message(engine: Engine, chat: Mapping[str, Any], sampling: SamplingParams) -> None:
    """Check --reasoning-budget-message, in `sampling`, against the tags of the template's thoughts.

    Raises:
        RequestError: every chat request would fail.
    """
    if not sampling.reasoning_budget_message:
        return
    message = SamplingParams(reasoning_budget_message=sampling.reasoning_budget_message)
    try:
        engine.check_options(replace(message, **engine.apply_chat({**_GREETING, **chat}).sampling))
    except RequestError as error:
        if error.param == "reasoning_budget_message":  # else the template refuses the greeting itself
            flag = "--reasoning-budget-message"
            raise RequestError(f"{flag} makes every chat request fail: {error.message}", param=flag) from None


def _renders(engine: Engine) -> bool:
    """Whether the template renders a greeting without arguments."""
    try:
        engine.apply_chat(_GREETING)
    except RequestError:
        return False
    return True
