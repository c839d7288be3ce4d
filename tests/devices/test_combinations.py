"""The text is that of one device wherever target and drafter are: on Vulkan, an RPC server and the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dflash_local.demo.shapes import Pair
from tests.devices.tolerance import TOLERANCE, off, parted
from tests.placement.combinations import Devices, ask
from tests.placement.worker import Worker

DEVICES = Devices("Vulkan0", "RPC0")
MOSTLY = 0.9  # of the accepted draft tokens: rounding may change a draft


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["attention", "hybrid", "moe"])
def test_every_combination(kind: str, worker_of_two: Worker, pairs: Callable[[str], Pair]) -> None:
    """Each place's target gives the logits of the first device, and its trees that text, or one as likely."""
    pair = pairs(kind)
    alone = ask(worker_of_two, pair, DEVICES.alone, draft="off")
    reference = ask(worker_of_two, pair, DEVICES.alone, score=alone["answers"])
    assert reference["accepted"] > 10
    wrong, compared = {}, {}
    for name, place in [("all on the CPU", {"device": "none"}), *DEVICES.places()]:
        answer = ask(worker_of_two, pair, place, score=alone["answers"])
        found = off(answer["logits"], reference["logits"])
        if found > TOLERANCE or answer["accepted"] < MOSTLY * reference["accepted"]:
            wrong[name] = found, answer["accepted"]
        for texts in parted(alone["answers"], answer["answers"]):
            compared[str(texts)] = name, texts
    assert not wrong, reference["accepted"]
    gaps = ask(worker_of_two, pair, DEVICES.alone, compare=[texts for _, texts in compared.values()])["gaps"]
    assert not [(name, gap) for (name, _), gap in zip(compared.values(), gaps, strict=True) if gap > 2 * TOLERANCE]
