"""A build as a folder for a machine without compiler or network: the wheel, its recipe, the Python packages it needs,
test programs, upstream's own server, and a hash of each file.

Files above `MOST_BYTES` are split. benchmarks/gpu_proof/ reads the folder (docs/gpu.md).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import tarfile
import tempfile
import zipfile
from dataclasses import asdict
from importlib.metadata import requires
from pathlib import Path

from dflash_local.build import peer, programs
from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import Recipe
from dflash_local.build.upstream import Upstream, apply_patches, pip
from dflash_local.errors import BuildError

MANIFEST = "manifest.json"
FORMAT = 1
MOST_BYTES = 60 << 20


def check_place(out: Path) -> None:
    """Raises BuildError unless `out` is missing, empty, or an old bundle without files of anybody else: it will be
    removed."""
    if not out.exists():
        return
    if out.is_dir():
        here = {path.name for path in out.iterdir()}
        if not here or here <= _names(out / MANIFEST):
            return
    raise BuildError(f"{out} is not an empty folder", hint="name a new one: --out DIR")


def _names(manifest: Path) -> set[str]:
    """Those of a bundle's files; none if the manifest is missing, or is that of another program."""
    try:
        read = json.loads(manifest.read_text(encoding="utf-8"))
        pieces = {piece for entry in read["files"] for piece in entry["pieces"]}
        return {MANIFEST, *pieces} if read["format"] == FORMAT else set()
    except (OSError, ValueError, TypeError, KeyError):
        return set()


def _remove_old(out: Path) -> None:
    """After another check, since the build took long. Removes files alone: a bundle has no folders."""
    check_place(out)
    if out.exists():
        for file in [*out.iterdir()]:
            file.unlink()
        out.rmdir()


def make_bundle(
    recipe: Recipe, wheel: Path, source: Path, cache: Path, out: Path, log: BuildLog, python: str | None = None
) -> None:
    """Fill `out`, for which check_place() holds. `source` is the checkout; `python` the version for which the packages
    are (default: this one). Raises BuildError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
        scratch, made = Path(folder), Path(folder) / "bundle"
        made.mkdir()
        shutil.copyfile(wheel, made / wheel.name)
        _download_packages(made, python, log)
        tests = _compile_tests(recipe, wheel, source, cache, scratch, log)
        _pack_programs(tests, peer.build(recipe), made / "programs.tar.xz")
        files = [_entry(made, file) for file in sorted(made.iterdir())]
        manifest = {"format": FORMAT, "key": recipe.key, "recipe": asdict(recipe), "files": files}
        (made / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        _remove_old(out)
        made.rename(out)
    size = sum(file.stat().st_size for file in out.iterdir())
    log.say(f"{out}: {size / 2**20:.1f} MiB in {len(list(out.iterdir()))} files, none above {MOST_BYTES >> 20} MiB")


def _download_packages(folder: Path, python: str | None, log: BuildLog) -> None:
    """What dflash-local itself needs to run, as wheels."""
    needed = [line for line in requires("dflash-local") or [] if "extra ==" not in line]
    log.say(f"Python packages for {f'Python {python}' if python else 'this Python'}")
    version = ["--python-version", python] if python else []
    command = [*pip(), "download", "--only-binary=:all:", *version, "-d", str(folder), *needed]
    status, lines = log.run(command)
    if status != 0:
        raise BuildError(f"pip could not fetch the Python packages (log: {log.path})\n{log.excerpt(lines)}")


def _compile_tests(recipe: Recipe, wheel: Path, source: Path, cache: Path, scratch: Path, log: BuildLog) -> list[Path]:
    """The test programs, against the libraries in the wheel. Their source and objects stay in the cache."""
    log.say("test programs for the device")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(scratch / "wheel")
    work = cache / "work" / f"{recipe.backend}-tests"
    mark = work / "tree_key"
    if not (mark.is_file() and mark.read_text(encoding="utf-8") == recipe.tree_key):
        shutil.rmtree(work, ignore_errors=True)
        upstream = Upstream.read(source / "patches" / "UPSTREAM")
        upstream.unpack(upstream.fetch(log), work / "tree")
        apply_patches(source / "patches", work / "tree")
        mark.write_text(recipe.tree_key, encoding="utf-8")
    llama, libraries = work / "tree" / "vendor" / "llama.cpp", work / "lib"
    shutil.rmtree(libraries, ignore_errors=True)
    (scratch / "wheel" / "llama_cpp" / "lib").rename(libraries)
    return programs.build(source / "ggml_ops" / "tests", llama, libraries, work / "build", log)


def _pack_programs(tests: list[Path], upstream: Path, archive: Path) -> None:
    """tests/: programs for the device. upstream/: llama-server and its libraries, each under its soname only."""
    with lzma.open(archive, "wb", preset=6) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for program in tests:
            tar.add(program, f"tests/{program.name}")
        tar.add(upstream / peer.PROGRAM, f"upstream/{peer.PROGRAM}")
        for file in sorted(upstream.glob("lib*.so*")):
            # libggml.so.0, not libggml.so or libggml.so.0.25.3; a library without a version has one name.
            has_version = any(upstream.glob(f"{file.name.partition('.so')[0]}.so.*"))
            if file.name.partition(".so")[2].count(".") == (1 if has_version else 0):
                tar.add(file.resolve(), f"upstream/{file.name}")


def _entry(folder: Path, file: Path) -> dict[str, object]:
    """The manifest's entry of a file, which is split if it is too large."""
    data = file.read_bytes()
    pieces = [data[at : at + MOST_BYTES] for at in range(0, len(data), MOST_BYTES)]
    names = [file.name] if len(pieces) == 1 else [f"{file.name}.{n:02}" for n in range(1, len(pieces) + 1)]
    if len(pieces) > 1:
        file.unlink()
        for name, piece in zip(names, pieces, strict=True):
            (folder / name).write_bytes(piece)
    return {"name": file.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pieces": names}
