"""How often a pass waits for its servers: once for each, drafts or not, with the drafter on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rpc_proxy import RPCProxy
from dflash_local.draft_options import Draft
from dflash_local.engine import Completion, Engine
from tests.rpc.rpc_servers import device_names, rpc_servers

PROMPTS = ("The quick brown fox", "def add(a, b):\n    return", "1, 2, 3, 4,")
N = 40
OPTIONS: dict[str, Any] = {
    "n_ctx": 1024, "n_slots": 1, "n_threads": 1, "cost_cache": False, "warmup": False, "tensor_split": "1,1",
    "budget": 12, "cache_ram": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def proxies() -> Iterator[list[RPCProxy]]:
    """Before two servers."""
    with ExitStack() as stack:
        servers = stack.enter_context(rpc_servers(2))
        yield [stack.enter_context(RPCProxy(server.port)) for server in servers]


def answer(engine: Engine, proxies: list[RPCProxy], draft: Draft) -> tuple[list[Completion], list[float]]:
    """Answers, and round trips per pass of each server."""
    engine.generate("x", max_tokens=4, draft=draft)  # what is asked once
    for proxy in proxies:
        proxy.traffic.clear()
    done = [engine.generate(prompt, max_tokens=N, temperature=0, draft=draft, cache_prompt=False) for prompt in PROMPTS]
    n_passes = sum(one.timings.n_passes + 1 for one in done)  # the prompt's
    return done, [proxy.traffic.round_trips / n_passes for proxy in proxies]


@pytest.mark.parametrize(("target", "drafter"), [("target", "dflash"), ("hybrid-target", "hybrid-dflash")])
def test_one_wait_for_each_server(pocket: dict[str, Path], proxies: list[RPCProxy], target: str, drafter: str) -> None:
    rpc = ",".join(proxy.address for proxy in proxies)
    with Engine(pocket[target], pocket[drafter], rpc=rpc, **OPTIONS) as engine:
        assert engine.info["drafter"]["head_copied"]
        assert engine.info["drafter"]["taps_on"] is None
        placement = engine.info["placement"]
        on_servers = [parts for name, parts in placement.items() if name.startswith("RPC")]
        assert len(on_servers) == 2
        assert not any(part.startswith("drafter") for parts in on_servers for part in parts)
        plain, of_plain = answer(engine, proxies, "off")
        drafted, of_drafted = answer(engine, proxies, "tree")
    assert [one.text for one in drafted] == [one.text for one in plain]
    n_drafted, n_plain = (sum(one.timings.n_passes for one in done) for done in (drafted, plain))
    assert n_drafted < n_plain
    for first, last in (of_plain, of_drafted):
        # The rows that the second goes on with; and taps, which come while it computes.
        assert first < 2.3
        # What was found of the logits, and taps: asked for together.
        assert last < 1.3


def test_the_copy_is_the_head(pocket: dict[str, Path], proxies: list[RPCProxy]) -> None:
    """Drafts are those of a drafter that computes with the target's own tensor."""
    accepted = {}
    rpc = ",".join(proxy.address for proxy in proxies)
    _, last = device_names(pocket["target"], rpc)
    for place in ("none", last):
        with Engine(pocket["target"], pocket["dflash"], rpc=rpc, device_draft=place, **OPTIONS) as engine:
            assert engine.info["drafter"]["head_copied"] == (place == "none")
            done = [engine.generate(prompt, max_tokens=N, temperature=0) for prompt in PROMPTS]
            accepted[place] = sum(one.timings.draft_n_accepted for one in done)
    assert accepted["none"] > 0
    assert abs(accepted["none"] - accepted[last]) <= 0.1 * accepted["none"]  # kernels differ in the last bits


def test_a_conversation_is_copied_in_few_calls(
    pocket: dict[str, Path], proxies: list[RPCProxy], tmp_path: Path
) -> None:
    """On a device the rows of accepted drafts lie in many runs of cells; a layer's runs are read together."""
    options = {**OPTIONS, "tensor_split": "1", "budget": 32, "n_gpu_layers": 99}
    with Engine(pocket["target"], pocket["dflash"], rpc=proxies[0].address, **options) as engine:
        done = engine.generate(PROMPTS[1], max_tokens=120, temperature=1, seed=1, ignore_eos=True)
        cells = sorted(cell for cell, *_ in engine._native.cells()["caches"][0]["streams"][0]["cells"])
        n_runs = sum(after > cell + 1 for cell, after in pairwise(cells)) + 1
        assert n_runs > 5
        proxies[0].traffic.clear()
        engine.save_slot(0, tmp_path / "slot")
        n_layers, n_calls = engine.info["target"]["n_layer"], proxies[0].traffic.commands["GET_TENSOR"]
        turn = [*engine.tokenize(PROMPTS[1]), *done.tokens, *engine.tokenize("\n\ndef")]
        stayed = engine.generate(turn, max_tokens=N, temperature=0)
        engine.erase_slot(0)
        engine.restore_slot(0, tmp_path / "slot")
        restored = engine.generate(turn, max_tokens=N, temperature=0)
    assert n_calls <= 2 * n_layers + 8  # K and V of each layer, and what the drafter has not read yet
    assert restored.cached_tokens == stayed.cached_tokens > 100 and restored.tokens == stayed.tokens
