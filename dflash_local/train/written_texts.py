"""Texts that the target wrote: prompts with their answers, as JSON lines that grow while it writes."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dflash_local.errors import RequestError
from dflash_local.train.workspace import disk_errors

if TYPE_CHECKING:
    from dflash_local.generation import Completion


@dataclass(frozen=True)
class Text:
    """Token ids of a prompt and of an answer to it, without the token that ended it. `key` names the prompt. Rows of
    media are numbers below -1, which say which rows are of one medium, and not of which one."""

    key: str
    round: int
    prompt: list[int]
    answer: list[int]
    temperature: float
    ended: bool  # by the model, not by a limit or a stop string
    target: str = ""  # whose text it is (`identity`); "": not said

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.answer

    @classmethod
    def written(
        cls, key: str, number: int, prompt: list[int], temperature: float, answer: Completion, target: str
    ) -> Text:
        """What an engine answered in this round."""
        ended = answer.finish_reason == "stop" and answer.stopped_by is None
        return cls(key, number, prompt, list(answer.tokens), temperature, ended, target)

    @property
    def digest(self) -> str:
        """Names this very answer to this prompt."""
        numbers = array("i", [self.round, len(self.prompt), *self.tokens])
        return hashlib.sha256(self.key.encode() + numbers.tobytes()).hexdigest()[:16]

    def to_json(self) -> str:
        return json.dumps(vars(self), separators=(",", ":"))

    @classmethod
    def of(cls, data: Any, where: str, param: str) -> Text:
        """Raises RequestError for anything else than `to_json` writes; `param` gave it."""
        if isinstance(data, dict) and data.keys() >= cls.__annotations__.keys() - {"target"}:
            text = cls(**{name: data[name] for name in cls.__annotations__ if name in data})
            if _is_tokens(text.prompt, media=True) and _is_tokens(text.answer) and text.prompt:
                return text
        raise RequestError(f"{where} is not an answer of a target", param=param, hint="remove the line, or the file")


def identity(model: Path) -> str:
    """A model's name and a few of its bytes, which tell it from another of that name. A Hugging Face folder's are those
    of its config.json and its weights."""
    digest = hashlib.sha256()
    for path in _weights(model) if model.is_dir() else [model]:
        size = path.stat().st_size
        digest.update(str(size).encode())
        with path.open("rb") as file:
            for at in (0, size // 2, max(size - (1 << 16), 0)):
                file.seek(at)
                digest.update(file.read(1 << 16))
    return f"{model.name} ({digest.hexdigest()[:12]})"


def _weights(folder: Path) -> list[Path]:
    found = (path for pattern in ("config.json", "*.safetensors", "*.bin", "*.pt") for path in folder.glob(pattern))
    return sorted(path for path in found if path.is_file())


def in_order(texts: Iterable[Text], known: Sequence[str]) -> list[Text]:
    """The texts as their digests lie in `known`, new ones behind them: so a record that grows moves no text."""
    places: defaultdict[str, deque[int]] = defaultdict(deque)  # a text may be there several times
    for place, digest in enumerate(known):
        places[digest].append(place)

    def place_of(text: Text) -> int:
        found = places[text.digest]
        return found.popleft() if found else len(known)

    return sorted(texts, key=place_of)


def shows_media(tokens: Sequence[int]) -> bool:
    """Are some of these rows of media?"""
    return min(tokens, default=0) < 0


def _is_tokens(value: Any, *, media: bool = False) -> bool:
    return isinstance(value, list) and all(
        type(token) is int and (token >= 0 or (media and token < -1)) for token in value
    )


def read_texts(path: Path, param: str = "--data") -> Iterator[Text]:
    """All whole lines of a file of answers, which `param` gave: a last one without its end may be being written. Raises
    RequestError."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:
            if number == len(lines):
                return
            raise RequestError(f"{path}, line {number}: not JSON", param=param, hint="remove the line") from None
        yield Text.of(data, f"{path}, line {number}", param)


class TextFile:
    """A file of texts that can be continued after a kill: what follows the last whole line is cut off."""

    _SYNC_BYTES = 1 << 16

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._unsynced = 0

    def __enter__(self) -> TextFile:
        with disk_errors(self._path.parent):
            self._file = self._path.open("a+b")
            self._file.seek(0)
            whole = self._file.read().rfind(b"\n") + 1
            self._file.truncate(whole)
            self._file.seek(whole)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file
        with disk_errors(self._path.parent):
            self._file.close()

    def add(self, text: Text) -> None:
        assert self._file
        line = text.to_json().encode() + b"\n"
        with disk_errors(self._path.parent):
            self._file.write(line)
            self._file.flush()
            self._unsynced += len(line)
            if self._unsynced > self._SYNC_BYTES:
                os.fsync(self._file.fileno())
                self._unsynced = 0
