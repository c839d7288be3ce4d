"""`dflash-local chat`: commands, pipes, a stopped answer, a server as the other end."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dflash_local import cli
from dflash_local.cli.chat.backends import Change, Message, remote
from dflash_local.cli.chat.repl import Chat
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError
from tests.fake_native import FakeNative
from tests.server.live import live


class Echo:
    """A backend that repeats the question and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Message], dict[str, Any]]] = []

    def __call__(self, messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        self.asked.append((list(messages), dict(settings)))
        if messages[-1]["content"] == "fail":
            raise DFlashError("no luck")
        yield Change.of({"role": "assistant", "content": None})
        yield Change.of({"reasoning_content": "hm"})
        yield Change.of({"content": messages[-1]["content"]})
        yield Change.of({"content": "!"})
        if messages[-1]["content"] == "stop":
            raise KeyboardInterrupt
        yield Change(timings={"predicted_per_second": 12.34, "acceptance_length": 5.678, "predicted_n": 9})


def talk(monkeypatch: pytest.MonkeyPatch, text: str, **options: Any) -> tuple[Echo, int]:
    echo = Echo()
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return echo, Chat(echo, {"max_tokens": -1}, **options).loop()


def test_conversation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    echo, status = talk(monkeypatch, "one\ntwo \\\nlines\n/reset\nthree", system="be brief")
    assert status == 0
    system = {"role": "system", "content": "be brief"}
    first = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "one!"}]
    assert [messages for messages, _ in echo.asked] == [
        [system, first[0]],
        [system, *first, {"role": "user", "content": "two \nlines"}],
        [system, {"role": "user", "content": "three"}],
    ]
    output = capsys.readouterr()
    assert output.out == "one!\ntwo \nlines!\nthree!\n"
    assert output.err.count("[12.3 tok/s, AL 5.68, 9 tokens]") == 3
    assert "hm" in output.err


def test_settings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settings = "/set temperature 0.2\n/set seed 7\n/set max_tokens 5\n/set temperature -1\n/set color red\n/set\n"
    text = settings + "/what\n/help\nhi\n/exit\nnever"
    echo, _ = talk(monkeypatch, text)
    assert [settings for _, settings in echo.asked] == [{"max_tokens": 5, "temperature": 0.2, "seed": 7}]
    errors = capsys.readouterr().err
    assert "temperature must be at least 0, got -1" in errors
    assert "cannot set color" in errors
    assert "there is no /what" in errors
    assert "/exit" in errors


def test_a_stopped_answer_is_kept_and_a_failed_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    echo, status = talk(monkeypatch, "stop\nfail\nhi")
    assert status == 0
    assert [message["content"] for message in echo.asked[-1][0]] == ["stop", "stop!", "hi"]
    assert "error: no luck" in capsys.readouterr().err
    assert talk(monkeypatch, "fail")[1] == 1


def test_a_server_as_the_other_end() -> None:
    with live(lambda _: Engine.over(FakeNative(b"hello world"))) as server:
        for url in (server.url, server.url + "/v1/"):
            changes = list(remote(url, None)([{"role": "user", "content": "hi"}], {"temperature": 0}))
            assert "".join(change.content for change in changes) == "hello world"
            timings = changes[-1].timings or {}
            assert timings["predicted_n"] == 11
            assert timings["acceptance_length"] > 1
        with pytest.raises(DFlashError, match="temperature must be at least 0"):
            list(remote(server.url, None)([{"role": "user", "content": "hi"}], {"temperature": -1}))
    with pytest.raises(DFlashError, match="cannot talk to"):
        list(remote(server.url, None)([], {}))


def test_no_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLAMA_ARG_MODEL", raising=False)
    assert cli.main(["chat"]) == 1
    assert "-m TARGET.gguf" in capsys.readouterr().err


def test_pipe(pocket: dict[str, Path]) -> None:
    command = [
        sys.executable,
        "-m",
        "dflash_local.cli",
        "chat",
        "-m",
        str(pocket["target"]),
        "-md",
        str(pocket["dflash"]),
    ]
    options = ["-c", "1024", "-t", "1", "--no-warmup", "--temp", "0"]
    done = subprocess.run(
        command + options,
        input="What is the capital of France?",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Paris" in done.stdout
    assert " tok/s, AL " in done.stderr


def test_terminal(pocket: dict[str, Path]) -> None:
    """On a terminal: Ctrl-C stops a long answer but not the program."""
    master, slave = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "dflash_local.cli",
        "chat",
        "-m",
        str(pocket["target"]),
        "-c",
        "4096",
        "-t",
        "1",
        "--no-warmup",
    ]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, close_fds=True, start_new_session=True
    ) as process:
        os.close(slave)
        seen = b""

        def read_until(mark: bytes) -> None:
            nonlocal seen
            while mark not in seen:
                assert select.select([master], [], [], 60)[0], f"{mark!r} did not come after {seen!r}"
                seen += os.read(master, 4096)
            seen = seen[seen.index(mark) + len(mark) :]

        try:
            read_until(b"> ")
            os.write(master, b"/set ignore_eos true\n")
            read_until(b"ignore_eos = True")
            read_until(b"> ")
            os.write(master, b"Count from 1 in steps of 1, 14 numbers.\n")
            read_until(b"2")
            process.send_signal(signal.SIGINT)
            read_until(b"[stopped]")
            read_until(b"> ")
            # The prompt is there before the terminal is in the mode that reads it, and the change of mode may drop what
            # came between.
            for _ in range(20):
                os.write(master, b"\x04")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                    break
            assert process.poll() == 0
        finally:
            process.kill()
            os.close(master)
