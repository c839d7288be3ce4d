"""`dflash-local bench --baseline`: what upstream's server is told and asked, what is made of its timings, and what a
user reads if it does not work. (slow) The bundled drafters and a target's prediction layer in the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from dflash_local import bench, native
from dflash_local.baseline import Baseline, Reply, ServerProcess, UpstreamServer, parse
from dflash_local.bench import DRAFTED, PLAIN, Run, measure
from dflash_local.cli import main
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError, RequestError
from dflash_local.sampling import SamplingParams
from tests.cli import mtp_target as mtp
from tests.cli.test_bench import DraftingNative

HERE = Path(__file__).parent


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder's `llama-server` that stands in for upstream's."""
    path = tmp_path / "bin" / "llama-server"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_upstream.py"}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("FAKE_UPSTREAM_SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("DFLASH_PEER_BIN", str(path.parent))
    return path


def seen(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]


def test_kinds(tmp_path: Path, pocket: dict[str, Path], untrained_mtp: Path) -> None:
    head, drafter = tmp_path / "head.gguf", pocket["hybrid-dflash"]
    head.touch()
    assert parse("none", drafter, [3, 7]) == [Baseline("none")]
    assert parse("dflash", drafter, [3, 7]) == [Baseline("dflash", drafter, 3), Baseline("dflash", drafter, 7)]
    assert parse(f"dspark={head}", drafter, [7]) == [Baseline("dspark", head, 7)]
    assert parse("mtp", drafter, [2]) == parse("mtp", None, [2]) == [Baseline("mtp", None, 2)]
    assert parse("mtp", untrained_mtp, [2]) == [Baseline("mtp", untrained_mtp, 2)]
    (eagle,) = parse(f"eagle3={head}", drafter, [5])
    assert eagle.flags() == ["-md", str(head), "--spec-type", "draft-eagle3", "--spec-draft-n-max", "5"]
    assert Baseline("none").flags() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [("medusa", "there is none, dflash"), ("eagle3", "needs its head"), ("eagle3=gone", "no file gone")],
)
def test_what_cannot_be_a_baseline(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse(text, None, [3])
    with pytest.raises(RequestError, match="needs its head"):
        parse("dflash", None, [3])


def test_measured_in_turns(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library_info", lambda: {"llama": "0.0", "backends": ["CPU"]})
    prompts: list[dict[str, Any]] = [{"prompt": "a"}, {"messages": [{"role": "user", "content": "b"}]}]
    baselines = [Baseline("none"), Baseline("eagle3", tmp_path / "head", 3), Baseline("eagle3", tmp_path / "head", 7)]
    with Engine.over(DraftingNative()) as engine:
        report = measure(
            engine, prompts, SamplingParams(temperature=0.0, top_k=7), 50, repeat=2, baselines=baselines,
            upstream=lambda baseline: UpstreamServer(program, baseline, ["-m", "target.gguf"]),
        )  # fmt: skip
    lines = seen(tmp_path)
    # Three baselines, twice, each after a warm-up; the second time the other way round.
    lengths = [line["flags"][-5] if "--spec-type" in line["flags"] else "0" for line in lines]
    assert lengths == [n for n in ("0", "3", "7", "7", "3", "0") for _ in range(3)]
    assert [line["path"] for line in lines[:3]] == ["/v1/completions", "/v1/completions", "/v1/chat/completions"]
    body = lines[2]["body"]
    assert body["messages"] == prompts[1]["messages"] and body["max_tokens"] == 50 and body["cache_prompt"] is False
    assert (body["temperature"], body["top_k"], body["seed"]) == (0.0, 7, 2)
    assert (body["top_p"], body["repeat_penalty"]) == (0.95, 1.0)  # ours, whatever the model's file says

    slow, fast = report.summaries["upstream"], report.summaries["upstream eagle3, 7 tokens"]
    assert (slow.tokens_per_second, slow.al, slow.ttft_ms) == (20.0, 1.0, 50.0)
    assert (fast.tokens_per_second, fast.al, fast.drafted) == (80.0, 4.0, 120)
    ours = report.summaries[DRAFTED].tokens_per_second
    kinds = report.over_baselines()
    assert [kinds["none"][0], kinds["eagle3"][0][:15]] == ["upstream", "upstream eagle3"]
    assert [ratio for _, ratio in kinds.values()] == pytest.approx([ours / 20, ours / 80])
    assert f"drafted over upstream: **{ours / 20:.2f}**" in report.to_md()
    assert json.loads(report.to_json())["over_baselines"]["eagle3"]["ratio"] == pytest.approx(ours / 80)
    assert report.ratio(PLAIN, PLAIN) == 1.0 and report.same == 2


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("ends", "ended with status 1:\nno such model"),
        ("refuses", "HTTP 400: .*no such field"),
        ("dies", "did not answer: .* broke off its answer"),
        ("other", "does not answer as llama-server does: .*generated_text"),
    ],
)
def test_a_server_that_does_not_work(program: Path, monkeypatch: pytest.MonkeyPatch, how: str, said: str) -> None:
    monkeypatch.setenv("FAKE_UPSTREAM", how)
    with pytest.raises(DFlashError, match=said), UpstreamServer(program, Baseline("none"), []) as server:
        server.answer({"prompt": "a"}, {}, 5)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DFlashError, match="cannot start"), UpstreamServer(tmp_path / "gone", Baseline("none"), []):
        pass


class StubbornProcess(ServerProcess):
    """One whose end fails; its log remains to be looked at."""

    log: IO[bytes]

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        super()._end(process)
        self.log = self._log
        raise DFlashError("it does not end")


def test_a_log_is_open_while_the_process_runs(tmp_path: Path) -> None:
    path = tmp_path / "log"
    process = StubbornProcess("bad", [sys.executable, "-c", "print('why'); exit(3)"], path)
    assert not path.exists()
    with pytest.raises(DFlashError, match="does not end"), process:
        pass
    assert process.log.closed and path.read_text() == "why\n"


class WatchedProcess(ServerProcess):
    """Its log is read all the time while it writes."""

    def _wait(self) -> None:
        while self._process.poll() is None:
            self._last_lines()


def test_a_log_is_whole_though_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    code = "import os, time\nfor n in range(2000): os.write(1, b'%d\\n' % n); time.sleep(0.0001)"
    with WatchedProcess("busy", [sys.executable, "-c", code], path):
        assert path.read_text().split() == [str(n) for n in range(2000)]


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    process = ServerProcess("bad", [sys.executable], tmp_path / "gone" / "log")
    with pytest.raises(DFlashError, match=r"bad cannot start: .*gone/log"), process:
        pass


@pytest.mark.usefixtures("program")
def test_the_command(pocket: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "-m", str(pocket["target"]), "-md", str(pocket["dflash"]), "-c", "512", "-t", "1", "-ctk", "q8_0"]
    words += ["-n", "8", "--repeat", "1", "--baseline", "none", "--baseline", "dflash", "--baseline-draft", "7"]
    assert main([*words, "--no-warmup"]) == 0
    flags = seen(tmp_path)[-1]["flags"]
    told = {flag: flags[flags.index(flag) + 1] for flag in ("-m", "-md", "-c", "-t", "-ctk", "--spec-draft-n-max")}
    assert told == {
        "-m": str(pocket["target"]), "-md": str(pocket["dflash"]), "-c": "512", "-t": "1", "-ctk": "q8_0",
        "--spec-draft-n-max": "7",
    }  # fmt: skip
    out = capsys.readouterr().out
    assert "| upstream dflash, 7 tokens | 80.0 |" in out and "drafted over upstream: **" in out


@pytest.mark.usefixtures("program")
def test_a_target_without_prediction_layers(pocket: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Said before anything is measured; what is looked at is the head, if there is one."""
    words = ["bench", "-m", str(pocket["hybrid-target"]), "-c", "512", "-t", "1", "--baseline-draft", "3", "--baseline"]
    for text, name in (("mtp", "pocket-hybrid-target.gguf"), (f"mtp={pocket['dflash']}", "pocket-dflash.gguf")):
        assert main([*words, text]) == 1
        out = capsys.readouterr()
        assert not out.out and f"--baseline mtp: {name} has no prediction (MTP) layers" in out.err


@pytest.fixture(scope="module")
def mtp_target(pocket: dict[str, Path], repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Engine(pocket["hybrid-target"], n_ctx=256, n_threads=1) as engine:
        tokens = engine.tokenize((repo / "benchmarks" / "perplexity.txt").read_text())
    return mtp.write(pocket["hybrid-target"], tmp_path_factory.mktemp("mtp") / "target.gguf", tokens)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What was answered, by us and by every server."""
    texts: dict[str, list[str]] = {"ours": []}
    ours, theirs = bench.answer, UpstreamServer.answer

    def our_answer(*args: Any, **options: Any) -> Run:
        run = ours(*args, **options)
        texts["ours"].append(run.text)
        return run

    def their_answer(server: UpstreamServer, *args: Any) -> Reply:
        reply = theirs(server, *args)
        texts.setdefault(server.name, []).append(reply.text)
        return reply

    monkeypatch.setattr(bench, "answer", our_answer)
    monkeypatch.setattr(UpstreamServer, "answer", their_answer)
    return texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "drafter"),
    [("dflash", "dflash"), ("dspark", "dspark"), ("dspark", "dspark-first"), ("mtp", "hybrid-dflash"), ("mtp", "")],
)
def test_upstreams_own_server(
    pocket: dict[str, Path], mtp_target: Path, said: dict[str, list[str]], capsys: pytest.CaptureFixture[str],
    kind: str, drafter: str,
) -> None:  # fmt: skip
    """With upstream's real server: it drafts with the bundled drafter or with the target's own layer, as our engine
    does without a drafter; its drafts are accepted, and all say the same."""
    target = mtp_target if kind == "mtp" else pocket["target"]
    words = ["bench", "-m", str(target), *(["-md", str(pocket[drafter])] if drafter else []), "-c", "1024", "-t", "1"]
    words += ["-n", "40"]
    words += ["--repeat", "1", "--baseline", "none", "--baseline", kind, "--baseline-draft", "7"]
    assert main([*words, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    name = f"upstream {kind}, 7 tokens"
    assert report[name]["al"] > 1.5 > report["upstream"]["al"] == 1.0
    assert set(report["over_baselines"]) == {"none", kind}
    assert report["over_baselines"][kind]["ratio"] > 0
    assert set(said["ours"]) == set(said["upstream"]) == set(said[name])
    assert len(set(said["ours"])) == report["prompts"] == report["same_answers"]
