"""What `ggml_ops/build_time.cmake` leaves out of the installed libraries, and what it must not."""

from __future__ import annotations

import pytest

from dflash_local import native


def libraries(name: str) -> bytes:
    return b"".join(file.read_bytes() for file in native.library_path().parent.glob(f"*{name}.*"))


@pytest.mark.parametrize("part", [b"httplib", b"common_params_parse", b"common_download"])
def test_llama_common_has_nothing_of_the_programs(part: bytes) -> None:
    assert part not in libraries("llama-common")


@pytest.mark.parametrize("part", [b"common_chat_templates_apply", b"common_sampler_init", b"json_schema_to_grammar"])
def test_llama_common_has_what_is_used(part: bytes) -> None:
    assert part in libraries("llama-common")


def test_each_library_has_one_name() -> None:
    """A wheel has no links: under libggml.so, libggml.so.0 and libggml.so.0.1 there would be three copies."""
    files = [file.name for file in native.library_path().parent.iterdir() if file.is_file()]
    names = [name.partition(".")[0] for name in files if name.endswith((".so", ".dylib")) or ".so." in name]
    assert names and len(names) == len(set(names)), sorted(files)
