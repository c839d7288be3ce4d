"""Flags of `serve` for several replicas on Ray Serve."""

from __future__ import annotations

from collections.abc import Mapping

from dflash_local.cli.flags.flag import Flags, declared, flag
from dflash_local.cli.flags.values import amount, count
from dflash_local.errors import RequestError


class ReplicaFlags(
    Flags,
    title="replicas",
    text="the model several times, on Ray Serve (pip install 'dflash-local[ray]'); docs/ray.md",
):
    """Processes with the model, and the Ray cluster that they run on. `typed` as of ModelFlags."""

    typed: Mapping[str, tuple[str, ...]]
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
    """Raises RequestError if a router of several models is told of replicas."""
    if named := ["--replicas"] * bool(args.replicas) + _typed_details(args):
        raise RequestError(f"{named[0]} is for one model, and none is named", param=named[0], hint="add -m or -hf")


def check_replica_flags(args: ReplicaFlags) -> None:
    """Raises RequestError if flags say how replicas run, and there are none."""
    idle = _typed_details(args)
    if idle and not args.replicas:
        raise RequestError(
            f"{idle[0]} has no effect without --replicas",
            param=idle[0],
            hint=f"add --replicas N, or leave {idle[0]} out",
        )


def _typed_details(args: ReplicaFlags) -> list[str]:
    """The flags that say how replicas run, as they were typed; none of them has a variable."""
    places = declared(ReplicaFlags).keys() - {"replicas"}
    return [words[0].partition("=")[0] for place, words in args.typed.items() if place in places]
