"""Which row of a block proposes which position: a drafter whose row k always proposes one known token, and a target
that counts.

A wrong layout raises no error and changes no text; only fewer drafts are accepted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dflash_local import Engine
from tests.lossless import tiny
from tests.parity.f32 import engine_f32

DIGITS = 10  # tokens 0 to 9, of which the target says the next one
PROMPT = [7, 8, 9]  # 0 comes next: the anchor of the first block
CONSTANT, FROM_ANCHOR, SEEN = 60, 61, 62  # channels of the drafter's stream


def counting_target() -> dict[str, tiny.Array]:
    """After digit i comes i + 1, after 9 comes 0: embeddings are one-hot, layers add nothing."""
    tensors = tiny.target_tensors()
    for name in tensors:
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            tensors[name][:] = 0
    embedding, head = tensors["token_embd.weight"], tensors["output.weight"]
    embedding[:], head[:] = 0, 0
    for i in range(DIGITS):
        embedding[i, i] = 1
        head[(i + 1) % DIGITS, i] = 1
    embedding[DIGITS:, DIGITS] = 1
    return tensors


def shares() -> tiny.Array:
    """How much of its attention row k of the first block gives the anchor: attention is even and causal."""
    return (1 / (len(PROMPT) + 1 + np.arange(tiny.BLOCK_SIZE))).astype(np.float32)


def counting_drafter(proposals: list[int]) -> dict[str, tiny.Array]:
    """Row k of a block whose anchor is 0 proposes proposals[k].

    The anchor alone has a value for attention, and nothing has a key: what row k reads is the anchor's share. The head
    has for each row a line that touches the parabola at its share, so that the nearest share wins.
    """
    tensors = tiny.drafter_tensors("dflash")
    for name, tensor in tensors.items():
        if "norm" not in name:
            tensor[:] = 0
    embedding = np.zeros((len(tiny.VOCAB), tiny.WIDTH), np.float32)
    embedding[:, CONSTANT] = 1
    embedding[0, FROM_ANCHOR] = 1e-2  # small: norms must not tell the anchor's row from others
    tensors["blk.0.attn_norm.weight"][:] = 1
    tensors["blk.0.attn_v.weight"][0, FROM_ANCHOR] = 1
    # a norm's factor is sqrt(width) over the constant channel: it cancels in the ratio that the head reads
    tensors["blk.0.attn_output.weight"][SEEN, 0] = 100 / np.sqrt(tiny.WIDTH)
    head = np.zeros_like(embedding)
    head[:, CONSTANT] = -100
    for token, share in zip(proposals, shares(), strict=True):
        head[token, SEEN], head[token, CONSTANT] = 2 * share, -(share**2)
    return tensors | {"token_embd.weight": embedding, "output.weight": head}


def write_drafter(path: Path, tensors: dict[str, tiny.Array], anchor_first: bool | None) -> Path:
    """As tiny.write_drafter(), causal in the block."""
    writer = tiny.header(path, "dflash", tiny.DRAFTER_LAYERS)
    writer.add_mask_token_id(tiny.MASK)
    writer.add_array("dflash.target_layers", tiny.TAPS)
    writer.add_uint32("dflash.block_size", tiny.BLOCK_SIZE)
    writer.add_causal_attention(True)
    if anchor_first is not None:
        writer.add_bool("dflash.sample_from_anchor", anchor_first)
    return tiny.write(writer, tensors)


def first_length(engine: Engine) -> int:
    """Tokens of the first target pass after the prompt's."""
    answer = engine.generate(PROMPT, temperature=0, max_tokens=12, ignore_eos=True, budget=16, draft="chain")
    assert answer.tokens == [i % DIGITS for i in range(12)]
    return answer.acceptance_lengths[0]


# row k: the anchor itself and what follows, or only what follows
BONUS, FIRST = [0, 1, 2, 3], [1, 2, 3, 4]
CASES = {
    "bonus anchor": (BONUS, False, 4),
    "bonus anchor, as it is unsaid": (BONUS, None, 4),
    "anchor first": (FIRST, True, 5),
    "bonus anchor, said to be anchor first": (BONUS, True, 1),
    "anchor first, said to have a bonus anchor": (FIRST, False, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_propose_their_positions(name: str, tmp_path: Path) -> None:
    proposals, anchor_first, expected = CASES[name]
    target = tiny.write_target(tmp_path / "target.gguf", counting_target())
    drafter = write_drafter(tmp_path / "drafter.gguf", counting_drafter(proposals), anchor_first)
    with engine_f32(target, drafter, n_ctx=128) as engine:
        probe = engine.draft_probe([*PROMPT, 0], tiny.BLOCK_SIZE)
        assert probe.logits.argmax(-1).tolist() == proposals  # whatever the layout, rows compute the same
        assert first_length(engine) == expected


def test_markov_head_means_anchor_first_unless_stated(tmp_path: Path) -> None:
    """Upstream's rule for GGUFs without the key."""
    target = tiny.write_target(tmp_path / "target.gguf", counting_target())
    tables = {name: np.zeros((len(tiny.VOCAB), 4), np.float32) for name in ("markov_w1.weight", "markov_w2.weight")}
    drafter = write_drafter(tmp_path / "drafter.gguf", counting_drafter(FIRST) | tables, None)
    with engine_f32(target, drafter, n_ctx=128) as engine:
        assert engine.info["drafter"]["kind"] == "dspark"
        assert first_length(engine) == 5
