"""What `build --backend vulkan` asks for before it compiles anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.build import builder, vulkan
from dflash_local.build.recipe import make_recipe
from dflash_local.errors import BuildError

from .conftest import World

OLD, NEW = (1, 3, 239), (1, 4, 309)  # Debian 12 and 13


@pytest.fixture(autouse=True)
def glslc(world: World) -> Path:
    return world.tool("glslc")


def refusal(world: World, *flags: str) -> BuildError:
    with pytest.raises(BuildError) as caught:
        builder.build("vulkan", cmake_flags=flags)
    assert world.calls() == [], "the answer came only after something was fetched"
    assert caught.value.hint
    return caught.value


def test_old_headers_are_told_with_what_is_needed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old = world.vulkan_headers(OLD)
    monkeypatch.setattr(vulkan, "_SYSTEM", (str(old),))
    error = refusal(world)
    assert error.message == f"the Vulkan headers in {old} are 1.3.239; the build needs 1.3.272 or newer"
    assert error.hint and "-- -DVulkan_INCLUDE_DIR=DIR" in error.hint


def test_no_headers(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(vulkan, "_SYSTEM", (str(tmp_path / "nothing"),))
    assert "needs Vulkan headers 1.3.272 or newer, none found" in refusal(world).message


def test_headers_that_do_not_say_their_version_are_too_old(world: World, tmp_path: Path) -> None:
    core = tmp_path / "odd" / "vulkan" / "vulkan_core.h"
    core.parent.mkdir(parents=True)
    core.write_text("// nothing\n")
    assert "are 0.0.0" in refusal(world, f"-DVulkan_INCLUDE_DIR={tmp_path / 'odd'}").message


def test_no_spirv_headers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan, "_SYSTEM", (str(world.vulkan_headers(NEW, spirv=False)),))
    error = refusal(world)
    assert "SPIRV-Headers" in error.message
    assert "spirv-headers" in (error.hint or "")


@pytest.mark.parametrize("name", ["Vulkan_INCLUDE_DIR", "Vulkan_INCLUDE_DIR:PATH", "CMAKE_PREFIX_PATH", "VULKAN_SDK"])
def test_headers_that_are_named_come_before_the_systems(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(vulkan, "_SYSTEM", (str(world.vulkan_headers(OLD)),))
    new = world.vulkan_headers(NEW)
    if name.startswith("Vulkan"):
        recipe = make_recipe(world.source, "vulkan", cmake_flags=(f"-D{name}={new}",))
    else:
        (new.parent / "prefix").mkdir()
        new.rename(new.parent / "prefix" / "include")
        if name == "VULKAN_SDK":
            monkeypatch.setenv(name, str(new.parent / "prefix"))
            recipe = make_recipe(world.source, "vulkan")
        else:
            recipe = make_recipe(world.source, "vulkan", cmake_flags=(f"-D{name}=/nowhere;{new.parent / 'prefix'}",))
    assert recipe.compilers[-1] == "Vulkan headers 1.4.309"


def test_other_headers_are_another_build(world: World) -> None:
    def key(version: tuple[int, int, int]) -> str:
        (core,) = Path(vulkan._SYSTEM[0]).glob("vulkan/vulkan_core.h")
        text = core.read_text()
        core.write_text(re.sub(r"VERSION \d+", f"VERSION {version[2]}", text, count=1))
        return make_recipe(world.source, "vulkan").key

    assert key((1, 3, 280)) != key((1, 3, 290))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo \"error: invalid value 'vulkan1.3'\" >&2; exit 1", "(error: invalid value 'vulkan1.3')"),
        ("exit 3", "(it says nothing)"),
    ],
)
def test_glslc_too_old(world: World, glslc: Path, script: str, expected: str) -> None:
    glslc.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo glslc 1 && exit\n{script}\n')
    error = refusal(world)
    assert f"does not compile shaders for Vulkan 1.3 {expected}" in error.message
    assert "shaderc 2022.1" in (error.hint or "")


def test_other_backends_ask_for_none_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse: Callable[..., str] = lambda *_: pytest.fail("asked for Vulkan")  # noqa: E731
    monkeypatch.setattr(vulkan, "check_toolkit", refuse)
    monkeypatch.setattr("dflash_local.build.recipe.check_toolkit", refuse)
    assert make_recipe(world.source, "cpu")
