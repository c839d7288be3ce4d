"""Low-rank changes (LoRA, arXiv 2106.09685) of a drafter's matrices, which are merged when it is written."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_PARTS = ("down", "up")


class LowRankLinear(nn.Linear):  # type: ignore[misc]
    """A frozen linear layer with a trained change up @ down of rank `rank`, which begins as nothing."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.weight.requires_grad_(False)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        rank = min(rank, *self.weight.shape)
        device = self.weight.device
        self.down = nn.Parameter(torch.randn(rank, self.in_features, device=device) / self.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(self.out_features, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x @ self.down.to(x.dtype).T) @ self.up.to(x.dtype).T


def add_low_rank(network: nn.Module, rank: int) -> list[nn.Parameter]:
    """Freeze everything and give each linear layer a change; returns what is trained."""
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, LowRankLinear(child, rank))
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def merged(network: nn.Module) -> dict[str, Tensor]:
    """The network's values, with each change in its matrix."""
    values = {name: value for name, value in network.state_dict().items() if name.rpartition(".")[2] not in _PARTS}
    for name, module in network.named_modules():
        if isinstance(module, LowRankLinear):
            values[f"{name}.weight"] = module.weight + module.up @ module.down
    return values
