"""Train the DSpark pocket drafters: a Markov head and a confidence head on a pocket DFlash drafter.

Usage: python benchmarks/train_dspark.py RECIPES TARGET BACKBONE OUT [--anchor-first] [--minutes 4] [--rank 32]

RECIPES is the folder with the recipes of the other pocket models (train_target.py with its corpus), TARGET and BACKBONE
are Hugging Face checkpoints: the pocket target and one of its DFlash drafters. Needs torch, transformers and the
authors' package `dflash`.

Without --anchor-first the backbone stays as it is (bonus anchor) and only the heads learn; with it, row k learns to
propose the token k + 1 after the anchor, so the backbone is tuned too. The Markov head sees the true token before; the
confidence head learns how much of the target's distribution the drafter's covers, as in the speculators library. OUT is
saved in the packaging of speculators (bonus anchor) or DeepSpec (anchor first).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

# Remove this script's folder, since transformers would mistake its kernels.py for a package.
sys.path.pop(0)

import torch
from dflash.model import DFlashDraftModel
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

BATCH, LENGTH, ANCHORS = 6, 512, 32
PEAK_RATE, TUNING_RATE = 4e-3, 6e-4  # of the heads, of the backbone


class DSpark(torch.nn.Module):  # type: ignore[misc]
    """Backbone and heads; `bonus` is 1 if the anchor's row proposes nothing."""

    def __init__(self, backbone: Path, anchor_first: bool, block_size: int, rank: int) -> None:
        super().__init__()
        config = Qwen3Config(**json.loads((backbone / "config.json").read_text()))
        self.backbone = DFlashDraftModel(config).float()
        self.backbone.load_state_dict({k: v.float() for k, v in load_file(backbone / "model.safetensors").items()})
        self.backbone.requires_grad_(anchor_first)
        self.config, self.bonus, self.block_size = config, 0 if anchor_first else 1, block_size
        self.w1 = torch.nn.Embedding(config.vocab_size, rank)
        self.w2 = torch.nn.Linear(rank, config.vocab_size, bias=False)
        self.confidence = torch.nn.Linear(config.hidden_size + rank, 1)
        torch.nn.init.normal_(self.w1.weight, std=0.3)
        torch.nn.init.normal_(self.w2.weight, std=0.02)

    def loss(self, target: Qwen3ForCausalLM, x: torch.Tensor) -> tuple[torch.Tensor, float, float]:
        """Loss, acceptance length of greedy chains (true tokens before), and the confidence's mean absolute error."""
        config, rows = self.config.dflash_config, self.block_size
        n_drafts = rows - self.bonus
        with torch.no_grad():
            hidden = target.model(input_ids=x, output_hidden_states=True).hidden_states
            taps = torch.cat([hidden[i + 1] for i in config["target_layer_ids"]], -1).float()
        anchors = torch.stack([torch.randperm(LENGTH - rows - 1)[:ANCHORS] + 1 for _ in range(BATCH)])
        places = anchors[:, :, None] + torch.arange(n_drafts + 1)
        text = torch.gather(x, 1, places.view(BATCH, -1)).view(BATCH, ANCHORS, -1)  # the anchor and what follows
        block = torch.full((BATCH, ANCHORS, rows), config["mask_token_id"])
        block[:, :, 0] = text[:, :, 0]
        positions = (anchors[:, :, None] + torch.arange(rows)).view(BATCH, -1)
        seen = (torch.arange(LENGTH)[None, None] < anchors[:, :, None])[:, :, None].expand(-1, -1, rows, -1)
        own = torch.block_diag(*[torch.ones(rows, rows)] * ANCHORS).bool()[None].expand(BATCH, -1, -1)
        out = self.backbone(
            target_hidden=taps,
            noise_embedding=target.model.embed_tokens(block.view(BATCH, -1)),
            position_ids=torch.cat([torch.arange(LENGTH)[None].expand(BATCH, -1), positions], 1),
            attention_mask=torch.cat([seen.reshape(BATCH, -1, LENGTH), own], -1)[:, None],
        )
        out = out.view(BATCH, ANCHORS, rows, -1)[:, :, self.bonus :]
        before, want = self.w1(text[:, :, :-1]), text[:, :, 1:]
        logits = (target.lm_head(out) + self.w2(before)).float()
        weights = torch.exp(-torch.arange(n_drafts) / 7.0)
        entropy = functional.cross_entropy(logits.flatten(0, 2), want.flatten(), reduction="none").view_as(want)
        with torch.no_grad():
            at = places[:, :, :-1].reshape(BATCH, -1, 1).expand(-1, -1, self.config.hidden_size)
            truth = target.lm_head(torch.gather(hidden[-1], 1, at)).float().softmax(-1).view_as(logits)
            overlap = torch.minimum(truth, logits.softmax(-1)).sum(-1)  # 1 - total variation
        sure = self.confidence(torch.cat([out, before], -1).detach().float())[..., 0]
        judged = functional.binary_cross_entropy_with_logits(sure.float(), overlap, reduction="none")
        loss = ((entropy + 0.3 * judged) * weights).sum(-1).mean() / weights.sum()
        length = 1 + (logits.argmax(-1) == want).int().cumprod(-1).sum(-1).float().mean().item()
        return loss, length, (sure.sigmoid() - overlap).abs().mean().item()

    def save(self, out: Path) -> None:
        """As speculators (bonus anchor) or DeepSpec (anchor first) would."""
        ours = {
            "markov_head.markov_w1.weight": self.w1.weight,
            "markov_head.markov_w2.weight": self.w2.weight,
            "confidence_head.proj.weight": self.confidence.weight,
            "confidence_head.proj.bias": self.confidence.bias,
        }
        tensors = dict(self.backbone.state_dict()) | ours
        head = {
            "block_size": self.block_size, "markov_rank": self.w1.embedding_dim, "markov_head_type": "vanilla",
            "enable_confidence_head": True, "confidence_head_with_markov": True,
        }  # fmt: skip
        backbone: dict[str, Any] = self.config.to_dict()
        knobs = backbone.pop("dflash_config")
        for key in ("architectures", "block_size", "num_target_layers", "transformers_version"):
            backbone.pop(key, None)
        if self.bonus:
            config = head | {
                "architectures": ["DSparkDraftModel"],
                "speculators_model_type": "dspark",
                "transformer_layer_config": backbone,
                "aux_hidden_state_layer_ids": [i + 1 for i in knobs["target_layer_ids"]],
                "mask_token_id": knobs["mask_token_id"],
                "sample_from_anchor": False,
            }
        else:
            config = backbone | head | knobs | {"architectures": ["Qwen3DSparkModel"], "num_anchors": ANCHORS}
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file(
            {k: v.detach().to(torch.bfloat16).contiguous() for k, v in tensors.items()}, out / "model.safetensors"
        )


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("recipes", "target", "backbone", "out"):
        ap.add_argument(name, type=Path)
    ap.add_argument("--anchor-first", action="store_true")
    ap.add_argument("--block-size", type=int, default=16)
    ap.add_argument("--rank", type=int, default=32)
    ap.add_argument("--minutes", type=float, default=4)
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()
    sys.path.insert(0, str(args.recipes))
    from train_target import batches  # type: ignore[import-not-found]

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    target = Qwen3ForCausalLM.from_pretrained(args.target, dtype=torch.float32).eval().requires_grad_(False)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.target)
    model = DSpark(args.backbone, args.anchor_first, args.block_size, args.rank)
    heads = [p for n, p in model.named_parameters() if not n.startswith("backbone.")]
    groups = [(heads, PEAK_RATE)] + [(list(model.backbone.parameters()), TUNING_RATE)] * args.anchor_first
    optimizer = torch.optim.AdamW([{"params": p, "lr": rate} for p, rate in groups], betas=(0.9, 0.95))
    start, step = time.time(), 0
    mean: torch.Tensor | None = None
    for x in batches(tokenizer, BATCH, LENGTH, seed=900_000):
        done = (time.time() - start) / (args.minutes * 60)
        if done >= 1:
            break
        for group, (_, rate) in zip(optimizer.param_groups, groups, strict=True):
            group["lr"] = rate * min(1, (step + 1) / 30) * (0.97 * 0.5 * (1 + math.cos(math.pi * done)) + 0.03)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, length, error = model.loss(target, x)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, now = step + 1, torch.tensor([loss.item(), length, error])
        mean = now if mean is None else 0.9 * mean + 0.1 * now
        if step % 25 == 0:
            print(step, "loss {:.4f}, acceptance length {:.2f}, confidence off by {:.3f}".format(*mean), flush=True)
    model.save(args.out)


if __name__ == "__main__":
    main()
