"""Whether a grammar takes a text, without a model's choice."""

from __future__ import annotations

import json
from typing import Any

from dflash_local.errors import RequestError
from dflash_local.native import NativeEngine


def takes(engine: NativeEngine, schema: dict[str, Any], text: str) -> bool:
    """Whether the schema's grammar takes all of `text`: as if a template had begun and ended the answer with it."""
    return takes_fields(engine, {"json_schema": schema}, text)


def takes_fields(engine: NativeEngine, sampling: dict[str, Any], text: str) -> bool:
    """The same of sampling fields that have a grammar."""
    fields = {**sampling, "generation_prompt": text + "<|im_end|>"}
    try:
        engine.prepare({"tokens": [1], "n_predict": 8, "sampling": json.dumps(fields)}).free()
    except RequestError as error:
        assert error.param == "generation_prompt", error
        return False
    return True
