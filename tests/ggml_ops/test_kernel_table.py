"""The table of kernels for packed weights, at the top of their file, names every weight type once."""

from __future__ import annotations

import re

from .native import REPO

GEMM = REPO / "ggml_ops" / "cpu" / "gemm"


def test_every_weight_type_is_in_the_table() -> None:
    records = re.findall(r"GGML_TYPE_(\w+)", (GEMM / "weight_types.h").read_text())
    text = (GEMM / "packed_gemm_kernels.h").read_text()
    rows = text.partition("//   weight types ")[2].partition("//\n")[0].splitlines()[1:]
    named = [name for row in rows for name in re.split(r" {3,}", row)[1].split()]
    assert sorted(named) == sorted(records)
