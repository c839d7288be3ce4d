"""Where the whole process runs in the background, its steps do not wait for themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux's threads inherit a policy of this kind")

PROGRAM = """
import os
os.sched_setscheduler(0, os.POLICY, os.sched_param(0))
from dflash_local import Engine, SamplingParams
from dflash_local.demo.pocket import seeing_pair
from tests.media.test_drafts import noise
pair = seeing_pair()
with Engine(pair.target, mmproj=pair.mmproj, n_ctx=4096, n_slots=2, n_threads=2, warmup=False) as engine:
    other = engine.submit(engine.tokenize("Once"), SamplingParams(ignore_eos=True), max_tokens=1500)
    for seed in range(3):
        content = [{"type": "image", "image": noise(seed, 512, 512)}, {"type": "text", "text": "Describe the picture."}]
        engine.chat([{"role": "user", "content": content}], max_tokens=2)
    other.cancel()
"""


@pytest.mark.parametrize("policy", ["SCHED_IDLE", "SCHED_BATCH"])
def test_pictures_are_encoded_beside_steps(policy: str) -> None:
    program = PROGRAM.replace("POLICY", policy)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
