"""What `train --plan` says, against what runs take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_local.cli import main
from dflash_local.cli.commands import train as train_command
from dflash_local.convert.gguf_metadata import read_model
from dflash_local.convert.target import Target
from dflash_local.errors import DFlashError, RequestError
from dflash_local.train import estimate as estimates
from dflash_local.train import fitting
from dflash_local.train.drafter_file import DrafterFile
from dflash_local.train.estimate import Rates, estimate, load_of
from dflash_local.train.initial_file import new_form
from dflash_local.train.low_rank import add_low_rank
from dflash_local.train.network import Network, trained_parameters
from dflash_local.train.step_size import texts_at_once
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import train
from dflash_local.words import file_size_text

Make = Callable[..., TrainSettings]


def test_disk_of_a_run(settings: Make) -> None:
    """Bytes of a token in shards and of a checkpoint are as planned."""
    asked = settings()
    train(asked, Watcher())
    load = load_of(asked)
    taps = sum(path.stat().st_size for path in (asked.work / "taps").iterdir())
    n_tokens = sum(
        len(line["prompt"]) + len(line["answer"]) for line in map(_json, (asked.work / "answers.jsonl").open())
    )
    assert taps == pytest.approx(n_tokens * load.token_bytes, rel=0.05)
    assert (asked.work / "fit.pt").stat().st_size == pytest.approx(12 * load.drafter.n_trained, rel=0.05)


def _json(line: str) -> dict[str, list[int]]:
    import json

    return dict(json.loads(line))


@pytest.mark.parametrize("name", ["dflash-small", "dflash2", "dspark"])
@pytest.mark.parametrize("only", [None, "fc", "heads", "lora"])
def test_parameters(only: str | None, name: str, settings: Make, pocket: dict[str, Path], tmp_path: Path) -> None:
    asked = settings(init=pocket[name], only=only)
    if (only, name) == ("heads", "dflash-small"):
        with pytest.raises(RequestError, match="no heads of its own"):
            load_of(asked)
        return
    load = load_of(asked)
    network = Network(DrafterFile.read(pocket[name], Target.read(asked.model), tmp_path), torch.device("cpu"))
    assert load.drafter.n_all == sum(p.numel() for p in network.parameters())
    trained = add_low_rank(network, asked.rank) if only == "lora" else trained_parameters(network, only)
    assert load.drafter.n_trained == sum(p.numel() for p in trained)
    assert load.target_bytes == sum(t.n_bytes for t in read_model(asked.model)[1].values())


def test_times_follow_from_rates(settings: Make) -> None:
    """Twice the bandwidth answers twice as fast where reading decides; twice the tokens take twice as long."""
    load = load_of(settings())
    slow, fast = Rates(1e9, 1e13, 1e11), Rates(2e9, 1e13, 2e11)
    one, two = load.seconds(slow, 4, 1), load.seconds(fast, 4, 1)
    assert one["answer"] == pytest.approx(2 * two["answer"]) and one["fit"] == pytest.approx(2 * two["fit"])
    twice = {name: 2 * getattr(load, name) for name in ("answer_tokens", "written", "all_tokens")}
    more = replace(load, **twice).seconds(slow, 4, 1)
    assert all(more[name] == pytest.approx(2 * one[name]) for name in ("answer", "tap", "fit"))
    assert more["measure"] == one["measure"] > 0


def test_minutes_bound_the_plan(settings: Make) -> None:
    """Rounds of answers go on as long as there is time: the plan counts those, not all that would be allowed."""
    asked, rates = settings(minutes=10.0, temperatures=(0.0, 0.7)), Rates(1e9, 1e12, 1e11)
    load = load_of(asked)
    assert load.answer_tokens > 8 * load_of(settings(rounds=1)).answer_tokens
    most = load.seconds(rates, 4, 1)["answer"] / 3
    within = load.within(most, rates, 4)
    assert within.seconds(rates, 4, 1)["answer"] == pytest.approx(most, rel=0.01)
    assert within.all_tokens / load.all_tokens == pytest.approx(within.answer_tokens / load.answer_tokens, rel=0.01)
    assert load.within(1e9, rates, 4) == load


def test_minutes_bound_what_is_planned_of_a_record(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden states for which there is no time take no disk."""
    load = replace(load_of(settings()), written=0, answer_tokens=10**6, all_tokens=2 * 10**6)
    rates = Rates(1e12, 2 * load.target_params * 10**4 / 0.6, 1e12)  # 10,000 tokens a second pass through the target
    monkeypatch.setattr(estimates, "load_of", lambda asked: load)
    monkeypatch.setattr(estimates, "this_rates", lambda device: (rates, "cpu"))
    text, disk = (line for line in estimate(settings(minutes=1.0)) if line.startswith(("text:", "disk:")))
    assert text == "text: about 120000 tokens of answers, 240000 with their prompts"
    n_bytes = 240000 * load.token_bytes + load.drafter.fit_bytes
    assert disk.startswith(f"disk: {file_size_text(n_bytes)} in ")
    assert any(line.startswith("tap: 24 s") for line in estimate(settings(minutes=1.0)))
    assert any(line.startswith("text: about 1000000 ") for line in estimate(settings()))


def test_texts_at_once(settings: Make) -> None:
    """As many as the fit takes: no more than a step has, on a GPU up to 32."""
    assert texts_at_once(settings(batch=1024), "cpu") == texts_at_once(settings(batch=128), "cuda") == 4
    assert texts_at_once(settings(batch=1024), "cuda") == 32
    assert texts_at_once(settings(batch=32), "cpu") == texts_at_once(settings(batch=1024, micro=1), "cuda") == 1
    load = load_of(settings())
    assert load.fit_memory(32) > load.fit_memory(4) > load.fit_memory(1)


def test_the_plan_is_for_the_device_that_is_asked_for(settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pick(name: str) -> torch.device:
        asked.append(name)
        return torch.device("cpu")

    monkeypatch.setattr(fitting, "pick_device", pick)
    assert list(estimate(settings(device="cpu"))) and asked == ["cpu"]


def test_what_a_run_refuses_is_not_planned(settings: Make) -> None:
    changes: tuple[dict[str, Any], ...] = ({"layers": 7}, {"block": 33}, {"draft_vocab": 5000})
    for change in changes:
        with pytest.raises(RequestError, match=f"{next(iter(change.values()))}"):
            load_of(settings(**change))


def test_flags_that_a_run_refuses_are_not_planned(settings: Make, tmp_path: Path) -> None:
    alone, full = tmp_path / "alone.txt", tmp_path / "full"
    alone.write_text("one prompt alone\n")
    full.mkdir()
    (full / "file").touch()
    usual = settings()
    refused: tuple[dict[str, Any], ...] = (
        {"data": (alone,)}, {"outtype": "nonsense"}, {"output": usual.work}, {"output": usual.model},
        {"hf": full}, {"merge": usual.model},
    )  # fmt: skip
    for change in refused:
        with pytest.raises(DFlashError) as planned:
            load_of(settings(**change))
        with pytest.raises(DFlashError) as run:
            train(settings(**change), Watcher())
        assert str(planned.value) == str(run.value)


def test_new_drafters_size(settings: Make) -> None:
    """What is planned for a new drafter is what a run makes."""
    asked = settings(init=None, kind="dspark", layers=2, feed_forward=96)
    target = Target.read(asked.model)
    made = DrafterFile.new(new_form(asked, target, 0), target, "new", 1)
    assert load_of(asked).drafter.n_all == sum(value.size for value in made.values.values())


def test_plan_and_report(
    settings: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command: its plan writes nothing; its run says what came of it, whatever happens to the report, and writes a
    page without scripts."""
    asked = settings()
    page = tmp_path / "report.html"
    flags = [
        "train", "-m", str(asked.model), "--init", str(asked.init), "--data", str(asked.data[0]), "-o",
        str(asked.output), "--predict", "64", "--length", "256", "--slots", "4", "--held-out", "2", "--epochs", "0.2",
        "--batch", "32", "--evaluations", "0", "-t", "1", "--rate", "1e-4", "--temperatures", "0",
        "--report", str(page), "--check", str(asked.data[0]),
    ]  # fmt: skip
    assert main([*flags, "--plan"]) == 0
    plan = capsys.readouterr().out
    assert all(word in plan for word in ("disk:", "memory:", "answer:", "tap:", "fit:", "together:"))
    assert not asked.output.exists() and not asked.output.with_suffix(".train").exists()
    assert main(flags) == 0
    said = capsys.readouterr()
    assert "AL " in said.out and "dflash-local serve -m" in said.out
    assert "answer (1 of 3)" in said.err and "fit (3 of 3)" in said.err
    html = page.read_text(encoding="utf-8")
    assert "<svg" in html and "<script" not in html and "prompts.jsonl" in html

    def full(path: Path, text: str, param: str) -> None:
        raise RequestError(f"cannot write {path}: No space left on device", param=param)

    monkeypatch.setattr(train_command, "write_text", full)
    assert main(flags) == 1
    said = capsys.readouterr()
    assert "AL " in said.out and "cannot write" in said.err


def test_first_errors(settings: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each in one sentence that names the flag, before anything is loaded."""
    model, data = str(settings().model), str(settings().data[0])
    for flags, words in (
        (["--data", data, "-o", str(tmp_path)], "not a file in an existing folder"),
        (["--data", data, "-o", "."], "-o . is a folder"),
        (["--data", data, "-o", "/"], "-o / is a folder"),
        (["--data", str(tmp_path / "none.txt"), "-o", str(tmp_path / "o.gguf")], "cannot read"),
        (["--data", data, "-o", str(tmp_path / "o.gguf"), "--minutes", "0"], "--minutes"),
        (["--data", data, "-o", str(tmp_path / "o.gguf"), "--only", "fc"], "--only"),
        (["--data", data, "-o", str(tmp_path / "o.gguf"), "--init", data], "--init"),
        (["--data", data, "-o", str(tmp_path / "o.gguf"), "--report", str(tmp_path)], f"cannot write {tmp_path}"),
        (["--data", data, "-o", str(tmp_path / "o.gguf"), "--hf", data], "is a file"),
        (["--data", data, "-o", str(tmp_path / "n.train")], "n.train is the folder for what the stages leave"),
        (["--data", data, "-o", str(tmp_path / "m.gguf"), "-mm", str(tmp_path / "p.gguf")], "p.gguf: no such file"),
    ):
        assert main(["train", "-m", model, *flags]) == 1, flags
        error = capsys.readouterr().err
        assert "error:" in error and (words in error or "is no drafter" in error), error
    assert not list(tmp_path.glob("*.gguf")) and not (tmp_path / "m.train").exists()
