"""Published models for measurements; `python benchmarks/real_models.py NAME` fetches one and prints its path.

They lie in the cache folder, never in the checkout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.hub import packaged_models
from dflash_local.hub.client import Hub
from dflash_local.hub.packaged_models import MODELS

__all__ = [
    "MODELS",
    "PROMPTS",
    "add_models_option",
    "add_peers_option",
    "fetch",
    "peer_flags",
    "peer_servers",
    "take_peers",
]

PROMPTS = record.HERE / "lookup_prompts.jsonl"  # file edits, extracts and chats
# Flags of ik_llama.cpp's server: copies of weights in another order. From 32 rows on its products with Q4_1 are wrong
# on a CPU with AVX-512 VNNI: answers to longer prompts are "1.2.1.1. 1.2.1.1. ...", which its lookup then quotes. So
# its passes are kept narrower with SmolLM2, whose answers are sound then; longer drafts take it several passes.
PEER_FLAGS = ["-rtr"]
PEER_FLAGS_OF = {"smollm2": ["-ub", "31"]}


def add_models_option(ap: argparse.ArgumentParser) -> None:
    ap.add_argument("--models", nargs="*", choices=MODELS, default=["qwen2.5-coder", "smollm2"])


def add_peers_option(ap: argparse.ArgumentParser) -> None:
    ap.add_argument("--peer-bin", type=peer_bin, nargs="+", default=[], metavar="NAME=PATH", help="other servers")


def peer_bin(text: str) -> tuple[str, Path]:
    """NAME=PATH of another project's server."""
    name, equals, path = text.partition("=")
    if not (name and equals and Path(path).is_file()):
        raise argparse.ArgumentTypeError(f"must be NAME=PATH of a server, got {text!r}")
    return name, Path(path)


def take_peers(args: argparse.Namespace) -> dict[str, Path]:
    """The other servers by name. What is recorded of the option names no path of this machine."""
    peers = dict(args.peer_bin)
    args.peer_bin = [f"{name}=PATH" for name in peers]
    return peers


def peer_flags(model: str) -> list[str]:
    """What other servers need for a model."""
    return [*PEER_FLAGS, *PEER_FLAGS_OF.get(model, [])]


def peer_servers(
    peers: Mapping[str, Path], common: Sequence[str], settings: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """argv of every other server at every setting, by the names of both."""
    return {
        f"{name} {setting}".rstrip(): [str(path), *common, *flags]
        for name, path in peers.items()
        for setting, flags in settings.items()
    }


def fetch(name: str) -> Path:
    """The file of a model, downloaded once. Raises HubError."""
    return packaged_models.fetch(name, Hub(note=record.say))


def main(argv: Sequence[str] | None = None) -> int:
    for name in argv if argv is not None else sys.argv[1:]:
        print(fetch(name))
    return 0


if __name__ == "__main__":
    record.run(main)
