"""The images and audio among the content parts of a conversation, in OpenAI's shape or as Python's values."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dflash_local.errors import MediaError, RequestError
from dflash_local.media.abilities import Abilities
from dflash_local.media.audio_file import read_audio
from dflash_local.media.image_file import image_of, read_image
from dflash_local.media.local_file import read_path
from dflash_local.media.media_limits import MAX_WAIT
from dflash_local.media.media_list import MediaList
from dflash_local.media.media_sources import MediaSources
from dflash_local.media.medium import Kind, Medium

# Types of parts that stand for media, and which kind it is.
MEDIA_TYPES: Mapping[str, Kind] = {
    "image_url": "image",
    "image": "image",
    "input_audio": "audio",
    "audio": "audio",
}
_VIDEO = ("video", "video_url", "input_video")
_MARKED = "media_marker"  # llama.cpp's own type for what stands for a medium


class MarkedConversation:
    """A conversation whose media are taken out: a marker with a number stands for each of them.

    Attributes:
        messages: those that were given, with markers; what is malformed besides is left to libdflash.
        media: what was taken out.
        ignored: parts of fields that have no effect, such as "messages[].content[].image_url.detail".

    Raises:
        MediaError: the model does not read such media, or one cannot be had or read; `param` names the part.
        RequestError: a part is malformed, or there are too many.
    """

    def __init__(self, messages: Any, abilities: Abilities, sources: MediaSources) -> None:
        self._abilities, self._sources = abilities, sources
        self._media = MediaList()
        self._places: list[str] = []
        self._waited = 0.0  # seconds for files
        self.ignored: list[str] = []
        self.messages = messages
        if has_media(messages):
            self.messages = [self._message(message, f"messages[{at}]") for at, message in enumerate(messages)]

    @property
    def media(self) -> list[Medium]:
        return self._media.all

    def check(self, body: str) -> None:
        """Raise RequestError if a text in the JSON that holds `messages` is the marker, too."""
        if self.media and body.count(self._abilities.marker) != len(self.media):
            raise RequestError("a text in this conversation is this server's marker for media", param="messages")

    def placed(self, prompt: str) -> tuple[str, tuple[Medium, ...], tuple[str, ...]]:
        """A rendered prompt with plain markers, and the media in the order in which it shows them, with their places.

        Raises:
            RequestError: it leaves one out.
        """
        if not self.media:
            return prompt, (), ()
        numbered = re.compile(re.escape(self._abilities.marker) + r"\[(\d+)\]")
        order = [int(number) for number in numbered.findall(prompt)]
        if {*order} != {*range(len(self.media))}:
            raise RequestError("the chat template leaves out an image or audio of this conversation", param="messages")
        media, places = tuple(self.media[at] for at in order), tuple(self._places[at] for at in order)
        return numbered.sub(lambda _: self._abilities.marker, prompt), media, places

    def _message(self, message: Any, place: str) -> Any:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
            return message
        parts = [self._part(part, f"{place}.content[{at}]") for at, part in enumerate(message["content"])]
        return {**message, "content": parts}

    def _part(self, part: Any, place: str) -> Any:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            return part
        if kind in _VIDEO:
            raise RequestError(f"{place}.type: video is not supported: send single images", param=f"{place}.type")
        if kind == _MARKED:
            raise RequestError(f"{place}.type: {kind} is no type of a client's parts", param=f"{place}.type")
        if kind not in MEDIA_TYPES:
            return part
        # OpenAI's wording, too: clients know by one of them to leave media out.
        words = f"Invalid content type. {kind} is only supported by certain models: "
        self._abilities.check(MEDIA_TYPES[kind], f"{place}.type", words)
        self._places.append(f"{place}.{kind}")
        self._media.add(_READERS[kind](self, part.get(kind), f"{place}.{kind}"), place)
        rest = {name: value for name, value in part.items() if name not in (kind, "type")}
        if rest.get("text") is not None:
            self.ignored.append("messages[].content[].text")
        return {**rest, "type": _MARKED, "text": f"{self._abilities.marker}[{len(self.media) - 1}]"}

    def _fetched(self, url: str, kind: Kind, param: str) -> bytes:
        """A file. All of them together may take only so long, since a thread waits for them."""
        began = time.monotonic()
        data = self._sources.read(url, kind, param)
        self._waited += time.monotonic() - began
        if self._waited > MAX_WAIT:
            raise MediaError.of(param, kind, f"came too late: with those before it, it took more than {MAX_WAIT} s")
        return data

    # ---- parts ----

    def _image_url(self, value: Any, param: str) -> Medium:
        fields = {"url": value} if isinstance(value, str) else _object(value, param)
        self._list_unused(fields, ("url",), param, detail="auto")
        param = f"{param}.url"
        return read_image(self._fetched(_text(fields.get("url"), param), "image", param), param)

    def _input_audio(self, value: Any, param: str) -> Medium:
        fields = _object(value, param)
        self._list_unused(fields, ("data", "url", "format"), param)
        name = "url" if fields.get("data") is None and fields.get("url") is not None else "data"
        declared = fields.get("format")
        if declared is not None:
            declared = _text(declared, f"{param}.format")
        param = f"{param}.{name}"
        return read_audio(self._fetched(_text(fields.get(name), param), "audio", param), param, declared)

    def _image(self, value: Any, param: str) -> Medium:
        if isinstance(value, Medium):
            return value
        if hasattr(value, "getbands"):  # a picture of Pillow's
            return image_of(value, param)
        return read_image(_bytes(value, param, "image", "image_url"), param)

    def _audio(self, value: Any, param: str) -> Medium:
        return value if isinstance(value, Medium) else read_audio(_bytes(value, param, "audio", "input_audio"), param)

    def _list_unused(self, fields: Mapping[str, Any], known: tuple[str, ...], param: str, **usual: str) -> None:
        """List what has no effect, unless it asks for what happens anyway."""
        for name, value in fields.items():
            if name not in known and value is not None and value != usual.get(name):
                self.ignored.append(re.sub(r"\[\d+\]", "[]", f"{param}.{name}"))


_READERS: Mapping[str, Callable[[MarkedConversation, Any, str], Medium]] = {
    "image_url": MarkedConversation._image_url,
    "input_audio": MarkedConversation._input_audio,
    "image": MarkedConversation._image,
    "audio": MarkedConversation._audio,
}


def has_media(messages: Any) -> bool:
    """Whether a conversation has parts that `MarkedConversation` takes out or refuses."""
    types = {*MEDIA_TYPES, *_VIDEO, _MARKED}
    return isinstance(messages, list) and any(
        isinstance(part, Mapping) and part.get("type") in types
        for message in messages
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        for part in message["content"]
        if isinstance(part, Mapping) and isinstance(part.get("type"), str)
    )


def _object(value: Any, param: str) -> Mapping[str, Any]:
    if value is None:
        raise RequestError(f"{param} is missing", param=param)
    if not isinstance(value, Mapping):
        raise RequestError(f"{param} must be an object, got {value!r:.80}", param=param)
    return value


def _text(value: Any, param: str) -> str:
    if value is None:
        raise RequestError(f"{param} is missing", param=param)
    if not isinstance(value, str):
        raise RequestError(f"{param} must be a string, got {value!r:.80}", param=param)
    return value


def _bytes(value: Any, param: str, kind: Kind, by_url: str) -> bytes:
    """Bytes, or those of a file. A text is no path, since texts come from clients."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, os.PathLike):
        more = ", a picture of Pillow" if kind == "image" else ""
        raise RequestError(
            f"{param} must be bytes or a pathlib.Path{more}, got {value!r:.80}",
            param=param,
            hint=f"URLs and base64 belong into {by_url}",
        )
    try:
        return read_path(Path(value).resolve())
    except (ValueError, OSError, RuntimeError) as error:
        raise MediaError.of(param, kind, str(error)) from None
