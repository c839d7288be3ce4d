"""`make dist`: the source distribution and the wheel of dflash-local, from a copy of the tree, checked.

With a project's address (--url, set by a release), the copy's metadata has it; the repository's own has none.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
_TABLE = "[project.urls]\n"


def main() -> int:
    """Build both, and check them with twine. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m release.dist", description=__doc__)
    parser.add_argument("--url", metavar="URL", default="", help="address of the repository")
    parser.add_argument("--out", type=Path, default=REPO / "dist", metavar="DIR", help="default: dist")
    args = parser.parse_args()
    files = build(args.out, args.url)
    return subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=False
    ).returncode


def build(out: Path, url: str = "", repo: Path = REPO) -> list[Path]:
    """Write the sdist, and the wheel made from it, into `out`; returns their paths."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        copy_checkout(repo, tree)
        if url:
            _name_project(tree / "pyproject.toml", url)
        made = Path(folder) / "made"
        subprocess.run([sys.executable, "-m", "build", "--outdir", str(made), str(tree)], check=True)
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(file, out)) for file in sorted(made.iterdir())]


def copy_checkout(repo: Path, tree: Path) -> None:
    """Copy the files that git tracks in `repo`, with uncommitted changes, into `tree`, since builds write into their
    source."""
    command = ["git", "-C", str(repo), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (repo / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repo / name, tree / name)


def _name_project(pyproject: Path, url: str) -> None:
    url = url.rstrip("/")
    ours = f'"Source" = "{url}"\n"Issues" = "{url}/issues"\n"Changelog" = "{url}/blob/main/CHANGELOG.md"\n'
    text = pyproject.read_text(encoding="utf-8")
    assert text.count(_TABLE) == 1
    pyproject.write_text(text.replace(_TABLE, _TABLE + ours), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
