"""`make installers PROJECT_URL=...`: install.sh and install.ps1 of a release, which know where its wheels are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dflash_local import __version__

HERE = Path(__file__).resolve().parent
# The line of each script that is filled in.
_LINES = {"install.sh": 'RELEASE_WHEELS="{}" #', "install.ps1": "$ReleaseWheels = '{}' #"}


def write_installers(wheels: str, out: Path) -> list[Path]:
    """Write both scripts into `out`, with the address `wheels` of a folder that has SHA256SUMS and what it names.
    Returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, line in _LINES.items():
        text = (HERE / name).read_text(encoding="utf-8")
        assert text.count(line.format("")) == 1, name
        path = out / name
        path.write_text(text.replace(line.format(""), line.format(wheels)), encoding="utf-8", newline="\n")
        written.append(path)
    return written


def files_address(url: str, version: str = __version__) -> str:
    """The folder with the files of a release, in the repository at `url`."""
    return f"{url.rstrip('/')}/releases/download/v{version}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release.installers", description=__doc__)
    parser.add_argument("--url", required=True, help="address of the repository")
    parser.add_argument("--out", type=Path, default=HERE.parent / "dist", metavar="DIR", help="default: dist")
    args = parser.parse_args()
    if not args.url.startswith("https://") or set(args.url) & set("'\"$` \\"):
        sys.exit(f"error: --url '{args.url}' is no https address\n  fix: make installers PROJECT_URL=https://...")
    print(*write_installers(files_address(args.url), args.out), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
