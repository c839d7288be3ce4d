"""A tap is exactly what enters the layer, for every row of a pass."""

from __future__ import annotations

import pytest

from dflash_local.diagnose.architectures import TAPPED_ARCHS

from .conftest import Probe
from .models import ARCHS, ELSEWHERE

SCALED = 1e-6  # layer 0 is compared with embeddings times a scale that is fitted


def test_every_architecture_has_a_model() -> None:
    assert not set(ARCHS) & ELSEWHERE and set(ARCHS) | ELSEWHERE == TAPPED_ARCHS


@pytest.mark.parametrize("arch", ARCHS)
def test_taps_are_the_inputs_of_layers(probes: dict[str, Probe], arch: str) -> None:
    assert arch in probes, "the process that compares ended before it came to this architecture"
    error, moved = probes[arch]
    assert len(error) > 2 and error[0] < SCALED and max(error[1:]) == 0.0
    assert min(moved) > 1e-2  # else a wrong layer's input would pass
