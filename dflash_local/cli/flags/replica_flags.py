"""Flags of `serve` for several replicas on Ray Serve."""

from __future__ import annotations

import argparse
from functools import partial

from dflash_local.cli.flags.flag import add_flag
from dflash_local.cli.flags.values import amount, count
from dflash_local.errors import RequestError


def add_replica_flags(parser: argparse.ArgumentParser) -> None:
    flag = partial(
        add_flag,
        parser.add_argument_group(
            "replicas", "the model several times, on Ray Serve (pip install 'dflash-local[ray]'); docs/ray.md"
        ),
    )
    flag(
        "--replicas",
        type=count(),
        default=0,
        metavar="N",
        help="processes with the model; a conversation stays with one (default: 0, a server without Ray)",
    )
    flag(
        "--replica-requests",
        type=count(1),
        default=16,
        metavar="N",
        help="requests that a replica has at once, waiting ones counted, before others get its conversations "
        "(default: 16)",
    )
    flag(
        "--replica-cpus",
        type=amount(),
        default=1.0,
        metavar="X",
        help="cores that Ray sets aside for each; -t says how many threads it has (default: 1)",
    )
    flag(
        "--replica-gpus",
        type=amount(),
        default=0.0,
        metavar="X",
        help="GPUs that Ray gives each; a part of one is possible (default: 0)",
    )
    flag(
        "--ray-address", metavar="ADDRESS", help="the Ray cluster (default: RAY_ADDRESS, or a new one on this machine)"
    )


def refuse_replicas(args: argparse.Namespace) -> None:
    """Raises RequestError if replicas are requested of a router of several models."""
    if args.replicas:
        raise RequestError("--replicas is for one model, and none is named", param="--replicas", hint="add -m or -hf")
