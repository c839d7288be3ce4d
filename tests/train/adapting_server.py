"""What an adaptation needs of a server, without one: an engine that takes drafters, answers, and processes that stand
in for training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dflash_local.engine_options import AnyPath, EngineOptions
from dflash_local.errors import DFlashError

# Waits for the file `go` beside the round's folder, then writes a drafter and what was measured, or fails with a word.
TRAINS = """
import json, sys, time
from pathlib import Path
round, what = Path(sys.argv[1]), sys.argv[2]
print("began", flush=True)
while not (round.parent / "go").exists():
    time.sleep(0.01)
if what == "fails":
    sys.exit("error: no luck\\n  fix: none")
before, after = map(float, what.split(","))
(round / "new.gguf").write_text("drafter of " + what)
measured = [{"step": 0, "al": before}, {"step": 5, "al": 1.0}, {"step": 9, "al": after}]
(round / "run" / "state.json").write_text(json.dumps({"evaluations": measured}))
"""


class Drafting:
    """An engine, as far as an adaptation knows it."""

    def __init__(self, target: AnyPath, drafter: AnyPath | None, **options: Any) -> None:
        self.options = EngineOptions(target, drafter, **options)
        self.info: dict[str, Any] = {"drafter": None if drafter is None else {}}
        self.n_ctx_slot = 512
        self.drafters: list[str] = []  # what replaced others, by its text
        self.is_busy = False
        self.refusal: DFlashError | None = None
        self.on_answer: Callable[[Any, Any], None] | None = None

    def watch_answers(self, on_answer: Callable[[Any, Any], None] | None) -> None:
        self.on_answer = on_answer

    def replace_drafter(self, path: Path) -> bool:
        if self.refusal:
            raise self.refusal
        if not self.is_busy:
            self.drafters.append(path.read_text(errors="replace"))
        return not self.is_busy

    def answer(self, prompts: Sequence[int], n_tokens: int = 10, n_prompt: int = 3) -> None:
        """An answer to each of these prompts."""
        assert self.on_answer is not None
        for prompt in prompts:
            request = SimpleNamespace(prompt_tokens=[prompt, *range(1, n_prompt)], sampling=None)
            tokens = [prompt, *range(1, n_tokens)]
            self.on_answer(request, SimpleNamespace(tokens=tokens, finish_reason="stop", stopped_by=None))


def stand_in(what: str) -> Callable[[Any, int], Sequence[str]]:
    """Takes the place of AdaptedPair.command: `what` is an acceptance length before and one after, or "fails"."""
    return lambda pair, _length: (sys.executable, "-c", TRAINS, str(pair.round), what)
