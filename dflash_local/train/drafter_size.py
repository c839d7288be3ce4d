"""DrafterSize: how large the drafter of a run is, and what its fit takes on disk."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.target import Target
from dflash_local.train.drafter_file import DrafterFile
from dflash_local.train.initial_file import new_form
from dflash_local.train.train_settings import TrainSettings
from dflash_local.train.trained_parts import n_trained

_BYTES = {"f32": 4}  # of a parameter; other types take two, or less
_ANY_TOKEN = 0  # stands for the mask token, which follows from the texts


@dataclass(frozen=True)
class DrafterSize:
    """Numbers of parameters: `n_all`; `n_context`: of those that read the context, once for each of its tokens;
    `n_trained`. `file_bytes`: of a GGUF of it, at most."""

    config: DrafterConfig
    n_all: int
    n_context: int
    n_trained: int
    file_bytes: int

    @property
    def fit_bytes(self) -> int:
        """On disk: two checkpoints, values and the optimizer's two averages in float32, since one stays until the next
        is whole; the drafter to go on from, the best one, the one that is measured, and one with a part of the head;
        and, twice for the same reason, all values of the best one in float32."""
        return 2 * 12 * self.n_trained + 4 * self.file_bytes + 2 * 4 * self.n_all

    @classmethod
    def of(cls, settings: TrainSettings, target: Target, init: DrafterFile | None) -> DrafterSize:
        """`init` None: of the new drafter that is asked for. Raises ConvertError."""
        if init is None:
            config, shapes = DrafterFile.new_shapes(new_form(settings, target, _ANY_TOKEN), target)
        else:
            config, shapes = init.config, {name: value.shape for name, value in init.values.items()}
        counts = {name: math.prod(shape) for name, shape in shapes.items()}
        n_all = sum(counts.values())
        fusion = sum(count for name, count in counts.items() if name.startswith("fc"))
        kv = sum(count for name, count in counts.items() if "k_proj" in name or "v_proj" in name)
        trained = n_trained(shapes, settings.only, settings.rank)
        frozen = 0 if init is None else sum(tensor.n_bytes for tensor in init.frozen.values())
        return cls(config, n_all, fusion + kv, trained, _BYTES.get(settings.outtype, 2) * n_all + frozen)
