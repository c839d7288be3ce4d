"""Hidden states beyond float16's range cost nothing, whatever type fuses them.

A target whose residual stream is 2^14 times as large says the same, because norms divide it out again; and so its taps
are, while what the drafter makes of them must stay. Real targets have such elements (1e4 to 1e5) in a few places.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.fast import some_fast
from tests.gguf_files import numbers, output, rewritten

from .f32 import F32, widen
from .test_drafter import assert_close

pytestmark = pytest.mark.parity
TOKENS = list(range(4, 90))
STOCK = dict.fromkeys(("DFLASH_FLOAT_GEMM", "DFLASH_PANELS", "DFLASH_ROPE", "DFLASH_FUSED"), "0")
SCALE = 2.0**14  # the pocket target's largest tap is 12


def scaled_target(source: Path, path: Path, scale: float) -> Path:
    """The target with what is added to the residual stream made larger."""
    larger = {
        name: data * np.float32(scale)
        for name, data in numbers(source).items()
        if name == "token_embd.weight" or name.endswith(("attn_output.weight", "ffn_down.weight"))
    }
    # the norms' epsilon is the one thing that does not scale
    return widen(source, path, {"qwen3.attention.layer_norm_rms_epsilon": 1e-12}, larger)


@pytest.fixture(scope="module")
def targets(target_f32: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("large")
    return scaled_target(target_f32, folder / "small.gguf", 1), scaled_target(target_f32, folder / "large.gguf", SCALE)


def drafter_with(kind: str, source: Path, path: Path) -> Path:
    """The drafter with an `fc` of this type; its embeddings are its own, because the target's are larger now."""
    tensors = numbers(source)
    fc = output("fc.weight", tensors["fc.weight"], gguf.GGMLQuantizationType[kind])
    return rewritten(source, path, {}, {**tensors, fc.name: fc})


PROBE = """
import json, sys
import numpy as np
from dflash_local import Engine
target, drafter, parameters, tokens, out = sys.argv[1:]
with Engine(target, drafter, n_threads=1, warmup=False, n_ctx=256, **json.loads(parameters)) as engine:
    np.save(out, engine.draft_probe(json.loads(tokens), 16).hidden)
"""


def hidden(target: Path, drafter: Path, out: Path, **switches: str) -> np.ndarray:
    """Hidden states of a block, from a process with these environment variables."""
    subprocess.run(
        [sys.executable, "-c", PROBE, str(target), str(drafter), json.dumps(F32), json.dumps(TOKENS), str(out)],
        env=os.environ | switches,
        check=True,
    )
    return np.load(out)


@pytest.mark.parametrize("kind", some_fast(["F16", "BF16", "F32", "Q8_0", "Q4_0"], ["F16", "Q4_0"]))
@pytest.mark.parametrize("switches", [{}, STOCK])
def test_large_taps(
    target_f32: Path,
    targets: tuple[Path, Path],
    pocket: dict[str, Path],
    tmp_path: Path,
    kind: str,
    switches: dict[str, str],
) -> None:
    """With our kernels and with ggml's own, whose products with float16 weights round the taps to float16."""
    heads = {name: numbers(target_f32)[name] for name in ("token_embd.weight", "output.weight")}
    whole = widen(pocket["dflash"], tmp_path / "f32.gguf", tensors=heads)
    drafter = drafter_with(kind, whole, tmp_path / "drafter.gguf")
    expected, found = (hidden(target, drafter, tmp_path / f"{target.stem}.npy", **switches) for target in targets)
    assert np.isfinite(found).all()
    assert_close(found, expected)
