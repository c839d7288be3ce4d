"""The body of a request to fill a gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr, WithJsonSchema
from typing_extensions import Self

from dflash_local.errors import RequestError
from dflash_local.server.fields.completion import CompletionFields, NativeFields
from dflash_local.server.fields.fields import Fields, Policy

MAX_FILES = 1024  # plugins send some dozens
_FILE = {"type": "object", "properties": {"text": {"type": "string"}, "filename": {"type": "string"}}}
_FILES = {"type": "array", "items": {**_FILE, "required": ["text"]}, "maxItems": MAX_FILES}
_Files = Annotated[list[Any], WithJsonSchema(_FILES)]


class ExtraFile(Fields):
    """A file, or a part of one, that helps to fill the gap."""

    text: str = Field(description="the text")
    filename: str | None = Field(None, description="its name (default: tmp)")

    POLICY: ClassVar = Policy(harmless={"time": "files stay in the order in which they are sent"})


class InfillRequest(CompletionFields, NativeFields):
    """llama-server's infill."""

    input_prefix: str = Field(description="the text before the gap")
    input_suffix: str = Field(description="the text behind the gap")
    input_extra: _Files | None = Field(None, description="other files, the most important last")
    prompt: str | None = Field(None, description="how the text in the gap begins")

    POLICY: ClassVar = Policy(refused={"suffix": "use input_suffix"})

    _files: list[ExtraFile] = PrivateAttr([])

    @classmethod
    def of(cls, body: Mapping[str, Any], *, strict: bool = False) -> Self:
        """Read a body, with the files in it."""
        read = super().of(body, strict=strict)
        files = read.input_extra or []
        if len(files) > MAX_FILES:
            raise RequestError(
                f"input_extra holds {len(files)} files, at most {MAX_FILES} are allowed", param="input_extra"
            )
        for index, value in enumerate(files):
            name = f"input_extra[{index}]"
            if not isinstance(value, Mapping):
                raise RequestError(f'{name} must be an object with "text", got {value!r:.80}', param=name)
            chunk = ExtraFile.inside(name, value)
            read.ignore([f"{name}.{other}" for other in chunk.ignored], strict=strict)
            read._files.append(chunk)
        return read

    @property
    def files(self) -> list[tuple[str, str]]:
        """The name and text of each file."""
        return [(file.filename or "tmp", file.text) for file in self._files]
