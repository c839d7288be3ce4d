"""What a server tells of itself: models, properties, slots, metrics; and the paths that others have and it has not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from dflash_local import generation, running_request, scheduler
from dflash_local.engine import Engine
from dflash_local.sampling import SamplingParams
from dflash_local.server.metrics import histogram_lines
from dflash_local.server.routes.absent import ABSENT
from dflash_local.server.settings import Settings
from dflash_local.stats import Histogram
from tests.fake_native import FakeNative
from tests.patience import wait_until
from tests.server.live import Live, live

SETTINGS = Settings(alias="a", aliases=("a", "b/c"), tags=("t",), model_path="x.gguf")
HISTOGRAMS = ("request_queue_time_seconds", "time_to_first_token_seconds", "time_per_output_token_seconds")


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(lambda _: Engine.over(FakeNative(b"hello", n_slots=2)), SETTINGS) as running:
        yield running


def samples(server: Live) -> dict[str, float]:
    lines = [line for line in server.http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


# ---- models and properties ----


def test_models(server: Live) -> None:
    body = server.http.get("/v1/models").json()
    (model,) = body["data"]
    assert (model["id"], model["aliases"], model["tags"]) == ("a", ["a", "b/c"], ["t"])
    assert model["meta"]["n_ctx"] == 4096
    (ollama,) = body["models"]
    assert (ollama["name"], ollama["model"], ollama["capabilities"]) == ("a", "a", ["completion"])


def test_one_model(server: Live) -> None:
    (listed,) = server.http.get("/v1/models").json()["data"]
    assert [server.http.get(f"/v1/models/{name}").json() for name in ("a", "b/c", "b%2Fc")] == [listed] * 3
    assert server.openai.models.retrieve("a").id == "a"
    with pytest.raises(openai.NotFoundError) as caught:
        server.openai.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_one_name_is_an_alias_too() -> None:
    with live(lambda _: Engine.over(FakeNative()), Settings(alias="only")) as server:
        assert server.http.get("/models").json()["data"][0]["aliases"] == ["only"]


def test_props(server: Live) -> None:
    props = server.http.get("/props").json()
    params = props["default_generation_settings"]["params"]
    assert (params["temperature"], params["top_k"], params["seed"], params["n_predict"]) == (0.8, 40, 2**32 - 1, -1)
    assert params["samplers"][:3] == ["penalties", "dry", "top_n_sigma"]
    assert params["speculative.types"] == "none"
    assert (props["model_path"], props["is_sleeping"], props["endpoint_slots"], props["ui"]) == (
        "x.gguf", False, True, True,
    )  # fmt: skip
    assert {"modalities", "media_marker", "chat_template", "bos_token", "eos_token", "build_info"} <= props.keys()


def test_properties_cannot_be_set(server: Live) -> None:
    answer = server.http.post("/props", json={})
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_supported_error")


# ---- slots ----


def test_a_slot_tells_of_its_request() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(b"0123456789abcdef", gate=gate, n_batch=4)
    with live(lambda _: Engine.over(native)) as server:

        def slot() -> dict[str, Any]:
            found: list[dict[str, Any]] = server.http.get("/slots").json()
            return found[0]

        assert slot() == {"id": 0, "n_ctx": 4096, "speculative": False, "is_processing": False}
        assert server.http.get("/slots?fail_on_no_slot=1").status_code == 200
        generation = server.engine.submit([*b"prompt"], SamplingParams(top_k=3), max_tokens=7)
        gate.release()
        wait_until(lambda: slot().get("n_prompt_tokens_processed") == 4)
        busy = slot()
        assert (busy["is_processing"], busy["params"]["top_k"], busy["params"]["n_predict"]) == (True, 3, 7)
        assert busy["next_token"] == [{"has_next_token": True, "n_remain": 7, "n_decoded": 0}]
        gate.release(2)
        wait_until(lambda: slot()["next_token"][0]["n_decoded"] == 5)
        assert slot()["next_token"][0]["n_remain"] == 2
        assert (slot()["n_prompt_tokens"], slot()["n_prompt_tokens_cache"]) == (6 + 4, 0)  # the last one was not read
        full = server.http.get("/slots?fail_on_no_slot=1")
        assert (full.status_code, full.headers["Retry-After"], full.json()["error"]["code"]) == (503, "1", "no_slot")
        gate.release(10)
        generation.result()
        wait_until(lambda: not slot()["is_processing"])
        idle = slot()
        # The budget of what has ended is not that of an idle slot.
        assert idle["next_token"] == [{"has_next_token": False, "n_remain": -1, "n_decoded": 0}]
        assert idle["id_task"] == busy["id_task"]
        server.engine.submit([*b"prompt"], max_tokens=1).result()
        wait_until(lambda: slot()["id_task"] == busy["id_task"] + 1)
        assert slot()["n_prompt_tokens_cache"] == 5


# ---- metrics ----


def test_a_histogram_counts() -> None:
    histogram = Histogram((1, 10))
    for value in (0.5, 1, 2, 10, 11):
        histogram.add(value)
    assert [*histogram_lines("x", "what", histogram)] == [
        "# HELP dflash:x what",
        "# TYPE dflash:x histogram",
        'dflash:x_bucket{le="1"} 2',
        'dflash:x_bucket{le="10"} 4',
        'dflash:x_bucket{le="+Inf"} 5',
        "dflash:x_sum 24.5",
        "dflash:x_count 5",
    ]


def test_times_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits 0.2 s for the only slot has its first token later than that."""
    now, gate = [0.0], threading.Semaphore(0)
    for module in (generation, running_request, scheduler):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with live(lambda _: Engine.over(FakeNative(b"hello", gate=gate))) as server:
        both = [server.engine.submit([*b"ab"]), server.engine.submit([*b"cd"])]
        wait_until(lambda: server.engine.n_running == 1)
        now[0] = 0.2
        gate.release(100)
        assert [one.result().text for one in both] == ["hello"] * 2
        told = samples(server)
        assert [told[f"dflash:{name}_count"] for name in HISTOGRAMS] == [2] * 3
        for name in ("request_queue_time_seconds", "time_to_first_token_seconds"):
            assert told[f'dflash:{name}_bucket{{le="0.1"}}'] == 1
            assert 0.2 <= told[f"dflash:{name}_sum"] < 10
        # The native engine says that each pass of the two took 2 ms: four tokens after the first.
        assert told["dflash:time_per_output_token_seconds_sum"] == pytest.approx(2 * 4e-3 / 4)
        # One token has no time between tokens.
        server.engine.submit([*b"ef"], max_tokens=1).result()
        told = samples(server)
        assert [told[f"dflash:{name}_count"] for name in HISTOGRAMS] == [3, 3, 2]


def test_metrics_tell_since_when(server: Live) -> None:
    started = int(server.http.get("/metrics").headers["Process-Start-Time-Unix"])
    assert 0 <= time.time() - started < 3600
    assert 0 <= started - server.http.get("/v1/models").json()["data"][0]["created"] < 3600


# ---- what is not there ----


@pytest.mark.parametrize("path", sorted(ABSENT))
def test_absent_paths_say_why(server: Live, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = server.http.request(method, path.replace("{path:path}", "x/y").replace("{digest:path}", "sha256:0"))
        error = answer.json()["error"]
        if not path.startswith("/api/"):  # Ollama's errors are nothing but their message
            assert error["type"] == "not_supported_error"
            error = error["message"]
        assert answer.status_code == 501
        assert error.endswith(ABSENT[path])


def test_adapters(server: Live) -> None:
    assert server.http.get("/lora-adapters").json() == []
    assert server.http.post("/lora-adapters", json=[{"id": 0, "scale": 1}]).status_code == 501


def test_an_unknown_method_names_those_that_there_are(server: Live) -> None:
    answer = server.http.delete("/v1/chat/completions")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_browsers_are_told_once_that_there_is_no_icon(server: Live) -> None:
    answer = server.http.get("/favicon.ico")
    assert (answer.status_code, answer.content) == (204, b"")
    assert "max-age=86400" in answer.headers["Cache-Control"]
