"""Where a target and its drafter may be: on one of two devices, on both, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dflash_local.demo.shapes import Pair
from tests.parity.f32 import F32
from tests.placement.worker import Worker

PROMPTS = [
    f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    for text in ("Write a Python function that filters limits above 37.", "Count from 15 in steps of 3, 14 numbers.")
]
N_TOKENS = 40
OPTIONS: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "warmup": False, "budget": 12, **F32}

Place = dict[str, Any]  # arguments of Engine


@dataclass(frozen=True)
class Devices:
    """Two, by name."""

    first: str
    second: str

    @property
    def alone(self) -> Place:
        """All on the first, the drafter too."""
        return {"device": self.first}

    @property
    def both(self) -> Place:
        return {"device": f"{self.first},{self.second}"}

    def targets(self) -> dict[str, Place]:
        return {
            "one device": self.alone,
            "split over two": self.both | {"tensor_split": "1,1"},
            "half on the CPU": self.alone | {"n_gpu_layers": 4},
            "experts on the CPU": self.alone | {"cpu_moe": True},
            "K/V on the host": self.alone | {"kv_offload": False},
            "on the CPU": self.alone | {"n_gpu_layers": 0},
        }

    def drafters(self) -> dict[str, Place]:
        return {
            "with it": {},
            "on the other": {"device_draft": self.second},
            "over both": {"device_draft": f"{self.second},{self.first}"},
            "on the CPU": {"device_draft": "none"},
        }

    def places(self) -> Iterator[tuple[str, Place]]:
        """Every target with every drafter."""
        for target, target_place in self.targets().items():
            for drafter, drafter_place in self.drafters().items():
                yield f"target {target}, drafter {drafter}", target_place | drafter_place


def ask(worker: Worker, pair: Pair, place: Place, **generate: Any) -> dict[str, Any]:
    """What the pair answers to PROMPTS, as Worker.ask; no error."""
    engine = OPTIONS | {"model": pair.target, "drafter": pair.drafter} | place
    answer = worker.ask(engine, PROMPTS, max_tokens=N_TOKENS, **generate)
    assert "error" not in answer, answer
    return answer
