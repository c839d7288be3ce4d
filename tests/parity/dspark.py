"""DSpark in PyTorch: the authors' DFlash backbone with a Markov head and a confidence head, in both layouts of the
anchor.

Written from the published descriptions (speculators 0.9.0, models/dspark: MarkovHead.prev_embeddings and block_bias,
ConfidenceHead; DeepSpec), for what neither package runs without a GPU: decoding.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from dflash.model import DFlashDraftModel, extract_context_feature
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.gguf_files import numbers

from .reference import MASK, SHAPE, TARGET_LAYERS, huggingface_name

Tensors = dict[str, torch.Tensor]
W1, W2 = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"
CONFIDENCE = "confidence_head.proj"
HEADS = {
    "markov_w1.weight": W1,
    "markov_w2.weight": W2,
    "conf_proj.weight": f"{CONFIDENCE}.weight",
    "conf_proj.bias": f"{CONFIDENCE}.bias",
}


def backbone(layers: int, taps: tuple[int, ...]) -> DFlashDraftModel:
    """A DFlash backbone of the pocket target's shape, weights unset."""
    config = Qwen3Config(**SHAPE | {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers})
    config.num_target_layers = TARGET_LAYERS
    config.dflash_config = {"mask_token_id": MASK, "target_layer_ids": list(taps)}
    return DFlashDraftModel(config).eval()


@dataclass
class DSpark:
    """`heads` by the authors' names. `d2t`: the target's token of each draft token, for a reduced head `lm_head`."""

    target: Qwen3ForCausalLM
    backbone: DFlashDraftModel
    heads: Mapping[str, torch.Tensor]
    block_size: int
    anchor_first: bool
    lm_head: torch.Tensor | None = None
    d2t: torch.Tensor | None = None

    @classmethod
    def load(
        cls, path: Path, target: Qwen3ForCausalLM, taps: tuple[int, ...], block_size: int, anchor_first: bool
    ) -> "DSpark":
        """A drafter from its GGUF (f32)."""
        found = {name: torch.from_numpy(tensor) for name, tensor in numbers(path).items()}
        heads = {HEADS[name]: found.pop(name) for name in HEADS if name in found}
        layers = 1 + max(int(match[1]) for name in found if (match := re.match(r"blk\.(\d+)\.", name)))
        model = backbone(layers, taps)
        model.load_state_dict({huggingface_name(name): tensor for name, tensor in found.items()}, strict=True)
        return cls(target, model, heads, block_size, anchor_first)

    @property
    def first(self) -> int:
        """The row of a block that proposes first."""
        return 0 if self.anchor_first else 1

    def taps(self, tokens: list[int]) -> torch.Tensor:
        states = self.target(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        return extract_context_feature(states, self.backbone.target_layer_ids)

    def draft(self, tokens: list[int], taps: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """One block after tokens[:-1] with tokens[-1] as the anchor: hidden [block_size, n_embd], logits without the
        Markov head [block_size, n_vocab_draft]. `taps`: of at least tokens[:-1], if they are known."""
        n_context = len(tokens) - 1
        taps = self.taps(tokens[:-1]) if taps is None else taps[:, :n_context]
        block = torch.tensor([[tokens[-1]] + [MASK] * (self.block_size - 1)])
        hidden = self.backbone(
            target_hidden=taps,
            noise_embedding=self.target.get_input_embeddings()(block),
            position_ids=torch.arange(n_context + self.block_size)[None],
        )[0]
        head = self.target.lm_head.weight if self.lm_head is None else self.lm_head
        return hidden, hidden @ head.T

    def score(self, logits: torch.Tensor, before: int) -> torch.Tensor:
        """Logits of a row [n_vocab_draft] given the token before."""
        return logits + self.heads[W2] @ self.heads[W1][before] if W1 in self.heads else logits

    def chain(self, anchor: int, logits: torch.Tensor) -> list[int]:
        """Greedy drafts: row k proposes position k + 1 after the anchor (anchor first), or position k."""
        tokens = [anchor]
        for row in logits[self.first :]:
            best = int(self.score(row, tokens[-1]).argmax())
            tokens.append(best if self.d2t is None else int(self.d2t[best]))
        return tokens[1:]

    def drafts(self, tokens: list[int], taps: torch.Tensor | None = None) -> list[int]:
        """What is proposed after tokens, the anchor among them."""
        return self.chain(tokens[-1], self.draft(tokens, taps)[1])

    def confidence(self, hidden: torch.Tensor, before: int) -> float:
        """Of a row [n_embd], given the token before."""
        weight = self.heads[f"{CONFIDENCE}.weight"][0]
        seen = torch.cat([hidden, self.heads[W1][before]])[: weight.numel()]
        return float(torch.sigmoid(weight @ seen + self.heads.get(f"{CONFIDENCE}.bias", torch.zeros(1))[0]))

    def acceptance_lengths(self, prompt: list[int], answer: list[int]) -> list[int]:
        """Tokens per target pass, if greedy chains draft the greedy `answer`; the pass of the prompt gave its first
        token. The last pass may draft beyond the answer's end."""
        text, at, lengths = prompt + answer, len(prompt), []
        taps = self.taps(text)
        while at < len(text) - 1:
            drafts = self.drafts(text[: at + 1], taps)
            n = 0
            while n < len(drafts) and at + 1 + n < len(text) and drafts[n] == text[at + 1 + n]:
                n += 1
            lengths.append(n + 1)
            at += n + 1
        return lengths
