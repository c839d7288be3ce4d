"""`make images IMAGE=REGISTRY/USER/dflash-local`: the container images of a release, under the names that they are
published by.

For version 0.2.0: IMAGE:0.2.0-cpu and IMAGE:cpu, the same for cuda and vulkan; IMAGE:0.2.0 and IMAGE:latest are the
CPU's. Each is made from the wheels in a folder of its own, since pip would mix up those of several backends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dflash_local import __version__
from release.dist import copy_checkout
from release.recipes import native_version

REPO = Path(__file__).resolve().parent.parent
KINDS = ("cpu", "cuda", "vulkan")
DEFAULT = "cpu"  # what a name without a tag means


def main() -> int:
    """Build, and push if asked. Returns the container engine's exit status, or exits with an error."""
    parser = argparse.ArgumentParser(prog="python -m release.images", description=__doc__)
    parser.add_argument("--image", required=True, metavar="NAME", help="REGISTRY/USER/dflash-local")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="default: all")
    parser.add_argument("--dist", type=Path, default=REPO / "dist", metavar="DIR", help="default: dist")
    parser.add_argument("--push", action="store_true", help="push them, once all are built")
    args = parser.parse_args()
    if ":" in args.image.rpartition("/")[2]:
        sys.exit(f"error: --image '{args.image}' has a tag\n  fix: only the name: registry.example/me/dflash-local")
    engine = os.environ.get("CONTAINER_ENGINE") or next(filter(shutil.which, ("podman", "docker")), None)
    if engine is None:
        sys.exit("error: neither podman nor docker is here\n  fix: install one, or set CONTAINER_ENGINE")
    chosen = {kind: wheels_of(kind, args.dist) for kind in args.kinds}
    for kind, wheels in chosen.items():
        build(engine, kind, wheels, tags(args.image, kind))
    if args.push:
        for name in (name for kind in chosen for name in tags(args.image, kind)):
            subprocess.run([engine, "push", name], check=True)
    return 0


def tags(image: str, kind: str, version: str = __version__) -> list[str]:
    """The names of an image, that of this very version first."""
    names = [f"{version}-{kind}", kind, *((version, "latest") if kind == DEFAULT else ())]
    return [f"{image}:{name}" for name in names]


def wheels_of(kind: str, dist: Path) -> list[Path]:
    """Both wheels for an image of this machine's kind of processor. Exits if they are not in `dist`."""
    machine = os.uname().machine
    own = next(dist.glob(f"dflash_local-{__version__}+{kind}-py3-none-*linux*_{machine}.whl"), None)
    native = own and next(dist.glob(f"llama_cpp_python-{native_version(own)}-py3-none-*_{machine}.whl"), None)
    if own is None or native is None:
        what = f"{dist} has no wheels of {__version__} for {kind} on {machine}"
        sys.exit(f"error: {what}\n  fix: make wheels MACHINE=...")
    return [own, native]


def build(engine: str, kind: str, wheels: Sequence[Path], names: Sequence[str]) -> None:
    """From a copy of the checkout with these wheels alone in dist/."""
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder) / "context"
        copy_checkout(REPO, context)
        (context / "dist").mkdir()
        for wheel in wheels:
            shutil.copy(wheel, context / "dist")
        # Docker has but one format; podman's own has no place for the health check.
        command = [engine, "build", *(["--format", "docker"] if Path(engine).name == "podman" else [])]
        command += ["-f", str(context / "containers" / kind / "Containerfile")]
        command += [word for name in names for word in ("-t", name)]
        subprocess.run([*command, str(context)], check=True)


if __name__ == "__main__":
    sys.exit(main())
