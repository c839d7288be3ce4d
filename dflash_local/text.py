"""From tokens to bytes (Pieces), and from bytes to text that may be shown now (TextStream)."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from dflash_local.native import NativeEngine


class Pieces(dict[int, bytes]):
    """The bytes of each token, fetched once. Control tokens are empty unless `special` is true, or a set that has
    them."""

    def __init__(self, native: NativeEngine, special: bool | frozenset[int]) -> None:
        super().__init__()
        self._native, self._special = native, special

    def __missing__(self, token: int) -> bytes:
        special = self._special if isinstance(self._special, bool) else token in self._special
        piece = self[token] = self._native.token_piece(token, special)
        return piece


class TextStream:
    """Decodes the bytes of an answer piece by piece and never shows text that later bytes could take back.

    Held back are the bytes of an unfinished UTF-8 character and the longest tail that could still become a stop string.
    Bytes that can never become UTF-8 turn into U+FFFD.

    Args:
        stops: stop strings; the answer ends before the first of them.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped_by: str | None = None

    def push(self, data: bytes) -> str:
        """Add bytes; the text that became certain. After a stop string `stopped_by` names it and nothing more comes."""
        text = self._decoder.decode(data)
        if not self._stops:
            return text
        if self.stopped_by is not None:
            return ""
        text = self._held + text
        # The earliest match counts. Of two at the same place the longer is named; the text is the same.
        match = min(((at, -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0), default=None)
        if match:
            self._held, self.stopped_by = "", match[2]
            return text[: match[0]]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """The text still held back. An unfinished character at the end is dropped, as llama-server does."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that `text` ends with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
