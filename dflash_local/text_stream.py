"""From tokens to bytes (Pieces), and from bytes to text that is safe to show (TextStream)."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from dflash_local.native import NativeEngine


class Pieces(dict[int, bytes]):
    """The bytes of each token, fetched once. Control tokens are empty unless `special` is True or contains them."""

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
        self._stops = tuple(_Stop(stop) for stop in stops)
        self._held = ""
        self.stopped_by: str | None = None

    def push(self, data: bytes) -> str:
        """Add bytes; returns the text that became final. After a stop string, named by `stopped_by`, it is empty."""
        text = self._decoder.decode(data)
        if not self._stops:
            return text
        if self.stopped_by is not None:
            return ""
        whole = self._held + text
        # The earliest match counts; of two at the same place, the longer one is named.
        found = [(at, -len(stop.text), stop.text) for stop in self._stops if (at := whole.find(stop.text)) >= 0]
        if found:
            at, _, self.stopped_by = min(found)
            self._held = ""
            return whole[:at]
        keep = max(stop.begun_by(text) for stop in self._stops)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def finish(self) -> str:
        """The text still held back. An unfinished character at the end is dropped, as llama-server does."""
        held, self._held = self._held, ""
        return held


class _Stop:
    """A stop string, and the length of its prefix at the end of the text so far, found in linear time (Knuth, Morris,
    Pratt, SIAM J. Comput. 6, 1977)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._begun = 0
        # [n]: length of the longest border (proper prefix that is also a suffix) of the first n + 1 characters.
        self._borders = [0] * len(text)
        for n in range(1, len(text)):
            self._borders[n] = self._longer(self._borders[n - 1], text[n])

    def begun_by(self, more: str) -> int:
        """Length of the longest prefix of the stop string at the end of the text with `more` appended. The whole stop
        string must not be in the text."""
        begun, at = self._begun, 0
        while at < len(more):
            if begun == 0 and (at := more.find(self.text[0], at)) < 0:
                break
            begun = self._longer(begun, more[at])
            at += 1
        self._begun = begun
        return begun

    def _longer(self, n: int, character: str) -> int:
        """The match length after `character`, given a match of length `n` before it."""
        while n and self.text[n] != character:
            n = self._borders[n - 1]
        return n + (self.text[n] == character)
