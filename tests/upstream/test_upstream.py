"""What llama-server passes of its own tests with the pocket model, ours passes too, but for a reviewed list; and drafts
change no text of any answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upstream.compare import read, texts
from tests.upstream.scope import NOT_ASKED, NOT_REPEATED, passes
from tests.upstream.suite import Run, run, settled

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ours")
    return settled(run("ours", folder / "first", only=passes()), "ours", folder / "again")


@pytest.fixture(scope="module")
def undrafted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run("ours", tmp_path_factory.mktemp("undrafted"), only=passes(), draft="off")


def test_the_record_of_llama_server_is_true(tmp_path: Path) -> None:
    done = settled(run("llama-server", tmp_path / "first", only=passes()), "llama-server", tmp_path / "again")
    assert set(done.results) == set(passes())
    assert set(passes()) - done.passed() == set()


def test_ours_passes_what_llama_server_passes(ours: Run) -> None:
    failed = {name: ours.results[name].why for name in passes() if name not in ours.passed()}
    assert {name: why for name, why in failed.items() if name not in NOT_ASKED} == {}
    assert set(NOT_ASKED) <= set(failed), "these pass: take them from the list"


def test_drafts_change_no_text(ours: Run, undrafted: Run) -> None:
    drafted, plain = read(ours.record), read(undrafted.record)
    asked = {key for key in drafted if key in plain and drafted[key]["request"] == plain[key]["request"]}
    compared = {key: texts(drafted[key]) for key in sorted(asked) if key[0] not in NOT_REPEATED}
    different = {key: (said, texts(plain[key])) for key, said in compared.items() if said != texts(plain[key])}
    assert different == {}
    assert sum(map(bool, compared.values())) > 200
