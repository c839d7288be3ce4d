"""The roofline on paper: bytes are those of the files, counts those of the emulation, and the record is what the script
says today."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import gpu_roofline as roofline
from dflash_local.convert.gguf_metadata import read_header
from dflash_local.demo import inflate
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import SHAPES
from tests.fast import some_fast

COUNT = re.compile(r"(tree|commit) rows (\d+) operations (\d+) exp (\d+) read (\d+) written (\d+)")


@pytest.mark.parametrize("drafter", some_fast(["dflash", "hybrid"], ["hybrid"]))
def test_bytes_are_those_of_the_files(tmp_path: Path, drafter: str) -> None:
    shape = SHAPES["hybrid-0.1b" if drafter == "hybrid" else "0.1b"]
    small = bundled_pair(drafter)
    pair = inflate.inflate(small, tmp_path / "pair", shape, "q4_k_m")
    for path, file in zip(pair, inflate.inflated_files(small, tmp_path, shape, "q4_k_m"), strict=True):
        tensors = read_header(path)[1].values()
        weights = roofline.weights_of(file)
        assert weights.file_bytes == sum(tensor.n_bytes for tensor in tensors)
        matrices = [tensor for tensor in tensors if len(tensor.shape) > 1 and tensor.name != "token_embd.weight"]
        assert weights.n_bytes == sum(tensor.n_bytes for tensor in matrices)
        assert weights.numbers == sum(math.prod(tensor.shape) for tensor in matrices)


def test_counts_are_those_of_the_emulation(repo: Path) -> None:
    program = repo / "build" / "native" / "test_gdn_counts"
    if not program.is_file():
        pytest.skip("run: make native-build")
    output = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    lines = COUNT.findall(output)
    assert len(lines) == 2 * len(roofline.ROWS)
    for kernel, rows, *numbers in lines:
        count = roofline.gdn_tree_counts if kernel == "tree" else roofline.gdn_commit_counts
        assert list(count(int(rows)).values()) == [int(number) for number in numbers], f"{kernel}, {rows} rows"


def test_experts_are_read_as_they_are_chosen() -> None:
    target, _ = roofline.pair_of("35b-a3b", "q8_0", 0)
    rest, experts = target.weights.n_bytes, target.weights.expert_bytes
    assert target.bytes(1) == pytest.approx(rest + experts * 8 / 256)
    assert rest + experts * 0.39 < target.bytes(16) < rest + experts * 0.41
    assert target.multiply_adds(16) == pytest.approx(16 * target.multiply_adds(1))


def test_a_chance_of_acceptance_makes_the_al() -> None:
    assert roofline.chain_al(8.0, 15) == pytest.approx(8.0)
    assert roofline.chain_al(16.0, 7) == pytest.approx(8.0)
    assert 3 < roofline.chain_al(8.0, 3) < 4


def test_the_record_is_what_the_script_says(repo: Path) -> None:
    document = json.loads((repo / "benchmarks" / "results" / "gpu_roofline.json").read_text())
    assert len(document["figures"]) == len(roofline.GPUS) * len(roofline.SHAPE_NAMES) * len(roofline.TYPES)
    for figure in document["figures"]:
        if figure["type"] == "q4_k_m":
            (gpu,) = [gpu for gpu in roofline.GPUS if gpu.name == figure["gpu"]]
            again = roofline.figures(gpu, figure["shape"], "q4_k_m", document["context"])
            assert json.loads(json.dumps(again)) == figure
    by_rows = ("gb", "ms", "bound")
    figures = [
        one | {name: {int(rows): value for rows, value in one[name].items()} for name in by_rows}
        for one in document["figures"]
    ]
    text = (repo / "benchmarks" / "results" / "gpu_roofline.md").read_text()
    assert text.startswith(roofline.markdown(figures, "").strip())
