"""`doctor --report`: what a bug report needs is in it, and planted secrets are not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dflash_local import cli
from dflash_local.build import upstream
from dflash_local.diagnose.finding import ok
from dflash_local.diagnose.redaction import GONE, Redaction
from dflash_local.diagnose.report import report
from dflash_local.machine.hardware import GIB, Machine

MACHINE = Machine("Some CPU", 8, 16, 32 * GIB, 16 * GIB, "Linux 6", "3.11", 0.5)
# What was said of it -> the secret in it.
PLANTED = {
    "downloading with token hf_AbCdEfGhIjKlMnOp": "hf_AbCdEfGhIjKlMnOp",
    "Looking in indexes: https://ann:pa55word@pypi.corp.example/simple": "pa55word",
    "GET https://bucket.example/model.gguf?X-Sig=0123456789abcdef": "0123456789abcdef",
    "Authorization: Bearer abc.def-123456": "abc.def-123456",
    '"api_key": "plain-looking-words"': "plain-looking-words",
    "--api-key another-plain-one": "another-plain-one",
    "AWS_ACCESS_KEY_ID AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
    "key sk-proj-0123456789abcdefghij": "sk-proj-0123456789abcdefghij",
    "jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2lnbmF0dXJl": "eyJzdWIiOiIx",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----": "MIIEow",
    "author ann.smith@corp.example wrote": "ann.smith@corp.example",
    "opened /home/berta/models/x.gguf": "berta",
    r"opened C:\Users\berta\x.gguf": "berta",
}


@pytest.mark.parametrize("said", PLANTED)
def test_what_looks_secret_is_taken_out(said: str) -> None:
    redacted = Redaction({}, Path("/nowhere/at/all"))(f"before {said} after")
    assert PLANTED[said] not in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")


def test_values_of_secret_variables_are_taken_out_wherever_they_are(tmp_path: Path) -> None:
    redact = Redaction({"CORP_PASSWORD": "correct horse", "DFLASH_X": "1", "MY_KEY_FILE": str(tmp_path)}, tmp_path)
    assert redact("cc -DX='correct horse' main.c") == f"cc -DX='{GONE}' main.c"
    assert redact(f"{tmp_path}/models/a.gguf {tmp_path}er/b") == f"~/models/a.gguf {tmp_path}er/b"


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may see everything")
def test_a_secret_variable_may_name_a_file_that_one_may_not_see(tmp_path: Path) -> None:
    file = tmp_path / "closed" / "key.json"
    file.parent.mkdir(mode=0)
    assert Redaction({"APPLICATION_CREDENTIALS": str(file)}, Path("/nowhere"))(f"opened {file}") == f"opened {GONE}"


def test_a_secret_may_be_longer_than_names_of_files() -> None:
    assert Redaction({"RUNTIME_TOKEN": "x" * 300}, Path("/nowhere"))("a " + "x" * 300) == f"a {GONE}"


def test_a_user_without_a_home_has_no_path_to_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    assert Redaction({})("opened /srv/x.gguf") == "opened /srv/x.gguf"


def test_of_variables_only_settings_are_told() -> None:
    environment = {
        "LLAMA_ARG_CTX_SIZE": "4096",
        "LLAMA_API_KEY": "s3cret",
        "LLAMA_ARG_SYSTEM_PROMPT": "I am the prompt",
        "EDITOR": "vi",
    }
    told = list(Redaction(environment, Path("/nowhere")).variables(("LLAMA_",)))
    assert told == ["LLAMA_API_KEY=<removed>", "LLAMA_ARG_CTX_SIZE=4096", "LLAMA_ARG_SYSTEM_PROMPT=<removed>"]


def test_figures_and_versions_stay() -> None:
    text = "ABI 10, 23.5 GiB of 23.5 GiB free, llama.cpp 0.5.0-dev, 512 tokens per second, key 491e27361bc4b373"
    assert Redaction({}, Path("/nowhere"))(text) == text


def test_report_has_the_end_of_the_build_log_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "ann"
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "1.log").write_text(f"cc {home}/a.c\n" + "\n".join(PLANTED), encoding="utf-8")
    monkeypatch.setattr(upstream, "cache_dir", lambda: home)
    monkeypatch.setattr("dflash_local.diagnose.report.cache_dir", lambda: home)
    text = report([ok("build", f"in {home}/build")], MACHINE, {"abi": 10}, Redaction({}, home))
    assert "cc ~/a.c" in text
    assert "in ~/build" in text
    assert "abi: 10" in text
    assert "Some CPU" in text
    assert "jinja2" in text
    assert not [secret for secret in [*PLANTED.values(), str(home)] if secret in text]


def test_command_writes_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMA_API_KEY", "planted-" + "value")
    monkeypatch.setenv("DFLASH_NOTE", "has planted-value in it")
    started = time.time()
    cli.main(["doctor", "--report"])
    (file,) = tmp_path.iterdir()
    assert file.name == "dflash-local-report.md"
    assert file.stat().st_mtime >= started - 1
    text = file.read_text(encoding="utf-8")
    assert "## findings" in text
    assert "DFLASH_NOTE=has <removed> in it" in text
    assert "planted" not in text
    assert file.name in capsys.readouterr().err


def test_report_that_cannot_be_written_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--report", str(tmp_path)]) == 1
    assert "fix: name another file: --report FILE" in capsys.readouterr().err
