"""The stage `tap`: one pass over the training texts stores what this target, quantized as it is, makes of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dflash_local.train.shards import Layout, Shard, TappedText, bfloat16, plan_shards, write_shard
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.workspace import Workspace
from dflash_local.train.written_texts import Text, shows_media
from dflash_local.words import file_size_text

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.train.examples import Example

_SHORTEST = 4  # tokens of an answer that has anchors
_LIKELY_ENDS = 8  # likeliest tokens after an answer, among which its end is looked for


def usable(texts: Sequence[Text], prompts: Mapping[str, Example]) -> list[Text]:
    """The texts whose answers are long enough to learn from, and whose media are at hand: their `prompts` by key."""
    return [
        text for text in texts
        if len(text.answer) >= _SHORTEST and (text.key in prompts or not shows_media(text.prompt))
    ]  # fmt: skip


def tap_all(
    engine: Engine,
    texts: Sequence[Text],
    prompts: Mapping[str, Example],
    layout: Layout,
    workspace: Workspace,
    settings: TrainSettings,
    deadline: float | None,
    watcher: Watcher,
) -> list[Shard]:
    """Write the shards that are missing, until `deadline` (of time.monotonic()), and return those that are there, at
    least one; says first what they take. `prompts` by key: those of texts about media. Raises DFlashError if the disk
    is too small."""
    shards = plan_shards(workspace.taps, texts, layout, settings.shard_mib << 20)
    missing = [shard for shard in shards if not shard.is_there()]
    n_tokens = sum(len(text.tokens) for shard in missing for text in texts[shard.first : shard.last])
    n_bytes = n_tokens * layout.token_bytes
    if missing:
        watcher.note(f"hidden states of {n_tokens} tokens will take {file_size_text(n_bytes)} in {workspace.taps}")
    kept = {shard.path for shard in shards} - {shard.path for shard in missing}
    stale = set(workspace.taps.glob("*.safetensors")) - kept
    n_freed = sum(path.stat().st_size for path in stale)
    workspace.need(n_bytes, f"storing the hidden states of {n_tokens} tokens", n_freed)
    for path in stale:
        path.unlink()
    workspace.taps.mkdir(exist_ok=True)
    ends, done, begin = frozenset(engine.eog_tokens), 0, time.monotonic()
    left = sorted(missing, key=lambda shard: shard.digest)  # a hash: what there is time for is of all kinds
    while left and (deadline is None or time.monotonic() < deadline or len(left) == len(shards)):
        shard, tapped = left.pop(), []
        for text in texts[shard.first : shard.last]:
            given = prompts[text.key].tokens_for(engine) if shows_media(text.prompt) else text.prompt
            tapped.append(_tap(engine, text, given, layout, ends))
            done += len(text.tokens)
            watcher.progress(done, n_tokens, f"{done} tokens, {done / max(time.monotonic() - begin, 1e-3):.0f} tok/s")
        write_shard(shard, tapped)
        workspace.keep_time()
    if left:
        n_left = sum(shard.last - shard.first for shard in left)
        watcher.note(f"{n_left} of {len(texts)} answers are left out: --minutes leaves no time to tap them")
    return [shard for shard in shards if shard not in left]


def _tap(engine: Engine, text: Text, given: Sequence[int], layout: Layout, ends: frozenset[int]) -> TappedText:
    """`given`: the prompt as this engine numbers media."""
    tokens = text.tokens
    first = _behind_media(text.prompt) if layout.top_k else len(tokens) - 1
    hidden, ids, log_probs = engine.tap([*given, *text.answer], layout.layers, max(layout.top_k, _LIKELY_ENDS), first)
    if text.ended:  # by the likeliest of the tokens that end answers, which is not among them
        end = next((token for token in ids[-1].tolist() if token in ends), None)
        tokens = tokens if end is None else [*tokens, end]
    rows = hidden.reshape(len(hidden), layout.width)
    above = (len(hidden) - len(ids), 0)
    ids, log_probs = (np.pad(found[:, : layout.top_k], (above, (0, 0))) for found in (ids, log_probs))
    return TappedText(np.array(tokens, np.int32), len(text.prompt), bfloat16(rows), ids, log_probs)


def _behind_media(prompt: Sequence[int]) -> int:
    """The first row with logits: rows of media, and those before them, are never learned from."""
    return max((at + 1 for at, token in enumerate(prompt) if token < 0), default=0)
