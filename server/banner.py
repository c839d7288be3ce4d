"""What the log says of an engine once it is loaded."""

from __future__ import annotations

from dflash_local.engine import Engine


def pair_line(engine: Engine) -> str:
    """One line about a loaded pair."""
    target, drafters = engine.info["target"], engine.info.get("drafters", [])
    ways = ["MTP layers" if drafter["kind"] == "mtp" else f"{drafter['kind']} drafter" for drafter in drafters]
    pair = " + ".join([target.get("description", target["arch"]), *(ways or ["no drafter"])])
    if drafters and engine.info.get("no_tree"):
        pair += f" (chains: {engine.info['no_tree']})"
    return f"{pair}, {engine.n_slots} slot{'s' * (engine.n_slots > 1)} of {engine.n_ctx_slot} tokens"


def context_line(engine: Engine) -> str:
    """One line about how much context there is, what limits it, and how to change it."""
    info = engine.info
    total, trained = int(info.get("n_ctx", engine.n_ctx_slot)), int(info["target"]["n_ctx_train"])
    many = engine.n_slots > 1
    slots = f" shared by {engine.n_slots} slots" if info.get("ctx_shared") and many else ""
    if many and engine.n_ctx_slot < total:
        slots += f"{',' if slots else ''} at most {engine.n_ctx_slot} for {'one' if slots else 'each'}"
    whole = f"{total} tokens{slots}; the model was trained with {trained}"
    match info.get("ctx_limit"):
        case "memory":
            return f"{whole}, but half of the memory that its weights leave free holds no more (-c N, -ctk/-ctv q8_0)"
        case "training":
            return f"{whole} (-c N changes it)"
    return f"{whole} (-c N; without it: what memory allows)"
