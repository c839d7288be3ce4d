"""The ctypes mirror against the header: names, order and types of every struct field, every function, every
constant."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from dflash_local import native

HEADER = (Path(__file__).parents[2] / "ggml_ops" / "include" / "dflash.h").read_text()
CODE = re.sub(r"//[^\n]*", "", HEADER)

TYPES: dict[str, Any] = {
    "const char *": ctypes.c_char_p,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "const int32_t *": ctypes.POINTER(ctypes.c_int32),
    "float *": ctypes.POINTER(ctypes.c_float),
    "const float *": ctypes.POINTER(ctypes.c_float),
    "dflash_token_probs": native.NativeTokenProbs,
    "dflash_verified_tree": native.NativeVerifiedTree,
    "int32_t []": ctypes.c_int32 * native.MAX_NODES,
}


def fields_of(struct: str) -> list[tuple[str, Any]]:
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", CODE, re.S)
    assert body, f"the header has no struct {struct}"
    fields = []
    for declaration in filter(None, (" ".join(line.split()) for line in body[1].split(";"))):
        match = re.fullmatch(r"(.*?)(\w+) ?(\[\w+\])?", declaration)
        assert match, declaration
        kind = match[1].strip() + (" []" if match[3] else "")
        fields.append((match[2], TYPES[kind]))
    return fields


@pytest.mark.parametrize(
    ("struct", "mirror"),
    [
        ("dflash_engine_params", native.EngineParams),
        ("dflash_request", native.Request),
        ("dflash_token_probs", native.NativeTokenProbs),
        ("dflash_verified_tree", native.NativeVerifiedTree),
        ("dflash_update", native.Update),
        ("dflash_slot_stats", native.SlotStats),
        ("dflash_tree_rows", native.NativeTreeRows),
        ("dflash_tune_params", native.TuneParams),
    ],
)
def test_struct(struct: str, mirror: type[ctypes.Structure]) -> None:
    assert list(mirror._fields_) == fields_of(struct)


def test_every_function_is_bound_with_the_right_number_of_arguments() -> None:
    declared = {
        name: 0 if arguments.strip() == "void" else arguments.count(",") + 1
        for name, arguments in re.findall(r"DFLASH_API[^;(]*?(dflash_\w+)\(([^)]*)\)", CODE)
    }
    assert {name: len(arguments) for name, (_, arguments) in native.SIGNATURES.items()} == declared


@pytest.mark.parametrize(
    ("enum", "prefix", "mirror"),
    [
        ("status", "", native.Status),
        ("slot_state", "", native.SlotState),
        ("draft_mode", "DRAFT_", native.DraftMode),
        ("origin", "BY_", native.Origin),
        ("accept_rule", "ACCEPT_", native.AcceptRule),
    ],
)
def test_enums(enum: str, prefix: str, mirror: Any) -> None:
    body = re.search(rf"typedef enum dflash_{enum} \{{(.*?)\}}", CODE, re.S)
    assert body
    declared = {name: int(value) for name, value in re.findall(rf"DFLASH_{prefix}(\w+)\s*=\s*(-?\d+)", body[1])}
    assert {member.name: member.value for member in mirror} == declared


def test_constants() -> None:
    assert re.search(rf"DFLASH_ABI_VERSION {native.ABI_VERSION}\b", CODE)
    assert re.search(rf"DFLASH_MAX_NODES {native.MAX_NODES}\b", CODE)
