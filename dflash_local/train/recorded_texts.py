"""Recorded answers: which of those that --data holds are learned from."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from dflash_local.errors import RequestError
from dflash_local.train.tapping import usable
from dflash_local.train.train_settings import Watcher
from dflash_local.train.written_texts import Text


def own_texts(texts: Sequence[Text], target: str, watcher: Watcher, *, has_prompts: bool) -> list[Text]:
    """Those that `target` (`identity`) wrote, or of which it is not said. Says how many are left out; raises
    RequestError if nothing of --data is left."""
    found = [text for text in texts if text.target in ("", target)]
    if len(found) == len(texts):
        return found
    if not found and not has_prompts:
        raise RequestError(
            f"--data holds answers of {texts[0].target}, not of {target}: text of another model teaches to guess it",
            param="--data",
            hint="take only what this model wrote, or give the prompts alone",
        )
    watcher.note(f"{len(texts) - len(found)} of {len(texts)} recorded answers are left out: another model wrote them")
    return found


def learned_texts(
    texts: Sequence[Text],
    held_out: Container[str],
    length: int,
    n_most: int,
    watcher: Watcher,
    known: Collection[str] = (),
) -> list[Text]:
    """The texts to learn from, of at most `length` tokens each and `n_most` together, first those whose digests are
    `known`: not those whose prompts are `held_out`. Says how many are left out for other reasons."""
    others = [cut(text, length) for text in texts if text.key not in held_out]
    found = usable(others, {})
    if len(found) < len(others):
        watcher.note(
            f"{len(others) - len(found)} of {len(texts)} recorded answers are left out: with their prompts they do not "
            f"fit --length {length}, or they are too short"
        )
    kept = _within(found, n_most, frozenset(known))
    if len(kept) < len(found):
        watcher.note(
            f"{len(kept)} of {len(found)} recorded answers are used: the disk had no room for the hidden states of "
            "more ('--restart tap' chooses anew)"
        )
    return kept


def _within(texts: Sequence[Text], n_most: int, known: Container[str]) -> list[Text]:
    """All texts in their order, else as many as have `n_most` tokens: the `known` ones, then others in the order of
    their keys. These are hashes: so the texts are of all kinds, and with less room they are the first of those with
    more."""
    kept: list[Text] = []
    left = n_most
    for text in sorted(texts, key=lambda text: (text.digest not in known, text.key)):
        left -= len(text.tokens)
        if left < 0:
            return kept
        kept.append(text)
    return list(texts)


def cut(text: Text, length: int) -> Text:
    """The text with at most `length` tokens; a prompt stays whole."""
    room = length - len(text.prompt)
    if len(text.answer) <= room:
        return text
    return Text(text.key, text.round, text.prompt, text.answer[: max(room, 0)], text.temperature, False)
