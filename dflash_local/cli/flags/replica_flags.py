"""Flags of `serve` for several replicas on Ray Serve."""

from __future__ import annotations

from dflash_local.cli.flags.flag import Flags, flag
from dflash_local.cli.flags.values import amount, count
from dflash_local.errors import RequestError


class ReplicaFlags(
    Flags,
    title="replicas",
    text="the model several times, on Ray Serve (pip install 'dflash-local[ray]'); docs/ray.md",
):
    """Processes with the model, and the Ray cluster that they run on."""

    replicas: int = flag(
        "--replicas",
        "processes with the model; a conversation stays with one (default: 0, a server without Ray)",
        type=count(),
        default=0,
    )
    replica_requests: int = flag(
        "--replica-requests",
        "requests, running or waiting, that a replica has before others take its conversations over (default: 16)",
        type=count(1),
        default=16,
    )
    replica_cpus: float = flag(
        "--replica-cpus",
        "cores that Ray sets aside for each; -t says how many threads it has (default: 1)",
        type=amount(),
        default=1.0,
        metavar="X",
    )
    replica_gpus: float = flag(
        "--replica-gpus",
        "GPUs that Ray gives each; a part of one is possible (default: 0)",
        type=amount(),
        default=0.0,
        metavar="X",
    )
    ray_address: str | None = flag(
        "--ray-address", "the Ray cluster (default: RAY_ADDRESS, or a new one on this machine)", metavar="ADDRESS"
    )


def refuse_replicas(args: ReplicaFlags) -> None:
    """Raises RequestError if replicas are requested of a router of several models."""
    if args.replicas:
        raise RequestError("--replicas is for one model, and none is named", param="--replicas", hint="add -m or -hf")
