"""How many cores a process may use, on made-up machines and in made-up containers."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from dflash_local.machine import hardware, windows_cores


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files that tell about cores: a machine with 8 of them, each two logical ones (0 and 8, ...), without
    limits."""
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    files = {topology.format(core): f"{core % 8},{core % 8 + 8}" for core in range(16)}
    monkeypatch.setattr(hardware, "_lines", lambda path: files.get(path, "").splitlines())
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    use_only(monkeypatch, range(16))
    return files


def use_only(monkeypatch: pytest.MonkeyPatch, cores: Iterable[int]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cores), raising=False)


@pytest.mark.parametrize(
    ("quota", "usable", "limit"),
    [
        ("max 100000", 16, None),
        ("1600000 100000", 16, None),
        ("1000000 100000", 10, 8),
        ("200000 100000", 2, 2),
        ("150000 100000", 2, 2),
        ("10000 100000", 1, 1),
    ],
)
def test_a_container_may_have_a_part_of_the_cores(
    cores: dict[str, str], quota: str, usable: int, limit: int | None
) -> None:
    """In both versions of control groups. Without a limit, threads are as many as physical cores."""
    cores["/proc/self/cgroup"] = "0::/box"
    cores["/sys/fs/cgroup/box/cpu.max"] = quota
    assert (hardware.usable_cores(), hardware.core_limit()) == (usable, limit)
    del cores["/sys/fs/cgroup/box/cpu.max"]
    share, period = quota.replace("max", "-1").split()
    cores |= {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": share, "/sys/fs/cgroup/cpu/cpu.cfs_period_us": period}
    assert (hardware.usable_cores(), hardware.core_limit()) == (usable, limit)


def test_a_group_around_may_have_the_limit(cores: dict[str, str]) -> None:
    """As that of a slice of systemd's."""
    cores["/proc/self/cgroup"] = "0::/user.slice/box.service"
    cores["/sys/fs/cgroup/user.slice/box.service/cpu.max"] = "max 100000"
    cores["/sys/fs/cgroup/user.slice/cpu.max"] = "300000 100000"
    assert (hardware.usable_cores(), hardware.core_limit()) == (3, 3)


@pytest.mark.parametrize(("allowed", "limit"), [(range(4), 4), ((0, 8), 1), ((0, 1, 8), 2), (range(16), None)])
def test_an_affinity_leaves_physical_cores(
    cores: dict[str, str], monkeypatch: pytest.MonkeyPatch, allowed: Iterable[int], limit: int | None
) -> None:
    use_only(monkeypatch, allowed)
    assert hardware.core_limit() == limit


def test_slow_cores_of_a_processor_get_no_threads(cores: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within limits, either: without, llama.cpp looks at that itself."""
    assert hardware.default_threads() == 16
    cores["/sys/devices/cpu_core/cpus"] = "0-1,8-9"
    assert (hardware.core_limit(), hardware.default_threads()) == (None, 2)
    use_only(monkeypatch, range(6))
    assert (hardware.core_limit(), hardware.default_threads()) == (2, 2)


@pytest.mark.parametrize(
    ("numbers", "n_cores", "n_threads"),
    [({"hw.perflevel0.physicalcpu": 4, "hw.physicalcpu": 8}, 8, 4), ({"hw.physicalcpu": 8}, 8, 8)],
)
def test_cores_of_a_mac(
    cores: dict[str, str], monkeypatch: pytest.MonkeyPatch, numbers: dict[str, int], n_cores: int, n_threads: int
) -> None:
    """With two kinds of them, and an older one with two threads a core."""
    cores.clear()
    monkeypatch.setattr(hardware, "_sysctl", lambda name: numbers.get(name, 0))
    assert (hardware.this_machine().cores, hardware.default_threads()) == (n_cores, n_threads)


@pytest.mark.parametrize(
    ("classes", "n_cores", "n_threads"), [([1] * 8 + [0] * 8, 16, 8), ([0] * 12, 12, 12), ([], 24, 24)]
)
def test_cores_of_windows(
    cores: dict[str, str], monkeypatch: pytest.MonkeyPatch, classes: list[int], n_cores: int, n_threads: int
) -> None:
    """With two kinds of them, with one kind of two threads a core, and where they cannot be looked at."""
    cores.clear()
    monkeypatch.setattr(os, "cpu_count", lambda: 24)
    use_only(monkeypatch, range(24))
    monkeypatch.setattr(hardware, "_windows_cores", lambda: classes)
    assert (hardware.this_machine().cores, hardware.default_threads()) == (n_cores, n_threads)


def test_classes_of_cores() -> None:
    """Entries as Windows writes them: of several sizes, the class in the tenth byte."""
    entries = [bytes([0, 0, 0, 0, size, 0, 0, 0, 1, kind]) + bytes(size - 10) for size, kind in ((48, 1), (64, 0))]
    assert list(windows_cores._classes(b"".join(entries))) == [1, 0]
    assert list(windows_cores._classes(b"")) == []


def test_cores_that_only_the_topology_tells(cores: dict[str, str]) -> None:
    """As on POWER, whose /proc/cpuinfo names none."""
    cores["/sys/devices/system/cpu/online"] = "0-15"
    assert (hardware.this_machine().cores, hardware.default_threads()) == (8, 8)
