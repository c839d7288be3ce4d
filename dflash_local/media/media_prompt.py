"""MediaPrompt: the tokens of a prompt with media."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from dflash_local.media.medium import Kind


class MediaPrompt(Sequence[int]):
    """Tokens as libdflash numbers them: ids of the vocabulary, and for the rows of media negative numbers, the same for
    equal media (several for the parts of a large one). They mean something as long as this object lives, or a request
    that was made of it.

    Attributes:
        tokens: all of them, as int32.
        rows: how many of them are of images and of audio.
    """

    def __init__(self, tokens: array[int], rows: Mapping[Kind, int], owner: object = None) -> None:
        self.tokens, self.rows, self._owner = tokens, rows, owner

    @property
    def text(self) -> array[int]:
        """The tokens without the rows of media."""
        return array("i", (token for token in self.tokens if token >= 0))

    def without_owner(self) -> MediaPrompt:
        """The same numbers, for those who only count: what they stand for may be freed."""
        return MediaPrompt(self.tokens, self.rows)

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> array[int]: ...

    def __getitem__(self, index: Any) -> Any:
        return self.tokens[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self.tokens)


def text_tokens(tokens: Sequence[int]) -> Sequence[int]:
    """The tokens of a prompt that have a text."""
    return tokens.text if isinstance(tokens, MediaPrompt) else tokens
