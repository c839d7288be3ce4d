"""A run of upstream's tests against one server, and what came of it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dflash_local.build.peer import PROGRAM
from dflash_local.build.peer import build as build_peer
from tests.upstream.launch import CLIENT
from tests.upstream.models import write_hub
from tests.upstream.scope import FILES_OUT_OF_SCOPE
from tests.upstream.source import working_copy

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """What came of one test case: passed, failed or skipped, and why."""

    test: str
    outcome: str
    why: str = ""
    seconds: float = 0.0

    @property
    def file(self) -> str:
        return self.test.split("::")[0].removeprefix("unit/").removesuffix(".py")


@dataclass
class Run:
    """All results by name, the flags that were left out, and the folder with the records of what was asked."""

    results: dict[str, Result] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    record: Path = Path()

    def passed(self) -> set[str]:
        return {name for name, result in self.results.items() if result.outcome == "passed"}


def run(
    server: str,
    folder: Path,
    *,
    only: Iterable[str] | None = None,
    keyword: str = "",
    files: Sequence[str] = (),
    workers: int = 2,
    draft: str = "",
    all_flags: bool = False,
) -> Run:
    """Run the tests against `server` (ours or llama-server) below `folder`, which must be empty: those named by `only`,
    or all. `draft` is off, or empty for the pocket drafter. Without `all_flags`, those that ours does not know are left
    out."""
    folder = folder.resolve()
    tests = working_copy(folder / "tree")
    write_hub(folder / "hub")
    launcher = folder / "launch"
    launcher.write_text(f"#!{sys.executable} -SE\n" + CLIENT.format(root=str(ROOT)))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    record = folder / "record"
    record.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LLAMA_", "PYTEST_"))}
    environment |= {
        "LLAMA_SERVER_BIN_PATH": str(launcher),
        "LLAMA_CACHE": str(folder / "hub"),
        "LLAMA_ARG_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "passive",
        "PYTHONPATH": str(ROOT),
        "UPSTREAM_RESULTS": str(folder / "results.jsonl"),
        "UPSTREAM_DROPPED": str(folder / "dropped"),
        "UPSTREAM_RECORD": str(record),
        "UPSTREAM_DRAFT": draft,
        "UPSTREAM_ALL_FLAGS": "1" if all_flags else "",
    }
    if server == "llama-server":
        environment["UPSTREAM_PEER"] = str(build_peer() / PROGRAM)
    if only is not None:
        (folder / "only").write_text("\n".join(only))
        environment["UPSTREAM_ONLY"] = str(folder / "only")
    names = [f"unit/{name.removesuffix('.py')}.py" for name in files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.upstream.plugin", "-p", "no:cacheprovider"]
    command += [*(["-k", keyword] if keyword else []), *(names or ["unit"])]
    command += [f"--ignore=unit/{name}.py" for name in FILES_OUT_OF_SCOPE if f"unit/{name}.py" not in names]
    if workers > 1:
        command += ["-n", str(workers), "--dist", "worksteal"]
    with (folder / "log").open("w") as log, _forking(server, environment):
        status = subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=subprocess.STDOUT).returncode
    if status not in (0, 1, 5):  # 5: no test was selected
        said = (folder / "log").read_text()
        raise RuntimeError(f"pytest ended with {status} (log: {folder / 'log'})\n{said[-3000:]}")
    return Run(_results(folder / "results.jsonl"), _dropped(folder / "dropped"), record)


@contextmanager
def _forking(server: str, environment: dict[str, str]) -> Iterator[None]:
    """The process that forks servers of ours, at the address that it adds to the environment."""
    if server != "ours":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="fork-") as folder:  # short: a socket's path has at most 100 characters
        path = environment["UPSTREAM_FORK"] = str(Path(folder) / "socket")
        command = [sys.executable, "-m", "tests.upstream.launch", path, str(os.getpid())]
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        try:
            while not Path(path).exists():
                assert process.poll() is None, "the process that forks servers has ended"
                time.sleep(0.1)
            yield
        finally:
            process.kill()
            process.wait()


def settled(done: Run, server: str, folder: Path, *, draft: str = "") -> Run:
    """`done`, with what failed run once more, alone: a machine that is busy makes tests fail that set short limits."""
    failed = [name for name, result in done.results.items() if result.outcome == "failed"]
    if failed:
        again = run(server, folder, only=failed, workers=1, draft=draft)
        done.results |= again.results
    return done


def _results(path: Path) -> dict[str, Result]:
    """The results; a failure after the test itself, such as of a fixture, beats its success."""
    results: dict[str, Result] = {}
    for line in path.read_text().splitlines():
        result = Result(**json.loads(line))
        before = results.get(result.test)
        if before is None or before.outcome == "passed":
            results[result.test] = result
    return results


def _dropped(path: Path) -> Counter[str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(flag for line in lines for flag in re.findall(r"(?<!\S)--?[a-z][a-z-]*", line))
