"""An hour of abuse: 32 clients do to a served pair all that clients do, sound or not, all at once.

They ask every endpoint, in streams and whole, leave at any point, stop reading, come back to streams that they have
named, move slots to files and back while others use them, send what must be refused, damaged requests, halves of
requests and noise. What has one right answer must be answered as by the undisturbed server, bit for bit, since
`--bit-exact` promises that a text does not depend on what else is in a pass. At the end nothing is left behind: no
busy slot, thread or file.

What was not looked at proves nothing, so a run fails if a deed was never done, a way to leave never met with, a kind of
question never compared in the crowd, or nothing in one twelfth of the time; from ten minutes on, if a single question
was never compared, or a single request that must be refused never refused.

Memory, of the server and its children:
    from ten minutes on: what is usual grows by at most 1% after minute 5, and the most by 3%
    in shorter runs, in which caches and the allocator still fill: at most half as much again as in the first twelfth,
        which only finds what loses kilobytes with every request
    with a sanitizer (LD_PRELOAD), which keeps what is freed: it is only told

Environment:
    DFLASH_ABUSE_MINUTES: for each pair, 1 unless it is given
    DFLASH_ABUSE_ENV: variables of the server alone, such as those of a sanitizer (docs/proof.md)

Each client draws from a generator of its own, and each deed from one whose seed a failure names:
`DEEDS` (tests/server/abuse/deeds.py) called by that name with `random.Random(seed)` repeats it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections import Counter
from collections.abc import Mapping
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
from tests.server.abuse.clients import Asked
from tests.server.abuse.crowd import CLIENTS, PARTS, Crowd, changed, learn, memory_of, parts_after, silent
from tests.server.abuse.questions import SLOTS
from tests.server.encoders import weights, write_bert
from tests.server.live import serving
from tests.upstream.models import write_infill

MINUTES = float(os.environ.get("DFLASH_ABUSE_MINUTES", "1"))
CONTEXT = 1024  # tokens of a slot
HOST_CACHE = 16  # MiB
LONG = 10.0  # minutes of a run, from which on it is judged strictly
# Of memory, from minute 5 of a long run and from the first twelfth of a short one on: what is usual in as long a time,
# where a leak shows, and the most, which single large requests make.
SETTLED, GROWTH, PEAK = (5 / MINUTES, 1.01, 1.03) if MINUTES >= LONG else (1 / PARTS, 1.5, 1.5)
# By default glibc gives each thread an arena, whose holes count as well and fill for longer than most runs.
ENVIRONMENT = {"MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2")}
OWN = dict(setting.split("=", 1) for setting in shlex.split(os.environ.get("DFLASH_ABUSE_ENV", "")))
USERS_CACHE = cache_dir()  # before the session has one of its own (tests/conftest.py)


# What some questions are refused with, by their kinds.
NO_INFILL = {"infill": "Infill is not supported by this model"}
NO_BLOCKS = {"chat, block verification": "block needs a DFlash 2, DSpark, Domino or LiliCorr drafter"}
NO_CALLS = dict.fromkeys(
    ("chat, tools", "message, tools", "response, tools"),
    "cannot be enforced: this model's chat template has no tool calls",
)


class Files(NamedTuple):
    """A target and a drafter; `lacks`: kinds of questions that the server refuses with it, and its words."""

    target: Path
    drafter: Path
    lacks: Mapping[str, str]


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
        return Files(target, DRAFTER, NO_INFILL | NO_BLOCKS | NO_CALLS)
    if request.param == "hybrid":
        return Files(pocket["hybrid-target"], pocket["hybrid-dflash"], NO_INFILL | NO_BLOCKS)
    lacks = NO_BLOCKS if request.param == "dflash" else {}
    return Files(write_infill(tmp_path / "target.gguf"), pocket[request.param], lacks)


def flags_of(files: Files, folder: Path) -> list[object]:
    """The command line: everything is on. Bodies may take 5 seconds, so that clients see who is too slow."""
    slots = folder / "slots"
    slots.mkdir()
    encoder = write_bert(folder / "encoder.gguf", weights())
    ranker = write_bert(folder / "ranker.gguf", weights(rerank=True))
    flags: list[object] = ["-m", files.target, "-md", files.drafter, "--bit-exact", "-t", 1, "-n", 64]
    flags += ["-c", SLOTS * CONTEXT, "-np", SLOTS, "--max-queue", CLIENTS - SLOTS, "--cache-ram", HOST_CACHE]
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


def metrics(url: str) -> dict[str, float]:
    """llama-server's, by their names."""
    text = httpx.get(url + "/metrics").text
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("llamacpp:"))
    return {name.removeprefix("llamacpp:"): float(value) for name, value in lines}


def is_idle(url: str) -> bool:
    """Whether no slot works and nothing waits."""
    now = metrics(url)
    return now["requests_processing"] == now["requests_deferred"] == 0 and not any(
        slot["is_processing"] for slot in httpx.get(url + "/slots").json()
    )


def check_refusals(refused: Mapping[Asked, str], lacks: Mapping[str, str]) -> None:
    """What cannot be asked is what was expected, for the expected reason."""
    assert {asked.kind for asked in refused} == lacks.keys(), refused
    for asked, why in refused.items():
        assert lacks[asked.kind] in why, f"{asked}: {why}"


def check_work(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Drafts were accepted meanwhile, and more than two slots had a part in a pass, on average."""
    passes = after["n_decode_total"] - before["n_decode_total"]
    busy = [each["n_busy_slots_per_decode"] * each["n_decode_total"] for each in (before, after)]
    print(f"{(busy[1] - busy[0]) / passes:.2f} slots in a pass")
    assert busy[1] - busy[0] > 2 * passes
    name = "spec_decode_num_accepted_tokens_total"
    assert after[name] > before[name]


def report(crowd: Crowd) -> None:
    """Tell what was done."""
    tally, mib = crowd.tally, 2**20
    kinds: Counter[str] = Counter()
    for asked, count in tally.compared.items():
        kinds[asked.kind] += count
    print(f"{tally.begun.total()} deeds: {dict(tally.begun.most_common())}")
    print(f"{kinds.total()} answers compared, {len(tally.compared)} of {len(crowd.known)} questions: {dict(kinds)}")
    print(f"they were compared by {dict(tally.comparing)}")
    print(f"seen: {dict(tally.seen)}; refused as they had to be: {dict(tally.refused)}; too busy: {dict(tally.busy)}")
    for word, memory in (("at most", crowd.memory), ("in the median", crowd.usual_memory)):
        parts = [memory(part / PARTS, (part + 1) / PARTS) / mib for part in range(PARTS)]
        print(f"memory {word}, in each part of the time: {' '.join(f'{size:.1f}' for size in parts)} MiB")
    for failure in tally.failures:
        print(f"- {failure}")


def check_memory(crowd: Crowd) -> None:
    """Nothing grows once the first answers have been written."""
    usual = [crowd.usual_memory(start, end) for start, end in parts_after(SETTLED)]
    assert 0 < max(usual) <= GROWTH * usual[0], f"usual memory grew: {usual}"
    assert crowd.memory(SETTLED) <= PEAK * crowd.memory(0, SETTLED)


@pytest.mark.slow
def test_an_hour_of_abuse(files: Files, tmp_path: Path) -> None:
    skip_unless_exact(files.target)
    with serving(flags_of(files, tmp_path), {**ENVIRONMENT, **OWN}, seconds=10 * PATIENCE) as (child, url):
        process = psutil.Process(child.pid)
        known, refused = asyncio.run(learn(url))
        check_refusals(refused, files.lacks)
        assert silent(known) == set()
        n_files = process.num_fds() if os.name == "posix" else 0
        n_threads, before = process.num_threads(), metrics(url)
        crowd = Crowd(url, process, known, endpoints(create_app(None)), OFF)

        asyncio.run(crowd.run(MINUTES * 60))

        report(crowd)
        assert child.poll() is None
        assert not crowd.tally.failures, f"{len(crowd.tally.failures)} failures, the first: {crowd.tally.failures[0]}"
        assert crowd.missing(wholly=MINUTES >= LONG) == []
        wait_until(lambda: is_idle(url))
        check_work(before, metrics(url))
        assert process.num_threads() <= n_threads + pool_size()
        if os.name == "posix":
            wait_until(lambda: process.num_fds() <= n_files + 2)
        assert changed(asyncio.run(learn(url))[0], known) == []
        print(f"memory {memory_of(process) / 2**20:.1f} MiB once all are gone")
        if "LD_PRELOAD" not in OWN:
            check_memory(crowd)
        child.terminate()
        assert child.wait(PATIENCE) == 0
