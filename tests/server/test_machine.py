"""GET /machine: what a server tells of its machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import fields
from inspect import get_annotations
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dflash_local.engine import Engine
from dflash_local.machine.hardware import Machine, process_memory
from dflash_local.server import engine_life
from dflash_local.server.banner import pair_line
from dflash_local.server.fields.request import Defaults
from dflash_local.server.formats.generation_settings import default_settings
from dflash_local.server.settings import Settings
from dflash_local.server.shapes.machine_report import Computer
from dflash_local.throughput import SECONDS
from tests.fake_native import COSTS, FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live
from tests.server.test_router import folder, model, routing  # noqa: F401

VERIFY = COSTS["cost_verify_ms"]
HYBRID = {"memory": {"target": 10, "context": 20, "compute": 5, "slot_state": 3, "slot_tape": 2}}


class Silent(FakeNative):
    """A library that tells nothing of costs and choices."""

    def stats(self) -> dict[str, Any]:
        return {name: value for name, value in super().stats().items() if name not in COSTS and name != "choice"}


def told(server: Live, query: str = "", status: int = 200) -> dict[str, Any]:
    answer = server.http.get(f"/machine{query}")
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(
        lambda _: Engine.over(FakeNative(b"0123456789abcdef", n_slots=2, info=HYBRID)), Settings(alias="a")
    ) as one:
        yield one


def test_the_computer_is_a_machine() -> None:
    assert list(get_annotations(Computer)) == [field.name for field in fields(Machine)]


def check(server: Live, body: dict[str, Any]) -> None:
    document = server.http.get("/openapi.json").json()
    schema = document["paths"]["/machine"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(body)


def test_it_is_as_published(server: Live) -> None:
    server.engine.submit([*b"ab"]).result()
    body = told(server)
    check(server, body)
    assert body["state"] == "ready"
    assert body["pair"]["target"]["name"] == "a"
    assert body["computer"]["logical_cores"] >= 1
    assert {part["part"]: part["bytes"] for part in body["memory"]["parts"]} == {
        "target": 10, "context": 20, "compute": 5, "host_cache": 7,
    }  # fmt: skip
    assert (body["memory"]["slot_state"], body["memory"]["cells"]["size"]) == (3, 4096)


def test_where_parts_lie() -> None:
    """By what was allocated, whatever the options ask for."""
    sizes = {"target": 9, "drafter": 2, "context": 3, "drafter_context": 1, "compute": 1}
    placement = {"CPU": {"target": 5, "context": 3, "tapes": 1}, "CUDA0": {"target": 4, "drafter": 2, "compute": 1}}
    native = FakeNative(info={"memory": sizes, "placement": placement})
    with live(lambda _: Engine.over(native)) as server:
        body = told(server)
        check(server, body)
        assert {part["part"]: part["on"] for part in body["memory"]["parts"]} == {
            "target": "split", "drafter": "gpu", "context": "cpu", "drafter_context": "cpu", "compute": "gpu",
            "host_cache": "cpu",
        }  # fmt: skip


def test_costs_and_their_roofline(server: Live) -> None:
    body = told(server)
    assert body["costs"]["verify"] == VERIFY
    assert body["roofline"] == {
        "floor_ms": 8, "row_ms": 1, "knee": 8, "bytes_per_second": 1e3 / 8, "rows_per_second": 1e3,
    }  # fmt: skip
    assert (body["choices"]["plain_rate"], body["choices"]["drafted_rate"]) == (125, 250)


def test_a_library_that_tells_no_costs() -> None:
    with live(lambda _: Engine.over(Silent())) as server:
        body = told(server)
        check(server, body)
        assert body["costs"] is body["roofline"] is body["choices"] is None


def test_throughput_of_what_ran(server: Live) -> None:
    before = told(server)["totals"]
    server.engine.submit([*b"abc"]).result()
    body = told(server)
    added = {name: body["totals"][name] - count for name, count in before.items() if name != "seconds"}
    # One token with the prompt, 15 in 4 passes of up to 4, of which the last token of each was not drafted.
    assert added == {
        "requests": 1, "tokens": 16, "prompt_tokens": 3, "passes": 4, "draft_tokens": 16, "accepted": 11,
    }  # fmt: skip
    seconds = body["throughput"]["seconds"]
    assert sum(second["tokens"] for second in seconds) == pytest.approx(body["totals"]["tokens"], abs=0.01)
    assert max(second["running"] for second in seconds) == 1
    assert body["throughput"]["kept"] == SECONDS
    later = told(server, f"?since={seconds[-1]['t'] + 1}")
    assert [second for second in later["throughput"]["seconds"] if second["t"] <= seconds[-1]["t"]] == []


def test_an_idle_server_counts_no_seconds() -> None:
    with live(lambda _: Engine.over(FakeNative())) as server:
        assert told(server)["throughput"]["seconds"] == []


@pytest.mark.parametrize("since", ["-1", "x", "1e3", "9" * 20, "%D9%A1"])
def test_a_wrong_since(server: Live, since: str) -> None:
    assert told(server, f"?since={since}", 400)["error"]["param"] == "since"


def test_slots_as_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "STATS_PATIENCE", 0.05)  # a step that is held up here does not tell them
    gate = threading.Semaphore(0)
    native = FakeNative(b"0123456789abcdef", gate=gate, n_batch=4, n_slots=2)
    with live(lambda _: Engine.over(native)) as server:

        def slots() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = told(server)["slots"]
            return found

        assert [(slot["state"], slot["task"]) for slot in slots()] == [("idle", None)] * 2
        generation = server.engine.submit([*b"prompt"], max_tokens=9)
        gate.release()
        wait_until(lambda: slots()[0]["state"] == "reading" and slots()[0]["read"] == 4)
        assert (slots()[0]["prompt"], slots()[0]["cached"], slots()[0]["tokens"]) == (6, 0, 0)
        assert slots()[0]["tokens_per_second"] is None
        assert told(server)["totals"]["prompt_tokens"] == 4
        gate.release(2)
        wait_until(lambda: slots()[0]["state"] == "writing" and slots()[0]["tokens"] == 5)
        gate.release(5)
        generation.result()
        wait_until(lambda: slots()[0]["state"] == "idle")
        ended = slots()[0]
        assert (ended["tokens"], ended["acceptance_length"], ended["max_tokens"]) == (9, 4, 9)
        assert ended["tokens_per_second"] > 0
        assert slots()[1]["task"] is None


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        (Settings(slots_endpoint=False), ["slots"]),
        (Settings(metrics_endpoint=False), ["choices", "phases", "totals", "throughput"]),
    ],
)
def test_what_was_switched_off_is_not_told(settings: Settings, absent: list[str]) -> None:
    with live(lambda _: Engine.over(FakeNative()), settings) as server:
        body = told(server)
        check(server, body)
        assert {name for name, value in body.items() if value is None} == set(absent)


def test_a_key_is_needed() -> None:
    with live(lambda _: Engine.over(FakeNative()), Settings(api_keys=("secret",))) as server:
        told(server, status=401)
        assert server.http.get("/machine", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_while_it_loads() -> None:
    may_load = threading.Event()

    def load(_: object) -> Engine:
        may_load.wait(PATIENCE)
        return Engine.over(FakeNative())

    with live(load, wait=False) as server:
        try:
            assert told(server, status=503)["error"] == server.http.get("/health").json()["error"]
        finally:
            may_load.set()


def test_while_it_sleeps() -> None:
    natives: list[FakeNative] = []

    def load(_: object) -> Engine:
        natives.append(FakeNative())
        return Engine.over(natives[-1])

    with live(load, Settings(sleep_idle_seconds=0.1)) as server:
        wait_until(lambda: natives[0].destroyed)
        body = told(server)
        check(server, body)
        assert body["state"] == "sleeping"
        assert body["costs"]["verify"] == VERIFY
        assert len(natives) == 1  # a look does not wake it


def test_a_router_tells_of_the_machine_and_loads_nothing(folder: Path) -> None:  # noqa: F811
    with routing(folder, model("m"), model("n")) as server:
        body = told(server)
        assert body["models"] == [{"id": "m", "status": "unloaded"}, {"id": "n", "status": "unloaded"}]
        assert body["computer"]["cores"] >= 1
        assert told(server, "?model=m&autoload=0", 400)["error"]["code"] == "model_not_loaded"


@pytest.mark.skipif(not process_memory().resident, reason="the system does not tell a process' memory")
def test_a_real_engine(pocket: dict[str, Path]) -> None:
    with live(
        lambda _: Engine(pocket["target"], pocket["dflash"], n_ctx=2048, n_slots=2, cost_cache=False), Settings()
    ) as server:
        # A budget of its own: what passes cost here may make drafting not worth while.
        server.engine.generate("What is 48 plus 24?", max_tokens=48, temperature=0, ignore_eos=True, budget=8)
        body = told(server)
        check(server, body)
        drafter, parts = body["pair"]["drafter"], {part["part"]: part for part in body["memory"]["parts"]}
        assert (drafter["name"], drafter["kind"]) == (pocket["dflash"].name, "dflash")
        assert all(layer < body["pair"]["target"]["n_layer"] for layer in drafter["target_layers"])
        assert {"target", "drafter", "context", "drafter_context", "compute"} <= parts.keys()
        files = pocket["target"].stat().st_size + pocket["dflash"].stat().st_size
        assert 0.5 * files < parts["target"]["bytes"] + parts["drafter"]["bytes"] <= files
        process, whole = body["memory"]["process"], body["computer"]["memory_total"]
        assert process["files"] <= process["resident"] <= process["peak"] <= whole
        if all(part["on"] == "cpu" for part in parts.values()):
            assert sum(part["bytes"] for part in parts.values()) < process["resident"] + files
        assert body["costs"]["source"] == "measured"
        assert {"1", "2", "4", "8", "16"} <= body["costs"]["verify"].keys()
        assert body["roofline"]["bytes_per_second"] > 0
        assert [device["type"] for device in body["devices"]]
        totals = body["totals"]
        assert 0 < totals["accepted"] <= totals["draft_tokens"]
        assert totals["tokens"] == totals["passes"] + totals["accepted"] + 1  # and the one of the prompt's pass
        assert sum(body["choices"]["reasons"].values()) >= totals["passes"]


def test_next_token_layers_as_the_drafter(untrained_mtp: Path) -> None:
    """They have no file of their own; what they take is told apart from the target."""
    options: dict[str, Any] = {"n_ctx": 512, "cost_cache": False, "warmup": False}
    with live(lambda _: Engine(untrained_mtp, **options), Settings()) as server:
        body = told(server)
        check(server, body)
        target, drafter = body["pair"]["target"], body["pair"]["drafter"]
        assert (drafter["name"], drafter["kind"], drafter["target_layers"]) == ("MTP layers", "mtp", [])
        assert (drafter["n_layer"], drafter["draft_ctx"]) == (1, 512)
        assert 0 < drafter["size"] < target["size"] / 4
        parts = {part["part"]: part["bytes"] for part in body["memory"]["parts"]}
        assert parts["drafter_context"] > 0 and "drafter" not in parts
        assert default_settings(server.engine, Defaults())["speculative.types"] == "draft-mtp"
        assert "+ MTP layers, 1 slot" in pair_line(server.engine)
