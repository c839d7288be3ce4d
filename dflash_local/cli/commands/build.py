"""`dflash-local build`: compile and install the patched llama.cpp."""

from __future__ import annotations

from pathlib import Path

from dflash_local.build.builder import build
from dflash_local.build.recipe import BACKENDS
from dflash_local.build.tree import write_tree
from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import Flags, add_fields, argument, flag

_DESCRIPTION = (
    "Fetches the pinned llama-cpp-python source with pip, checks its hash, patches it, compiles it "
    "with libdflash inside and installs the wheel into this Python environment. Does nothing if that build is "
    "installed already."
)


class PlaceFlags(Flags):
    """Where the build goes."""

    no_install: bool = flag(
        "--no-install", "only compile: a later 'dflash-local build' installs the wheel out of the cache"
    )
    out: Path | None = flag(
        "--out",
        "install nothing: put the wheel, its recipe and hashes, and what `make gpu-proof` needs to run it on a "
        "machine without compiler and network, into DIR",
        metavar="DIR",
    )


class BuildFlags(PlaceFlags):
    backend: str = flag(
        "--backend",
        "where models run; auto: a GPU whose toolkit is here too",
        choices=("auto", *BACKENDS),
        default="auto",
    )
    cuda_arch: str | None = flag(
        "--cuda-arch", "CUDA architectures, such as '86;89' (default: the GPU of this machine)", metavar="LIST"
    )
    force: bool = flag("--force", "compile again even if nothing changed")
    tree: Path | None = flag(
        "--tree", "only unpack and patch the pinned source into DIR (for work on patches/)", metavar="DIR"
    )
    python: str | None = flag("--python", "with --out: the Python of that machine (default: this one)", metavar="3.12")
    cmake_flags: list[str] = argument("flags for CMake, after --", nargs="*", metavar="-DFLAG=VALUE")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "build",
        BuildFlags,
        run,
        "compile and install the patched llama.cpp (once, minutes)",
        _DESCRIPTION,
        epilog="Everything after -- goes to CMake: dflash-local build --backend cpu -- -DGGML_NATIVE=OFF",
    )
    add_fields(parser.add_mutually_exclusive_group(), PlaceFlags)


def run(args: BuildFlags) -> int:
    if args.tree is not None:
        write_tree(args.tree)
    else:
        build(
            args.backend,
            args.cuda_arch,
            tuple(args.cmake_flags),
            force=args.force,
            out=args.out,
            python=args.python,
            installs=not args.no_install,
        )
    return 0
