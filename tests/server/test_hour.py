"""An hour of abuse: 32 clients do to a served pair all that clients do, sound or not, all at once.

They ask every endpoint, in streams and whole, leave at any point, stop reading, come back to streams that they have
named, move slots to files and back while others use them, send what must be refused, damaged requests, halves of
requests and noise. What has one right answer must be answered as by the undisturbed server, bit for bit, since
`--bit-exact` promises that a text does not depend on what else is in a pass. At the end nothing is left behind: no
busy slot, thread or file, and no memory.

Environment:
    DFLASH_ABUSE_MINUTES: for each pair, 1 unless it is given. Memory is watched from its first twelfth on.
    DFLASH_ABUSE_ENV: variables of the server alone, such as "LD_PRELOAD=.../libasan.so ASAN_OPTIONS=detect_leaks=0".

Each client draws from a generator of its own, and each deed from one whose seed a failure names:
`DEEDS` (tests/server/abuse/deeds.py) called by that name with `random.Random(seed)` repeats it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest

from benchmarks.real_pair import DRAFTER, MODEL
from dflash_local.cache_dir import cache_dir
from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.hub.client import Hub
from dflash_local.hub.packaged_models import cached
from dflash_local.server.app import create_app
from tests.fuzz.conftest import OFF
from tests.fuzz.http.sound import endpoints
from tests.patience import PATIENCE, wait_until
from tests.server.abuse.crowd import CLIENTS, Crowd, changed, learn, memory_of
from tests.server.abuse.questions import SLOTS
from tests.server.encoders import weights, write_bert
from tests.server.live import serving
from tests.upstream.models import write_infill

MINUTES = float(os.environ.get("DFLASH_ABUSE_MINUTES", "1"))
CONTEXT = 1024  # tokens of a slot
HOST_CACHE = 16  # MiB
# Allocator and caches settle within this many bytes, however short the run; the host's cache is among them.
SETTLING = 40 * 2**20
GROWTH = 1.01  # of memory after the first twelfth
# By default glibc gives each thread an arena, whose holes count as well and fill for longer than most runs.
ENVIRONMENT = {"MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2")}
OWN = dict(setting.split("=", 1) for setting in shlex.split(os.environ.get("DFLASH_ABUSE_ENV", "")))
USERS_CACHE = cache_dir()  # before the session has one of its own (tests/conftest.py)


class Files(NamedTuple):
    """A target and a drafter; `lacks`: kinds of questions that the target cannot answer."""

    target: Path
    drafter: Path
    lacks: frozenset[str] = frozenset()


@pytest.fixture(params=["dflash", "dflash2", "dspark", "hybrid", MODEL])
def files(
    request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Files:
    """The pocket pairs, that of attention with tokens for infill; and a real one, if its target has been downloaded."""
    if request.param == MODEL:
        with monkeypatch.context() as patch:
            patch.setenv("DFLASH_CACHE", str(USERS_CACHE))
            target = cached(MODEL, Hub(offline=True))
        if target is None:
            pytest.skip(f"`python benchmarks/real_models.py {MODEL}` downloads its target")
        return Files(target, DRAFTER, frozenset({"infill"}))
    if request.param == "hybrid":
        return Files(pocket["hybrid-target"], pocket["hybrid-dflash"], frozenset({"infill"}))
    return Files(write_infill(tmp_path / "target.gguf"), pocket[request.param])


def flags_of(files: Files, folder: Path) -> list[object]:
    """The command line: everything is on. Bodies may take 5 seconds, so that clients see who is too slow."""
    slots = folder / "slots"
    slots.mkdir()
    encoder = write_bert(folder / "encoder.gguf", weights())
    ranker = write_bert(folder / "ranker.gguf", weights(rerank=True))
    flags: list[object] = ["-m", files.target, "-md", files.drafter, "--bit-exact", "-t", 1, "-n", 64]
    flags += ["-c", SLOTS * CONTEXT, "-np", SLOTS, "--max-queue", CLIENTS - SLOTS - 4, "--cache-ram", HOST_CACHE]
    flags += ["--embedding-model", encoder, "--rerank-model", ranker, "--slot-save-path", slots, "--timeout", 5]
    return flags


def skip_unless_exact(target: Path) -> None:
    """Answers of a server that does not promise them could not be compared."""
    try:
        Engine(target, n_ctx=256, n_threads=1, warmup=False, bit_exact=True).close()
    except RequestError as error:
        if error.param != "bit_exact":
            raise
        pytest.skip(str(error))


def pool_size() -> int:
    """Threads of asyncio.to_thread at most."""
    return min(32, (os.cpu_count() or 1) + 4)


def is_idle(url: str) -> bool:
    """Whether no slot works and nothing waits."""
    metrics = httpx.get(url + "/metrics").text
    counts = ("llamacpp:requests_processing 0\n", "llamacpp:requests_deferred 0\n")
    return all(count in metrics for count in counts) and not any(
        slot["is_processing"] for slot in httpx.get(url + "/slots").json()
    )


def report(crowd: Crowd) -> None:
    """Tell what was done."""
    tally, mib = crowd.tally, 2**20
    left = sum(tally.done[name] for name in ("leave", "leave_early", "resume", "be_cut_off", "be_noise"))
    print(f"{tally.done.total()} deeds: {dict(tally.done.most_common())}")
    print(f"{tally.kinds.total()} answers compared: {dict(tally.kinds.most_common())}")
    print(f"{left} clients left; refused as they had to be: {dict(tally.refused)}; too busy: {dict(tally.busy)}")
    print(
        f"memory at most {crowd.early_memory / mib:.1f} MiB in the first twelfth, {crowd.later_memory / mib:.1f} after "
        f"it, {crowd.samples[-1].size / mib:.1f} at the end; {len(crowd.samples)} samples"
    )
    for failure in tally.failures:
        print(f"- {failure}")


@pytest.mark.slow
def test_an_hour_of_abuse(files: Files, tmp_path: Path) -> None:
    skip_unless_exact(files.target)
    with serving(flags_of(files, tmp_path), {**ENVIRONMENT, **OWN}, seconds=10 * PATIENCE) as (child, url):
        process = psutil.Process(child.pid)
        known, refused = asyncio.run(learn(url))
        assert refused == files.lacks
        n_files = process.num_fds() if os.name == "posix" else 0
        n_threads = process.num_threads()
        crowd = Crowd(url, process, known, endpoints(create_app(None)), OFF)

        asyncio.run(crowd.run(MINUTES * 60))

        report(crowd)
        assert child.poll() is None
        assert not crowd.tally.failures, f"{len(crowd.tally.failures)} failures, the first: {crowd.tally.failures[0]}"
        assert crowd.tally.kinds and crowd.tally.refused
        wait_until(lambda: is_idle(url))
        assert process.num_threads() <= n_threads + pool_size()
        if os.name == "posix":
            wait_until(lambda: process.num_fds() <= n_files + 2)
        assert changed(asyncio.run(learn(url))[0], known) == []
        if "LD_PRELOAD" not in OWN:  # a sanitizer keeps what is freed for a while
            print(f"memory {memory_of(process) / 2**20:.1f} MiB once all are gone")
            assert crowd.later_memory < GROWTH * crowd.early_memory + SETTLING
        child.terminate()
        assert child.wait(PATIENCE) == 0
