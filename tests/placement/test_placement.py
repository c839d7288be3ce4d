"""Text does not depend on where a target and its drafter are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.demo.shapes import Pair
from dflash_local.engine_options import OPTIONS as OPTIONS_OF_ENGINE
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import DFlashError
from dflash_local.plan.memory_plan import MemoryPlan
from dflash_local.words import MIB
from tests.ggml_ops.native import llama_source
from tests.placement.combinations import OPTIONS, Devices, ask
from tests.placement.worker import Worker

DEVICES = Devices("RPC0", "RPC1")
ALONE, BOTH = DEVICES.alone, DEVICES.both
HOST, RPC0, RPC1 = "CPU", "RPC0", "RPC1"


def where(answer: dict[str, Any], part: str) -> set[str]:
    """The devices that hold some of a part."""
    return {name for name, parts in answer["info"]["placement"].items() if parts.get(part)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["attention", "hybrid", "moe"])
def test_every_combination(kind: str, worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Trees give the text of one device, and drafts are accepted as there. On the host an answer's last blocks are as
    short as what is left of it, on a device all are as long, so drafters there are compared among themselves."""
    pair = pairs(kind)
    alone = ask(worker, pair, ALONE)
    assert alone["accepted"] > 10
    assert ask(worker, pair, ALONE, draft="off")["texts"] == alone["texts"]
    failed, accepted = {}, {False: alone["accepted"]}
    for name, place in DEVICES.places():
        answer = ask(worker, pair, place)
        on_host = where(answer, "drafter") == {HOST}
        if (answer["texts"], answer["accepted"]) != (alone["texts"], accepted.setdefault(on_host, answer["accepted"])):
            failed[name] = answer["texts"], answer["accepted"]
    assert not failed, alone["texts"]


@pytest.mark.slow
def test_everything_is_where_it_was_put(worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Token embeddings always stay on the host; so target weights are there, too."""
    pair = pairs("moe")
    experts = ask(worker, pair, ALONE)["info"]["placement"][RPC0]["target"]
    for placed, parts in (
        (BOTH, {"target": {HOST, RPC0, RPC1}, "context": {RPC0, RPC1}, "drafter": {RPC1}, "drafter_context": {RPC1}}),
        (ALONE, {"target": {HOST, RPC0}, "context": {RPC0}, "drafter": {RPC0}}),
        (ALONE | {"device_draft": RPC1}, {"drafter": {RPC1}, "drafter_context": {RPC1}}),
        (ALONE | {"n_gpu_layers": 4}, {"context": {HOST, RPC0}, "drafter": {RPC0}}),
        (ALONE | {"n_gpu_layers": 0}, {"target": {HOST}, "context": {HOST}, "drafter": {HOST}}),
        (
            ALONE | {"n_gpu_layers": 0, "n_gpu_layers_draft": 9, "device_draft": "RPC0,RPC1"},
            {"target": {HOST}, "drafter": {RPC0, RPC1}},
        ),
        (ALONE | {"n_gpu_layers_draft": 0}, {"context": {RPC0}, "drafter": {HOST}, "drafter_context": {HOST}}),
        (ALONE | {"kv_offload": False}, {"context": {HOST}, "drafter": {RPC0}, "drafter_context": {HOST}}),
        ({"device": "none"}, {"target": {HOST}, "drafter": {HOST}}),
        (BOTH | {"split_mode": "none", "main_gpu": 1}, {"target": {HOST, RPC1}, "drafter": {RPC1}}),
        (BOTH | {"tensor_split": "1/0"}, {"context": {RPC0}, "drafter": {RPC0}}),
        (
            BOTH | {"tensor_split": "1", "override_tensor": r"blk\.0\.attn_q=RPC1"},
            {"target": {HOST, RPC0, RPC1}, "context": {RPC0}},
        ),
    ):
        answer = ask(worker, pair, placed, draft="off")
        assert {part: where(answer, part) for part in parts} == parts, placed
    refused = worker.ask(OPTIONS | ALONE | {"model": pair.target, "override_tensor": "attn_q=RPC1"})
    assert "override_tensor puts tensors on RPC1, which is not among the devices" in refused["error"]
    some, less = (ask(worker, pair, ALONE | {"n_cpu_moe": n})["info"]["placement"] for n in (2, 6))
    assert less[RPC0]["target"] < some[RPC0]["target"] < experts
    assert less == ask(worker, pair, ALONE | {"cpu_moe": True})["info"]["placement"]


@pytest.mark.slow
def test_a_tensor_split(worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Where upstream has it, and a sentence where it aborts."""
    for kind in ("attention", "moe"):
        placed = {"drafter": None, "split_mode": "tensor", "flash_attn": "on", "device": "RPC0,RPC1"}
        assert ask(worker, pairs(kind), placed)["texts"] == ask(worker, pairs(kind), ALONE)["texts"]
    refused = worker.ask(OPTIONS | placed | {"model": pairs("hybrid").target})
    assert "recurrent states" in refused["error"]
    refused = worker.ask(OPTIONS | placed | {"model": pairs(kind).target, "drafter": pairs(kind).drafter})
    assert "output projection" in refused["error"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "CUDA7"}, "device names 'CUDA7', which is not here: give none to use the CPU"),
        ({"device": "CPU"}, "device names 'CPU', which is no device to offload to: give none to use the CPU"),
        ({"device": "none,none"}, "device names 'none', which is not here"),
        ({"device_draft": ""}, None),
        ({"device_draft": "GPU"}, "device_draft names 'GPU', which is not here"),
        ({"split_mode": "column"}, "split_mode must be one of 'none', 'layer', 'row', 'tensor', got 'column'"),
        ({"split_mode": "tensor"}, "split_mode tensor needs a device, and there is none: use layer"),
        ({"tensor_split": "1,x"}, "tensor_split is '1,x', must be at most 16 numbers such as 3,1"),
        ({"override_tensor": "ffn"}, "override_tensor has 'ffn', must be PATTERN=BUFFER with one of the buffers CPU"),
        ({"override_tensor": "ffn=CUDA0"}, "override_tensor has 'ffn=CUDA0', must be PATTERN=BUFFER with one of"),
        (
            {"override_tensor_draft": "(=CPU"},
            "override_tensor_draft has the pattern '(', which is no regular",
        ),
        ({"n_cpu_moe": 1025}, "n_cpu_moe is 1025, must be 0..1024"),
    ],
)
def test_what_is_refused_is_refused_before_a_file_is_opened(options: dict[str, Any], says: str | None) -> None:
    with pytest.raises(DFlashError) as refused:
        Engine("no-such-file.gguf", **options)
    assert (says or "no-such-file.gguf") in str(refused.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"override_tensor": "attn_q=RPC1"}, "device"),
        ({"override_tensor_draft": "attn_q=RPC1", "n_gpu_layers": 0, "n_gpu_layers_draft": 9}, "device_draft"),
        ({"override_tensor_draft": "attn_q=RPC1", "device": "RPC0"}, "device_draft"),
    ],
)
def test_a_device_that_only_another_engine_uses(worker: Worker, options: dict[str, Any], field: str) -> None:
    """Those of an engine that names none are this machine's."""
    refused = worker.ask({"model": "no-such-file.gguf", **options})["error"]
    reason = "which is not among the devices of the model"
    assert f"{next(iter(options))} puts tensors on RPC1, {reason}: name it with {field}, too" in refused


@pytest.mark.parametrize("options", [{}, {"n_gpu_layers": 0, "n_gpu_layers_draft": 9}])
def test_a_server_that_the_drafter_is_not_on(worker: Worker, endpoints: list[str], options: dict[str, Any]) -> None:
    """Beside servers it stays on this machine, whose device is the CPU."""
    asked = {"model": "no-such-file.gguf", "rpc": ",".join(endpoints), **options}
    refused = worker.ask(asked | {"override_tensor_draft": "attn_q=RPC0"})["error"]
    assert "override_tensor_draft puts tensors on RPC0, which is not among the devices of the model" in refused
    assert "no-such-file.gguf" in worker.ask(asked | {"override_tensor_draft": "attn_q=CPU"})["error"]


def test_a_device_that_a_whole_model_is_not_on() -> None:
    """Refused before a file is opened; else where that is looked at, as it is not there."""
    devices = {"CUDA0": 64 * MIB, "CUDA1": 64 * MIB}
    for main_gpu, says in ((0, "override_tensor puts tensors on CUDA1, which is not"), (1, "no-such-file.gguf")):
        options = EngineOptions(
            "no-such-file.gguf", n_ctx=512, split_mode="none", main_gpu=main_gpu, override_tensor="attn_q=CUDA1"
        )
        with pytest.raises(DFlashError) as refused:
            MemoryPlan.of(options, devices)
        assert says in str(refused.value)
    placements: list[dict[str, Any]] = [{"device": "CUDA0"}, {"n_gpu_layers": 0}]
    for more in placements:  # a drafter is where its target is
        options = EngineOptions(
            "no-such-file.gguf", drafter="no.gguf", n_ctx=512, override_tensor_draft="attn_q=CUDA1", **more
        )
        with pytest.raises(DFlashError) as refused:
            MemoryPlan.of(options, devices)
        assert "override_tensor_draft puts tensors on CUDA1, which is not" in str(refused.value)


def test_rows_are_split_where_the_help_says() -> None:
    named = re.search(r"the rows of its weights \((.*?)\)", OPTIONS_OF_ENGINE["split_mode"].help)
    backends = named[1].split(", ") if named else []
    assert backends
    for name in map(str.lower, backends):
        (source,) = (llama_source() / "ggml" / "src" / f"ggml-{name}").glob(f"ggml-{name}.c*")
        assert '"ggml_backend_split_buffer_type"' in source.read_text(encoding="utf-8")
