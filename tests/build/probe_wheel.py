"""What an installed wheel does on this processor, as one line of JSON. Run by a Python that has nothing else of ours.

Which variant of the CPU backend serves, whether drafted text shall be plain text to the bit, and what both texts were.
It is also the test step of `make wheels` (release/wheels.py), and so an error if they are not what they shall be.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from dflash_local import Engine, native
from dflash_local.demo.pocket import bundled_pair

QUESTION = "Write a Python function that finds the largest result."


def main() -> None:
    pair = bundled_pair()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target.gguf"
        native.quantize(pair.target, target, "q4_0")
        with Engine(target, pair.drafter, n_ctx=512, n_threads=1, warmup=False) as engine:
            plain, drafted = (
                engine.chat([{"role": "user", "content": QUESTION}], temperature=0.0, max_tokens=40, **options)
                for options in ({"draft": "off"}, {"budget": 16})
            )
            found = {
                "variant": native.library_info()["cpu_variant"],
                "exact": not engine.info["not_bit_exact"],
                "plain": plain.text,
                "drafted": drafted.text,
                "accepted": drafted.timings.draft_n_accepted,
            }
    print(json.dumps(found))
    if found["exact"] and found["plain"] != found["drafted"]:
        sys.exit("error: drafted text is not plain text")
    if not found["accepted"]:
        sys.exit("error: no drafted token was accepted")


if __name__ == "__main__":
    main()
