"""`dflash-local wheel`: wheels for machines without a compiler."""

from __future__ import annotations

from pathlib import Path

from dflash_local.build.distribution import make_wheels
from dflash_local.build.recipe import BACKENDS
from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import Flags, argument, flag

_DESCRIPTION = (
    "Makes two wheels: the patched llama-cpp-python, with code for every kind of processor that is "
    "chosen when it runs, and dflash-local, which depends on it. To install them: pip install dflash-local "
    "--find-links DIR. Installs nothing here."
)


class WheelFlags(Flags):
    backend: str = flag(
        "--backend", "where models run (default: %(default)s)", choices=("auto", *BACKENDS), default="cpu"
    )
    cuda_arch: str | None = flag("--cuda-arch", "CUDA architectures, such as '86;89'", metavar="LIST")
    portable: bool = flag(
        "--portable", "for Linux distributions since 2019 (manylinux_2_28), not only for those as new as this one"
    )
    out: Path = flag("--out", "default: %(default)s", default=Path("dist"), metavar="DIR")
    force: bool = flag("--force", "compile again even if nothing changed")
    cmake_flags: list[str] = argument("flags for CMake, after --", nargs="*", metavar="-DFLAG=VALUE")


def add_parser(commands: Commands) -> None:
    add_command(
        commands,
        "wheel",
        WheelFlags,
        run,
        "make wheels that pip installs without a compiler",
        _DESCRIPTION,
        epilog="Everything after -- goes to CMake. Fewer processors: dflash-local wheel -- "
        "'-DDFLASH_CPU_VARIANTS=x64;haswell'",
    )


def run(args: WheelFlags) -> int:
    make_wheels(
        args.out, args.backend, args.cuda_arch, tuple(args.cmake_flags), portable=args.portable, force=args.force
    )
    return 0
