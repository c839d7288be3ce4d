"""What a build depends on, and which backend `auto` means."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.build import recipe
from dflash_local.build.recipe import detect_backend, make_recipe
from dflash_local.errors import BuildError

from .conftest import World

CHANGES: dict[str, Callable[[World, pytest.MonkeyPatch], object]] = {
    "pin": lambda world, _: world.repin(sha256="1" * 64),
    "patch": lambda world, _: (world.source / "patches" / "0002-new.patch").write_text("x"),
    "inject.cmake": lambda world, _: (world.source / "ggml_ops" / "inject.cmake").write_text("# other\n"),
    "source": lambda world, _: (world.source / "ggml_ops" / "engine" / "engine.cpp").write_text("int other;\n"),
    "source renamed": lambda world, _: (world.source / "ggml_ops" / "engine" / "tree.cpp").rename(
        world.source / "ggml_ops" / "engine" / "t.cpp"
    ),
    "compiler": lambda world, _: world.tool("c++", "2"),
    "CXX": lambda world, monkeypatch: monkeypatch.setenv("CXX", str(world.tool("clang++"))),
    "CXXFLAGS": lambda _, monkeypatch: monkeypatch.setenv("CXXFLAGS", "-O1"),
    "CMAKE_ARGS": lambda _, monkeypatch: monkeypatch.setenv("CMAKE_ARGS", "-DGGML_LLAMAFILE=OFF"),
    "processor": lambda _, monkeypatch: monkeypatch.setattr(recipe, "_machine", lambda: "another"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_key_changes_with(world: World, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    before = make_recipe(world.source, "cpu")
    CHANGES[change](world, monkeypatch)
    after = make_recipe(world.source, "cpu")
    assert after.key != before.key
    assert (after.tree_key == before.tree_key) == (change in ("inject.cmake", "source", "source renamed"))


def test_key_changes_with_the_gpu(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the architectures are named: then it is the same code anywhere."""
    device(world, monkeypatch, "nvidia0")
    world.tool("nvcc")
    monkeypatch.setenv("PATH", f"{world.bin}:/usr/bin:/bin")

    def key(version: str, arch: str | None) -> str:
        world.tool("nvidia-smi", version)
        return make_recipe(world.source, "cuda", arch).key

    assert key("8.6", None) != key("12.0", None) and key("8.6", "native") != key("12.0", "native")
    assert key("8.6", "86;120") == key("12.0", "86;120")


def test_key_stays_with_what_does_not_count(world: World) -> None:
    before = make_recipe(world.source, "cpu")
    (world.source / "ggml_ops" / "tests" / "test_tree.cpp").write_text("int main() {}\n")
    (world.source / "ggml_ops" / "engine" / ".engine.cpp.swp").write_text("x")
    (world.source / "ggml_ops" / "engine" / "engine.cpp~").write_text("x")
    (world.source / "patches" / "README.md").write_text("x")
    assert make_recipe(world.source, "cpu") == before


def device(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = world.bin.parent / "dev" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    monkeypatch.setattr(recipe, "DEVICES", world.bin.parent / "dev")


@pytest.mark.parametrize(
    ("tool", "file", "backend"),
    [
        ("nvcc", "nvidia0", "cuda"),
        ("nvcc", "dxg", "cuda"),
        ("hipcc", "kfd", "hip"),
        ("glslc", "dri/renderD128", "vulkan"),
    ],
)
def test_auto_takes_the_gpu_with_a_toolkit(
    world: World, monkeypatch: pytest.MonkeyPatch, tool: str, file: str, backend: str
) -> None:
    monkeypatch.setenv("PATH", str(world.bin))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(recipe, "DEVICES", world.bin / "none")
    assert detect_backend() == ("cpu", "no nvcc, no hipcc, no glslc")
    world.tool(tool)
    name, why = detect_backend()
    assert name == "cpu"
    assert f"{tool} but no {backend} device" in why
    device(world, monkeypatch, file)
    assert detect_backend()[0] == backend
    assert recipe.BACKENDS[backend].flags[0] in make_recipe(world.source, backend).flags


def test_auto_is_metal_on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert detect_backend()[0] == "metal"


def test_nvcc_off_the_path_is_found_and_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(world.bin))
    nvcc = world.tool("nvcc-13").rename(world.bin.parent / "nvcc")
    monkeypatch.setenv("CUDACXX", str(nvcc))
    assert f"-DCMAKE_CUDA_COMPILER={nvcc}" in make_recipe(world.source, "cuda", "86").flags


@pytest.mark.parametrize("given", ["86", "86;89", "86,90a", "native", "80-real"])
def test_cuda_architectures(world: World, given: str) -> None:
    world.tool("nvcc")
    assert f"-DCMAKE_CUDA_ARCHITECTURES={given.replace(',', ';')}" in make_recipe(world.source, "cuda", given).flags


@pytest.mark.parametrize("given", ["sm_86", "8.6", "86;;89", "", "native;86 -DX"])
def test_bad_cuda_architectures(world: World, given: str) -> None:
    world.tool("nvcc")
    with pytest.raises(BuildError, match="not a list of architectures"):
        make_recipe(world.source, "cuda", given)


def test_cuda_without_a_gpu_wants_the_architecture(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.tool("nvcc")
    monkeypatch.setattr(recipe, "DEVICES", tmp_path / "none")
    with pytest.raises(BuildError, match="no NVIDIA GPU is visible"):
        make_recipe(world.source, "cuda")
    assert make_recipe(world.source, "cuda", cmake_flags=("-DCMAKE_CUDA_ARCHITECTURES=90",))
    monkeypatch.setenv("CMAKE_ARGS", "-DCMAKE_CUDA_ARCHITECTURES=90")
    assert "-DCMAKE_CUDA_ARCHITECTURES=90" in make_recipe(world.source, "cuda").flags


@pytest.mark.parametrize("words", ["{}", "ccache {}", "{} -m64", "{} -isystem /opt", "ccache {} -m64 -pipe"])
def test_a_compiler_with_a_launcher_or_options(world: World, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    compiler = world.tool("mycc")
    monkeypatch.setenv("CC", words.format(compiler))
    assert make_recipe(world.source, "cpu").compilers[0].startswith(f"{compiler}: ")


@pytest.mark.parametrize("variable", ["CMAKE_ARGS", "CC"])
def test_a_quote_that_is_left_open(world: World, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, '-DCMAKE_CXX_FLAGS="-O2')
    with pytest.raises(BuildError, match=rf"\${variable} cannot be read: No closing quotation"):
        make_recipe(world.source, "cpu")


def test_cuda_architecture_of_another_backend(world: World) -> None:
    with pytest.raises(BuildError, match="does not go with backend cpu"):
        make_recipe(world.source, "cpu", "86")


@pytest.mark.parametrize(("backend", "tool"), [("cuda", "nvcc"), ("hip", "hipcc"), ("vulkan", "glslc")])
def test_backend_without_its_toolkit(world: World, monkeypatch: pytest.MonkeyPatch, backend: str, tool: str) -> None:
    monkeypatch.setenv("PATH", str(world.bin))
    with pytest.raises(BuildError, match=f"needs {tool}") as caught:
        make_recipe(world.source, backend)
    assert caught.value.hint
