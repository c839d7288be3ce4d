"""Infill: the prompt for a text with a gap, for models that were trained with tokens for it ("fill in the middle").

The order is llama-server's, and so is what is left out of a long text, but for where its kept part begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dflash_local.engine import Engine
from dflash_local.server.http_errors import not_supported

# Heads of other files, as in the repositories that Qwen's models were trained on; models without such tokens get the
# separator.
_PROJECT, _FILE = "myproject\n", "filename\n"
_SEPARATOR = "\n\n--- snippet ---\n\n"
# Tokens of the context kept free for an answer without a limit.
_ANSWER = 256
_CONTROL = 4  # prefix, suffix, middle, BOS
_ANCHOR = 8  # tokens by which a place in the text is known again
# Texts with more characters than this per token that there is room for are cut before they are tokenized.
_LONG_TEXT = 8


@dataclass(frozen=True, slots=True)
class Gap:
    """The text before and behind a gap, how the text in it begins, and other files: (name, text) each."""

    prefix: Sequence[int]
    suffix: Sequence[int]
    begun: Sequence[int] = ()
    files: Sequence[tuple[str, str]] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class FimTokens:
    """A model's tokens for infill; -1: it has none."""

    prefix: int
    suffix: int
    middle: int
    repository: int
    separator: int

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> FimTokens:
        """The engine's tokens.

        Raises:
            HTTPError: 501, the model lacks one that is needed.
        """
        tokens = cls(*(int(info.get(f"fim_{name}", -1)) for name in ("pre", "suf", "mid", "rep", "sep")))
        missing = [f"{name} token is missing." for name in ("prefix", "suffix", "middle") if getattr(tokens, name) < 0]
        if missing:
            message = f"Infill is not supported by this model: {' '.join(missing)}"
            raise not_supported(message)
        return tokens


class Infill:
    """Lays out prompts for an engine.

    Args:
        n_batch: most tokens of prefix, suffix and the beginning of the answer; other files get the rest of the context.
        suffix_first: the order that some models want.
    """

    def __init__(self, engine: Engine, n_batch: int, *, suffix_first: bool = False) -> None:
        self._engine, self._n_batch, self._suffix_first = engine, n_batch, suffix_first
        self._fim = FimTokens.of(engine.info)

    def before(self, text: str) -> list[int]:
        """Tokens of the text before the gap; of a long one, of its end."""
        return self._last(text, self._n_batch)

    def behind(self, text: str) -> list[int]:
        """Tokens of the text behind the gap; of a long one, of its beginning."""
        return self._tokens(text[: self._n_characters(text, self._n_batch)])

    def prompt(self, gap: Gap, max_tokens: int) -> list[int]:
        """The prompt, with room for an answer of `max_tokens` (-1: no limit): far parts of a long text are left out.

        The prefix gets at most three quarters of the room for text; the beginning of the answer counts as suffix.
        """
        n_ctx = self._engine.n_ctx_slot
        answer = max_tokens if max_tokens >= 0 else _ANSWER
        room = max(0, min(self._n_batch, n_ctx - min(answer, n_ctx // 4) - _CONTROL - 1))
        n_prefix = _kept_end(gap.prefix, 3 * (room // 4))
        n_suffix = min(len(gap.suffix), max(0, room // 4 - 2 - len(gap.begun)))
        most = max(0, n_ctx - self._n_batch - 2 * max(answer, _CONTROL))
        files = self._files(gap.files, most)
        n_files = _kept_end(files, most)
        prefix = [self._fim.prefix, *gap.prefix[len(gap.prefix) - n_prefix :], *gap.begun]
        suffix = [self._fim.suffix, *gap.suffix[:n_suffix]]
        text = suffix + prefix if self._suffix_first else prefix + suffix
        return [*files[len(files) - n_files :], *self._bos(), *text, self._fim.middle]

    def _files(self, files: Sequence[tuple[str, str]], most: int) -> list[int]:
        """The files' tokens, or if these are more than `most`, more than that from their end."""
        parts: list[list[int]] = []
        n_tokens = 0
        for part in self._parts(files, most):
            parts.append(part)
            n_tokens += len(part)
            if n_tokens > most:
                break
        return [token for part in reversed(parts) for token in part]

    def _parts(self, files: Sequence[tuple[str, str]], most: int) -> Iterator[list[int]]:
        """Tokens of the files and of what is around them, the last ones first."""
        fim = self._fim
        if fim.separator >= 0:
            yield [fim.separator, *self._tokens(_FILE)]
        for name, text in reversed(files):
            yield self._last(text, most)
            yield [fim.separator, *self._last(f"{name}\n", most)] if fim.separator >= 0 else self._tokens(_SEPARATOR)
        if fim.repository >= 0:
            yield [fim.repository, *self._tokens(_PROJECT)]

    def _last(self, text: str, most: int) -> list[int]:
        """A text's tokens; of a long one, of its end, more than `most`."""
        return self._tokens(text[len(text) - self._n_characters(text, most) :])

    def _n_characters(self, text: str, most: int) -> int:
        """How many characters of a text surely have more than `most` tokens; at most all."""
        if len(text) <= _LONG_TEXT * most:
            return len(text)
        return min(len(text), (most + 1) * self._engine.longest_piece)

    def _tokens(self, text: str) -> list[int]:
        """Tokens of a part of the text; names of control tokens in it are plain text."""
        return self._engine.tokenize(text, add_special=False, parse_special=False)

    def _bos(self) -> list[int]:
        info = self._engine.info
        return [info["bos_token"]] if info.get("add_bos") else []


def _kept_end(tokens: Sequence[int], most: int) -> int:
    """How many of the last tokens of a long text are kept: as many as there is room for, less at most a quarter.

    The text grows line by line, and files are sent ahead with another limit of the answer. If exactly `most` tokens
    were kept, each prompt would begin elsewhere, and nothing of the last one could be taken from the cache. So the kept
    part begins at a place that later texts find again: the one with the least hash (Schleimer, Wilkerson, Aiken, SIGMOD
    2003: "winnowing").
    """
    if len(tokens) <= most:
        return len(tokens)
    start = len(tokens) - most
    return most - min(range(most // 4 + 1), key=lambda i: hash(tuple(tokens[start + i : start + i + _ANCHOR])))
