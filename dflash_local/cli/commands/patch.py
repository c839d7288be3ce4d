"""`dflash-local patch`: which hunks of `patches/` fit a source tree of llama.cpp or llama-cpp-python, older or newer
than the pinned one? A dry run, unless `--apply` is given."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dflash_local.build import patch
from dflash_local.build.folder_errors import cache_errors, folder_errors
from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream, native_source
from dflash_local.cache_dir import cache_dir
from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import Flags, argument, flag
from dflash_local.errors import BuildError

VENDOR = "vendor/llama.cpp/"  # llama.cpp's place in llama-cpp-python, and the prefix of the paths in patches
STATES: dict[patch.State, str] = {
    "applies": "apply",
    "moved": "apply moved",
    "applied": "are applied already",
    "fails": "do not apply",
}
NO_SOURCE = "give the root of llama.cpp or llama-cpp-python: a folder, or a source distribution (.tar.gz)"


@dataclass(frozen=True)
class Source:
    """Files of a source tree, by their paths in patches."""

    name: str
    root: Path | None  # None: an archive
    prefix: str  # missing in the tree's own paths: VENDOR for llama.cpp itself
    files: dict[str, str | None]  # the wanted files of an archive

    @classmethod
    def open(cls, path: Path, wanted: set[str]) -> Source:
        """Raises BuildError unless `path` is a folder or an archive with llama.cpp in it."""
        if path.is_dir():
            for prefix, ggml in (("", VENDOR + "ggml"), (VENDOR, "ggml")):
                if (path / ggml).is_dir():
                    return cls(str(path), path, prefix, {})
            raise BuildError(f"{path} holds no llama.cpp", hint=NO_SOURCE)
        try:
            with tarfile.open(path) as tar:
                return cls._from_archive(path.name, tar, wanted)
        except (OSError, tarfile.TarError) as error:
            raise BuildError(f"{path} cannot be read: {error}", hint=NO_SOURCE) from None

    @classmethod
    def _from_archive(cls, name: str, tar: tarfile.TarFile, wanted: set[str]) -> Source:
        texts: dict[str, str] = {}
        prefix = None
        for member in tar:
            path = member.name.removeprefix("./").partition("/")[2]  # relative to the archive's one folder
            if f"{path}/".startswith((f"{VENDOR}ggml/", "ggml/")):
                prefix = "" if path.startswith(VENDOR) else VENDOR
            if {path, VENDOR + path} & wanted and (file := tar.extractfile(member)):
                texts[path] = file.read().decode("utf-8", "surrogateescape")
        if prefix is None:
            raise BuildError(f"{name} holds no llama.cpp", hint=NO_SOURCE)
        return cls(name, None, prefix, {path: texts.get(path.removeprefix(prefix)) for path in wanted})

    def read(self, path: str) -> str | None:
        """The text of a file by its path in patches; None if it does not exist."""
        if self.root is None:
            return self.files[path]
        return patch.read_file(self.root / path.removeprefix(self.prefix))

    def write(self, contents: dict[str, str | None]) -> None:
        """Write texts by their paths in patches. Raises BuildError for an archive, or if one cannot be written."""
        if self.root is None:
            raise BuildError(f"{self.name} is an archive", hint="unpack it, and give the folder to --apply")
        with folder_errors(self.root, "check the folder's permissions"):
            patch.write_files(self.root, {path.removeprefix(self.prefix): text for path, text in contents.items()})


def patch_files(folder: Path, only: str = "") -> list[Path]:
    """The patches of a folder whose names begin with `only`, in order. Raises BuildError if there is none."""
    files = sorted(folder.glob(f"{only}*.patch"))
    if not files:
        raise BuildError(f"no patch in {folder} begins with '{only}'")
    return files


def check(source: Path, patches: list[Path], *, apply: bool = False) -> tuple[str, dict[str, list[patch.Placement]]]:
    """Place the hunks of `patches`, in order, in `source`. Returns the source's name, and placements by patch.

    `apply` writes the hunks that fit. Raises BuildError if there is no source tree.
    """
    parsed = [file for path in patches for file in patch.parse(patch.read_file(path) or "", path.name)]
    tree = Source.open(source, {path for file in parsed for path in (file.source, file.target) if path})
    if apply and tree.root is None:
        tree.write({})
    contents: dict[str, str | None] = {}
    placements = {file.name.removesuffix(".patch"): patch.place(file, contents, tree.read) for file in patches}
    if apply:
        tree.write({path: text for path, text in contents.items() if text != tree.read(path)})
    return tree.name, placements


def report(name: str, placements: dict[str, list[patch.Placement]], *, verbose: bool) -> str:
    """The text for the terminal: a line for each patch, then its hunks that are not where the patch expects them."""
    lines = [name]
    for title, hunks in placements.items():
        lines.append(f"{title:22} {_counts(hunks)}")
        for hunk in hunks:
            where = f"{hunk.file.removeprefix(VENDOR)}:{hunk.line}"
            if hunk.state == "fails":
                lines.append(f"  does not apply: {where}: {hunk.reason}")
            elif hunk.state == "applied":
                lines.append(f"  applied already: {where}")
            elif verbose or hunk.moved:
                lines.append(f"  {'moved by ' + format(hunk.moved, '+d') if hunk.moved else 'applies'}: {where}")
    total = [hunk for hunks in placements.values() for hunk in hunks]
    lines.append(f"{len(placements)} patches, {_counts(total)}")
    return "\n".join(lines)


def _counts(hunks: list[patch.Placement]) -> str:
    counts = Counter(hunk.state for hunk in hunks)
    return f"{len(hunks)} hunks: " + ", ".join(
        f"{counts[state]} {text}" for state, text in STATES.items() if counts[state]
    )


def _as_json(name: str, placements: dict[str, list[patch.Placement]]) -> dict[str, Any]:
    return {
        "source": name,
        "patches": [{"name": title, "hunks": [asdict(hunk) for hunk in hunks]} for title, hunks in placements.items()],
        "hunks": Counter(hunk.state for hunks in placements.values() for hunk in hunks),
    }


def _pinned(folder: Path) -> Path:
    cache = cache_dir()
    with cache_errors(cache), BuildLog(cache / "logs" / "patch.log") as log:
        return Upstream.read(folder / "UPSTREAM").fetch(log)


class PatchFlags(Flags):
    source: Path | None = argument("folder or .tar.gz (default: the pinned source)", nargs="?", metavar="SOURCE_TREE")
    apply: bool = flag("--apply", "write the hunks that fit (a folder only)")
    only: str = flag("--only", "only patches whose names begin with this, such as 0003", default="", metavar="NAME")
    verbose: bool = flag("--verbose -v", "name the hunks that apply as they are, too")
    json: bool = flag("--json", "all of it as JSON")


def run(args: PatchFlags) -> int:
    folder = native_source() / "patches"
    patches = patch_files(folder, args.only)
    name, placements = check(args.source or _pinned(folder), patches, apply=args.apply)
    if args.json:
        print(json.dumps(_as_json(name, placements), indent=1))
    else:
        print(report(name, placements, verbose=args.verbose))
    return int(any(hunk.state == "fails" for hunks in placements.values() for hunk in hunks))


_DESCRIPTION = (
    "Checks, hunk by hunk, whether patches/ fit a source tree of llama.cpp or llama-cpp-python: they "
    "apply in place, apply moved by some lines, are already applied, or do not apply. Context must match "
    "exactly. Changes nothing without --apply. Exit status 1 if a hunk does not apply."
)


def add_parser(commands: Commands) -> None:
    add_command(commands, "patch", PatchFlags, run, "check which hunks of patches/ fit a source tree", _DESCRIPTION)
