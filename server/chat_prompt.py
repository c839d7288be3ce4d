"""The prompt of a chat completion, rendered and counted."""

from __future__ import annotations

from collections.abc import Iterable

from dflash_local.conversation import ChatPrompt
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.fields import Fields
from dflash_local.server.fields.request import overruled_thinking, parse_chat
from dflash_local.server.service import Service


def render_chat(service: Service, body: ChatRequest, of: Fields | None = None) -> ChatPrompt:
    """The prompt; slow for long conversations, and for those with images and audio. Fields without effect go into the
    `ignored` of `of`, the body of another format that was turned into `body`, or else of `body`."""
    prompt = service.engine.apply_chat(parse_chat(body, service.settings.defaults), service.settings.media)
    ignore(service, [*overruled_thinking(body), *prompt.ignored], body, of)
    return prompt


def ignore(service: Service, names: Iterable[str], body: Fields, of: Fields | None) -> None:
    """List fields of a completion that have no effect, if they came in the body; `of` as for `render_chat`."""
    sent, strict = body.sent_parts(names), service.settings.strict_fields
    if of is None:
        body.ignore(sent, strict=strict)
    else:
        of.ignore([of.own_name(name) for name in sent], strict=strict)


async def count_tokens(service: Service, body: ChatRequest, *, of: Fields | None = None) -> int:
    """Tokens of the prompt, rows of media among them; `of` as for `render_chat`."""

    def count() -> int:
        engine, prompt = service.engine, render_chat(service, body, of)
        return len(engine.chat_tokens(prompt) if prompt.media else engine.tokenize(prompt.prompt))

    return await service.media_gate.run(body.messages, count)
