"""Engines in a process of their own: devices that a process has once are seen by all its engines, and what aborts must
not end the tests.

Each line of standard input is a case as JSON: arguments of `Engine`, `prompts` and arguments of `generate`. Each line
of standard output answers one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_proof.equality import BLOCK, gap
from dflash_local import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import DFlashError
from dflash_local.native import list_devices, plan
from dflash_local.sampling import SamplingParams


class Worker:
    """The other side."""

    def __init__(self, endpoints: Sequence[str], log: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._log = log
        with log.open("ab") as lines:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *endpoints], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=lines, text=True, env={**environment, "GGML_NO_BACKTRACE": "1"},
            )  # fmt: skip

    def ask(self, engine: dict[str, Any], prompts: Sequence[str] = (), **generate: Any) -> dict[str, Any]:
        """What the engine says: `texts` of the prompts, `answers` (tokens of prompt and answer), `info`, what was
        `planned` if `plan` asks, how many drafted tokens were `accepted`; or the `error` that it refused with.

        `score` is a list of such answers: `logits` are those of each one's tokens, in passes of one row and of many.
        `compare` is a list of prompt, answer, other answer: `gaps` are the logits between them where they part.
        """
        case = {"engine": engine, "prompts": list(prompts), "generate": generate}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(case, default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process ended:\n{self._log.read_text(errors='replace')[-4000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def logits(engine: Engine, prompt: list[int], answer: list[int]) -> list[list[float]]:
    """Of the answer's tokens, in passes of one row and of a tree's."""
    return [engine.score(prompt + answer, len(prompt), width).logit.tolist() for width in (1, BLOCK)]


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """One case."""
    try:
        planned = plan(EngineOptions(**case["engine"]).native_params()) if case["generate"].pop("plan", False) else None
        with Engine(**case["engine"]) as engine:
            loaded = engine.stats()
            sampling = SamplingParams(**case["generate"].pop("sampling", {"temperature": 0}))
            scored, compared = (case["generate"].pop(name, ()) for name in ("score", "compare"))
            results = [engine.generate(prompt, sampling, **case["generate"]) for prompt in case["prompts"]]
            return {
                "texts": [result.text for result in results],
                "answers": [
                    (engine.tokenize_prompt(prompt), result.tokens)
                    for prompt, result in zip(case["prompts"], results, strict=True)
                ],
                "logits": [logits(engine, *texts) for texts in scored],
                "gaps": [gap(engine, *texts) for texts in compared],
                "info": engine.info,
                "planned": planned,
                "stats": engine.stats(),
                "loaded": loaded,
                "accepted": sum(result.timings.draft_n_accepted for result in results),
                "devices": [device.name for device in list_devices()],
            }
    except DFlashError as error:
        return {"error": str(error), "param": getattr(error, "param", None)}


def main(endpoints: list[str]) -> None:
    """Answer until standard input ends."""
    from tests.placement.rpc_server import add_devices

    add_devices(endpoints)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
