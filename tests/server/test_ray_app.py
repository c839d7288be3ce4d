"""Two replicas of the pocket pair on a local Ray cluster: conversations return, one replica dies, all are replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from dflash_local import cli
from dflash_local.cli.serving.serve_replicas import app_factory
from dflash_local.server.ray_app import NAME, ReplicaOptions, application
from dflash_local.server.replicas.asked import REPLICA
from tests.patience import wait_until

pytest.importorskip("ray.serve", reason="pip install 'dflash-local[ray]'")
pytestmark = pytest.mark.slow

HOST = "127.0.0.1"
OPTIONS = ReplicaOptions(n_replicas=2, n_requests=8, n_cpus=1, drain_timeout=60, patience=60, health_period=1)
# What Ray calls the processes.
TITLE = "ray::ServeReplica:dflash-local:Replica"


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def flags(pocket: dict[str, Path]) -> list[str]:
    models = ["-m", str(pocket["target"]), "-md", str(pocket["dflash"])]
    return [*models, "-c", "8192", "-np", "4", "-t", "1", "--no-warmup", "-a", "pocket"]


class Cluster:
    """Where the replicas answer."""

    def __init__(self, url: str, make_app: Any) -> None:
        self.url, self._make_app = url, make_app

    def deploy(self) -> None:
        """Start the replicas, or new ones in place of those that run."""
        from ray import serve

        serve.run(application(self._make_app, OPTIONS), name=NAME, route_prefix="/", logging_config={})

    def pids(self) -> list[int]:
        """The replicas' processes."""
        children = psutil.Process().children(recursive=True)
        return [child.pid for child in children if " ".join(child.cmdline()).startswith(TITLE)]

    def replicas(self, n: int = 20) -> set[str]:
        """Who answers."""
        return {httpx.get(f"{self.url}/health", timeout=60).headers[REPLICA] for _ in range(n)}

    def chat(self, messages: Sequence[Any], **fields: Any) -> httpx.Response:
        body = {"messages": messages, "temperature": 0, "max_tokens": 16, **fields}
        response = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=120)
        assert response.status_code == 200, response.text
        return response

    def stream(self, i: int, n_tokens: int, replica: str = "") -> tuple[str, str]:
        """The replica, and all that the stream says."""
        headers = {REPLICA: replica} if replica else {}
        body = {"messages": user(f"What is {i} plus {i}?"), "max_tokens": n_tokens, "ignore_eos": True, "stream": True}
        url = f"{self.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as response:
            assert response.status_code == 200
            return response.headers[REPLICA], "".join(response.iter_text())


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def cluster(pocket: dict[str, Path]) -> Iterator[Cluster]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray import serve

    args = cli.parse(["serve", *flags(pocket)])[1]
    port = free_port()
    ray.init(num_cpus=6, include_dashboard=False)
    try:
        serve.start(http_options={"host": HOST, "port": port})
        running = Cluster(f"http://{HOST}:{port}", app_factory(args))
        running.deploy()
        yield running
    finally:
        serve.shutdown()
        ray.shutdown()


def test_a_conversation_returns_to_its_replica(cluster: Cluster) -> None:
    seen = set()
    for i in range(8):
        messages = user(f"What is {i + 20} plus {i + 31}? Explain it with many words, please.")
        first = cluster.chat(messages)
        content = first.json()["choices"][0]["message"]["content"]
        later = cluster.chat([*messages, {"role": "assistant", "content": content}, *user("And again?")])
        assert later.headers[REPLICA] == first.headers[REPLICA]
        # The chat template may write the answer anew, but not the prompt.
        cached = later.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= first.json()["usage"]["prompt_tokens"] - 8
        seen.add(first.headers[REPLICA])
    assert len(seen) == 2


def test_text_prompts_and_names(cluster: Cluster) -> None:
    def who(body: Any, **headers: str) -> str:
        response = httpx.post(
            f"{cluster.url}/v1/completions", json={**body, "max_tokens": 4}, headers=headers, timeout=60
        )
        assert response.status_code == 200, response.text
        return str(response.headers[REPLICA])

    text = "1 plus 2 is 3. " * 10
    home = who({"prompt": text})
    assert {who({"prompt": text + "2 plus 3 is 5. " * n}) for n in range(1, 6)} == {home}
    name = "a conversation"
    home = who({"prompt": "x"}, **{"X-Conversation-Id": name})
    assert {who({"prompt": str(n)}, **{"X-Conversation-Id": name}) for n in range(6)} == {home}
    for replica in cluster.replicas():
        assert httpx.get(f"{cluster.url}/slots", headers={REPLICA: replica}).headers[REPLICA] == replica
    assert httpx.get(f"{cluster.url}/slots", headers={REPLICA: "nobody"}).status_code == 404


def test_streams_stream(cluster: Cluster) -> None:
    body = {"messages": user("Count."), "max_tokens": 200, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{cluster.url}/v1/chat/completions", json=body, timeout=60) as response:
        pieces = list(response.iter_raw())
    assert len(pieces) > 10
    assert b"".join(pieces).endswith(b"data: [DONE]\n\n")


def test_a_client_that_leaves_frees_its_slot(cluster: Cluster) -> None:
    body = {"messages": user("Go on."), "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{cluster.url}/v1/chat/completions", json=body, timeout=60) as response:
        replica = response.headers[REPLICA]
        next(response.iter_raw())

    def idle() -> bool:
        slots = httpx.get(f"{cluster.url}/slots", headers={REPLICA: replica}, timeout=60).json()
        return not any(slot["is_processing"] for slot in slots)

    wait_until(idle, 3)


def load(cluster: Cluster, pool: ThreadPoolExecutor, n_tokens: int) -> list[Future[tuple[str, str]]]:
    """Four streams on each of the two replicas, which write."""
    replicas = sorted(cluster.replicas())
    streams = [pool.submit(cluster.stream, i, n_tokens, replicas[i % 2]) for i in range(8)]

    def busy() -> bool:
        slots = [
            httpx.get(f"{cluster.url}/slots", headers={REPLICA: replica}, timeout=60).json() for replica in replicas
        ]
        return all(sum(slot["is_processing"] for slot in some) >= 3 for some in slots)

    wait_until(busy, 30)
    return streams


def test_a_replica_is_killed_under_load(cluster: Cluster) -> None:
    before = cluster.replicas()
    assert len(before) == 2
    with ThreadPoolExecutor(8) as pool:
        streams = load(cluster, pool, 1500)
        os.kill(cluster.pids()[0], signal.SIGKILL)
        told = [stream.result(120) for stream in streams]
    broken = {replica for replica, text in told if not text.endswith("data: [DONE]\n\n")}
    assert len(broken) == 1 and broken < before
    for replica, text in told:
        if replica in broken:  # it says so
            assert json.loads(text.rsplit("data: ", 1)[1])["error"]["code"] == "replica_lost"
        else:
            assert '"finish_reason":"length"' in text
    (survivor,) = before - broken
    assert survivor in {replica for replica, _ in told}
    # Requests go on meanwhile, and it comes back.
    cluster.chat(user("Are you there?"))
    wait_until(lambda: len(cluster.replicas() - broken) == 2, 90)
    assert survivor in cluster.replicas()


def test_replicas_are_drained(cluster: Cluster) -> None:
    before = cluster.replicas()
    with ThreadPoolExecutor(8) as pool:
        streams = load(cluster, pool, 1500)
        deployed = ThreadPoolExecutor(1).submit(cluster.deploy)
        while not deployed.done():  # new requests find somebody all the while
            cluster.chat(user("Are you there?"))
        deployed.result()
        for stream in streams:
            replica, text = stream.result(120)
            assert replica in before
            assert text.endswith("data: [DONE]\n\n")
    wait_until(lambda: not (cluster.replicas() & before), 90)
    assert len(cluster.replicas()) == 2


def test_the_command(pocket: dict[str, Path], tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "dflash_local.cli",
        "serve",
        *flags(pocket),
        "--replicas",
        "1",
        "--port",
        str(port),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or "listening on" in log.read_text(), 120)
        assert process.poll() is None, log.read_text()
        cluster = Cluster(f"http://{HOST}:{port}", None)
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(cluster.stream, 1, 1500)
            wait_until(lambda: 'is_processing":true' in httpx.get(f"{cluster.url}/slots").text, 10)
            process.send_signal(signal.SIGTERM)
            assert stream.result(60)[1].endswith("data: [DONE]\n\n")
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
