"""Probabilities of tokens in each owner's shape, aligned with the text that the tokens make."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dflash_local.engine import Engine
from dflash_local.generation import Chunk, Completion, Generation
from dflash_local.server.fields.probs import Probs
from dflash_local.server.shapes.probs import LikelyToken, TextLogprobs, TokenAnswer
from dflash_local.token_probs import TokenProb

Pieces = Mapping[int, bytes]

# Stands for minus infinity, which JSON lacks: the least float32, as in llama-server.
LEAST = -3.4028234663852886e38


class Placed(NamedTuple):
    """A token, and the character at which its text begins. A prompt's first token has no probability."""

    token: int
    start: int
    prob: TokenProb | None


class Alignment:
    """Aligns the tokens of one answer with its text, which may lag behind them.

    A token goes out with the first character of its text. Tokens that the text hides (control tokens) go out with what
    follows them. Tokens of which a stop string leaves nothing never do.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[Placed] = []
        self._n_decoded = self._n_shown = 0  # characters

    def push(self, text: str, probs: Iterable[TokenProb]) -> list[Placed]:
        """Add tokens, and text that became certain; returns the tokens that go out with it."""
        for prob in probs:
            self._waiting.append(Placed(prob.token, self._n_decoded, prob))
            self._n_decoded += len(self._decoder.decode(self._pieces[prob.token]))
        self._n_shown += len(text)
        n_out = sum(placed.start < self._n_shown for placed in self._waiting)  # they come in order
        out, self._waiting = self._waiting[:n_out], self._waiting[n_out:]
        return out

    def finish(self, completion: Completion) -> list[Placed]:
        """The tokens without text at the answer's end."""
        rest, self._waiting = self._waiting, []
        return [] if completion.stopped_by is not None else rest

    @property
    def n_shown(self) -> int:
        """Characters of the text so far."""
        return self._n_shown


class ChoiceProbs:
    """The probabilities of one choice: `push` and `finish` as it grows, `whole` at its end; then a shape."""

    def __init__(self, engine: Engine, wanted: Probs, generation: Generation) -> None:
        self._names = engine.pieces(special=True)
        self._n_top, self._post_sampling = wanted.n_top or 0, wanted.post_sampling
        self._generation = generation
        self._shown = engine.pieces(generation.request.special)
        self._alignment = Alignment(self._shown)

    def push(self, chunk: Chunk) -> list[Placed]:
        """The tokens that go out with a chunk's text."""
        return self._alignment.push(chunk.text, chunk.probs or ())

    def finish(self, completion: Completion, *, with_end: bool = False) -> list[Placed]:
        """The tokens that go out with the end of a stream; `with_end` the one that ended the answer, too."""
        end = completion.end_prob if with_end else None
        last = [Placed(end.token, len(completion.text), end)] if end else []
        return self._alignment.finish(completion) + last

    def whole(self, completion: Completion, *, with_end: bool = False) -> list[Placed]:
        """All tokens of a finished answer."""
        self._alignment = Alignment(self._shown)
        tokens = self._alignment.push(completion.text, completion.probs or ())
        return tokens + self.finish(completion, with_end=with_end)

    def prompt(self, tokens: Sequence[int], text: str) -> list[Placed]:
        """The tokens of a prompt."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        starts = [0]
        for token in tokens:
            starts.append(starts[-1] + len(decoder.decode(self._names[token])))
        # What a tokenizer puts before the text (BOS, a space) is not in it.
        n_before = max(starts[-1] - len(text), 0)
        places = [min(max(start - n_before, 0), len(text)) for start in starts]
        probs = [None, *self._generation.prompt_probs]
        return [Placed(*one) for one in zip(tokens, places, probs, strict=False)]

    # ---- shapes ----

    def detailed(self, placed: Iterable[Placed]) -> list[TokenAnswer]:
        """An entry for each token: OpenAI's for chats, and llama-server's."""
        return [self._with_top(one.prob) for one in placed if one.prob is not None]

    def _with_top(self, prob: TokenProb) -> TokenAnswer:
        entry: TokenAnswer = {**self._entry(prob.token, prob.value)}
        top = [self._entry(token, value) for token, value in prob.top[: self._n_top]]
        entry["top_probs" if self._post_sampling else "top_logprobs"] = top
        return entry

    def _entry(self, token: int, value: float) -> LikelyToken:
        piece = self._names[token]
        text = piece.decode("utf-8", "ignore")  # a part of a character is no text
        entry: LikelyToken = {"id": token, "token": text, "bytes": list(piece)}
        entry["prob" if self._post_sampling else "logprob"] = max(value, LEAST)
        return entry

    def split(self, placed: Sequence[Placed], text: str) -> list[tuple[list[Placed], str]]:
        """A part of the text for each token that goes out with it; the last one has the rest."""
        if not placed:
            return [([], text)] if text else []
        begin = self._alignment.n_shown - len(text)
        cuts = [0, *(max(one.start - begin, 0) for one in placed[1:]), len(text)]
        return [([one], text[cuts[i] : cuts[i + 1]]) for i, one in enumerate(placed)]

    def legacy(self, placed: Sequence[Placed], offset: int = 0) -> TextLogprobs:
        """OpenAI's lists for completions. `offset`: characters before the answer's text."""
        return {
            "tokens": [self._name(one.token) for one in placed],
            "token_logprobs": [None if one.prob is None else max(one.prob.value, LEAST) for one in placed],
            "top_logprobs": [None if one.prob is None else self._by_name(one.prob) for one in placed],
            "text_offset": [offset + one.start for one in placed],
        }

    def _by_name(self, prob: TokenProb) -> dict[str, float]:
        """The likeliest tokens, and the token itself, which need not be one of them."""
        found: dict[str, float] = {}
        for token, value in [*prob.top[: self._n_top], (prob.token, prob.value)]:
            found.setdefault(self._name(token), max(value, LEAST))
        return found

    def _name(self, token: int) -> str:
        """Tokens that are no text by themselves are named by their bytes, as OpenAI's are."""
        piece = self._names[token]
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def choice_probs(engine: Engine, wanted: Probs, generations: Sequence[Generation]) -> list[ChoiceProbs]:
    """One for each choice; none at all unless the request asks for them."""
    if wanted.n_top is None:
        return []
    return [ChoiceProbs(engine, wanted, generation) for generation in generations]
