"""A little training, for kinds of drafters of which no pocket pair is bundled.

The recipe of the paper (arXiv 2602.06036, section 4) on the target's own answers: random anchors, blocks isolated by
the attention mask, context strictly before the anchor, cross-entropy with falling weights, the target frozen.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from dflash.model import DFlashDraftModel, extract_context_feature
from torch import Tensor
from transformers import Qwen3ForCausalLM

from dflash_local import Engine

from .reference import END_OF_TURN, MASK, Reference

MAX_TOKENS = 128  # no answer comes within a block of it, so both sides always draft whole blocks

# loss of the drafted rows: hidden states [blocks, length, n_embd], tokens from the anchor on [blocks, length + 1]
Loss = Callable[[Tensor, Tensor], Tensor]


def answers(target: Path, prompts: Sequence[list[int]]) -> list[Tensor]:
    """Each prompt with the target's greedy answer."""
    with Engine(target, n_threads=1, warmup=False, lookup=False) as engine:
        return [
            torch.tensor(prompt + engine.generate(prompt, temperature=0, max_tokens=MAX_TOKENS).tokens)
            for prompt in prompts
        ]


def fine_tune(
    drafter: DFlashDraftModel,
    target: Qwen3ForCausalLM,
    texts: Sequence[Tensor],
    loss: Loss,
    *,
    steps: int,
    anchors: int = 24,
    learning_rate: float = 1e-3,
) -> DFlashDraftModel:
    """Train `drafter` in place for `steps` steps of one text each."""
    length = drafter.block_size
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    with torch.enable_grad():
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * min(1, (step + 1) / 20) * (1 - 0.95 * step / steps)
            hidden, tokens = block_rows(drafter, target, texts[step % len(texts)], anchors, length)
            optimizer.zero_grad()
            loss(hidden, tokens).backward()
            torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
            optimizer.step()
    return drafter.eval().requires_grad_(False)


def block_rows(
    drafter: DFlashDraftModel, target: Qwen3ForCausalLM, text: Tensor, anchors: int, length: int
) -> tuple[Tensor, Tensor]:
    """Hidden states of blocks at random anchors of one text, and the tokens from each anchor on."""
    n = len(text)
    with torch.no_grad():
        taps = extract_context_feature(
            target(text[None], output_hidden_states=True).hidden_states, drafter.target_layer_ids
        )
    starts = torch.randperm(n - length - 1)[:anchors] + 1
    positions = starts[:, None] + torch.arange(length + 1)
    tokens = text[positions]
    block = torch.full((len(starts), length), MASK)
    block[:, 0] = tokens[:, 0]
    before = (torch.arange(n) < starts[:, None]).repeat_interleave(length, 0)
    own = torch.block_diag(*[torch.ones(length, length)] * len(starts)).bool()
    hidden = drafter(
        target_hidden=taps,
        noise_embedding=target.get_input_embeddings()(block.view(1, -1)),
        position_ids=torch.cat([torch.arange(n), positions[:, :length].reshape(-1)])[None],
        attention_mask=torch.cat([before, own], -1)[None, None],
    )
    return hidden.view(len(starts), length, -1), tokens


def weighted_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy of rows [blocks, n, n_vocab] against tokens [blocks, n], the first ones weighing most."""
    weights = torch.exp(-torch.arange(tokens.shape[1]) / 7.0)
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
    return (each.view_as(tokens) * weights).sum(-1).mean() / weights.sum()


def check_decoding(engine: Engine, reference: Reference, prompts: Sequence[list[int]]) -> float:
    """Greedy decoding of chains: the same tokens in the same target passes as the reference. Returns the AL.

    What may differ is the last pass: the end-of-turn token is not among our tokens.
    """
    lengths = []
    for prompt in prompts:
        theirs = reference.generate(prompt, MAX_TOKENS)
        ours = engine.generate(
            prompt, temperature=0, max_tokens=MAX_TOKENS, budget=reference.drafter.block_size, draft="chain"
        )
        assert theirs.tokens[-1] == END_OF_TURN
        assert ours.tokens == theirs.tokens[:-1]
        assert ours.acceptance_lengths[: len(theirs.acceptance_lengths) - 1] == theirs.acceptance_lengths[:-1]
        lengths += theirs.acceptance_lengths[:-1]
    return sum(lengths) / len(lengths)
