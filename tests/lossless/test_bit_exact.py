"""--bit-exact: a row's logits are the same bits in every pass, so drafted text is plain text, token for token, of
quantized pairs too.

Nothing here is allowed to differ: no tolerance, no ties.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from dflash_local import Engine
from dflash_local.convert.gguf_metadata import read_header
from dflash_local.errors import RequestError
from dflash_local.native import quantize
from dflash_local.sampling import SamplingParams
from tests.fast import some_fast
from tests.fuzz import architectures
from tests.fuzz.gguf_image import Image
from tests.gguf_files import mixed
from tests.trees import models
from tests.trees.forest import random_tree, words
from tests.trees.twin import Twin

from .test_tokens import OPENINGS, PROMPTS, chat

MIXED = "mixed"  # the matrices of a file have these types in turns
KINDS = [
    Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.IQ4_NL, Type.Q8_0, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.Q2_K,
    Type.Q3_K, Type.IQ4_XS, Type.IQ3_S, Type.IQ3_XXS, Type.IQ2_S, Type.TQ1_0, Type.TQ2_0, Type.F16,
]  # fmt: skip
TYPES = ["f16", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k_m", "q8_0", MIXED]
DRAFTS: list[dict[str, Any]] = [{}, {"budget": 64}, {"budget": 16, "draft": "chain"}, {"budget": 5}]


def open_engine(target: Path, drafter: Path | None, n_ctx: int = 1024, **options: Any) -> Engine:
    """`n_ctx`: of a slot."""
    options = {"n_ctx": n_ctx * options.get("n_slots", 1), "warmup": False, "bit_exact": True, **options}
    try:
        return Engine(target, drafter, **options)
    except RequestError as error:
        if "do not run on this CPU" in str(error) or "no row-invariant kernel" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="module", params=some_fast(TYPES, ("f16", MIXED)))
def target(request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "f16":
        return pocket["target"]
    path = tmp_path_factory.mktemp("exact") / f"{request.param}.gguf"
    if request.param == MIXED:
        mixed(pocket["target"], path, KINDS)
        assert {tensor.type for tensor in read_header(path)[1].values()} >= set(KINDS)
        return path
    quantize(pocket["target"], path, request.param)
    return path


@pytest.fixture(scope="module")
def engine(target: Path, pocket: dict[str, Path]) -> Iterator[Engine]:
    with open_engine(target, pocket["dflash-small"], n_threads=2, n_slots=3) as engine:
        yield engine


def compare(engine: Engine, prompt: list[int], n_tokens: int, seed: int) -> int:
    """Tokens compared: one plain answer against three slots that draft in different ways at once, at temperatures 0 and
    1."""
    compared = 0
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)
        plain = engine.generate(prompt, sampling, draft="off", max_tokens=n_tokens).tokens
        running = [
            engine.submit(prompt, sampling, max_tokens=n_tokens, **DRAFTS[(seed + i) % len(DRAFTS)]) for i in range(3)
        ]
        for drafted in running:
            assert drafted.result().tokens == plain
            compared += len(plain)
    return compared


def test_text(engine: Engine) -> None:
    for seed, text in enumerate(PROMPTS[:3]):
        compare(engine, chat(engine, text), 60, seed)
    compare(engine, engine.tokenize(OPENINGS[0]), 60, 7)


@pytest.mark.slow
def test_a_hundred_thousand_tokens(engine: Engine) -> None:
    prompts = [chat(engine, text) for text in PROMPTS] + [engine.tokenize(opening) for opening in OPENINGS]
    compared = seed = 0
    while compared < 100_000:
        compared += compare(engine, prompts[seed % len(prompts)], 200, seed)
        seed += 1


def check_rows(path: Path) -> None:
    """Logits of the same tokens in passes of 1 to 29 rows, with 1 and 3 threads."""
    rows = []
    for threads in (1, 3):
        with open_engine(path, None, n_threads=threads) as engine:
            tokens = [i * 7 % 120 for i in range(300)]
            rows += [engine.score(tokens, 270, width).logit for width in (1, 2, 5, 8, 16, 29)]
    for other in rows[1:]:
        np.testing.assert_array_equal(rows[0], other)


def test_rows(target: Path) -> None:
    check_rows(target)


# Architectures with sliding windows of 32 positions, which --bit-exact gives caches of full size, and others.
GRAPHS: dict[str, Callable[[Image], Image]] = {
    **{name: models.TREES[name] for name in ("llama", "qwen3", "qwen3moe", "mpt", "gpt-oss")},
    "gemma3": architectures.gemma3,
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny random model of one of GRAPHS as a file."""
    folder = tmp_path_factory.mktemp("graphs")

    def write(name: str) -> Path:
        path = folder / f"{name}.gguf"
        path.write_bytes(GRAPHS[name](models.tokenizer()).encode()[0])
        return path

    return write


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_of_other_graphs(name: str, graph: Callable[[str], Path]) -> None:
    check_rows(graph(name))


# ---- slots that share a cache ----

# 764 cells, which llama.cpp rounds up to 768: hardly more than the slots can fill. They need no packing even so: see
# tests/trees/order.py.
SLOTS, SLOT_CONTEXT = 4, 190


def converse(
    engine: Engine, alone: Engine, openings: list[list[int]], rounds: int, n_tokens: int, rng: random.Random
) -> int:
    """Four conversations at a time that go on, go back some tokens or start over, while their slots share a cache.
    Every answer is that of a slot which has a cache for itself, drafts nothing and reads the whole prompt anew. Tokens
    compared."""
    held = [rng.choice(openings) for _ in range(SLOTS)]
    compared = 0
    for turn in range(rounds):
        running = []
        for i in range(SLOTS):
            room = SLOT_CONTEXT - n_tokens - 8
            if len(held[i]) > room or rng.random() < 0.2:
                held[i] = rng.choice(openings)
            elif rng.random() < 0.3:
                held[i] = held[i][: rng.randint(len(held[i]) // 2, len(held[i]))] + rng.choice(openings)[-6:]
            sampling = SamplingParams(temperature=float(turn % 2), seed=turn, ignore_eos=True)
            prompt = held[i][:room]
            running.append(
                (prompt, sampling, engine.submit(prompt, sampling, max_tokens=n_tokens, **rng.choice(DRAFTS)))
            )
        for i, (prompt, sampling, answer) in enumerate(running):
            plain = alone.generate(prompt, sampling, max_tokens=n_tokens, draft="off", cache_prompt=False).tokens
            assert answer.result().tokens == plain, f"turn {turn}, conversation {i}"
            held[i] = prompt + plain + prompt[-2:]
            compared += len(plain)
    return compared


def check_shared_cache(target: Path, drafter: Path, rounds: int, seed: int) -> None:
    with (
        open_engine(target, drafter, SLOT_CONTEXT, n_threads=2, n_slots=SLOTS) as engine,
        open_engine(target, None, SLOT_CONTEXT, n_threads=1) as alone,
    ):
        assert engine.info["kv_unified"]
        chats = [chat(engine, text) for text in PROMPTS]
        openings = [(chats[i] + chats[i - 1] + chats[i - 2])[: 10 + 25 * i] for i in range(len(chats))]
        assert converse(engine, alone, openings, rounds, 40, random.Random(seed)) == rounds * SLOTS * 40
        assert engine.counters.timings.cache_n > 0 and engine.counters.timings.draft_n_accepted > 0


@pytest.mark.parametrize("kind", ["", "hybrid-"])
def test_slots_share_a_cache(kind: str, pocket: dict[str, Path]) -> None:
    check_shared_cache(pocket[f"{kind}target"], pocket["hybrid-dflash" if kind else "dflash-small"], 4, 0)


@pytest.mark.slow
def test_slots_share_a_cache_for_long(target: Path, pocket: dict[str, Path]) -> None:
    check_shared_cache(target, pocket["dflash-small"], 150, 1)


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "gemma3"])
def test_trees_share_a_cache(name: str, graph: Callable[[str], Path]) -> None:
    """Rows of random trees of three slots against their paths fed alone to a context whose cells went another way."""
    open_engine(graph(name), None).close()  # skips where there are no such kernels
    rng = random.Random(name)
    with Twin(graph(name), n_slots=3, n_ctx=250, n_batch=64, n_ubatch=64, flash_attn=1, swa_full=True) as twin:
        for _ in range(60):
            slots = rng.sample(range(3), rng.randint(1, 3))
            for slot in slots:
                if len(twin.tokens[slot]) > 200 or rng.random() < 0.05:
                    twin.clear(slot)
                if not twin.tokens[slot]:
                    twin.prompt(slot, words(rng, rng.randint(1, 150)))
            trees = {slot: random_tree(rng, 16) for slot in slots}
            assert (
                twin.compare(trees, {slot: tree.path(rng.randrange(len(tree.tokens))) for slot, tree in trees.items()})
                == 0.0
            )


def test_upstreams_cells(graph: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the order of cells the engine promises nothing to slots that share a cache."""
    open_engine(graph("qwen3"), None).close()
    monkeypatch.setenv("DFLASH_CELL_ORDER", "0")
    with pytest.raises(RequestError, match="--no-kv-unified"):
        open_engine(graph("qwen3"), None, n_slots=2)


def test_sliding_windows_draft(graph: Callable[[str], Path], tmp_path: Path) -> None:
    """Text of a target with sliding windows, drafted by a random drafter and by quotation, past its window many
    times."""
    with (
        open_engine(
            graph("gpt-oss"), write_drafter(tmp_path / "drafter.gguf"), SLOT_CONTEXT, n_threads=2, n_slots=SLOTS
        ) as engine,
        open_engine(graph("gpt-oss"), None, SLOT_CONTEXT, n_threads=1) as alone,
    ):
        rng = random.Random(0)
        phrase = words(rng, 12)
        converse(engine, alone, [phrase * 4, words(rng, 50), words(rng, 3)], 6, 60, rng)
        assert engine.counters.timings.draft_n_accepted > 0


def write_drafter(path: Path) -> Path:
    """A random DFlash drafter for the random gpt-oss target."""
    base, width = models.tokenizer(), architectures.EMBD
    base.pairs.append(architectures.pair("tokenizer.ggml.mask_token_id", models.N_VOCAB - 2))
    keys: architectures.Keys = {"block_size": 8, "target_layers": [0, 1], "attention.causal": False}
    made = architectures.image(
        "dflash", base, keys,
        lambda _: (architectures.attention() | architectures.qk_norm() | architectures.dense()
                   | {"ffn_norm.weight": [width]}),
        layers=1, others={"fc.weight": [2 * width, width], "enc.output_norm.weight": [width]},
    )  # fmt: skip
    made.tensors = [tensor for tensor in made.tensors if tensor.name not in (b"token_embd.weight", b"output.weight")]
    path.write_bytes(made.encode()[0])
    return path


# ---- the promise ----


def test_what_cannot_be_promised(pocket: dict[str, Path], graph: Callable[[str], Path], tmp_path: Path) -> None:
    quantize(pocket["target"], tmp_path / "target.gguf", "q4_1")
    promise = "import sys; from dflash_local import Engine; Engine(sys.argv[1], warmup=False, bit_exact=True)"
    done = subprocess.run(
        [sys.executable, "-c", promise, str(tmp_path / "target.gguf")],
        capture_output=True, text=True, env={**os.environ, "DFLASH_PANELS": "0"}, timeout=120, check=False,
    )  # fmt: skip
    assert re.search(r"RequestError: .*no row-invariant kernel for .*(q6_K|q4_1 in AMX)", done.stderr)
    with Engine(graph("gemma3"), warmup=False, n_ctx=1024) as engine:
        assert "--swa-full" in engine.info["not_bit_exact"]


def test_promised_where_it_costs_nothing(pocket: dict[str, Path], graph: Callable[[str], Path]) -> None:
    open_engine(pocket["target"], None).close()
    Engine(pocket["target"], warmup=False, bit_exact=True, flash_attn="off").close()
    with Engine(pocket["target"], warmup=False, n_slots=2) as engine:
        assert engine.info["kv_unified"] and engine.info["not_bit_exact"] == ""
    with (
        open_engine(graph("gemma3"), None, n_slots=2) as full,
        Engine(graph("gemma3"), warmup=False, n_ctx=2048, n_slots=2) as engine,
    ):
        assert full.info["memory"]["context"] > engine.info["memory"]["context"]
