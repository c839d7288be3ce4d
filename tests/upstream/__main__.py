"""`python -m tests.upstream`: run llama-server's own tests, and say what passes."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.upstream.scope import passes, write_passes
from tests.upstream.suite import Result, Run, run


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="such as test_completion (default: all in scope)")
    parser.add_argument("--server", choices=("ours", "llama-server"), default="ours")
    parser.add_argument("-k", dest="keyword", default="", metavar="EXPRESSION", help="pytest's -k")
    parser.add_argument("-n", dest="workers", type=int, default=2, metavar="N", help="tests at a time (default: 2)")
    parser.add_argument("--draft", choices=("on", "off"), default="on", help="off: ours without its drafter")
    parser.add_argument("--all-flags", action="store_true", help="do not leave out flags that ours does not know")
    parser.add_argument("--list-failures", action="store_true", help="each failure with its first line")
    parser.add_argument("--all", action="store_true", help="also what llama-server does not pass with the pocket model")
    parser.add_argument("--write", action="store_true", help="with --all: record what llama-server passes")
    parser.add_argument("--all-passes", action="store_true", help="list what passes, too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep logs and records there")
    args = parser.parse_args()

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="upstream-") as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        draft = "off" if args.draft == "off" else ""
        only = None if args.all else passes()
        done = run(
            args.server,
            folder,
            only=only,
            keyword=args.keyword,
            files=args.files,
            workers=args.workers,
            draft=draft,
            all_flags=args.all_flags,
        )
    if args.all and args.write and args.server == "llama-server":
        write_passes(done.passed())
    report(done, failures=args.list_failures or bool(args.keyword or args.files), passes=args.all_passes)
    print(f"{time.monotonic() - start:.0f} s")
    return 0


def report(done: Run, *, failures: bool, passes: bool) -> None:
    """One line for each file, then what fails."""
    files: dict[str, list[Result]] = defaultdict(list)
    for result in done.results.values():
        files[result.file].append(result)
    print(f"{'file':28} passed  failed  skipped")
    for name, results in sorted(files.items()):
        print(f"{name:28}" + _counts(results))
    print(f"{'all':28}" + _counts(list(done.results.values())))
    if done.dropped:
        print("\nflags that were left out: " + ", ".join(f"{name} ({n})" for name, n in done.dropped.most_common()))
    for outcome, wanted in (("failed", failures), ("passed", passes)):
        for result in sorted(done.results.values(), key=lambda one: one.test) if wanted else ():
            if result.outcome == outcome:
                print(f"\n{outcome} {result.test}" + (f"\n    {result.why[:400]}" if result.why else ""))


def _counts(results: list[Result]) -> str:
    outcomes = [result.outcome for result in results]
    return "".join(f"{outcomes.count(name):8}" for name in ("passed", "failed", "skipped"))


if __name__ == "__main__":
    sys.exit(main())
