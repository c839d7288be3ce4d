"""What --fit chooses, and what is refused before anything is loaded."""

from __future__ import annotations

import json
import logging
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.cli import main
from dflash_local.demo.pocket import bundled_pair
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import RequestError
from dflash_local.plan import check
from dflash_local.plan.check import unused
from dflash_local.plan.fit import fit
from dflash_local.plan.flags import flags
from dflash_local.plan.memory_plan import HOST, MemoryPlan
from dflash_local.plan.slot_costs import slot_costs
from dflash_local.words import MIB

TWO = {"GPU0": 1024 * MIB, "GPU1": 1024 * MIB}


@pytest.fixture
def options() -> EngineOptions:
    pair = bundled_pair("dflash")
    return EngineOptions(pair.target, pair.drafter, fit_target="0", fit_ctx=512)


def test_what_fits_stays(options: EngineOptions) -> None:
    """Nothing is chosen where all of it fits."""
    result = fit(options, TWO)
    assert result.fits and result.options == options
    assert result.plan.n_ctx == result.plan.facts["target"]["n_ctx_train"]
    assert set(result.plan.placement) == {*TWO, HOST}


@pytest.mark.parametrize("share_ctx", [False, True])
def test_the_largest_context(options: EngineOptions, share_ctx: bool) -> None:
    """It fits, and one step more does not."""
    options = replace(options, n_slots=2, kv_unified=True if share_ctx else None, share_ctx=share_ctx)
    full = fit(options, TWO)
    device = {"GPU0": MemoryPlan.of(replace(options, n_ctx=2048), {"GPU0": 2**40}).need("GPU0")}
    result = fit(options, device)
    assert result.fits and result.options.n_gpu_layers == -1
    assert 2048 <= result.plan.n_ctx < full.plan.n_ctx
    step = 256 if share_ctx else 512
    assert not MemoryPlan.of(replace(options, n_ctx=result.plan.n_ctx + step), device).fits(result.margins)


def test_the_fullest_device_bounds_no_context(options: EngineOptions) -> None:
    """Two devices hold more than llama.cpp's own shares would let them: one has the drafter and the output."""
    roomy = MemoryPlan.of(replace(options, n_ctx=4096), {"GPU0": 2**40, "GPU1": 2**40})
    half = max(map(roomy.need, TWO)) - 1
    result = fit(replace(options, n_ctx=4096), {"GPU0": half, "GPU1": half})
    alone = MemoryPlan.of(replace(options, n_ctx=4096), {"GPU0": half, "GPU1": half})
    assert result.fits and not alone.fits({}), (alone.headroom({}), result.plan.headroom({}))
    shares = [int(share) for share in str(result.options.tensor_split).split(",")]
    assert sum(shares) == result.plan.n_layers and shares[0] > shares[1]


def test_fewer_layers_and_none(options: EngineOptions) -> None:
    """What is left over goes to the host."""
    whole = MemoryPlan.of(replace(options, n_ctx=512), {"GPU0": 2**40}).need("GPU0")
    result = fit(options, {"GPU0": whole - 3 * MIB})
    assert result.fits and 0 < result.options.n_gpu_layers < result.plan.n_layers
    assert result.plan.placement[HOST]["target"] > result.plan.placement["GPU0"]["target"] / 100
    nothing = fit(options, {"GPU0": MIB})
    assert nothing.options.device == "none" and list(nothing.plan.placement) == [HOST]


def test_what_was_given_stays(options: EngineOptions) -> None:
    """Then there is a sentence, and flags that fit."""
    given = replace(options, n_gpu_layers=99, n_ctx=100_000)
    device = {"GPU0": 200 * MIB}
    result = fit(given, device)
    assert result.options == given and not result.fits
    why = check.shortage(result.plan, {})
    assert why is not None and why.startswith("GPU0 has 200 MiB free, and needs ") and "KV " in why
    assert "-c " in check.hint(given, device) and " fits" in check.hint(given, device)


def test_margins(options: EngineOptions) -> None:
    """--fit-target: one for all devices, or one for each."""
    assert fit(replace(options, fit_target="7"), TWO).margins == {"GPU0": 7 * MIB, "GPU1": 7 * MIB}
    assert fit(replace(options, fit_target="7,9"), TWO).margins == {"GPU0": 7 * MIB, "GPU1": 9 * MIB}
    with pytest.raises(RequestError, match="fit_target must be MiB"):
        replace(options, fit_target="a lot")


@pytest.mark.parametrize("free", [1024 * MIB, 1034 * MIB])
def test_devices_that_stay_empty_are_told(
    options: EngineOptions, free: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that would fit goes to the host, because of what stays free: why, and what would change it."""
    options = replace(options, fit_target="1024", n_slots=4)
    fitted = fit(options, {"CUDA0": free})
    assert fitted.fits and not fitted.plan.on_devices and [device.name for device in fitted.devices] == ["CUDA0"]
    told = unused(fitted)
    assert told and "keeps 1.0 GiB free" in told and "CUDA0" in told
    kept = int(re.search(r"-fitt (\d+) would do", told)[1])  # type: ignore[index]
    whole, less = (fit(replace(options, fit_target=str(mib)), {"CUDA0": free}) for mib in (kept, kept + 2))
    assert unused(whole) is None and whole.plan.options.n_gpu_layers == -1
    assert unused(less) or less.plan.options.n_gpu_layers > 0  # not all of it
    assert unused(fit(options, {"CUDA0": 4096 * MIB})) is None

    command = ["plan", "-m", str(options.model), "-md", str(options.drafter), "--vram", f"{free // MIB}M"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^CUDA0 .* 1\.0 GiB *$", shown, re.M) and "no device holds weights: CUDA0" in shown
    assert main([*command, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["devices"][0]["margin"] == 1024 * MIB and "no device holds weights" in record["unused"]


def test_an_engine_takes_what_was_chosen(
    options: EngineOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And says it in one line. The devices stand in: what is chosen for too small a one is the CPU."""
    monkeypatch.setattr(check, "list_devices", lambda: ["GPU0"])
    monkeypatch.setattr(check, "fit", lambda options: fit(options, {"GPU0": MIB}))
    caplog.set_level(logging.INFO, "dflash_local.engine")
    assert check.fitted(replace(options, n_ctx=512)).device == "none"
    caplog.clear()
    monkeypatch.setattr(check, "fit", lambda options: fit(options, {"GPU0": 46 * MIB}))
    result = check.fitted(options)
    assert 512 < result.n_ctx < 4096
    need = MemoryPlan.of(result, {"GPU0": 46 * MIB}).need("GPU0")
    said = f"fit: {flags(result)}; context {result.n_ctx}, GPU0 {need / MIB:.0f} MiB of 46 MiB"
    assert caplog.messages == [said]


def test_the_hosts_memory(options: EngineOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that was asked for and cannot be is a sentence; -fit off tries it."""
    monkeypatch.setattr(check, "free_swap", lambda: 2**40)  # this machine's, not that host's
    large: dict[str, Any] = {"n_ctx": 1_000_000, "host_memory": 512 * MIB, "warmup": False, "cost_cache": False}
    with pytest.raises(RequestError, match=r"n_ctx 1000\d\d\d cannot fit: the host has 512 MiB of memory, and") as e:
        Engine(options.model, options.drafter, **large)
    assert e.value.param == "n_ctx" and (e.value.hint or "").startswith("-c ")
    assert check.fitted(replace(options, **{**large, "fit": False})).n_ctx == 1_000_000
    fits = int((e.value.hint or "").split()[1])
    assert check.fitted(replace(options, **{**large, "n_ctx": fits})).n_ctx == fits


def test_weights_that_are_read_count(options: EngineOptions) -> None:
    """The system can drop mapped ones; without mmap they must fit, whatever the context."""
    plan = MemoryPlan.of(replace(options, n_ctx=512))
    read = MemoryPlan.of(replace(options, n_ctx=512, mmap=False))
    weights = sum(read.placement[HOST][part] for part in ("target", "drafter"))
    assert weights > 0 and read.host_need == plan.host_need + weights
    short = replace(options, device="none", host_memory=read.host_need - MIB)
    assert check.fitted(short) == short
    with pytest.raises(RequestError, match=r"the host has .* and needs .*weights") as e:
        check.fitted(replace(short, mmap=False, host_memory=weights))
    assert e.value.param == "model" and "leave out --no-mmap" in (e.value.hint or "")


def test_hints_for_a_host(options: EngineOptions) -> None:
    """No context is promised if the rest alone is too much, and no type that is set already."""

    def hint(**more: Any) -> str:
        plan = MemoryPlan.of(replace(options, n_ctx=500_000, **more))
        found = check.host_hint(plan)
        if fits := re.match(r"-c (\d+) fits", found):
            assert MemoryPlan.of(replace(plan.options, n_ctx=int(fits[1]))).host_need <= plan.options.host_memory
        return found

    assert hint(n_slots=4, host_memory=MIB) == "take fewer slots (-np), or take a smaller -ub"
    assert hint(host_memory=MIB) == "take a smaller -ub"
    assert hint(host_memory=512 * MIB).endswith(" fits; -ctk q8_0 -ctv q8_0 takes less for each token")
    assert hint(host_memory=512 * MIB, n_slots=4).startswith("-c ")
    assert hint(host_memory=512 * MIB, cache_type_k="q8_0").endswith(" fits; -ctv q8_0 takes less for each token")
    assert hint(host_memory=512 * MIB, cache_type_k="q8_0", cache_type_v="q4_0").endswith(" fits")


def test_what_is_small_is_not_planned(options: EngineOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start on the CPU costs no dry run unless memory may be short."""

    def never(*_: Any) -> None:
        raise AssertionError("planned")

    monkeypatch.setattr(MemoryPlan, "of", never)
    monkeypatch.setattr(check, "list_devices", list)
    assert check.fitted(options) == options
    assert check.fitted(replace(options, n_ctx=2048, host_memory=2**35)).n_ctx == 2048
    assert check.fitted(replace(options, n_ctx=2**30, fit=False)).n_ctx == 2**30


def test_slots(options: EngineOptions) -> None:
    """A slot costs its ring, its state, and the K and V of its tokens; half of them in q8_0."""
    costs = slot_costs(options, TWO)
    assert "recurrent state" not in costs and costs["drafter's K and V"] > 0
    small = slot_costs(replace(options, cache_type_k="q8_0", cache_type_v="q8_0"), TWO)
    assert small["KV of 1024 tokens"] == costs["KV of 1024 tokens"] * 34 // 64
    pair = bundled_pair("hybrid")
    hybrid = slot_costs(replace(options, model=pair.target, drafter=pair.drafter), TWO)
    assert hybrid["recurrent state"] > 0 and hybrid["tape"] > 0


def test_command(options: EngineOptions, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, and what to type; JSON has the same."""
    argv = ["plan", "-m", str(options.model), "-md", str(options.drafter), "--vram", "24G,24G"]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["weights", "KV", "drafter"]
    assert [line.split()[0] for line in lines[1:4]] == ["CUDA0", "CUDA1", "CPU"]
    assert lines[-1].startswith("dflash-local serve -m ") and lines[-1].endswith("-np 4 -kvu")
    assert main([*argv, "--json", "--by-slots", "-np", "2", "-c", "1024"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["fits"] and record["flags"] == ["-c", "1024", "-np", "2"] and record["n_ctx_slot"] == 512
    assert sum(record["placement"]["CUDA0"].values()) == record["devices"][0]["need"]
    assert record["slots"]["context_of_each"]["8"] == 4096
    assert main([*argv[:-1], "20M", "-ngl", "99"]) == 1
    assert "it does not fit: CUDA0 has 20 MiB free, and needs " in capsys.readouterr().out
    assert main([*argv, "-fitt", "256", "-np", "1", "--lookup", "on"]) == 0  # what is given is kept
    assert capsys.readouterr().out.splitlines()[-1].endswith("-fitt 256 --lookup on")
    others = ["--no-mmap", "--draft", "off", "-t", "8", "-fitc", "8192", "--no-kv-unified"]
    assert main([*argv, "-np", "2", *others, "--offline", "--hf-token", "a-secret"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"-np 2 {shlex.join(others)}")
    assert main([*argv, "-np", "2", *others, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flags"] == ["-np", "2", *others]
    assert main([*argv, "-fit", "off", "-c", "512", "-np", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("-c 512 -np 1 -fit off")
    for wrong in ("24X", "A=1G,A=1G", "CPU=4G"):
        with pytest.raises(SystemExit):
            main([*argv[:-1], wrong])


def test_command_for_a_host_that_is_too_small(
    options: EngineOptions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the engine refuses it."""
    monkeypatch.setattr(check, "free_swap", lambda: 2**40)  # this machine's, not that host's
    argv = ["plan", "-m", str(options.model), "--device", "none", "-c", "1000000", "--ram", "512M"]
    assert main(argv) == 1
    shown = capsys.readouterr().out
    assert "it does not fit: the host has 512 MiB of memory, and needs " in shown and "\n  fix: -c " in shown
    assert main([*argv, "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert not record["fits"] and record["shortage"].startswith("the host has 512 MiB")
