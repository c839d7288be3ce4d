"""Apply the mutants one by one to a copy of the checkout, and report which no test notices:

    python -m tests.mutants                      all; what an earlier run found of unchanged files stays
    python -m tests.mutants ggml_ops/draft       those of files whose names have this
    python -m tests.mutants --list

The first run compiles the native library in build/mutants, each file by itself. The exit status is 1 if more survive
than may, or a mutant proves nothing: its line is gone, it does not compile, or its tests fail without it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from tests.mutants.laboratory import REPO, Laboratory
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import NATIVE, Mutant, MutantError

MOST_SURVIVORS = 3
FOLDER = REPO / "build" / "mutants"
KILLED, SURVIVED, ERROR = "killed", "survived", "error"


class Results:
    """What became of each mutant, in a file that is whole after each."""

    def __init__(self, path: Path, mutants: Sequence[Mutant]) -> None:
        self._path = path
        self._keys = {mutant: self._key(mutant) for mutant in mutants}  # as files are before they are copied
        self._known: dict[str, dict[str, Any]] = {}
        if path.is_file():
            self._known = json.loads(path.read_text(encoding="utf-8"))

    @staticmethod
    def _key(mutant: Mutant) -> str:
        """Of the mutant, its file and its tests as they are: a result holds until one of them changes."""
        digest = hashlib.sha256(mutant.key.encode())
        for file in [mutant.file, *map(file_of, mutant.tests)]:
            digest.update((REPO / file).read_bytes())
        return digest.hexdigest()[:16]

    def of(self, mutant: Mutant) -> dict[str, Any] | None:
        """None, too, for one that proved nothing: it is tried again."""
        found = self._known.get(self._keys[mutant])
        return None if found is None or found["outcome"] == ERROR else found

    def forget(self, mutants: Sequence[Mutant]) -> None:
        """They are to be tried again."""
        for mutant in mutants:
            self._known.pop(self._keys[mutant], None)

    def add(self, mutant: Mutant, outcome: str, what: str, seconds: float) -> dict[str, Any]:
        """`what`: the test that noticed it, or what was wrong."""
        found = {
            "mutant": str(mutant),
            "outcome": outcome,
            "what": what,
            "seconds": round(seconds, 1),
            **record.origin(),
        }
        self._known[self._keys[mutant]] = found
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self._known, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self._path)
        return found


def file_of(test: str) -> str:
    """The file of a test."""
    if not test.startswith(NATIVE):
        return test.split()[0].partition("::")[0]
    name = test.removeprefix(NATIVE)
    return next(file.relative_to(REPO).as_posix() for file in (REPO / "ggml_ops" / "tests").rglob(f"test_{name}.cpp"))


def try_all(laboratory: Laboratory, mutants: Sequence[Mutant], results: Results) -> None:
    """Those without a result. Raises MutantError: a test fails without any of them."""
    left = [mutant for mutant in mutants if results.of(mutant) is None]
    if not left:
        return
    print(f"{len(left)} of {len(mutants)} mutants to try; a copy of the checkout is made and compiled", flush=True)
    laboratory.copy()
    for uses_library in (False, True):  # which takes minutes to compile
        some = [mutant for mutant in left if mutant.uses_library == uses_library]
        tests = list(dict.fromkeys(test for mutant in some for test in mutant.tests))
        if uses_library and some:
            laboratory.prepare_library()
        if any(test.startswith(NATIVE) for test in tests):
            laboratory.prepare_native()
        for test in tests:
            if laboratory.notices(test):
                raise MutantError(f"{test} fails without any mutant")
        try_some(laboratory, some, results)


def try_some(laboratory: Laboratory, mutants: Sequence[Mutant], results: Results) -> None:
    """Those of a laboratory that is ready for them."""
    for mutant in mutants:
        start = time.monotonic()
        try:
            test = laboratory.verdict(mutant)
            outcome, what = (KILLED, test) if test else (SURVIVED, "")
        except MutantError as error:
            outcome, what = ERROR, str(error)
        found = results.add(mutant, outcome, what, time.monotonic() - start)
        print(f"{outcome:8} {found['seconds']:6.1f} s  {mutant}  {what}", flush=True)


def report(mutants: Sequence[Mutant], results: Results) -> int:
    """The summary. Returns the exit status."""
    found = {mutant: results.of(mutant) for mutant in mutants}
    survivors = [mutant for mutant, one in found.items() if one and one["outcome"] == SURVIVED]
    wrong = [mutant for mutant, one in found.items() if one is None]
    print(f"{len(mutants)} mutants: {len(mutants) - len(survivors) - len(wrong)} killed, {len(survivors)} survived")
    for mutant in survivors:
        print(f"  survived: {mutant}")
    for mutant in wrong:
        print(f"  proves nothing: {mutant}")
    return int(len(survivors) > MOST_SURVIVORS or bool(wrong))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", nargs="?", default="", help="only mutants of files whose names have this")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--list", action="store_true", help="name them, and their tests")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the copy lives (default: build/mutants)")
    args = parser.parse_args(argv)
    mutants = [mutant for mutant in MUTANTS if args.part in mutant.file]
    if args.list:
        print(*(f"{mutant}  ({', '.join(mutant.tests)})" for mutant in mutants), sep="\n")
        return 0
    args.folder.mkdir(parents=True, exist_ok=True)
    results = Results(args.folder / "results.json", mutants)
    if args.again:
        results.forget(mutants)
    try:
        try_all(Laboratory(args.folder.resolve()), mutants, results)
    except MutantError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return report(mutants, results)


if __name__ == "__main__":
    sys.exit(main())
