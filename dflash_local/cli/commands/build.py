"""`dflash-local build`: compile and install the patched llama.cpp."""

from __future__ import annotations

import argparse
from pathlib import Path

from dflash_local.build.builder import build
from dflash_local.build.recipe import BACKENDS
from dflash_local.build.tree import write_tree
from dflash_local.cli.usage import Commands, add_command

_DESCRIPTION = (
    "Fetches the pinned llama-cpp-python source with pip, checks its hash, patches it, compiles it "
    "with libdflash inside and installs the wheel into this Python environment. Does nothing if that build is "
    "installed already."
)


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "build",
        run,
        "compile and install the patched llama.cpp (once, minutes)",
        _DESCRIPTION,
        epilog="Everything after -- goes to CMake: dflash-local build --backend cpu -- -DGGML_NATIVE=OFF",
    )
    backends = ("auto", *BACKENDS)
    parser.add_argument(
        "--backend", choices=backends, default="auto", help="where models run; auto: a GPU whose toolkit is here too"
    )
    parser.add_argument(
        "--cuda-arch", metavar="LIST", help="CUDA architectures, such as '86;89' (default: the GPU of this machine)"
    )
    parser.add_argument("--force", action="store_true", help="compile again even if nothing changed")
    parser.add_argument(
        "--tree",
        type=Path,
        metavar="DIR",
        help="only unpack and patch the pinned source into DIR (for work on patches/)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--no-install",
        action="store_true",
        help="only compile: a later 'dflash-local build' installs the wheel out of the cache",
    )
    where.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="install nothing: put the wheel, its recipe and hashes, and what `make gpu-proof` needs to run it on a "
        "machine without compiler and network, into DIR",
    )
    parser.add_argument("--python", metavar="3.12", help="with --out: the Python of that machine (default: this one)")
    parser.add_argument("cmake_flags", nargs="*", metavar="-DFLAG=VALUE", help="flags for CMake, after --")


def run(args: argparse.Namespace) -> int:
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
