"""What a newcomer types wrongly: each error says what to type next."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local import cli, native
from dflash_local.cache_dir import cache_dir
from dflash_local.cli.command_parser import DOWNLOAD
from dflash_local.cli.flags.model_file import check_model_file
from dflash_local.cli.launch.launched_server import LaunchedServer
from dflash_local.cli.serving import serve_app
from dflash_local.demo.pocket import bundled_pair
from dflash_local.errors import DFlashError, ModelError
from dflash_local.hub.cache import cache_root
from dflash_local.hub.registry import user_file
from dflash_local.server.sockets import bind, bound, listen


def failed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What a command that fails prints."""
    try:
        assert cli.main(argv) == 1
    except SystemExit as end:
        assert end.code == 2
    text = capsys.readouterr().err
    assert "error: " in text
    assert "\n  fix: " in text
    return text


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("sevre", "did you mean 'dflash-local serve'?"),
        ("Qwen3-8B.gguf", "dflash-local serve -m Qwen3-8B.gguf"),
        ("chat Qwen3-8B.gguf", "dflash-local chat -m Qwen3-8B.gguf"),
        ("serve unsloth/Qwen3-8B-GGUF", "dflash-local serve -hf unsloth/Qwen3-8B-GGUF"),
        ("serve --hostt x", "did you mean --host?"),
        ("doctor --jsn", "did you mean --json?"),
        ("serve -c many", "'dflash-local serve --help'"),
        ("convert", "'dflash-local convert --help'"),
        ("chat", "-hf USER/NAME:QUANT"),
        ("bench", "-hf USER/NAME:QUANT"),
        ("pull", "USER/NAME[:QUANT]"),
        ("serve -hf nobody/nothing --offline", "without --offline"),
        ("serve -m nothing.gguf", "'dflash-local' alone lists the models"),
        ("convert nothing --target x.gguf", "config.json"),
        ("completion tcsh", "'dflash-local completion --help'"),
        ("serve -m T.gguf -verbose", "did you mean --verbose?"),
        ("serve -m T.gguf -jinja", "did you mean --jinja?"),
        ("serve -rerank", "did you mean --rerank?"),
        ("serve -m T.gguf -rtr", "'dflash-local serve --help'"),
        ("train -hf a/b", "'dflash-local pull USER/NAME:QUANT' downloads"),
        ("train -m nothing.gguf --data p.txt -o n.gguf", "'dflash-local pull USER/NAME:QUANT' downloads"),
    ],
)
def test_the_next_thing_to_type(
    line: str, fix: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LLAMA_ARG_PORT", "0")
    assert fix in failed(capsys, *line.split()).partition("fix: ")[2]


def test_no_build(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DFLASH_LIBRARY", raising=False)
    monkeypatch.setattr(native.library, "find_spec", lambda name: None)
    native.load.cache_clear()
    try:
        assert "fix: run: dflash-local build" in failed(capsys, "demo", "--shape", "pocket")
    finally:
        native.load.cache_clear()


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(DFlashError) as refusal:
            bind("127.0.0.1", port)
    assert refusal.value.hint is not None
    assert f"--port {port + 1}" in refusal.value.hint


@pytest.fixture(params=["TCP", "UNIX"])
def taken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The flags of an address at which another server listens."""
    host = "127.0.0.1" if request.param == "TCP" else str(tmp_path / "llm.sock")
    with bound((host,), 0) as sockets:
        listen(sockets)
        name = sockets[0].getsockname()
        yield ("--host", host) if name == host else ("--host", host, "--port", str(name[1]))


def test_an_address_in_use_is_told_before_a_download(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, taken: tuple[str, ...]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(serve_app, "take_models", asked.append)
    assert f"error: cannot listen on {taken[1]}" in failed(capsys, "serve", "-hf", "nobody/nothing", *taken)
    assert not asked


def test_what_is_wrong_with_the_flags_is_told_before_an_address_in_use(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, taken: tuple[str, ...]
) -> None:
    line = ("serve", "-m", "nothing.gguf", *taken)
    assert cli.main([*line, "--chat-template", "{% if %}"]) == 1
    assert "error: --chat-template is not" in capsys.readouterr().err
    monkeypatch.delenv("DFLASH_LIBRARY", raising=False)
    monkeypatch.setattr(native.library, "find_spec", lambda name: None)
    native.load.cache_clear()
    try:
        assert "fix: run: dflash-local build" in failed(capsys, *line)
    finally:
        native.load.cache_clear()


def test_a_drafter_as_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    text = failed(capsys, "chat", "-m", str(bundled_pair().drafter))
    assert "a drafter goes to -md, its target to -m" in text


def test_a_key_behind_too_few_dashes_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("-api-key", "secret"), ("-api-key=secret",)):
        text = failed(capsys, "serve", *words)
        assert "unrecognized arguments: -api-key\n" in text and "did you mean --api-key?" in text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--api-kye secret", "--api-kye"),
        ("--api-kye=secret --hf-tokens secret", "--api-kye --hf-tokens"),
        ("model.gguf --api-kye secret", "model.gguf --api-kye"),
        ("model.gguf other", "model.gguf other"),
    ],
)
def test_what_follows_an_unknown_flag_is_not_shown(words: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"unrecognized arguments: {shown}\n" in failed(capsys, "serve", *words.split())


def check(text: object, flag: str, *download: str) -> str:
    with pytest.raises(ModelError) as refusal:
        check_model_file(str(text), flag, *download)
    assert refusal.value.hint
    return refusal.value.hint


def test_paths(tmp_path: Path) -> None:
    assert "alone lists" in check(tmp_path, "-m")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(8))
    convert = f"dflash-local convert {tmp_path} --target TARGET.gguf"
    assert check(tmp_path, "-md") == convert
    assert check(tmp_path / "model.safetensors", "-md") == convert
    assert "convert_hf_to_gguf.py" in check(tmp_path, "-m")
    assert "convert_hf_to_gguf.py --mmproj" in check(tmp_path, "--mmproj")
    model = Path(shutil.copy(bundled_pair().drafter, tmp_path / "Model-Q8_0.gguf"))
    check_model_file(str(model), "-m")
    assert f"-m {model}" in check(tmp_path, "-m")
    assert f"did you mean -m {model}?" in check(tmp_path / "Modell-Q8_0.gguf", "-m")
    assert "ls -l" in check(tmp_path / (300 * "x"), "-m")  # a name that is too long
    assert "ls -l" in check(tmp_path / "a\0b", "-m")
    for path in (tmp_path / "none.gguf", tmp_path / "Modell-Q8_0.gguf", tmp_path / "model.safetensors"):
        assert "-hf" in check(path, "-m") and "-hf" not in check(path, "-m", DOWNLOAD)
        assert DOWNLOAD in check(path, "-m", DOWNLOAD)
    model.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in check(model, "-m")


@pytest.mark.parametrize(
    ("line", "idle", "why"),
    [
        ("demo --once --port 81", "--port", "--once serves nothing"),
        ("demo --offline", "--offline", "the pocket pair is here already"),
        ("demo --shape pocket --type q8_0", "--type", "the pocket pair is F16, as it was trained"),
        ("pull a/b -hfd c/d --no-drafter", "--no-drafter", "-hfd names one"),
        ("pull --target t.gguf -hfd c/d -hff x.gguf", "-hff", "--target is on this disk"),
        ("doctor --shape 8b", "--shape", "it is for --tune"),
        ("doctor --tune -m t.gguf", "-m", "--tune measures a device's kernels alone"),
        ("bench -m {model} --baseline-draft 3", "--baseline-draft", "it is for --baseline"),
        ("bench --from r.json --report r.html -o x", "-o", "--from measures nothing"),
        ("serve -m {model} -hff x.gguf", "-hff", "it names a file of -hf"),
    ],
)
def test_flags_without_effect_are_refused(
    line: str, idle: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "0")
    text = failed(capsys, *line.format(model=bundled_pair().target).split())
    assert f"error: {idle} has no effect: {why}" in text and f"fix: leave {idle} out" in text


def test_whoever_reads_our_output_may_leave() -> None:
    for line in ("pairs --json", "serve --help"):
        command = f"{shlex.quote(sys.executable)} -m dflash_local.cli {line} | true; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
        assert done.stderr == b"" and done.returncode == (141 if "pairs" in line else 0)  # argparse hides it


@pytest.mark.parametrize(
    ("line", "status", "fix"),
    [
        ("pairs --json >&-", 0, ""),
        ("pairs --json >&- 2>&-", 0, ""),
        ("sevre 2>&-", 2, ""),
        ("sevre >&-", 2, "did you mean"),
        ("demo --model qwen2.5-coder <&-", 1, "give --yes to download it"),
    ],
)
def test_streams_that_are_closed(line: str, status: int, fix: str, tmp_path: Path) -> None:
    """As services and cron may start programs."""
    caches = {"DFLASH_CACHE": str(tmp_path / "ours"), "LLAMA_CACHE": str(tmp_path / "hub")}
    command = f"{shlex.quote(sys.executable)} -m dflash_local.cli {line}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ | caches, check=False)
    assert done.returncode == status and fix in done.stderr
    assert "Traceback" not in done.stderr and "Traceback" not in done.stdout
    assert bool(done.stderr) == bool(fix) and done.stdout == ""


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a container whose user has only a number."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    names = ("DFLASH_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LLAMA_CACHE", "HF_HUB_CACHE")
    for name in (*names, "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert "fix: set HOME" in failed(capsys, "models")
    for folder, variable in ((cache_dir, "DFLASH_CACHE"), (cache_root, "HF_HOME"), (user_file, "XDG_CONFIG_HOME")):
        with pytest.raises(DFlashError) as error:
            folder()
        assert error.value.hint == f"set HOME or {variable} to a folder"


@pytest.fixture
def no_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container whose root is read-only."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])


@pytest.mark.usefixtures("no_temporary_folder")
def test_no_temporary_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A router has its sockets there, `launch` its server's log."""
    monkeypatch.setattr("dflash_local.cli.commands.serve.set_up_logs", lambda _args: logging.WARNING)
    text = failed(capsys, "serve", "--models-dir", ".")
    assert "error: cannot make temporary files: No usable temporary directory found" in text
    assert "fix: set TMPDIR" in text and "--tmpfs /tmp" in text
    with pytest.raises(DFlashError, match="cannot make temporary files"):
        LaunchedServer([]).__enter__()


def test_a_full_temporary_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dflash_local.cli.commands.serve.set_up_logs", lambda _args: logging.WARNING)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    text = failed(capsys, "serve", "--models-dir", ".")
    assert f"cannot make temporary files: {os.strerror(errno.ENOSPC)}" in text and "larger disk" in text


def test_help_and_usage_are_argparse_s() -> None:
    root = cli.parser()
    assert isinstance(root, argparse.ArgumentParser)
    known, left = root.parse_known_args(["pairs", "--what"])
    assert known.command and left == ["--what"]
