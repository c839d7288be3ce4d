"""Train an EAGLE-3 head (arXiv 2503.01840) for a small Qwen3 target and write it as upstream's GGUF `eagle3`.

Usage: python benchmarks/train_eagle3.py TARGET_DIR TARGET.gguf TEXT OUT.gguf [--minutes 15] [--taps 1 3 5] [--steps 7]

The baseline for DFlash: one layer over the taps of three layers, which reads its own output instead of the target's
hidden states from the second draft token on. It learns this by drafting in training, too ("training-time test"): step k
of a row reads the output of step k - 1, and attends to the first step's rows up to its own and to its own later ones.
The soft labels are the target's distribution; each step has 0.8 of the weight of the one before. Embeddings and head
are the target's, so the file holds only the layer.

TARGET_DIR is the target's Hugging Face checkpoint, TARGET.gguf the same with llama.cpp's tokenizer, TEXT a corpus like
the target's training text, rendered by its chat template. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFValueType
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, silu, softmax
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from dflash_local.convert.gguf_metadata import Value, array, f32, read_metadata, string, u32
from dflash_local.convert.writer import OutputTensor, write_gguf

BATCH, LENGTH, RATE, DECAY = 6, 512, 1.5e-3, 0.8


def rotated(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """RoPE over neighbouring pairs of channels, as llama.cpp rotates this architecture; x [batch, heads, rows, d]."""
    d = x.shape[-1]
    angles = positions[:, None] / base ** (torch.arange(0, d, 2) / d)
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class Head(nn.Module):  # type: ignore[misc]  # torch is not typed
    """The layer, with the names of the file. Embeddings and head are the target's, frozen."""

    def __init__(self, target: Qwen3ForCausalLM, taps: list[int]) -> None:
        super().__init__()
        config = target.config
        self.taps, self.eps, self.base = taps, config.rms_norm_eps, config.rope_parameters["rope_theta"]
        n, d, ff = config.hidden_size, config.head_dim, config.intermediate_size
        self.heads, self.heads_kv, self.d = config.num_attention_heads, config.num_key_value_heads, d
        self.embed, self.lm_head = target.model.embed_tokens.weight.detach(), target.lm_head.weight.detach()
        shapes = {
            "fc": (n, 3 * n), "blk.0.attn_q": (self.heads * d, 2 * n), "blk.0.attn_k": (self.heads_kv * d, 2 * n),
            "blk.0.attn_v": (self.heads_kv * d, 2 * n), "blk.0.attn_output": (n, self.heads * d),
            "blk.0.ffn_gate": (ff, n), "blk.0.ffn_up": (ff, n), "blk.0.ffn_down": (n, ff),
        }  # fmt: skip
        norms = ("blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm", "output_norm")
        # A parameter's name has no dots.
        matrices = {name: torch.randn(shape) * shape[1] ** -0.5 for name, shape in shapes.items()}
        everything = matrices | {name: torch.ones(n) for name in norms}
        self.w = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(x) for name, x in everything.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self.w[name.replace(".", "/")]

    def norm(self, x: Tensor, name: str) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self[name]

    def parts(self, x: Tensor, name: str, heads: int) -> Tensor:
        """[batch, rows, 2n] -> [batch, heads, rows, d]"""
        return (x @ self[name].T).unflatten(-1, (heads, self.d)).transpose(1, 2)

    def forward(self, taps: Tensor, tokens: Tensor, steps: int, picked: Tensor) -> list[Tensor]:
        """Logits [batch, rows, vocabulary] of every step: row p of step k is after token p + 1 + k. The first step has
        length - steps - 1 rows, later ones those of `picked`."""
        rows = taps.shape[1] - steps - 1
        hidden = (taps @ self["fc"].T)[:, :rows].float()
        group = self.heads // self.heads_kv
        position = torch.arange(rows)
        causal = torch.full((rows, rows), -math.inf).triu(1)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        logits = []
        for k in range(steps):
            if k == 1:
                hidden, position, causal = hidden[:, picked], picked, causal[picked]
            words = self.embed[tokens[:, 1 + k + position]]
            x = torch.cat([self.norm(words, "blk.0.attn_norm"), self.norm(hidden, "blk.0.attn_norm_2")], -1)
            q = rotated(self.parts(x, "blk.0.attn_q", self.heads).float(), position + k, self.base) * self.d**-0.5
            key = rotated(self.parts(x, "blk.0.attn_k", self.heads_kv).float(), position + k, self.base)
            keys.append(key.repeat_interleave(group, 1))
            values.append(self.parts(x, "blk.0.attn_v", self.heads_kv).repeat_interleave(group, 1).float())
            scores = torch.cat(
                [q @ keys[0].transpose(-1, -2) + causal, *((q * own).sum(-1, keepdim=True) for own in keys[1:])], -1
            )
            p = softmax(scores.float(), -1)
            mixed = p[..., :rows] @ values[0]
            for j, own in enumerate(values[1:]):
                mixed = mixed + p[..., rows + j, None] * own
            hidden = hidden + (mixed.transpose(1, 2).flatten(2) @ self["blk.0.attn_output"].T).float()
            y = self.norm(hidden, "blk.0.ffn_norm")
            y = silu(y @ self["blk.0.ffn_gate"].T) * (y @ self["blk.0.ffn_up"].T)
            hidden = hidden + (y @ self["blk.0.ffn_down"].T).float()
            logits.append(self.norm(hidden, "output_norm") @ self.lm_head.T)
        return logits


def losses(head: Head, target: Qwen3ForCausalLM, x: Tensor, steps: int) -> tuple[Tensor, float]:
    """Loss and mean acceptance length of greedy drafts (with the target's own token) for x [batch, length]."""
    with torch.no_grad():
        seen = target(input_ids=x, output_hidden_states=True)
        taps = torch.cat([seen.hidden_states[layer] for layer in head.taps], -1).float()
    rows = x.shape[1] - steps - 1
    picked = torch.randperm(rows)[: rows // 4]
    loss, hits = torch.zeros(()), []
    for k, logits in enumerate(head(taps, x, steps, picked)):
        at = 1 + k + (picked if k else torch.arange(rows))
        want = softmax(seen.logits[:, at].float(), -1)
        loss = loss + DECAY**k * cross_entropy(logits.float().flatten(0, 1), want.flatten(0, 1))
        hits.append(logits.argmax(-1) == x[:, at + 1])
    hits[0] = hits[0][:, picked]
    return loss, 1 + torch.stack(hits).int().cumprod(0).sum(0).float().mean().item()


def read_text(tokenizer: PreTrainedTokenizerFast, path: Path) -> tuple[Tensor, Tensor]:
    """The text as [n, BATCH, LENGTH] tokens, and up to eight batches of its last hundredth, which is held out."""
    ids = torch.tensor(tokenizer(path.read_text(encoding="utf-8"))["input_ids"])
    size = BATCH * LENGTH
    parts = ids.tensor_split([len(ids) * 99 // 100])
    seen, unseen = (part[: len(part) // size * size].view(-1, BATCH, LENGTH) for part in parts)
    return seen, unseen[:8]


def shuffled(batches: Tensor) -> Iterator[Tensor]:
    """Endlessly."""
    while True:
        yield from batches[torch.randperm(len(batches))]


def train(head: Head, target: Qwen3ForCausalLM, data: Iterator[Tensor], minutes: float, steps: int) -> None:
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    start, average = time.process_time(), None  # CPU time of this process, so that others on the machine do not matter
    for step, x in enumerate(data, 1):
        done = (time.process_time() - start) / (minutes * 60)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, step / 100) * (0.97 * 0.5 * (1 + math.cos(math.pi * done)) + 0.03)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, al = losses(head, target, x, steps)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        average = al if average is None else 0.95 * average + 0.05 * al
        if step % 50 == 0:
            print(f"{step} steps, {done:.0%}: loss {loss.item():.4f}, acceptance length {average:.2f}", flush=True)


def metadata(head: Head, target: Qwen3ForCausalLM, gguf: Path) -> dict[str, Value]:
    config = target.config
    sizes = {
        "block_count": 1, "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size, "attention.head_count": head.heads,
        "attention.head_count_kv": head.heads_kv, "attention.key_length": head.d, "attention.value_length": head.d,
        "rope.dimension_count": head.d, "vocab_size": config.vocab_size, "target_hidden_size": config.hidden_size,
    }  # fmt: skip
    return {
        "general.architecture": string("eagle3"),
        **{f"eagle3.{key}": u32(size) for key, size in sizes.items()},
        "eagle3.rope.freq_base": f32(head.base),
        "eagle3.attention.layer_norm_rms_epsilon": f32(head.eps),
        "eagle3.target_layers": array(GGUFValueType.INT32, head.taps),
        **{key: value for key, value in read_metadata(gguf).items() if key.startswith("tokenizer.")},
    }


def save(head: Head, target: Qwen3ForCausalLM, gguf: Path, out: Path) -> None:
    """Write matrices as f16, except the fusion of the taps as f32, since taps are raw values of the residual stream."""
    tensors = []
    for name, parameter in head.w.items():
        data = parameter.detach().numpy()
        exact = data.ndim == 1 or name == "fc"
        data = data.astype(np.float32 if exact else np.float16)
        kind = GGMLQuantizationType.F32 if exact else GGMLQuantizationType.F16
        tensors.append(OutputTensor(f"{name.replace('/', '.')}.weight", data.shape, kind, partial(list, [data])))
    write_gguf(out, metadata(head, target, gguf), tensors, lambda name, n: None)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("target", "gguf", "text", "out"):
        ap.add_argument(name, type=Path)
    ap.add_argument("--minutes", type=float, default=15, help="of processor time (default: 15)")
    ap.add_argument("--taps", type=int, nargs=3, default=[1, 3, 5], help="layers whose inputs are read")
    ap.add_argument("--steps", type=int, default=7, help="draft tokens in training")
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    target = Qwen3ForCausalLM.from_pretrained(args.target, dtype=torch.float32).eval().requires_grad_(False)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.target)
    head = Head(target, args.taps)
    seen, unseen = read_text(tokenizer, args.text)
    train(head, target, shuffled(seen), args.minutes, args.steps)
    with torch.no_grad():
        als = [losses(head, target, x, args.steps)[1] for x in unseen]
    print(f"held out: acceptance length {sum(als) / len(als):.2f} of at most {args.steps + 1}", flush=True)
    save(head, target, args.gguf, args.out)


if __name__ == "__main__":
    main()
