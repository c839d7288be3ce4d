"""A model that is loaded while the server is imported."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from dflash_local.cli.serving.early_load import EarlyLoad
from dflash_local.errors import ModelError


def test_the_first_call_takes_what_was_begun_and_later_ones_load_anew() -> None:
    begun, loads = threading.Event(), []

    def load(progress: Any) -> Any:
        loads.append(progress(0.5))
        begun.set()
        return f"engine {len(loads)}"

    early = EarlyLoad(load)
    assert begun.wait(10)
    assert early(lambda _done: False) == "engine 1" and loads == [True]
    assert early(lambda _done: False) == "engine 2" and loads == [True, False]


def test_progress_reaches_whoever_waits() -> None:
    waits, told = threading.Event(), []

    def load(progress: Any) -> Any:
        assert waits.wait(10)
        while not told:
            progress(0.5)
        return "engine"

    def hear(done: float) -> bool:
        told.append(done)
        return True

    early = EarlyLoad(load)
    waits.set()
    assert early(hear) == "engine" and told[0] == 0.5


def test_an_error_is_raised_where_the_model_is_wanted() -> None:
    def load(_progress: Any) -> Any:
        raise ModelError("broken")

    early = EarlyLoad(load)
    with pytest.raises(ModelError, match="broken"):
        early(lambda _done: True)


def test_it_does_not_outlive_the_main_thread() -> None:
    script = """
import time
from dflash_local.cli.serving.early_load import EarlyLoad
def load(progress):
    while progress(0.0):
        time.sleep(0.01)
EarlyLoad(load)
raise SystemExit(3)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True)
    assert done.returncode == 3 and not done.stderr
