"""Rotary positions of a drafter, as the engine computes them from its GGUF."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dflash_local.convert.rope import Rope, yarn_scale
from dflash_local.train.drafter_file import FACTORS, DrafterFile


def frequencies(file: DrafterFile) -> tuple[npt.NDArray[np.float32], float]:
    """The frequency of each rotated pair [n_dims / 2], and the factor of queries and keys."""
    rope = file.config.rope
    base = rope.theta ** (-np.arange(0, rope.n_dims, 2) / rope.n_dims)
    if FACTORS in file.frozen:
        factors = file.frozen[FACTORS].numbers()[: len(base)]
        attention = file.keys.get("dflash.rope.scaling.attn_factor")
        return (base / factors).astype(np.float32), 1.0 if attention is None else float(attention.data)
    if rope.kind == "linear":
        base = base / rope.factor
    if rope.yarn is None:
        return base.astype(np.float32), 1.0
    kept = _kept(rope)
    scale = yarn_scale(rope.factor) * (1.0 if rope.yarn.attention_scale is None else rope.yarn.attention_scale)
    return (base / rope.factor * (1 - kept) + base * kept).astype(np.float32), scale


def _kept(rope: Rope) -> npt.NDArray[np.float64]:
    """The part of each frequency that YaRN does not scale (ggml_rope_yarn_corr_dims of ggml)."""
    assert rope.yarn

    def dimension(turns: float) -> float:
        return rope.n_dims * math.log(rope.n_ctx_original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low = max(math.floor(dimension(rope.yarn.beta_fast or 32.0)), 0)
    high = min(math.ceil(dimension(rope.yarn.beta_slow or 1.0)), rope.n_dims - 1)
    ramp = (np.arange(rope.n_dims // 2) - low) / max(high - low, 0.001)
    return 1.0 - np.clip(ramp, 0.0, 1.0)


class Rotation:
    """Rotates queries and keys [..., heads, head_dim] at integer positions [...]."""

    def __init__(self, file: DrafterFile, device: torch.device) -> None:
        steps, self._scale = frequencies(file)
        self._steps = torch.from_numpy(steps).to(device)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [..., 1, n_dims / 2] for `turn`."""
        angles = positions[..., None, None].float() * self._steps
        return angles.cos() * self._scale, angles.sin() * self._scale

    @staticmethod
    def turn(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Rotates halves (NeoX); dimensions beyond the rotated ones stay."""
        cos, sin = angles
        half = cos.shape[-1]
        a, b, *rest = x.split([half, half, x.shape[-1] - 2 * half] if x.shape[-1] > 2 * half else half, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, *rest], -1)
