"""The HTTP load generator against a toy server in another process: counting, order, failure, and that nothing is left
running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.http_load import LoadError, Server, run_load
from tests.patience import wait_until

# Answers the last message's words in upper case; 'slow' takes 0.2 s, 'meet' waits for four, 'fail' is an error.
TOY = r"""
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

most = running = 0
lock, all_four = threading.Lock(), threading.Barrier(4)

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args): pass

    def reply(self, status, data, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(200, json.dumps({"most": most}).encode())

    def do_POST(self):
        global most, running
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            running += 1; most = max(most, running)
        text = body["messages"][-1]["content"]
        time.sleep(0.2 if "slow" in text else 0)
        if "meet" in text:
            all_four.wait(120)
        with lock:
            running -= 1
        if "fail" in text:
            return self.reply(500, b"it failed")
        timings = {"prompt_n": 7, "prompt_ms": 50.0, "predicted_n": 11, "predicted_ms": 500.0, "draft_n_accepted": 8}
        if not body.get("stream"):
            answer = {"choices": [{"message": {"content": text.upper()}, "finish_reason": "stop"}], "timings": timings}
            return self.reply(200, json.dumps(answer).encode())
        events = [{"choices": [{"delta": {"role": "assistant"}}]}]
        events += [{"choices": [{"delta": {"content": c.upper()}}]} for c in text]
        events.append({"choices": [{"delta": {}, "finish_reason": "length"}], "timings": timings})
        stream = [*(f"data: {json.dumps(event)}\n\n" for event in events), "data: [DONE]\n\n"]
        self.reply(200, "".join(stream).encode(), "text/event-stream")

port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("toy", [sys.executable, "-c", TOY], tmp_path_factory.mktemp("toy") / "log") as server:
        yield server


def body(text: str, **extra: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **extra}


def test_answers_keep_the_order_of_their_prompts(toy: Server) -> None:
    result = run_load(toy.port, [body("slow one"), body("two"), body("three"), body("four")], clients=3)
    assert [answer.text for answer in result.answers] == ["SLOW ONE", "TWO", "THREE", "FOUR"]
    assert result.wall >= 0.2 and result.answers[0].latency >= 0.2
    assert result.answers[0].ttft == 0.05
    assert (result.answers[0].n_tokens, result.answers[0].passes, result.answers[0].generate) == (11, 2, 0.5)


def test_clients_work_at_the_same_time(toy: Server) -> None:
    """Each answer of `meet` waits for all four."""
    assert len(run_load(toy.port, [body("meet")] * 4, clients=4).answers) == 4
    assert run_load(toy.port, [body("slow")] * 4, clients=1).wall >= 0.8


def test_streams_fold_into_the_same_answer(toy: Server) -> None:
    answer = run_load(toy.port, [body("abc", stream=True)], clients=1).answers[0]
    assert (answer.text, answer.finish_reason, answer.passes) == ("ABC", "length", 2)
    assert 0 < answer.ttft <= answer.latency


def test_one_failed_request_fails_the_load(toy: Server) -> None:
    with pytest.raises(LoadError, match=r"500: it failed"):
        run_load(toy.port, [body("fine"), body("fail"), body("fine")], clients=2)


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(LoadError, match="status 3:\nwhy it failed"),
        Server("bad", [sys.executable, "-c", "print('why it failed'); exit(3)"], tmp_path / "log"),
    ):
        pass  # fmt: skip


def test_leaving_ends_the_whole_process_group(tmp_path: Path) -> None:
    spawn = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', 'dflash-orphan'])\n"
    )
    with Server("parent", [sys.executable, "-c", spawn + TOY], tmp_path / "log") as server:
        assert server.cpu_seconds() > 0
        assert _orphans() == 1
    wait_until(lambda: _orphans() == 0)


def _orphans() -> int:
    """How many of the servers' children run."""
    listing = subprocess.run(["ps", "-eww", "-o", "stat,args"], capture_output=True, text=True, check=True).stdout
    return sum("time.sleep(600) dflash-orphan" in line and not line.startswith("Z") for line in listing.splitlines())
