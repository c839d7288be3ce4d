"""ctypes against the header, as a C compiler reads it: every field of every struct, every function, every constant.

What would not hold is an error of compilation: `_Static_assert` for what both sides know, and the compiler's own
warnings for what only the header has (a field without an initializer, an enumerator without a case).
"""

from __future__ import annotations

import ctypes
import subprocess
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from dflash_local import native
from dflash_local.native import structs
from dflash_local.native.library import STATUS_FUNCTIONS, VALUE_FUNCTIONS, library_path

SIGNATURES = VALUE_FUNCTIONS | {name: (ctypes.c_int, arguments) for name, arguments in STATUS_FUNCTIONS.items()}
INCLUDE = Path(__file__).parents[2] / "ggml_ops" / "include"
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "dflash_engine_params": structs.EngineParams,
    "dflash_request_params": structs.RequestParams,
    "dflash_token_probs": structs.NativeTokenProbs,
    "dflash_verified_tree": structs.NativeVerifiedTree,
    "dflash_update": structs.Update,
    "dflash_slot_counters": structs.SlotStats,
    "dflash_slot_file": structs.SlotFile,
    "dflash_score_params": structs.ScoreParams,
    "dflash_probe_params": structs.ProbeParams,
    "dflash_tap_params": structs.TapParams,
    "dflash_tree_rows": structs.NativeTreeRows,
    "dflash_media": structs.NativeMedia,
    "dflash_tune_params": structs.TuneParams,
    "dflash_rpc_server_params": structs.RPCServerParams,
}
ENUMS: dict[str, tuple[str, type[IntEnum]]] = {
    "dflash_status": ("DFLASH_", structs.Status),
    "dflash_slot_state": ("DFLASH_", structs.SlotState),
    "dflash_draft_mode": ("DFLASH_DRAFT_", native.DraftMode),
    "dflash_origin": ("DFLASH_BY_", structs.Origin),
    "dflash_accept_rule": ("DFLASH_ACCEPT_", native.AcceptRule),
    "dflash_media_kind": ("DFLASH_", structs.MediaKind),
}
# Names of C types, those of pointers with and without const.
TYPES: dict[Any, tuple[str, ...]] = {
    ctypes.c_char_p: ("char *", "const char *", "const uint8_t *"),
    ctypes.c_bool: ("bool",),
    ctypes.c_float: ("float",),
    ctypes.c_double: ("double",),
    ctypes.c_int32: ("int32_t",),
    ctypes.c_uint32: ("uint32_t",),
    ctypes.c_uint64: ("uint64_t",),
    ctypes.POINTER(ctypes.c_int32): ("int32_t *", "const int32_t *"),
    ctypes.POINTER(ctypes.c_float): ("float *", "const float *"),
} | {struct: (name,) for name, struct in STRUCTS.items()}


def compile_errors(compiler: str, code: str) -> str:
    """What a compiler says of `code` after the header; nothing if all is well."""
    flags = ["-std=c11", "-fsyntax-only", "-Werror=missing-field-initializers", "-Werror=switch", f"-I{INCLUDE}"]
    source = f"#include <stddef.h>\n#include <dflash.h>\n{code}"
    return subprocess.run(
        [compiler, *flags, "-x", "c", "-"], input=source, text=True, capture_output=True, check=False
    ).stderr


def has_type(field: str, kind: Any) -> str:
    """C's word on whether an lvalue has a ctypes type."""
    if issubclass(kind, ctypes.Array):
        (name,) = TYPES[kind._type_]
        pointers = [f"{name} (*)[{kind._length_}]"]
    else:
        pointers = [f"{name} *" for name in TYPES[kind]]
    return f"_Generic(&{field}, {', '.join(f'{pointer}: 1' for pointer in pointers)}, default: 0)"


def struct_code(name: str, struct: type[ctypes.Structure]) -> str:
    checks = [(f"sizeof({name}) == {ctypes.sizeof(struct)}", "size")]
    for field, kind, *_ in struct._fields_:
        checks += [
            (f"offsetof({name}, {field}) == {getattr(struct, field).offset}", f"offset of {field}"),
            (has_type(f"(({name} *) 0)->{field}", kind), f"type of {field}"),
        ]
    asserts = "".join(f'_Static_assert({check}, "{what}");\n' for check, what in checks)
    values = ["{0}" if issubclass(kind, (ctypes.Array, ctypes.Structure)) else "0" for _, kind, *_ in struct._fields_]
    return f"{asserts}{name} whole = {{{', '.join(values)}}};\n"


@pytest.mark.parametrize("name", STRUCTS)
def test_struct(compiler: str, name: str) -> None:
    assert compile_errors(compiler, struct_code(name, STRUCTS[name])) == ""


def test_no_struct_is_forgotten() -> None:
    ours = {
        value for value in vars(structs).values() if isinstance(value, type) and value.__module__ == structs.__name__
    }
    assert {value for value in ours if issubclass(value, ctypes.Structure)} == set(STRUCTS.values())


@pytest.mark.parametrize("name", ENUMS)
def test_enum(compiler: str, name: str) -> None:
    prefix, enum = ENUMS[name]
    asserts = "".join(f'_Static_assert({prefix}{one.name} == {one.value}, "{one.name}");\n' for one in enum)
    cases = " ".join(f"case {prefix}{one.name}:" for one in enum)
    code = f"{asserts}int all({name} value) {{ switch (value) {{ {cases} return 1; }} return 0; }}\n"
    assert compile_errors(compiler, code) == ""


def test_constants(compiler: str) -> None:
    code = "".join(
        f'_Static_assert({name} == {value}, "{name}");\n'
        for name, value in (
            ("DFLASH_ABI_VERSION", native.ABI_VERSION),
            ("DFLASH_MAX_NODES", native.MAX_NODES),
            ("DFLASH_QUOTE_SOURCES", len(structs.QUOTE_SOURCES)),
        )
    )
    assert compile_errors(compiler, code) == ""


def test_functions_take_as_many_arguments(compiler: str) -> None:
    calls = "".join(
        f"    {name}({', '.join(['0'] * len(arguments))});\n" for name, (_, arguments) in SIGNATURES.items()
    )
    assert compile_errors(compiler, f"void all(void) {{\n{calls}}}\n") == ""


def test_functions_return_what_is_declared(compiler: str) -> None:
    returned = {**TYPES, ctypes.c_int: ("dflash_status",), ctypes.c_char_p: ("const char *",)}
    asserts = "".join(
        f"_Static_assert(_Generic({name}({', '.join(['0'] * len(arguments))}), {returned[kind][0]}: 1, default: 0), "
        f'"{name}");\n'
        for name, (kind, arguments) in SIGNATURES.items()
        if kind not in (None, ctypes.c_void_p)
    )
    assert compile_errors(compiler, asserts) == ""


def test_no_function_is_forgotten() -> None:
    try:
        listed = subprocess.run(
            ["nm", "-D", "--defined-only", library_path()], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no nm that reads the library")
    exported = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
    assert {name for name in exported if name.startswith("dflash_")} == set(SIGNATURES)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("typedef struct { int32_t a; bool b; } s; s whole = {0, 0, };", ""),
        ("typedef struct { int32_t a; bool b; bool new_one; } s; s whole = {0, 0};", "new_one"),
        ("typedef enum { A, B } e; int all(e v) { switch (v) { case A: return 1; } return 0; }", "B"),
        ("float f; _Static_assert(" + has_type("f", ctypes.c_int32) + ', "f");', "f"),
        ("void all(void) { dflash_string_free(0, 0); }", "dflash_string_free"),
    ],
)
def test_the_compiler_sees_it(compiler: str, code: str, error: str) -> None:
    found = compile_errors(compiler, code)
    assert error in found and bool(found) == bool(error)
