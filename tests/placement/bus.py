"""How much a step moves between the host and a device, as tests of several kinds of devices ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import u32
from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import Pair, Shape
from tests.placement.files import TABLE, with_table
from tests.placement.worker import Worker

PROMPT = "Write an SQL query that selects every factor above 5 from the table prices.\n"
N = 40
FLOAT = 4
# Qwen3-8B's width, heads and drafter; what a step moves depends on neither layers nor feed-forward.
WIDE = Shape(6, 4096, 768, 32, 8, 4096, 2, 128)
LIMIT = 64 * 1024
WHOLE_BLOCKS = Shape(6, 512, 768, 4, 2, 1792, 2)  # the small pair's own, but for rows of whole blocks of Q6_K
TABLES = ("Q4_0", "Q6_K", "Q8_0")
TOP_K_32: dict[str, Any] = {"temperature": 1.0, "top_k": 32, "seed": 5}


def on_device(device: str) -> dict[str, Any]:
    """Arguments of Engine: all of the pair on it."""
    return {
        "device": device, "device_draft": device, "n_ctx": 512, "n_slots": 1, "n_threads": 1, "warmup": False,
        "cost_cache": False, "budget": 12,
    }  # fmt: skip


def run(worker: Worker, pair: Pair, device: str, **generate: Any) -> dict[str, Any]:
    """An answer to PROMPT, as Worker.ask; no error."""
    options = on_device(device) | {"model": pair.target, "drafter": pair.drafter}
    answer = worker.ask(options, [PROMPT], max_tokens=N, **generate)
    assert "error" not in answer, answer
    return answer


def steps_of(worker: Worker, options: dict[str, Any], prompts: list[str], n: int, **sampling: Any) -> dict[str, float]:
    """Bytes by direction of a step that decodes: of long answers, less those of one token, which are the prompts'
    passes."""
    sampling = {"temperature": 0, "ignore_eos": False} | sampling
    long, short = (worker.ask(options, prompts, max_tokens=most, sampling=sampling)["stats"] for most in (n, 1))
    steps = long["steps"] - short["steps"]
    return {way: (long["moved_bytes"][way] - short["moved_bytes"][way]) / steps for way in long["moved_bytes"]}


def check_taps_and_logits_stay(plain: dict[str, Any], drafted: dict[str, Any], device: str) -> None:
    """Greedy: of each row one token comes back, of each drafted place its candidates."""
    assert drafted["info"]["drafter"]["taps_on"] == device
    for answer in (plain, drafted):
        target, steps = answer["info"]["target"], answer["stats"]["steps"]
        moved = {way: n / steps for way, n in answer["stats"]["moved_bytes"].items()}
        assert moved["to_device"] > 0
        assert moved["from_device"] < target["n_vocab"] * FLOAT / 2  # not one row of logits, nor taps
    width = len(drafted["info"]["drafter"]["target_layers"]) * target["n_embd"] * FLOAT
    assert drafted["stats"]["moved_bytes"]["from_device"] / steps < width


def an_8b(folder: Path, embeddings: str | None = None, candidates: int | None = None) -> Pair:
    """Q4_0, or with embeddings of another type. With `candidates` the drafter is a DFlash 2 of so many."""
    pair = inflate(bundled_pair("dflash2" if candidates else "dflash"), folder, WIDE, "q4_0")
    if embeddings is not None:
        pair = pair._replace(target=with_table(pair.target, folder / "other-target.gguf", embeddings=embeddings))
    if candidates:
        drafter = with_table(pair.drafter, folder / "other-drafter.gguf", selector_top_k=u32(candidates))
        pair = pair._replace(drafter=drafter)
    return pair


def a_small_one(folder: Path, embeddings: str) -> Pair:
    """The small pair in F16 with embeddings of another type."""
    pair = inflate(bundled_pair("dflash"), folder, WHOLE_BLOCKS, "f16")
    return pair._replace(target=with_table(pair.target, folder / "other-target.gguf", embeddings=embeddings))


def table_on(device: str) -> dict[str, Any]:
    """Arguments of Engine: the token embeddings are there."""
    return {"override_tensor": f"^{TABLE}={device}"}


def check_an_8b(
    worker: Worker, pair: Pair, device: str, prompt: str, sampling: dict[str, Any], n: int = 24, **options: Any
) -> dict[str, float]:
    """Of n tokens. 16 nodes; what top-k sampling reads of the logits, 8 KB, counts too. Returns bytes by direction."""
    options = on_device(device) | {"budget": 16, "n_ctx": 1024} | options
    moved = steps_of(worker, options | {"model": pair.target, "drafter": pair.drafter}, [prompt], n, **sampling)
    assert moved["to_device"] + moved["from_device"] <= LIMIT, moved
    assert moved["between_devices"] == 0
    return moved
