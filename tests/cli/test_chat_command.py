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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from dflash_local import cli
from dflash_local.cli.chat.backends import Change, EngineBackend, Message, ServerBackend, _changes
from dflash_local.cli.chat.repl import Chat
from dflash_local.cli.flags.logs import _has_colors
from dflash_local.cli.terminal.console import set_up_console
from dflash_local.cli.terminal.notes import aside
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError
from dflash_local.media.abilities import NO_MEDIA, Abilities
from dflash_local.server.settings import Settings
from tests.cli.terminal import Terminal
from tests.fake_native import SEES_AND_HEARS, FakeNative, bytes_in_blocks
from tests.media.samples import data_url, mp3, picture, png, saved, wav
from tests.media.samples import text_of as base64_of
from tests.server.live import live


class Echo:
    """A backend that repeats the question and remembers what it was asked."""

    def __init__(self, abilities: Abilities | None = None) -> None:
        self.asked: list[tuple[list[Message], dict[str, Any]]] = []
        self._abilities = abilities

    def abilities(self) -> Abilities | None:
        return self._abilities

    def answer(self, messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
        self.asked.append((list(messages), dict(settings)))
        question = text_of(messages[-1])
        if question == "fail":
            raise DFlashError("no luck")
        yield Change.of({"role": "assistant", "content": None})
        yield Change.of({"reasoning_content": "hm"})
        if question == "think":
            raise KeyboardInterrupt
        yield Change.of({"content": question})
        yield Change.of({"content": "!"})
        if question == "stop":
            raise KeyboardInterrupt
        yield Change(timings={"predicted_per_second": 12.34, "acceptance_length": 5.678, "predicted_n": 9})


def text_of(message: Message) -> str:
    """Without what is attached."""
    content = message["content"]
    return str(content if isinstance(content, str) else content[-1]["text"])


class Typed(io.StringIO):
    """Input of somebody at a terminal."""

    def isatty(self) -> bool:
        return True


def talk(
    monkeypatch: pytest.MonkeyPatch, text: str | Typed, abilities: Abilities | None = None, **options: Any
) -> tuple[Echo, int]:
    echo = Echo(abilities)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text) if isinstance(text, str) else text)
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
    echo, status = talk(monkeypatch, Typed("stop\nfail\nhi"))
    assert status == 0
    assert [message["content"] for message in echo.asked[-1][0]] == ["stop", "stop!", "hi"]
    assert "error: no luck" in capsys.readouterr().err
    assert talk(monkeypatch, "fail")[1] == 1


def test_a_question_stays_whose_answer_was_stopped_in_its_thoughts(monkeypatch: pytest.MonkeyPatch) -> None:
    echo, _ = talk(monkeypatch, Typed("think\nbriefly"))
    thoughts = {"role": "assistant", "content": "", "reasoning_content": "hm"}
    assert echo.asked[-1][0] == [{"role": "user", "content": "think"}, thoughts, {"role": "user", "content": "briefly"}]


def test_a_command_can_be_stopped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def abilities(_: Echo) -> Abilities:
        raise KeyboardInterrupt

    monkeypatch.setattr(Echo, "abilities", abilities)
    echo, status = talk(monkeypatch, Typed("one\n/image a.png\ntwo"))
    assert status == 0 and len(echo.asked[-1][0]) == 3
    assert "[stopped]" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["stop\nnever", "/image a.png\nnever"])
def test_ctrl_c_ends_a_chat_that_nobody_types(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """As it does all other commands."""
    asked: list[str] = []

    class Interrupted(Echo):
        def abilities(self) -> Abilities:
            raise KeyboardInterrupt

        def answer(self, messages: list[Message], settings: dict[str, Any]) -> Generator[Change, None, None]:
            asked.append(text_of(messages[-1]))
            yield from super().answer(messages, settings)

    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with pytest.raises(KeyboardInterrupt):
        Chat(Interrupted(), {}).loop()
    assert "never" not in asked


def test_lines_that_belong_together_are_no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """But /system and /set take several; what is pasted comes with its line feeds."""
    breakers = '/set dry_sequence_breakers ["a",\n"b"]'
    pasted = iter(["/* one\n/reset\n*/\n", "/system be brief\nand kind", breakers, "/reset\n", "two"])
    monkeypatch.setattr("builtins.input", lambda *_: next(pasted, None) or eof())
    echo, _ = talk(monkeypatch, "")
    system = {"role": "system", "content": "be brief\nand kind"}
    assert echo.asked[1][1]["dry_sequence_breakers"] == ["a", "b"]
    assert [messages for messages, _ in echo.asked] == [
        [{"role": "user", "content": "/* one\n/reset\n*/"}],
        [system, {"role": "user", "content": "two"}],
    ]


def eof() -> str:
    raise EOFError


@pytest.mark.parametrize("delta", [{"content": [{"type": "thinking"}]}, {"reasoning_content": 1}])
def test_texts_of_other_servers_that_are_none(delta: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Change.of(delta)


def test_timings_of_a_server_that_took_no_time() -> None:
    """llama-server divides by it, and JSON has no infinity."""
    timings = {"predicted_per_second": None, "predicted_n": 1}
    event = {"choices": [{"delta": {"content": "hi"}}], "timings": timings}
    assert [change.timings for change in _changes(event)] == [None]
    assert [change.timings for change in _changes({"choices": [], "timings": timings | {"predicted_per_second": 3}})]


def test_a_server_as_the_other_end() -> None:
    with live(lambda _: Engine.over(FakeNative(b"hello world"))) as server:
        for url in (server.url, server.url + "/v1/"):
            changes = list(ServerBackend(url).answer([{"role": "user", "content": "hi"}], {"temperature": 0}))
            assert "".join(change.content for change in changes) == "hello world"
            timings = changes[-1].timings or {}
            assert timings["predicted_n"] == 11
            assert timings["acceptance_length"] > 1
        with pytest.raises(DFlashError, match="temperature must be at least 0"):
            list(ServerBackend(server.url).answer([{"role": "user", "content": "hi"}], {"temperature": -1}))
    with pytest.raises(DFlashError, match="cannot talk to"):
        list(ServerBackend(server.url).answer([], {}))


# ---- images and audio ----

ALL = Abilities(vision=True, audio=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a few files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    files = {
        "house.png": png(4, 3),
        "a b.png": png(5, 3),
        "it's.png": png(6, 3),
        "photo.jpg": saved(picture(8, 6), "JPEG"),
        "voice.wav": wav(),
        "song.mp3": mp3(),
        "notes.txt": b"no image",
        "cut.png": png(64, 64)[:60],
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_images_go_with_the_next_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    echo, status = talk(monkeypatch, "/image house.png\n/image photo.jpg\nwhat?\nand now?", ALL)
    assert status == 0
    first = [
        {"type": "image_url", "image_url": {"url": data_url(png(4, 3))}},
        {"type": "image_url", "image_url": {"url": data_url((folder / "photo.jpg").read_bytes(), "image/jpeg")}},
        {"type": "text", "text": "what?"},
    ]
    assert [message["content"] for message in echo.asked[-1][0]] == [first, "what?!", "and now?"]
    told = capsys.readouterr().err
    assert "attached to the next message: house.png (4 x 3)" in told and "photo.jpg (8 x 6)" in told


def test_audio_goes_with_the_next_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo, _ = talk(monkeypatch, "/audio voice.wav song.mp3\nwhat?", ALL)
    assert [part.get("input_audio") for part in echo.asked[0][0][0]["content"]] == [
        {"data": base64_of(wav()), "format": "wav"},
        {"data": base64_of(mp3()), "format": "mp3"},
        None,
    ]


@pytest.mark.parametrize(
    ("typed", "widths"),
    [
        ("a b.png", [5]),
        ("'a b.png'", [5]),
        ('"a b.png" house.png', [5, 4]),
        (r"a\ b.png it\'s.png", [5, 6]),
        ("it's.png", [6]),
        ("~/house.png", [4]),
        ("'{folder}/a b.png' '{folder}/it'\\''s.png' ", [5, 6]),
        ("file://{folder}/a%20b.png", [5]),
        ("file://localhost{folder}/house.png", [4]),
    ],
)
def test_paths_as_they_are_typed_or_dropped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, typed: str, widths: list[int]
) -> None:
    if os.name != "posix" and "\\" in typed:
        pytest.skip("backslashes separate folders here")
    echo, _ = talk(monkeypatch, f"/image {typed.format(folder=folder)}\nwhat?", ALL)
    parts = echo.asked[0][0][0]["content"][:-1]
    assert [part["image_url"]["url"] for part in parts] == [data_url(png(width, 3)) for width in widths]


@pytest.mark.parametrize(
    ("command", "abilities", "why"),
    [
        ("/image house.png", NO_MEDIA, "this model reads no images: it has no projector for that (--mmproj)"),
        (
            "/audio voice.wav",
            Abilities(vision=True),
            "this model reads no audio: it has no projector for that (--mmproj)",
        ),
        ("/image", ALL, "/image needs the path of a file"),
        ("/image none.png", ALL, "error: none.png cannot be opened: No such file or directory"),
        ("/image .", ALL, "error: . is no file"),
        ("/image notes.txt", ALL, "error: notes.txt is not an image that can be read: send PNG"),
        ("/image cut.png", ALL, "error: cut.png is a damaged image"),
        ("/image voice.wav", ALL, "error: voice.wav is not an image that can be read"),
        ("/audio house.png", ALL, "error: house.png is not audio that can be read: send wav, mp3 or flac"),
        ("/image 'open.png", ALL, "error: 'open.png cannot be opened"),
        ("{folder}/house.png", ALL, "to show a file to the model: /image PATH or /audio PATH"),
        ("/nothing", ALL, "there is no /nothing"),
        ("/" + 300 * "x", ALL, "there is no /xxx"),
        ("/image file://[x", ALL, "error: [x cannot be opened"),
    ],
)
def test_files_that_are_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    abilities: Abilities,
    why: str,
) -> None:
    echo, _ = talk(monkeypatch, f"{command.format(folder=folder)}\nhello", abilities)
    told = capsys.readouterr().err
    assert why in told and len(told.split("\n", 1)[0]) < max(160, len(command) + 60)
    assert echo.asked[0][0] == [{"role": "user", "content": "hello"}]


def test_attached_files_go_with_one_message_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    echo, _ = talk(monkeypatch, "/image house.png\n/reset\none\n/image house.png\nfail\ntwo", ALL)
    assert [text_of(messages[-1]) for messages, _ in echo.asked] == ["one", "fail", "two"]
    assert [isinstance(messages[-1]["content"], list) for messages, _ in echo.asked] == [False, True, False]
    assert "error: no luck\nnot attached any more: house.png" in capsys.readouterr().err


@pytest.mark.parametrize("is_server", [False, True])
def test_an_engine_and_a_server_get_the_same_image(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_server: bool
) -> None:
    native = FakeNative(lambda prompt: bytes_in_blocks(b"You said: " + prompt.split(b"\n")[-2]), info=SEES_AND_HEARS)
    monkeypatch.setattr(sys, "stdin", io.StringIO("/image 'a b.png'\n/audio voice.wav\nwhat?\nmore"))
    with ExitStack() as stack:
        if is_server:
            server = stack.enter_context(live(lambda _: Engine.over(native)))
            backend: Any = ServerBackend(server.url)
        else:
            backend = EngineBackend(stack.enter_context(Engine.over(native)))
        assert backend.abilities()[:2] == (True, True)
        assert Chat(backend, {"max_tokens": -1}).loop() == 0
    output = capsys.readouterr()
    assert output.out == "You said: user: what?\nYou said: user: more\n", output.err
    assert [(medium.kind, medium.width) for medium in native.media] == 2 * [("image", 5), ("audio", 0)]


def test_what_a_server_reads() -> None:
    with live(lambda _: Engine.over(FakeNative())) as server:
        found = ServerBackend(server.url + "/v1").abilities()
        assert found is not None and found[:2] == (False, False)
    with pytest.raises(DFlashError, match="cannot talk to"):
        ServerBackend(server.url).abilities()
    with live(lambda _: Engine.over(FakeNative()), Settings(api_keys=("secret",))) as server:
        assert ServerBackend(server.url).abilities() is None  # its refusal is told with the first message
        assert ServerBackend(server.url, "secret").abilities() is not None


def test_no_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLAMA_ARG_MODEL", raising=False)
    assert cli.main(["chat"]) == 1
    assert "-m TARGET.gguf" in capsys.readouterr().err


def test_a_servers_own_defaults_stay_unless_others_are_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is typed is sent, even if it is our own default; flags of a model that is loaded here are refused."""
    asked: list[dict[str, Any]] = []

    def loop(chat: Chat) -> int:
        asked.append(chat.settings)
        return 0

    monkeypatch.setattr(Chat, "loop", loop)
    for flags in ([], ["--temp", "0.8", "--top-k", "40"], ["-n", "-1"]):
        assert cli.main(["chat", "--url", "http://x", *flags]) == 0
    assert asked == [{}, {"temperature": 0.8, "top_k": 40}, {"max_tokens": -1}]
    for flags in (["-m", "T.gguf"], ["-c", "8192"], ["--draft", "off"]):
        assert cli.main(["chat", "--url", "http://x", *flags]) == 1
        assert f"error: {flags[0]} has no effect: the model is loaded where --url is" in capsys.readouterr().err
    for flag in ("--api-key", "--model-name"):
        assert cli.main(["chat", flag, "k", "-m", "T.gguf"]) == 1
        assert f"error: {flag} has no effect: it is for the server of --url" in capsys.readouterr().err


def test_prompts_stay_out_of_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody types, and the answers go elsewhere."""
    monkeypatch.setattr(sys, "stdin", Typed("one\n"))
    assert Chat(Echo(), {}).loop() == 0
    output = capsys.readouterr()
    assert output.out == "one!\n" and output.err.count("> ") == 2


def server_chat(url: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "dflash_local.cli", "chat", "--url", url, *flags]


def questions(native: FakeNative) -> list[str]:
    """What the last message of each prompt says."""
    return [bytes([*one["tokens"]]).decode().rpartition("user: ")[2].rpartition("\n")[0] for one in native.submitted]


def marks_pastes() -> bool:
    """Whether Python has the terminal mark what is pasted."""
    with suppress(ImportError):
        import readline

        return "libedit" not in (readline.__doc__ or "")
    return False


@pytest.mark.parametrize("into_file", [False, True])
def test_what_is_pasted_is_one_message(into_file: bool, tmp_path: Path) -> None:
    """Marked as a paste by the terminal, or, where Python does not look at that, as lines that come at once."""
    native = FakeNative(b"understood")
    pasted = "one\n/reset\nthree"
    with live(lambda _: Engine.over(native)) as server, Terminal() as terminal, ExitStack() as stack:
        output = stack.enter_context((tmp_path / "answers").open("w")) if into_file else terminal.slave
        process = stack.enter_context(
            subprocess.Popen(
                server_chat(server.url), stdin=terminal.slave, stdout=output, stderr=terminal.slave,
                start_new_session=True, env={**os.environ, "TERM": "xterm"},
            )
        )  # fmt: skip
        stack.callback(process.kill)
        terminal.until("\n>")
        is_marked = not into_file and marks_pastes()
        terminal.type(f"\x1b[200~{pasted}\x1b[201~\r" if is_marked else pasted + "\n")
        terminal.until("tok/s")
        terminal.type("/exit\r")
        assert process.wait(60) == 0
        terminal.look()
    assert "starting over" not in terminal.text()
    assert questions(native) == [pasted]


def test_one_question_of_a_flag_and_of_standard_input(tmp_path: Path) -> None:
    native = FakeNative(b"understood")
    (tmp_path / "diff").write_text("/one\ntwo\n")
    with live(lambda _: Engine.over(native)) as server:
        for flags, given in (
            (("-p", "what?"), ""),
            (("-f", "-"), "/one\ntwo\n"),
            (("-p", "what?", "--file", str(tmp_path / "diff")), "never"),
        ):
            done = subprocess.run(
                server_chat(server.url, *flags), input=given, capture_output=True, text=True, check=True, timeout=60
            )
            assert done.stdout == "understood\n"
    assert questions(native) == ["what?", "/one\ntwo", "what?\n\n/one\ntwo"]
    command = server_chat(server.url, "-p", "what?")  # where nobody answers any more
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 1


def test_a_question_that_is_empty(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for flags in (("-p", ""), ("-f", str(tmp_path / "empty"))):
        assert cli.main(["chat", "--url", "http://x", *flags]) == 1
        assert "has no text to ask" in capsys.readouterr().err
    assert cli.main(["chat", "--url", "http://x", "-f", str(tmp_path / "none")]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_an_answer_that_the_output_cannot_encode() -> None:
    with live(lambda _: Engine.over(FakeNative("a → b".encode()))) as server:
        environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        done = subprocess.run(
            server_chat(server.url), input=b"one\ntwo\n", capture_output=True, env=environment, timeout=60, check=False
        )
    assert (done.returncode, done.stdout) == (0, b"a ? b\na ? b\n"), done.stderr


def test_half_of_a_pair_that_another_server_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    set_up_console()
    print("a \ud83d", flush=True)
    assert raw.getvalue() == b"a ?\n"


@pytest.mark.parametrize(
    ("setting", "is_dimmed"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_notes_are_dimmed_where_that_is_shown(
    setting: dict[str, str], is_dimmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm"} | setting).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", shown := Typed())
    aside("hello")
    assert shown.getvalue() == ("\x1b[2mhello\x1b[0m\n" if is_dimmed else "hello\n")
    assert _has_colors("auto") is is_dimmed


def test_the_key_of_the_variable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The server's may have several."""
    with live(lambda _: Engine.over(FakeNative()), Settings(api_keys=("secret", "other"))) as server:
        assert cli.main(["chat", "--url", server.url, "-p", "hi"]) == 1
        assert "--api-key KEY, or LLAMA_API_KEY" in capsys.readouterr().err
        monkeypatch.setenv("LLAMA_API_KEY", "secret,other")
        assert cli.main(["chat", "--url", server.url, "-p", "hi"]) == 0
        assert cli.main(["chat", "--url", server.url, "-p", "hi", "--api-key", "wrong"]) == 1
    capsys.readouterr()
    assert cli.main(["chat"]) == 1  # without --url it does no harm
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
        input=b"What is the capital of France?\n\xff\n",  # the second line is no UTF-8
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"Paris" in done.stdout
    assert done.stderr.count(b" tok/s, AL ") == 2


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
    environment = {**os.environ, "TERM": "dumb"}  # without escape sequences, which have numbers
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, close_fds=True, start_new_session=True, env=environment
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
