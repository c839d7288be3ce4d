"""What became of an action on a running chat completion."""

from __future__ import annotations

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer


class Control(Answer):
    """llama-server's answer: 200, whether or not there was anything to do."""

    success: bool
    message: NotRequired[str]
