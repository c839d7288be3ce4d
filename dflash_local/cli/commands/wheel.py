"""`dflash-local wheel`: wheels for machines without a compiler."""

from __future__ import annotations

import argparse
from pathlib import Path

from dflash_local.build.distribution import make_wheels
from dflash_local.build.recipe import BACKENDS
from dflash_local.cli.usage import Commands, add_command

_DESCRIPTION = (
    "Makes two wheels: the patched llama-cpp-python, with code for every kind of processor that is "
    "chosen when it runs, and dflash-local, which depends on it. To install them: pip install dflash-local "
    "--find-links DIR. Installs nothing here."
)


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "wheel",
        run,
        "make wheels that pip installs without a compiler",
        _DESCRIPTION,
        epilog="Everything after -- goes to CMake. Fewer processors: dflash-local wheel -- "
        "'-DDFLASH_CPU_VARIANTS=x64;haswell'",
    )
    parser.add_argument(
        "--backend", choices=("auto", *BACKENDS), default="cpu", help="where models run (default: %(default)s)"
    )
    parser.add_argument("--cuda-arch", metavar="LIST", help="CUDA architectures, such as '86;89'")
    parser.add_argument(
        "--portable",
        action="store_true",
        help="for Linux distributions since 2019 (manylinux_2_28), not only for those as new as this one",
    )
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--force", action="store_true", help="compile again even if nothing changed")
    parser.add_argument("cmake_flags", nargs="*", metavar="-DFLAG=VALUE", help="flags for CMake, after --")


def run(args: argparse.Namespace) -> int:
    make_wheels(
        args.out, args.backend, args.cuda_arch, tuple(args.cmake_flags), portable=args.portable, force=args.force
    )
    return 0
