"""Make the hybrid pocket pair that ships from its trained checkpoints: python benchmarks/hybrid_pair.py TARGET_DIR
DRAFTER_DIR OUTDIR

The target is converted by upstream's converter in the pinned source, the drafter by ours. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.build import peer
from dflash_local.build.log import BuildLog
from dflash_local.cache_dir import cache_dir
from dflash_local.convert import convert
from dflash_local.demo.shapes import Pair
from dflash_local.errors import ConvertError

# Two corrections for our own vocabulary. The converter recognizes a pre-tokenizer by a hash of tokenized text, which
# our vocabulary changes; it is Qwen2's. And training marked all ten added tokens as special; the tags of reasoning and
# tools must be text, as in Qwen's own vocabulary, or parsers would not see them.
CONVERTER = """\
import convert_hf_to_gguf
from conversion.base import TextModel
from gguf import TokenType
TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
stock = TextModel.get_vocab_base
def get_vocab_base(self):
    tokens, types, pre = stock(self)
    tags = {f"<{end}{tag}>" for tag in ("think", "tool_call", "tool_response") for end in ("", "/")}
    return tokens, [TokenType.USER_DEFINED if token in tags else type for token, type in zip(tokens, types)], pre
TextModel.get_vocab_base = get_vocab_base
convert_hf_to_gguf.main()
"""


def convert_target(checkpoint: Path, out: Path, outtype: str = "f16") -> None:
    """Convert a target's checkpoint to GGUF. Raises BuildError (no source) or ConvertError (the converter failed)."""
    with TemporaryDirectory() as scratch:
        upstream = peer.pin()
        with BuildLog(cache_dir() / "logs" / "hybrid-pair.log") as log:
            upstream.unpack(upstream.fetch(log), Path(scratch) / "tree")
        source = Path(scratch) / "tree" / "vendor" / "llama.cpp"
        # --no-nextn: otherwise the converter demands layers for multi-token prediction, which the checkpoint lacks
        flags = ["--no-nextn", "--outtype", outtype, "--model-name", "pocket-hybrid", "--outfile", str(out)]
        process = subprocess.run(
            [sys.executable, "-c", CONVERTER, str(checkpoint), *flags],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(source / "gguf-py")])},
            capture_output=True,
            text=True,
        )
    if process.returncode:
        raise ConvertError(f"upstream's converter failed on {checkpoint}:\n{process.stderr[-2000:]}")


def make(target: Path, drafter: Path, outdir: Path) -> Pair:
    """Convert both checkpoints to f16 GGUFs in `outdir`."""
    outdir.mkdir(parents=True, exist_ok=True)
    pair = Pair(outdir / "pocket-hybrid-target.gguf", outdir / "pocket-hybrid-dflash.gguf")
    convert_target(target, pair.target)
    convert(drafter, pair.target, pair.drafter)
    return pair


def main(argv: Sequence[str] | None = None) -> int:
    ap = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    ap.add_argument("target", type=Path, metavar="TARGET_DIR", help="checkpoint of the target (Qwen3_5ForCausalLM)")
    ap.add_argument("drafter", type=Path, metavar="DRAFTER_DIR", help="checkpoint of its DFlash drafter")
    ap.add_argument("outdir", type=Path, metavar="OUTDIR")
    args = ap.parse_args(argv)
    for path in make(args.target, args.drafter, args.outdir):
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    record.run(main)
