"""The kernels' speed against stock's: the programs of ggml_ops/tests/timing, which print the tables of
docs/kernels.md."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest

from .native import Project, host

pytestmark = [pytest.mark.slow, pytest.mark.timing]


@pytest.fixture(scope="module")
def project() -> Project:
    project = host()
    project.build(slow=True)
    return project


def run(project: Project, name: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [str(project.folder / name), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    return done.stdout


ATTEMPTS = 4  # a machine that did something else for a moment shows in one measurement, not in the best of several


@pytest.mark.parametrize("shape", [("16", "8", "64"), ("32", "8", "128")])
def test_attention(project: Project, shape: tuple[str, ...]) -> None:
    """Stock's times, then ours. Nowhere may ours be slower by more than noise."""

    def times(ours: str) -> np.ndarray:
        table = run(project, "time_attention", "2", *shape, DFLASH_ATTENTION=ours)
        return np.array([[float(cell) for cell in line.strip("| ").split("|")] for line in table.splitlines()[1:]])[
            :, 1:
        ]

    stock = ours = np.array(np.inf)
    for _ in range(ATTEMPTS):
        stock, ours = np.minimum(stock, times("0")), np.minimum(ours, times("1"))
        if (stock > 0.9 * ours).all():
            return
    pytest.fail(f"ours over stock:\n{ours / stock}")


def test_panels(project: Project) -> None:
    """Where a CPU has AMX, wide passes take it: there it has to be the faster."""
    run(project, "time_panels", "2", "1024", "3072")
    for shape in (("1024", "3072"), ("3072", "1024")):
        table = run(project, "time_panels", "1", *shape)
        lines = [line.replace(" ", "").split("|")[1:-1] for line in table.splitlines()[2:]]
        wide = {(kind, kernel): max(map(float, speeds[-5:])) for kind, kernel, *speeds in lines}
        for (kind, kernel), speed in wide.items():
            assert kernel != "amx" or speed > wide[kind, "avx512-vnni"], kind


def test_products(project: Project) -> None:
    """Every buffer type's speed through ggml. Panels come first; nothing else may be faster by more than noise."""
    of_32, of_256 = (
        ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4"),
        ("q4_K", "q5_K", "q6_K", "q2_K", "q3_K", "tq1_0", "tq2_0"),
    )
    with_values = ("iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_s", "iq1_m")
    for kind in (*of_32, *of_256, *with_values):
        best = np.array(0.0)
        for _ in range(ATTEMPTS):
            table = run(project, "time_products", "2", "1024", "3072", "600", kind)
            rows = [line.replace(" ", "").split("|")[1:-1] for line in table.splitlines()[1:]]
            assert rows[0][1] == "CPU_PANELS"
            best = np.maximum(best, [[float(speed) for speed in row[2:]] for row in rows])
            if (best[0] > 0.85 * best).all():
                break
        else:
            pytest.fail(f"{kind}, speeds of panels, then of the others:\n{best}")
