"""The prompt of a chat completion, rendered and counted."""

from __future__ import annotations

from dflash_local.conversation import ChatPrompt
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.fields import Fields
from dflash_local.server.fields.request import parse_chat
from dflash_local.server.service import Service


def render_chat(service: Service, body: ChatRequest, of: Fields | None = None) -> ChatPrompt:
    """The prompt; slow for long conversations, and for those with images and audio. Fields without effect go into the
    `ignored` of `of`, the body of another format that was turned into `body`, or else of `body`."""
    prompt = service.engine.apply_chat(parse_chat(body, service.settings.defaults), service.settings.media)
    (of or body).ignore(body.sent_parts(prompt.ignored), strict=service.settings.strict_fields)
    return prompt


async def count_tokens(service: Service, body: ChatRequest, *, of: Fields | None = None) -> int:
    """Tokens of the prompt, rows of media among them; `of` as for `render_chat`."""

    def count() -> int:
        engine, prompt = service.engine, render_chat(service, body, of)
        return len(engine.chat_tokens(prompt) if prompt.media else engine.tokenize(prompt.prompt))

    return await service.media_gate.run(body.messages, count)
