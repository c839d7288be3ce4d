"""Targets on RPC servers: what is computed there is what is computed here, and servers that fail are errors."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.rpc_proxy import RPCProxy
from dflash_local import scheduler
from dflash_local.engine import Engine, SamplingParams
from dflash_local.errors import EngineLostError, RequestError, RPCError
from tests.engine.test_slot_files import draft_of
from tests.patience import PATIENCE, wait_until
from tests.rpc.rpc_servers import RPCServer, addresses, device_names, free_port, rpc_servers
from tests.server.live import serving
from tests.trees import models

PROMPTS = ("The quick brown fox", "def add(a, b):\n    return", "1, 2, 3, 4,")
SMALL: dict[str, Any] = {"n_ctx": 1024, "n_threads": 1, "cost_cache": False, "warmup": False}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RPCServer]]:
    """Two servers that live."""
    with rpc_servers(2) as started:
        yield started


@pytest.mark.parametrize(("target", "drafter"), [("target", "dflash"), ("hybrid-target", "hybrid-dflash")])
def test_drafted_text_is_plain_text(
    pocket: dict[str, Path], servers: list[RPCServer], target: str, drafter: str
) -> None:
    with Engine(pocket[target], pocket[drafter], budget=8, rpc=addresses(servers), **SMALL) as engine:
        assert not engine.info["no_tree"]
        n_accepted = 0
        for prompt in PROMPTS:
            drafted = engine.generate(prompt, max_tokens=40, temperature=0)
            plain = engine.generate(prompt, max_tokens=40, temperature=0, draft="off")
            assert drafted.text == plain.text
            n_accepted += drafted.timings.draft_n_accepted
        assert n_accepted > 0


def test_text_is_that_of_this_machine(pocket: dict[str, Path], servers: list[RPCServer]) -> None:
    def texts(**options: Any) -> list[str]:
        with Engine(pocket["target"], **SMALL, **options) as engine:
            return [engine.generate(prompt, max_tokens=40, temperature=0).text for prompt in PROMPTS]

    assert texts(rpc=addresses(servers)) == texts()


@pytest.mark.parametrize(
    "servers",
    [
        "127.0.0.1",
        "127.0.0.1:",
        ":50052",
        "127.0.0.1:0",
        "127.0.0.1:99999",
        "127.0.0.1:50052x",
        ",127.0.0.1:50052",
        "127.0.0.1:50052,127.0.0.1:50052",
    ],
)
def test_malformed_addresses(pocket: dict[str, Path], servers: str) -> None:
    with pytest.raises(RequestError, match="rpc: "):
        Engine(pocket["target"], rpc=servers, **SMALL)


def test_nobody_listens(pocket: dict[str, Path]) -> None:
    port = free_port()
    with pytest.raises(RPCError, match=f"127.0.0.1:{port} cannot be reached: Connection refused"):
        Engine(pocket["target"], rpc=f"127.0.0.1:{port}", **SMALL)


def test_host_that_is_none(pocket: dict[str, Path]) -> None:
    with pytest.raises(RPCError, match=r"no-such-host\.invalid:50052 cannot be reached: there is no host of this name"):
        Engine(pocket["target"], rpc="no-such-host.invalid:50052", **SMALL)


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """A server that says so much to everybody, and hangs up; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(1 + 8 + 24, socket.MSG_WAITALL)
                        client.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def hello(major: int, minor: int, patch: int, own_ops: int = 0) -> bytes:
    """A server's greeting."""
    return struct.pack("<QBBBB24x", 28, major, minor, patch, own_ops)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (hello(6, 0, 0), "speaks RPC 6.0.0, and this build 7.0.1 of dflash-local: run the same version on both"),
        (hello(7, 1, 0), "speaks RPC 7.1.0, and"),
        (hello(7, 0, 1), "speaks RPC 7.0.1, and"),  # a later llama.cpp's ops have other numbers
        (hello(7, 0, 1, 0x85), "speaks RPC 7.0.1 of dflash-local, and"),  # other ops of ours
        (hello(7, 0, 1, 0xC5), "speaks RPC 7.0.1 of dflash-local, and"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + 64 * b"x", "does not answer as one"),
        (b"", "does not answer as one"),
    ],
)
def test_servers_of_another_kind(pocket: dict[str, Path], data: bytes, why: str) -> None:
    with answering(data) as address, pytest.raises(RPCError, match=f"^the RPC server {address} {why}"):
        Engine(pocket["target"], rpc=address, **SMALL)


@pytest.mark.parametrize(
    "command", ["DEVICE_COUNT", "GET_DEVICE_MEMORY", "GET_ALIGNMENT", "ALLOC_BUFFER", "SET_TENSOR", "GRAPH_COMPUTE"]
)
def test_server_that_dies_while_loading(pocket: dict[str, Path], servers: list[RPCServer], command: str) -> None:
    with RPCProxy(servers[0].port, cut_at=command) as proxy:
        options: dict[str, Any] = {**SMALL, "rpc": f"{proxy.address},{servers[1].address}"}
        with pytest.raises(RPCError, match=f"^the RPC server {proxy.address} was lost$"):
            Engine(pocket["target"], pocket["dflash"], **options)
        proxy.cut_at = None
        with Engine(pocket["target"], **options) as engine:  # nothing wrong was kept
            assert engine.generate(PROMPTS[0], max_tokens=4, temperature=0).tokens


@pytest.mark.parametrize(("target", "drafter"), [("target", "dflash"), ("hybrid-target", "hybrid-dflash")])
def test_server_that_dies_in_a_request(
    pocket: dict[str, Path], servers: list[RPCServer], target: str, drafter: str
) -> None:
    with RPCProxy(servers[1].port) as proxy:
        options: dict[str, Any] = {**SMALL, "rpc": f"{servers[0].address},{proxy.address}"}
        with Engine(pocket[target], pocket[drafter], **options) as engine:
            stream = engine.stream(PROMPTS[2], max_tokens=-1, ignore_eos=True)
            next(stream)
            proxy.cut_at = "GET_TENSOR"
            with pytest.raises(EngineLostError, match=f"^the RPC server {proxy.address} was lost$"):
                list(stream)
            with pytest.raises(EngineLostError):
                engine.generate("x")
            assert isinstance(engine.ended.result(PATIENCE), EngineLostError)
        proxy.cut_at = None
        with Engine(pocket[target], pocket[drafter], **options) as engine:
            assert engine.generate(PROMPTS[0], max_tokens=4, temperature=0).tokens


def test_drafts_that_are_nonsense_change_no_text(pocket: dict[str, Path], servers: list[RPCServer]) -> None:
    def text() -> str:
        return engine.generate(PROMPTS[0], max_tokens=40, temperature=0, lookup=False).text

    with RPCProxy(servers[0].port) as proxy:
        (name,) = device_names(pocket["target"], proxy.address)
        options = {"rpc": proxy.address, "n_gpu_layers": 0, "device_draft": name, **SMALL}
        with Engine(pocket["target"], pocket["dspark"], **options) as engine:
            honest = text()
            proxy.lies = True
            for _ in range(20):  # the controller need not draft in each
                assert text() == honest
                if engine.stats()["drafter_failure"]:
                    break
            assert "returned token 2139062143" in engine.stats()["drafter_failure"]


def test_a_drafter_that_fails_keeps_nothing_that_it_may_have_read(
    pocket: dict[str, Path], servers: list[RPCServer], tmp_path: Path
) -> None:
    """Neither hidden states, which would fill the memory for them, nor a context that was not computed; later it begins
    anew."""
    with RPCProxy(servers[0].port) as proxy:
        (name,) = device_names(pocket["target"], proxy.address)
        options = {"rpc": proxy.address, "n_gpu_layers": 0, "device_draft": name, "n_slots": 1, **SMALL}
        with Engine(pocket["target"], pocket["dspark"], **options) as engine:
            prompt = engine.tokenize(PROMPTS[1])
            ask: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "lookup": False, "budget": 8}
            proxy.lies = True
            answer = engine.generate(prompt, max_tokens=80, **ask)
            proxy.lies = False
            assert engine.stats()["drafter_failure"] and answer.timings.draft_n == 0
            engine.save_slot(0, tmp_path / "slot")
            head = draft_of(tmp_path / "slot")
            assert head["end"] - head["begin"] + head["taps_rows"] <= 2  # what followed the last failure
            assert engine.generate(prompt + answer.tokens, max_tokens=40, **ask).timings.draft_n > 0


def test_equal_logits_are_drawn_from_as_here(servers: list[RPCServer], tmp_path: Path) -> None:
    """Which of two equal tokens comes first is llama.cpp's to say, not the device's: of a head with each row twice."""
    made = models.qwen3(models.tokenizer())
    head = models.find(made, "output.weight")
    row = len(head.data) // models.N_VOCAB
    head.data = b"".join(2 * head.data[at : at + row] for at in range(0, len(head.data), 2 * row))
    (tmp_path / "twice.gguf").write_bytes(made.encode()[0])

    def texts(**options: Any) -> list[list[int]]:
        with Engine(tmp_path / "twice.gguf", **{**SMALL, "n_ctx": 256}, **options) as engine:
            return [
                engine.generate([5, 6, 7], max_tokens=30, temperature=1, top_k=6, seed=seed).tokens  # a bias reads rows
                for seed in range(8)
            ]

    there = texts(rpc=servers[0].address)
    assert there == texts() and sum(map(len, there)) > 100


def test_what_suffices_for_all_answers_comes_from_the_device(pocket: dict[str, Path], servers: list[RPCServer]) -> None:
    """The largest logit for a greedy answer, some dozens where few tokens are drawn from: whole rows for neither."""
    kinds: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1, "top_k": 6, "seed": 1}]
    with Engine(pocket["target"], rpc=servers[0].address, n_slots=2, **SMALL) as engine:
        tokens = engine.tokenize(PROMPTS[0])
        for pair in (kinds, kinds[::-1]):
            before = engine.stats()["moved_bytes"]["from_device"]
            running = [engine.submit(tokens, SamplingParams(**kind), max_tokens=40) for kind in pair]
            n_tokens = sum(len(one.result().tokens) for one in running)
            assert n_tokens > 20
            assert engine.stats()["moved_bytes"]["from_device"] - before < n_tokens * 4 * engine.n_vocab / 4


@pytest.mark.parametrize(("target", "drafter"), [("target", "dflash"), ("hybrid-target", "hybrid-dflash")])
def test_a_device_without_the_ops_that_send_less(
    pocket: dict[str, Path], servers: list[RPCServer], target: str, drafter: str
) -> None:
    """Its server says so, and whole rows of logits come: the text is the same."""
    texts, moved = [], []
    for lacks in (0, 0x40):
        with (
            RPCProxy(servers[0].port, lacks=lacks) as proxy,
            Engine(pocket[target], pocket[drafter], rpc=proxy.address, **SMALL) as engine,
        ):
            row = 4 * engine.n_vocab
            plain = engine.generate(PROMPTS[0], max_tokens=20, temperature=0, draft="off")
            moved.append(engine.stats()["moved_bytes"]["from_device"] / len(plain.tokens))
            texts += [plain.text, engine.generate(PROMPTS[0], max_tokens=20, temperature=0).text]
    assert len(set(texts)) == 1
    assert moved[1] - moved[0] > 0.8 * row


def test_an_idle_engine_sees_that_its_server_is_gone(pocket: dict[str, Path]) -> None:
    with rpc_servers(1) as (server,), Engine(pocket["target"], rpc=server.address, **SMALL) as engine:
        engine.check_rpc()
        assert engine.generate(PROMPTS[0], max_tokens=2).tokens
        server.kill()
        engine.check_rpc()
        assert isinstance(engine.ended.result(PATIENCE), EngineLostError)


@pytest.mark.parametrize("runs", [False, True], ids=["idle", "in a pass"])
def test_an_engine_closes_while_its_server_hangs(
    pocket: dict[str, Path], runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_LAST_WORDS", 0.5)
    with rpc_servers(1) as (server,):
        engine = Engine(pocket["target"], rpc=server.address, **SMALL)
        running = engine.submit(engine.tokenize(PROMPTS[0]), SamplingParams(temperature=0, ignore_eos=True))
        next(iter(running))
        if not runs:
            running.cancel()
            wait_until(lambda: not engine._scheduler.n_running)
        with server.hanging():
            closing = threading.Thread(target=engine.close)
            closing.start()
            closing.join(PATIENCE)
            assert not closing.is_alive()


@pytest.mark.slow
def test_a_server_that_serves_another_program_is_not_waited_for(
    pocket: dict[str, Path], servers: list[RPCServer]
) -> None:
    with Engine(pocket["target"], rpc=servers[0].address, **SMALL):
        code = f"from dflash_local.native import rpc_devices; rpc_devices({servers[0].address!r})"
        command = [sys.executable, "-c", code]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "serves another program, which only one may do at a time" in second.stderr


def test_engines_without_servers_stay_on_this_machine(pocket: dict[str, Path], servers: list[RPCServer]) -> None:
    with RPCProxy(servers[0].port) as proxy:
        with Engine(pocket["target"], rpc=proxy.address, **SMALL):
            pass
        proxy.traffic.clear()
        with Engine(pocket["target"], pocket["dflash"], **SMALL) as engine:
            assert engine.generate(PROMPTS[0], max_tokens=4).tokens
        # The first engine's last messages are not answered, so that they may come late.
        assert not proxy.traffic.commands.keys() - {"FREE_BUFFER", "BUFFER_CLEAR"}


# ---- the HTTP server ----


def ask(url: str, **body: Any) -> httpx.Response:
    return httpx.post(url + "/completion", json={"prompt": PROMPTS[2], "n_predict": 4, **body}, timeout=60)


@pytest.mark.slow
def test_the_http_server_outlives_an_rpc_server(pocket: dict[str, Path]) -> None:
    with rpc_servers(2) as servers:
        flags = ("-m", pocket["target"], "-md", pocket["dflash"], "-c", 4096, "-np", 2, "-t", 1, "--no-warmup")
        with serving((*flags, "--rpc", addresses(servers))) as (process, url):
            expected = ask(url, temperature=0).json()["content"]
            errors: list[str] = []

            def stream() -> None:
                body = {"prompt": PROMPTS[2], "n_predict": -1, "ignore_eos": True, "stream": True}
                with httpx.stream("POST", url + "/completion", json=body, timeout=60) as answer:
                    for line in answer.iter_lines():
                        started.release()
                        if line.startswith("error") or '"error"' in line:
                            errors.append(line)

            started = threading.Semaphore(0)
            streams = [threading.Thread(target=stream) for _ in range(2)]
            for one in streams:
                one.start()
            for _ in range(4):
                assert started.acquire(timeout=PATIENCE)
            servers[1].kill()
            for one in streams:
                one.join(PATIENCE)
                assert not one.is_alive()
            assert len(errors) == 2
            assert all(f"the RPC server {servers[1].address} was lost" in line for line in errors)

            refused = ask(url)
            assert refused.status_code == 503
            reason = "(was lost|cannot be reached: Connection refused)"  # the second once loading was tried
            again = "the model is loaded again as soon as it is back"
            message = refused.json()["error"]["message"]
            assert re.fullmatch(f"the RPC server {servers[1].address} {reason}; {again}", message)
            assert "Retry-After" in refused.headers
            health = httpx.get(url + "/health")
            assert (health.status_code, health.json()["error"]["code"]) == (503, "rpc_server_lost")
            for path in ("/v1/models", "/props", "/slots", "/metrics?x"):
                assert httpx.get(url + path).status_code in (200, 501), path
            assert process.poll() is None

            servers[1].start()
            wait_until(lambda: httpx.get(url + "/health").status_code == 200)
            assert ask(url, temperature=0).json()["content"] == expected


@pytest.mark.slow
def test_serve_says_what_is_wrong_with_its_servers(pocket: dict[str, Path]) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "dflash_local.cli", "serve", "-m", str(pocket["target"]), "--rpc", address]
    process = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 1
    assert f"error: the RPC server {address} cannot be reached: Connection refused" in process.stderr
    assert "Traceback" not in process.stderr


def test_devices_of_servers_are_listed(servers: list[RPCServer]) -> None:
    command = [sys.executable, "-m", "dflash_local.cli", "serve", "--rpc", addresses(servers), "--list-devices"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.splitlines()
    assert listed[0] == "Available devices:"
    for i, server in enumerate(servers):
        assert listed[i + 1].startswith(f"  RPC{i}: {server.address} (")


# ---- the command ----


def rpc_server(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dflash_local.cli", "rpc-server", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_command_refuses(servers: list[RPCServer]) -> None:
    for flags, why in (
        (("-H", "localhost"), "--host is 'localhost', must be an IPv4 address"),
        (("-p", str(servers[0].port)), f"cannot listen on 127.0.0.1:{servers[0].port}: Address already in use"),
        (("-p", "70000"), "cannot listen on 127.0.0.1:70000"),
        (("-p", str(free_port()), "-d", "CUDA7"), "devices: there is no 'CUDA7', only CPU"),
    ):
        refused = rpc_server(*flags)
        assert refused.returncode == 1, flags
        assert f"error: {why}" in refused.stderr


def test_command_names_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands in its way, which stops root too."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "file"))
    refused = rpc_server("-c", "-p", str(free_port()))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert f"error: cannot keep tensors in {tmp_path / 'file' / 'rpc'}: " in refused.stderr
    assert "set DFLASH_CACHE" in refused.stderr


def test_command_warns_of_other_hosts_and_ends_by_a_signal() -> None:
    command = [sys.executable, "-m", "dflash_local.cli", "rpc-server", "-H", "0.0.0.0", "-p", str(free_port())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("RPC server on 0.0.0.0:")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert "WHOEVER REACHES THIS PORT CAN READ AND WRITE THE MEMORY OF THIS PROCESS" in said
