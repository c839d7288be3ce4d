"""`dflash-local launch`: each program gets what docs/clients.md says, pasted or run; a server that was started for it
ends with it; what cannot work is refused in a sentence."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dflash_local import cli
from dflash_local.cache_dir import cache_dir
from dflash_local.cli.launch import program_process, running_server, server_facts
from dflash_local.cli.launch.launch_flags import refuse_without_model
from dflash_local.cli.launch.launched_server import LaunchedServer
from dflash_local.cli.launch.program import PROGRAMS
from dflash_local.cli.launch.program_process import ended_by_signals, run_program
from dflash_local.cli.launch.server_facts import ServerFacts, ask_facts, client_at
from dflash_local.cli.launch.setup import Place
from dflash_local.errors import DFlashError, RequestError, ServerError
from dflash_local.server.settings import Settings
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live_pair

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
EACH = pytest.mark.parametrize("name", PROGRAMS)
# A program that writes down how it was started: what a test may look at besides is in its arguments.
RECORDER = """\
#!{python}
import json, os, pathlib, sys
files = [word for word in [*sys.argv[1:], *os.environ.values()] if word.startswith({folder!r})]
texts = {{name: pathlib.Path(name).read_text() for name in files}}
told = {{"arguments": sys.argv[1:], "variables": dict(os.environ), "files": texts}}
pathlib.Path({told!r}).write_text(json.dumps(told))
{then}
"""


class Recorder:
    """Stands in for all programs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._told = folder, folder / "told.json"

    def install(self, then: str = "sys.exit(7)") -> None:
        for program in PROGRAMS.values():
            path = self.folder / program.command
            place = str(cache_dir() / "launch")
            path.write_text(RECORDER.format(python=sys.executable, folder=place, told=str(self._told), then=then))
            path.chmod(0o755)

    def told(self) -> dict[str, Any]:
        """How the last program was started; a second call needs another start."""
        told: dict[str, Any] = json.loads(self._told.read_text())
        self._told.unlink()
        for name in ("_", "SHLVL", "PWD", "OLDPWD", "LINES", "COLUMNS"):  # a shell's own
            told["variables"].pop(name, None)
        return told


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    recorder = Recorder(tmp_path)
    recorder.install()
    return recorder


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], settings=Settings(alias="pocket"), n_ctx=512, n_slots=1) as running:
        yield running


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["launch", *argv]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["launch", *argv]) == 1
    text = capsys.readouterr().err
    assert "\n  fix: " in text
    return text


# ---- what a program gets ----


@EACH
def test_the_page_has_what_is_printed(name: str, capsys: pytest.CaptureFixture[str], free_port: int) -> None:
    text = printed(capsys, name, "--print", "--port", str(free_port))
    first, _, lines = text.replace(f":{free_port}", ":8080").partition("\n")
    lines = lines.replace(str(cache_dir()), "~/.cache/dflash-local")
    assert first.startswith("# first, in another terminal: dflash-local serve ")
    page = PAGE.read_text(encoding="utf-8")
    assert f"\n## {PROGRAMS[name].title}\n" in page
    section = page.partition(f"\n## {PROGRAMS[name].title}\n")[2].partition("\n## ")[0]
    assert f"\n```\n{lines}```\n" in section
    assert f"`{PROGRAMS[name].install}`" in section
    assert f"`dflash-local launch {name}`" in section


@pytest.mark.parametrize(("flags", "port"), [([], 8080), (["--ollama"], 11434)])
def test_the_port_is_that_of_serve(flags: list[str], port: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked: list[str] = []
    monkeypatch.setattr(running_server, "running_server", lambda url, _key: asked.append(url))
    printed(capsys, "codex", "--print", *flags)
    assert asked == [f"http://127.0.0.1:{port}"]


@EACH
def test_pasted_is_as_run(name: str, server: Live, recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell that runs the printed lines starts the program with the same arguments, variables and files."""
    own = [name, "--url", server.url, "--any-context"]
    passed = ["--", "--some_flag", "it's $HOME", "-m", "other"]
    assert cli.main(["launch", *own, *passed]) == 7
    run = recorder.told()
    lines = printed(capsys, *own, "--print", *passed)
    assert subprocess.run(["sh", "-c", lines], check=False).returncode == 7
    assert recorder.told() == run
    assert run["arguments"][-4:] == passed[1:]
    everything = json.dumps(run)
    assert server.url in everything
    assert "pocket" in everything or name == "open-webui"  # which lists the models itself
    assert all(Path(path).stat().st_mode & 0o077 == 0 for path in run["files"])


def test_every_context_is_told_that_can_be(
    server: Live, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("codex", "opencode", "qwen", "continue"):
        assert "512" in printed(capsys, name, "--url", server.url, "--any-context", "--print")


def test_a_key_and_a_name_reach_the_program(pocket: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with live_pair(
        pocket["target"], settings=Settings(alias="pocket", api_keys=("secret",)), n_ctx=4096, n_slots=1
    ) as closed:
        wait_until(lambda: httpx.get(f"{closed.url}/health").status_code == 200)
        assert "wants a key" in refused(capsys, "open-webui", "--url", closed.url, "--print")
        text = printed(capsys, "open-webui", "--url", f"{closed.url}/v1/", "--api-key", "secret", "--print")
    assert "export OPENAI_API_KEY=secret\n" in text
    assert f"export OPENAI_API_BASE_URL={closed.url}/v1\n" in text


def test_secrets_are_not_in_the_line_for_a_server(capsys: pytest.CaptureFixture[str], free_port: int) -> None:
    flags = ["--port", str(free_port), "--api-key", "sk-1", "--hf-token=hf_x"]
    first = printed(capsys, "codex", "--print", *flags).partition("\n")[0]
    assert first.endswith(f" serve --port {free_port} --api-key ... --hf-token=...")


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "https_proxy"])
def test_a_proxy_is_not_asked_for_this_machine(
    variable: str, server: Live, recorder: Recorder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ["aider", "--url", server.url, "--any-context"]
    assert "no_proxy" not in printed(capsys, *own, "--print").lower()
    monkeypatch.setenv(variable, "http://proxy.invalid:1")
    monkeypatch.setenv("NO_PROXY", "a.example")
    text = printed(capsys, *own, "--print")
    assert cli.main(["launch", *own]) == 7
    variables = recorder.told()["variables"]
    for name in ("NO_PROXY", "no_proxy"):
        assert variables[name] == "a.example,127.0.0.1"
        assert f"export {name}=a.example,127.0.0.1\n" in text


# ---- a server of its own ----


def test_a_server_that_ends_with_the_program(pocket: dict[str, Path], recorder: Recorder, free_port: int) -> None:
    """It answers while the program runs, with the flags that were given."""
    recorder.install(
        "import urllib.request\n"
        "url = os.environ['OPENAI_API_BASE_URL']\n"
        "names = json.load(urllib.request.urlopen(url + '/models'))['data'][0]['aliases']\n"
        "sys.exit(3 if names == ['given'] else 4)"
    )
    flags = ["-m", str(pocket["target"]), "-t", "1", "--alias", "given", "--port", str(free_port), "--no-warmup"]
    assert cli.main(["launch", "open-webui", *flags]) == 3
    assert ask_facts(client_at(f"http://127.0.0.1:{free_port}")) is None


def test_a_signal_ends_both(pocket: dict[str, Path], recorder: Recorder, free_port: int) -> None:
    recorder.install("import time\ntime.sleep(1000)")
    flags = ["-m", str(pocket["target"]), "-t", "1", "--port", str(free_port), "--no-warmup"]
    process = subprocess.Popen([sys.executable, "-m", "dflash_local.cli", "launch", "open-webui", *flags])
    wait_until(lambda: (recorder.folder / "told.json").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert ask_facts(client_at(f"http://127.0.0.1:{free_port}")) is None


def test_a_server_that_fails_says_why(recorder: Recorder, free_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "open-webui", "-m", "none.gguf", "--port", str(free_port), "--api-key", "sk-1")
    assert f"'dflash-local serve -m none.gguf --port {free_port} --api-key ...'" in text and "sk-1" not in text
    assert "none.gguf" in text and "'dflash-local' alone lists the models" in text
    with LaunchedServer(["--no-such-flag"]) as server, pytest.raises(DFlashError) as failure:
        server.wait(f"http://127.0.0.1:{free_port}", None)
    assert "--no-such-flag" in failure.value.message
    assert not server.log.exists()


def test_a_server_takes_no_modules_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whose folder an agent starts."""
    (tmp_path / "argparse.py").write_text("raise SystemExit('foreign')")
    monkeypatch.chdir(tmp_path)
    with LaunchedServer(["--help"]) as server:
        assert server._process.wait(PATIENCE) == 0
    assert server.log.read_text().startswith("usage: dflash-local serve ")
    server.log.unlink()


# Stands in for a server that swaps: it says nothing to the first requests, as many as it is told.
SILENT = """
import http.server, itertools, sys, time
asked = itertools.count()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if next(asked) < int(sys.argv[2]):
            time.sleep(1000)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "m", "owned_by": "dflash-local"}]}')
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_facts, "_SILENCE_TIMEOUT", 0.3)
    monkeypatch.setattr(server_facts, "_POLL", 0.01)


def silent_server(port: int, n_requests: int) -> LaunchedServer:
    server = LaunchedServer([])
    server._command = [sys.executable, "-c", SILENT, str(port), str(n_requests)]
    return server


def test_a_server_that_is_silent_while_it_loads(impatient: None, free_port: int) -> None:
    with silent_server(free_port, 2) as server:
        assert server.wait(f"http://127.0.0.1:{free_port}", None).named(None) == "m"
    assert not server.log.exists()


class LoadingServer(http.server.ThreadingHTTPServer):
    """Loads, then closes `n_faults` connections without a word, then has loaded, or is gone."""

    def __init__(self, n_faults: int, *, is_gone: bool = False) -> None:
        self.n_faults, self.is_gone, self.n_asked = n_faults, is_gone, 0
        super().__init__(("127.0.0.1", 0), LoadingHandler)

    def __enter__(self) -> LoadingServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class LoadingHandler(http.server.BaseHTTPRequestHandler):
    server: LoadingServer

    def do_GET(self) -> None:
        self.server.n_asked += 1
        is_loading = self.server.n_asked <= 2  # /v1/models, /health
        if not is_loading and self.server.n_asked <= 2 + self.server.n_faults:
            return
        self.send_response(503 if is_loading else 200)
        self.end_headers()
        told = {"progress": 0.5} if is_loading else {"data": [{"id": "m", "owned_by": "dflash-local"}]}
        self.wfile.write(json.dumps(told).encode())
        if is_loading and self.server.n_asked == 2 and self.server.is_gone:
            self.server.socket.close()

    def log_message(self, *_: object) -> None: ...


def test_faults_of_a_running_server_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_facts, "_POLL", 0.01)
    for n_faults in (0, 2):
        with LoadingServer(n_faults) as server:
            facts = running_server.running_server(f"http://127.0.0.1:{server.server_port}", None)
            assert facts is not None and facts.named(None) == "m"
    monkeypatch.setattr(server_facts, "_MOST_FAULTS", 2)
    with LoadingServer(1000) as server, pytest.raises(ServerError, match="cannot talk to"):
        running_server.running_server(f"http://127.0.0.1:{server.server_port}", None)
    assert server.n_asked == 4


def test_a_running_server_that_ends_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_facts, "_POLL", 0.01)
    with LoadingServer(0, is_gone=True) as server:
        assert running_server.running_server(f"http://127.0.0.1:{server.server_port}", None) is None


def test_the_log_of_a_server_that_stays_silent(
    impatient: None, free_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_facts, "_MOST_FAULTS", 2)
    server = silent_server(free_port, 1000)
    with pytest.raises(ServerError, match="was silent") as failure, server:
        server.wait(f"http://127.0.0.1:{free_port}", None)
    assert failure.value.hint and "look at its log" in failure.value.hint
    assert capsys.readouterr().err == f"the server's log is {server.log}\n"
    server.log.unlink()


def test_no_log_is_left_of_a_server_that_the_user_ends(free_port: int) -> None:
    server = silent_server(free_port, 0)
    with pytest.raises(SystemExit), server:
        sys.exit(128 + signal.SIGTERM)
    assert not server.log.exists()


# ---- the program's process ----


def test_a_program_that_cannot_be_started(server: Live, recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    """A script stays when the Python that it names is removed."""
    script = recorder.folder / "aider"
    script.write_text("#!/no/such/python\n")
    before = signal.getsignal(signal.SIGINT)
    text = refused(capsys, "aider", "--url", server.url, "--any-context")
    assert f"aider cannot be started: {script}: No such file" in text
    assert text.endswith(f"fix: {PROGRAMS['aider'].install}\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_program_that_does_not_end_is_killed(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for its own end, once it is deaf to it."""
    monkeypatch.setattr(program_process, "_PATIENCE", 0.1)
    survivor = recorder.folder / "survivor"
    recorder.install(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        f"time.sleep({PATIENCE / 4})\n"
        f"pathlib.Path({str(survivor)!r}).touch()\n"
    )
    place = Place("http://127.0.0.1:1", "m", 8192, "none", recorder.folder)
    with pytest.raises(SystemExit) as ended, ended_by_signals():
        run_program(PROGRAMS["aider"], str(recorder.folder / "aider"), place, [])
    assert ended.value.code == 128 + signal.SIGTERM and not survivor.exists()


# ---- what is refused ----


@EACH
def test_a_program_that_is_not_there(
    name: str, free_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = refused(capsys, name, "-m", "x.gguf", "--port", str(free_port))
    assert text.endswith(f"fix: {PROGRAMS[name].install}\n")


def test_a_context_that_is_too_short(server: Live, recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "claude", "--url", server.url)
    assert "Claude Code needs a context of 32768 tokens, and pocket has 512" in text
    assert "--any-context" in text
    assert cli.main(["launch", "claude", "--url", server.url, "--any-context"]) == 7


@pytest.mark.parametrize(
    ("meta", "flags", "reason"),
    [
        ({"n_ctx": 2048, "n_ctx_train": 2048}, [], "it was trained for 2048"),
        ({"n_ctx": 2048, "n_ctx_train": 40960}, ["-c", "2048"], "-c 2048 says so"),
        ({"n_ctx": 2048, "n_ctx_train": 40960}, [], "no room in memory"),
    ],
)
def test_why_a_context_is_short(meta: dict[str, int], flags: list[str], reason: str) -> None:
    args = cli.parse(["launch", "codex", *flags])[1]
    with pytest.raises(RequestError, match=reason):
        running_server.place_at("http://x", None, ServerFacts({"m": meta}), PROGRAMS["codex"], args)


def test_flags_that_a_running_server_cannot_follow(
    server: Live, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.url.rpartition(":")[2]
    for own in (["--any-context"], ["--print"]):
        text = refused(capsys, "claude", "--port", port, *own, "--top_k", "5", "-m", "x.gguf")
        assert "--top-k is for one that starts" in text and f"--port {int(port) + 1}" in text
    text = refused(capsys, "claude", "--url", server.url, "--hf-token=hf_x")
    assert "and --hf-token is for one that starts" in text and "hf_x" not in text
    assert "--host" in refused(capsys, "claude", "--url", server.url, "--host", "x")
    assert cli.main(["launch", "claude", "--port", port, "--any-context"]) == 7


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("codex --url 127.0.0.1", "is no URL"),
        ("codex --host x.sock", "UNIX socket"),
        ("codex --port 0", "--port 0"),
        ("-c 8 codex", "the program comes first"),
        ("codex --port {port}", "no model is named"),
        ("codex --url http://127.0.0.1:{port}", "no server runs"),
    ],
)
def test_lines_that_cannot_work(
    line: str, says: str, free_port: int, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(capsys, *line.format(port=free_port).split())


@pytest.mark.parametrize("flags", [["-m", "x"], ["-hf", "a/b"], ["--models-dir", "x"], ["--models-found"]])
def test_what_names_a_model(flags: list[str]) -> None:
    refuse_without_model(cli.parse(["launch", "codex", *flags])[1], "http://x")
    with pytest.raises(RequestError, match=r"no model is named|no server runs"):
        refuse_without_model(cli.parse(["launch", "codex"])[1], "http://x")


def test_another_program_at_the_port(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "x", "owned_by": "llamacpp"}]}')

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            text = refused(capsys, "codex", "--port", str(other.server_port), "-m", "x.gguf")
        finally:
            other.shutdown()
    assert "not as dflash-local" in text and "--port N" in text


def test_one_of_several_models() -> None:
    facts = ServerFacts({"a": {}, "b": {}})
    assert facts.named("b") == "b"
    for name in (None, "c"):
        with pytest.raises(RequestError, match="a, b"):
            facts.named(name)
