"""Which weights of a target have no kernel of ours on the CPU, and what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES

from dflash_local.convert.gguf_metadata import StoredGgufTensor, read_header
from dflash_local.diagnose.finding import Finding, ok, warn
from dflash_local.engine_options import EngineOptions
from dflash_local.machine.devices import used_gpus

_NAMED = 3  # tensors, the largest first


def look_at_kernels(options: EngineOptions, target: Path, info: dict[str, Any]) -> Iterator[Finding]:
    """Are the quantized matrices of a target on the CPU in panels (docs/kernels.md)? No finding if layers go to a GPU,
    the library does not say, or the file has no quantized matrix."""
    if used_gpus(options, info) or "packed_types" not in info:
        return
    packed = {name.lower() for name in info["packed_types"]}
    matrices = _matrices(read_header(target)[1])
    stock = [tensor for tensor in matrices if tensor.type.name.lower() not in packed]
    if stock:
        largest = sorted(stock, key=lambda tensor: -tensor.n_bytes)[:_NAMED]
        names = ", ".join(tensor.name for tensor in largest) + (", ..." if len(stock) > _NAMED else "")
        share = sum(tensor.n_bytes for tensor in stock) / sum(tensor.n_bytes for tensor in matrices)
        yield warn(
            "kernels",
            f"{len(stock)} of {len(matrices)} quantized matrices ({_by_type(stock)}; {share:.0%} of their bytes) stay "
            f"with stock kernels: {names}. Products of 8 rows take 1.5 to 13 times as long with them, and "
            "--bit-exact is refused",
            f"a file of these types only: {', '.join(info['packed_types'])}" if packed else "see docs/kernels.md",
            field=largest[0].name,
        )
    elif matrices:
        yield ok("kernels", f"all {len(matrices)} quantized matrices have ours ({_by_type(matrices)})")


def _matrices(tensors: Mapping[str, StoredGgufTensor]) -> list[StoredGgufTensor]:
    """The quantized ones that are multiplied. A token embedding is read by rows, unless it is also the head."""
    looked_up = {"per_layer_token_embd.weight", *(["token_embd.weight"] if "output.weight" in tensors else [])}
    return [
        tensor
        for name, tensor in tensors.items()
        if len(tensor.shape) > 1 and GGML_QUANT_SIZES[tensor.type][0] > 1 and name not in looked_up
    ]


def _by_type(tensors: list[StoredGgufTensor]) -> str:
    return ", ".join(f"{kind} {n}" for kind, n in Counter(tensor.type.name for tensor in tensors).most_common())
