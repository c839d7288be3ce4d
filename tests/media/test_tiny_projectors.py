"""A projector of each type that mtmd knows is read, and damage to it ends in an error, never in the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest

from dflash_local.errors import DFlashError, MediaError, ModelError, RequestError
from dflash_local.media.medium import Medium
from dflash_local.native import check_gguf, check_mmproj
from tests.fast import some_fast
from tests.fuzz.sweep import Sweep, sweep

from . import samples
from .reader import DIRTY
from .tiny_projectors import PROJECTORS, projector, write
from .worker import medium_for, open_engine, picture, read, sound

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.media.worker"]
# A tower of one size, windows with M-RoPE, tables of positions, tiles; sound in chunks, and a conformer.
QUICK = ("gemma3", "qwen2.5vl_merger", "gemma4v", "idefics3", "qwen2a", "lfm2a")
HEAVY = ("deepseekocr", "deepseekocr2")  # look at 1024 pixels, whatever the file says
FAST, SLOW = 12, 60
LARGE = ("qwen2.5vl_merger", "muse-glimmer", "youtuvl")  # whose masks grow with the square of a picture's patches


def test_all_are_sound(tmp_path: Path) -> None:
    for name in PROJECTORS:
        files = write(name, tmp_path)
        check_mmproj(files.mmproj)
        check_gguf(files.model)
        with pytest.raises(ModelError, match=r"general\.architecture"):
            check_gguf(files.mmproj)
        with pytest.raises(ModelError, match="is no projector"):
            check_mmproj(files.model)


@pytest.mark.parametrize("name", some_fast(PROJECTORS, QUICK))
def test_each_is_read(name: str, tmp_path: Path) -> None:
    with open_engine(write(name, tmp_path), n_ctx=4096) as engine:
        medium = medium_for(name)
        assert read(engine, medium) == read(engine, medium)
        if not PROJECTORS[name].audio:
            read(engine, picture(1, 1))


@pytest.mark.parametrize("name", some_fast(PROJECTORS, ("pixtral",)))
def test_mtmd_reads_each(name: str, tmp_path: Path) -> None:
    """Without libdflash: the files are not only accepted by us. And whatever was in the memory that graphs get."""
    files = write(name, tmp_path)
    kind = ["audio", "1"] if PROJECTORS[name].audio else ["image", "40x24"]
    command = [sys.executable, "-m", "tests.media.reader", str(files.model), str(files.mmproj), *kind]
    env = {**os.environ, **DIRTY}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout.splitlines()[-1])["result"] == "answered"


# ---- odd media


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, made in PROJECTORS.items() if not made.audio and name not in HEAVY])
def test_odd_pictures(name: str, tmp_path: Path) -> None:
    """Thin, long and large ones are read, or refused in a sentence."""
    with open_engine(write(name, tmp_path), n_ctx=8192) as engine:
        expected = read(engine, picture(40, 24))
        for width, height in (
            (1, 1),
            (2, 1),
            (1, 200),
            (200, 1),
            (3, 599),
            (2000, 11),
            (1000, 999),
            (1, 4000),
            (3000, 2),
        ):
            try:
                read(engine, picture(width, height))
            except DFlashError as error:
                assert error.message
        assert read(engine, picture(40, 24)) == expected


def test_pictures_that_are_refused(tmp_path: Path) -> None:
    with open_engine(write("gemma3", tmp_path)) as engine:
        for width, height in ((201, 1), (1, 4000), (1 << 15, 1 << 10)):
            with pytest.raises((RequestError, MediaError), match=f"{width} x {height} pixels"):
                read(engine, picture(width, height))
        assert read(engine, picture(200, 1))


@pytest.mark.parametrize("name", LARGE)
def test_large_pictures_are_made_smaller(name: str, tmp_path: Path) -> None:
    """Only as far as their patches fit under a mask."""
    with open_engine(write(name, tmp_path)) as engine:
        tokens = engine.tokenize_prompt(engine.abilities.marker, [picture(3000, 2000)])
        assert 1000 < sum(token < 0 for token in tokens) <= 4096
    with pytest.raises(DFlashError, match="image_max_tokens is 4097"):
        open_engine(write(name, tmp_path), image_max_tokens=4097)


@pytest.mark.parametrize("name", some_fast([name for name, made in PROJECTORS.items() if made.audio], QUICK))
def test_odd_sounds(name: str, tmp_path: Path) -> None:
    with open_engine(write(name, tmp_path), n_ctx=8192) as engine:
        expected = read(engine, sound(16_000))
        for n in (1, 15, 159, 1599):
            with pytest.raises((RequestError, MediaError), match="seconds"):
                read(engine, sound(n))
        for n in (1_600, 1_601, 4_000, 31_999):
            assert read(engine, sound(n))
        assert read(engine, sound(16_000)) == expected


def test_sounds_that_claim_hours(tmp_path: Path) -> None:
    """No memory is taken for what a header claims, or for what resampling would make of it."""
    files = [samples.flac((1 << 36) - 1, 16_000), samples.wav(1_000_000, rate=1)]
    with open_engine(write("gemma4ua", tmp_path)) as engine:
        for data in files:
            with pytest.raises((RequestError, MediaError), match="at most an hour"):
                read(engine, Medium("audio", data, 0, 0, sha256(data).digest()))
        assert read(engine, sound(16_000))


# ---- damaged files


def check(result: Sweep, count: int) -> None:
    assert not result.deaths, "\n\n".join(result.deaths)
    assert not result.silent, f"the sound projector was read differently after {result.silent}"
    assert len(result.results) == count


@pytest.mark.parametrize("name", QUICK[:3])
def test_mutations(name: str, tmp_path: Path) -> None:
    start = crc32(name.encode())
    result = sweep(Path(name), Path("-"), "projector", [f"{start}:{start + FAST}"], tmp_path, command=COMMAND)
    check(result, FAST)
    assert result.kinds()["refused"]  # the damage is real
    assert result.kinds()["answered"]  # and not all of it is at the gate


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROJECTORS if name not in HEAVY])
def test_many_mutations(name: str, tmp_path: Path) -> None:
    start = crc32(name.encode()) + FAST
    check(sweep(Path(name), Path("-"), "projector", [f"{start}:{start + SLOW}"], tmp_path, command=COMMAND), SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROJECTORS if name not in HEAVY])
def test_every_part_may_be_missing(name: str, tmp_path: Path) -> None:
    """Each key, and each tensor but those of layers behind the first."""
    whole = projector(name)
    gone = [pair.key.decode() for pair in whole.pairs] + [tensor.name.decode() for tensor in whole.tensors]
    items = [f"no:{part}" for part in gone if "blk.1." not in part and "blk.2." not in part]
    check(sweep(Path(name), Path("-"), "projector", items, tmp_path, command=COMMAND), len(items))
