"""`python -m tests.windows.generation FOLDER`: one drafted generation and the same without drafts, as JSON.

A program of its own, so that the Python of another system can run it. The pair is copied into a folder whose name is
not ASCII: it is read there, and a slot is saved there, saved over, and restored.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import dflash_local
from dflash_local import Engine

PROMPT = "<|im_start|>user\nWhat is 17 plus 24?<|im_end|>\n<|im_start|>assistant\n"


def main(home: Path) -> None:
    """Print what happened."""
    folder = home / "Größe 模型"
    folder.mkdir(parents=True, exist_ok=True)
    demo = Path(dflash_local.__file__).parent / "demo"
    target, drafter = (
        Path(shutil.copy(demo / f"pocket-{name}.gguf", folder / f"{name} é.gguf")) for name in ("target", "dflash")
    )
    told: dict[str, object] = {}
    costs, slot = folder / "costs.json", folder / "slot"
    with Engine(target, drafter, n_ctx=512, n_threads=2, n_slots=1, bit_exact=True, cost_cache=costs) as engine:
        for draft in ("tree", "off"):
            answer = engine.generate(PROMPT, temperature=0.0, max_tokens=64, draft=draft, budget=16)
            timings = answer.timings
            told[draft] = {"text": answer.text, "drafted": timings.draft_n, "accepted": timings.draft_n_accepted}
        saved = [engine.save_slot(0, slot).n_tokens for _ in range(2)]
        told["restored"] = saved == [engine.restore_slot(0, slot).n_tokens] * 2
    told["files"] = sorted(file.name for file in folder.iterdir())
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
