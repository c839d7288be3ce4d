"""Tool calls of models that write them into a block of code, whatever their template asks for.

The template of Qwen2.5-Coder asks for calls within <tool_call> and </tool_call>. These are tokens of its vocabulary,
but the models do not write them: their calls are blocks of JSON like any other, and a client gets a text. Asked for a
block of its own kind, ```tool_call, they write that. So this is what the template asks for, and how it shows earlier
calls; parser and grammar follow from the template, as ever.
"""

from __future__ import annotations

import re
from pathlib import Path

from dflash_local.convert.gguf_glance import Glance, far_text
from dflash_local.errors import ModelError

_NAMES = ("general.basename", "general.name")
_MODEL = re.compile(r"qwen ?2\.?5 coder")
# Words of `general.finetune` that say nothing of other training: a finetune may well write the tags.
_AS_PUBLISHED = frozenset({"instruct", "gguf", "128k"})
# The template's example doubles its braces, and some answers then do, too.
_EXAMPLE = re.compile(r"\{(\{[^{}]*<function-name>[^{}]*\})\}")


def fenced_template(target: Path) -> str | None:
    """The template of the GGUF `target` with fences in place of the tags; None if the file's own is to be used: for
    other models, other templates, and files that cannot be read.
    """
    try:
        template = far_text(target, "tokenizer.chat_template") if _is_fencing(target) else ""
    except ModelError:  # whoever loads it says what is wrong
        return None
    return with_fences(template) if "<tool_call>" in template else None


def with_fences(template: str) -> str:
    """A template that asks for each call in a ```tool_call block, and shows calls so."""
    asked = template.replace("within <tool_call></tool_call> XML tags", "within a ```tool_call block")
    fenced = asked.replace("<tool_call>", "```tool_call").replace("</tool_call>", "```")
    return _EXAMPLE.sub(r"\1", fenced)


def _is_fencing(target: Path) -> bool:
    glance = Glance.of(target)
    names = [_words(glance.text(key)) for key in _NAMES]
    other = set(_words(glance.text("general.finetune")).split()) - _AS_PUBLISHED
    return any(_MODEL.search(name) for name in names) and not other


def _words(name: str) -> str:
    return re.sub(r"[-_ ]+", " ", name.lower()).strip()
