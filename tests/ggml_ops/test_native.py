"""Every test of the CMake project ggml_ops/tests, by its name there, on this machine and (`arm`) for 64-bit ARM under
an
emulator: processors with NEON only, with dotprod, and with i8mm."""

from __future__ import annotations

from functools import cache

import pytest

from tests.toolchains import TOOLCHAINS

from .native import Project, arm, host

PROJECTS = {"host": host, "arm": arm}


@cache
def built(machine: str, slow: bool) -> Project:
    project = PROJECTS[machine]()
    assert project
    project.build(slow)
    return project


def listed(machine: str) -> list[object]:
    """A parameter for each test that CMake knows. What goes wrong here fails as a test, with the reason."""
    project = PROJECTS[machine]()
    if project is None:
        toolchain = TOOLCHAINS["arm"]
        reason = f"needs {', '.join(toolchain.missing())} ({toolchain.hint})"
        return [pytest.param(machine, "", False, marks=pytest.mark.skip(reason=reason), id=machine)]
    if machine == "arm" and not project.is_built:
        reason = "takes minutes to compile: python -m tests.ggml_ops.native --all"
        return [pytest.param(machine, "", False, marks=pytest.mark.skip(reason=reason), id=machine)]
    try:
        project.configure()
        tests = project.tests()
    except RuntimeError:
        return [pytest.param(machine, "", False, id=f"{machine}-configure")]
    slow = pytest.mark.slow
    return [
        pytest.param(machine, test.name, test.slow, marks=slow if test.slow else (), id=f"{machine}-{test.name}")
        for test in tests
    ]


@pytest.mark.parametrize(("machine", "name", "slow"), [*listed("host"), *listed("arm")])
def test_native(machine: str, name: str, slow: bool) -> None:
    built(machine, slow).run(name)
