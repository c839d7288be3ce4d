"""Where the time of a step goes, the cost curve of this machine, and what the controller chose over one long answer.

Usage: python benchmarks/steps.py [--type q4_0] [--drafter dflash] [--temperature 1]

In one process, on the pair inflated to the 0.6b shape: phases of long answers with budget auto, and with trees of 64
nodes; the costs of passes at load and after these answers; one long answer step by step. docs/benchmarks.md defines
'other'.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.answers import acceptance_length, answers
from dflash_local.engine import Engine
from dflash_local.stats import EngineStats

MOST_NODES = 64
# The pocket model knows such code well. Its answers are short, so the end-of-text token is banned, and it goes on with
# other subjects.
LONG = "Write a Python context manager that logs the size."


def measure_phases(
    engine: Engine, prompts: Sequence[dict[str, Any]], n: int, temperature: float, **options: Any
) -> dict[str, Any]:
    """Milliseconds per step by phase over the answers and between them, the graphs' reuse rates and AL."""
    before, start = EngineStats.of(engine.stats()), time.perf_counter()
    completions = list(answers(engine, prompts, n, temperature, ignore_eos=True, **options))
    wall = 1e3 * (time.perf_counter() - start)
    passed = EngineStats.of(engine.stats()) - before
    steps, trees = passed.steps or 1, sum(answer.timings.n_passes for answer in completions)
    phases = {phase: ms / steps for phase, ms in passed.phase_ms.items() if phase != "other"}
    # From an answer's first pass to its last token, by the engine's clock.
    answered = sum(answer.timings.prompt_ms + answer.timings.predicted_ms for answer in completions)
    phases["other"] = max(answered / steps - sum(phases.values()), 0.0)
    return {
        "steps": steps,
        "tokens": sum(len(answer.tokens) for answer in completions),
        "al": acceptance_length(completions),
        "ms_per_step": {phase: round(ms, 5) for phase, ms in phases.items()},
        "other_share": round(phases["other"] / sum(phases.values()), 5),
        "around_ms": round((wall - answered) / len(completions), 3),
        "us_per_tree": round(1e3 * passed.phase_ms.get("grow", 0.0) / trees, 2),
        "bytes_per_step": {way: round(n / steps) for way, n in (passed.moved_bytes or {}).items()},
        "graph_reuse": {model: round(share, 4) for model, share in passed.reuse().items()},
        "reasons": passed.reasons,
    }


def curves(engine: Engine) -> dict[str, dict[int, float]]:
    """Milliseconds of a target pass by rows and of a drafter pass by the tokens of its block."""
    stats = engine.stats()
    return {name: {int(n): round(ms, 4) for n, ms in stats[f"cost_{name}_ms"].items()} for name in ("verify", "draft")}


def markdown(found: dict[str, Any], footer: str) -> str:
    auto, most = found["auto"], found["most_nodes"]
    names = list(auto["ms_per_step"])
    rows = []
    for title, part in (("auto", auto), (f"{MOST_NODES} nodes", most)):
        ms = part["ms_per_step"]
        phases = [f"{ms[name]:.3f}" for name in names]
        rows.append([title, *phases, f"{sum(ms.values()):.2f}", f"{100 * part['other_share']:.2f} %"])
    moved = ", ".join(f"{n:,} {way.replace('_', ' ')}" for way, n in auto["bytes_per_step"].items())
    reuse = ", ".join(
        f"{passes.replace('_', ' ')} {100 * share:.0f} %" for passes, share in auto["graph_reuse"].items()
    )
    parts = [
        record.table(["budget", *(f"{name}, ms" for name in names), "step, ms", "other"], rows),
        f"Growing a tree of {MOST_NODES} nodes took {most['us_per_tree']:.0f} microseconds, and what is done before "
        f"and after an answer's steps {auto['around_ms']:.1f} ms, budget auto. "
        f"Bytes that a step moves, budget auto: {moved or 'none, the host computes'}.",
        f"Passes whose compute graph was there already, budget auto: {reuse}. {footer}",
    ]
    return "\n\n".join(parts) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "steps", n_predict=300, repeats=1, limit=6)
    record.add_pair_options(ap)
    record.add_pair_choice(ap)
    ap.add_argument("--temperature", type=float, default=1.0, metavar="T")
    args = ap.parse_args(argv)
    env = record.environment(ap, args)
    prompts = record.read_prompts(args.prompts, args.limit)
    pair = pairs.make(args.work, args.shape, args.type, args.drafter)
    layers: dict[str, Any] = {} if args.ngl is None else {"n_gpu_layers": args.ngl, "n_gpu_layers_draft": args.ngl}
    with Engine(pair.target, pair.drafter, n_ctx=2048, n_threads=args.threads, cost_cache=False, **layers) as engine:
        cost = {"at_load": curves(engine)}
        measure_phases(engine, prompts[:1], 64, args.temperature)  # warm-up
        auto = measure_phases(engine, prompts, args.n_predict, args.temperature)
        most = measure_phases(engine, prompts, args.n_predict, args.temperature, budget=MOST_NODES)
        cost["kept_fresh"] = curves(engine)
        long = {"messages": [{"role": "user", "content": LONG}]}
        (answer,) = answers(engine, [long], args.n_predict, args.temperature, ignore_eos=True, trace=True)
    trace = [step._asdict() for step in answer.steps]
    figures = {**env, "auto": auto, "most_nodes": most, "cost": cost, "trace": trace}
    return record.publish(args.out, figures, markdown(figures, record.footer(env)))


if __name__ == "__main__":
    record.run(main)
