"""What a pair that is named would take and whether it fits, before its gigabytes are downloaded: from headers."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local.cli import main
from dflash_local.hub import headers
from tests.convert import samples
from tests.convert.dialect_samples import write_dialect
from tests.projector_files import projector_file

from .stand_in import StandIn
from .test_pairing import DRAFTER, POCKET, TARGET, weights_fetched

SIZES = ("--vram", "8G", "-c", "512")
pytestmark = pytest.mark.usefixtures("own_folders")

Plan = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pocket models are no longer than a first step; and a folder of temporary files that shows what is left."""
    monkeypatch.setattr(headers, "_GGUF_STEPS", (1 << 16, 1 << 17, 1 << 18))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Plan:
    def run(*flags: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["plan", *flags, *SIZES, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return run


@pytest.fixture
def files(endpoint: StandIn, pocket: dict[str, Path], tmp_path: Path) -> dict[str, bytes]:
    """The files of the target's repository."""
    projector = projector_file(tmp_path / "mmproj-F16.gguf")
    found = {"Pocket-Q8_0.gguf": pocket["target"].read_bytes(), projector.name: projector.read_bytes()}
    return endpoint.add(TARGET, found).files


def check_nothing_came(endpoint: StandIn, cache_folder: Path, tmp_path: Path, n_bytes: int) -> None:
    """Of repositories with so many bytes."""
    assert 0 < weights_fetched(endpoint) < n_bytes / 4
    assert not [path for path in cache_folder.glob("models--*/blobs/*") if path.stat().st_size > 1 << 16]
    assert not list((tmp_path / "own").glob("drafters/*"))
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("dialect", ["A", "B"])
def test_a_plan_by_name_is_that_of_the_files(
    endpoint: StandIn, files: dict[str, bytes], pocket: dict[str, Path], cache_folder: Path, tmp_path: Path, plan: Plan,
    dialect: str,
) -> None:  # fmt: skip
    drafter = pocket["dflash"] if dialect == "A" else write_dialect(tmp_path / "b.gguf", "B", pocket["dflash"])
    files["dflash-Pocket-F16.gguf"] = drafter.read_bytes()
    found = plan("-hf", TARGET)
    n_bytes = sum(map(len, files.values()))
    check_nothing_came(endpoint, cache_folder, tmp_path, n_bytes)
    assert found["download"] == n_bytes
    local = plan(
        "-m", str(pocket["target"]), "-md", str(drafter), "--auto-convert",
        "--mmproj", str(tmp_path / "mmproj-F16.gguf"),
    )  # fmt: skip
    assert found | {"download": 0, "flags": []} == local | {"flags": []}
    assert found["placement"]["CUDA0"]["projector"] > 0 and found["placement"]["CUDA0"]["drafter"] > 0


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_a_checkpoint_is_planned_as_it_would_be_converted(
    endpoint: StandIn, files: dict[str, bytes], pocket: dict[str, Path], cache_folder: Path, tmp_path: Path, plan: Plan,
    suffix: str,
) -> None:  # fmt: skip
    """One of PyTorch's own format, whose index is at its end, comes whole."""
    folder = tmp_path / "Pocket-DFlash"
    samples.write_checkpoint(folder, POCKET, samples.tensors_of_drafter(pocket["dflash"]), dtype="F32")
    if suffix == "bin":
        write_torch(folder)
    weights = {path.name: path.read_bytes() for path in folder.iterdir()}
    endpoint.add(DRAFTER, weights)
    found = plan("-hf", TARGET, "-hfd", DRAFTER, "--no-mmproj")
    if suffix == "bin":
        assert not list(cache_folder.glob("**/snapshots/**/*.gguf")) and found["download"] == len(
            files["Pocket-Q8_0.gguf"]
        )
    else:
        check_nothing_came(endpoint, cache_folder, tmp_path, sum(map(len, [*files.values(), *weights.values()])))
    output = tmp_path / "d.gguf"
    assert main(["convert", str(folder), "--target", str(pocket["target"]), "-o", str(output), "-q"]) == 0
    assert found["placement"] == plan("-m", str(pocket["target"]), "-md", str(output))["placement"]
    assert main(["pull", TARGET, "-hfd", DRAFTER, "--no-mmproj"]) == 0
    assert plan("-hf", TARGET, "-hfd", DRAFTER, "--no-mmproj") == found | {"download": 0}


def write_torch(folder: Path) -> None:
    """The weights of a checkpoint as torch.save writes them."""
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    path = folder / "model.safetensors"
    torch.save(safetensors.load_file(path), folder / "pytorch_model.bin")
    path.unlink()


def test_all_parts_of_a_split_target_count(
    endpoint: StandIn, pocket: dict[str, Path], cache_folder: Path, tmp_path: Path, plan: Plan
) -> None:
    first = samples.write_split(pocket["target"], tmp_path / "P-Q8_0", lambda name: len(name) % 3, n_parts=3)
    parts = {path.name: path.read_bytes() for path in tmp_path.glob("P-Q8_0-*.gguf")}
    endpoint.add(TARGET, parts)
    found = plan("-hf", TARGET)
    check_nothing_came(endpoint, cache_folder, tmp_path, sum(map(len, parts.values())))
    assert len(parts) == 3 and found["placement"] == plan("-m", str(first))["placement"]


def test_a_plan_names_the_models_as_it_was_given_them(
    endpoint: StandIn, files: dict[str, bytes], pocket: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Their headers' files are gone. A token is not shown."""
    files["dflash-Pocket-F16.gguf"] = pocket["dflash"].read_bytes()
    for flags, line in (
        (("-hf", f"{TARGET}:Q8_0"), f"serve -hf {TARGET}:Q8_0 -c 512"),
        (("-hf", TARGET, "-hff", "Pocket-Q8_0.gguf"), f"serve -hf {TARGET} -hff Pocket-Q8_0.gguf -c 512"),
        (("-hf", TARGET, "-md", str(pocket["dflash"])), f"serve -hf {TARGET} -md {pocket['dflash']} -c 512"),
        (("-m", str(pocket["target"]), "-hfd", TARGET), f"serve -m {pocket['target']} -hfd {TARGET} -c 512"),
        (
            ("-m", str(pocket["target"]), "-hfd", TARGET, "-md", "dflash-Pocket-F16.gguf"),
            f"serve -m {pocket['target']} -hfd {TARGET} -md dflash-Pocket-F16.gguf -c 512",
        ),
    ):
        assert main(["plan", *flags, *SIZES, "--no-mmproj", "--hf-token", "hf_secret"]) == 0
        shown = capsys.readouterr().out
        assert line in shown.splitlines()[-1] and shown.splitlines()[-1].endswith(" --no-mmproj")
        assert "to download: " in shown and "temporary" not in shown and "hf_secret" not in shown
    monkeypatch.setenv("LLAMA_ARG_HF_REPO", TARGET)
    assert main(["plan", *SIZES]) == 0
    assert f"serve -hf {TARGET} -c 512" in capsys.readouterr().out


def test_a_drafter_that_cannot_be_rewritten_on_a_full_disk(
    files: dict[str, bytes], pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """There is no -o to give."""
    files["dflash-Pocket-F16.gguf"] = write_dialect(tmp_path / "b.gguf", "B", pocket["dflash"]).read_bytes()

    def no(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dflash_local.convert.writer.write_gguf", no)
    assert main(["plan", "-hf", TARGET, *SIZES]) == 1
    shown = capsys.readouterr().err
    assert "is full" in shown and shown.endswith("fix: free some, or point TMPDIR at a larger disk\n")


def test_a_look_at_a_pair_by_name(
    endpoint: StandIn, files: dict[str, bytes], pocket: dict[str, Path], cache_folder: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What earlier runs kept is known by paths, so it is looked at once the files are here."""
    files["dflash-Pocket-F16.gguf"] = pocket["dflash"].read_bytes()

    def subjects() -> dict[str, str]:
        main(["doctor", "-hf", TARGET, "-c", "512", "--json"])
        return {finding["subject"]: finding["text"] for finding in json.loads(capsys.readouterr().out)["findings"]}

    before = subjects()
    check_nothing_came(endpoint, cache_folder, tmp_path, sum(map(len, files.values())))
    assert before["download"].endswith("are not here yet; their headers were read")
    assert main(["pull", TARGET]) == 0
    capsys.readouterr()
    after = subjects()
    assert after.keys() - before.keys() == {"pass times"} and before.keys() - after.keys() == {"download"}
    for subject in ("drafting", "file", "taps", "vocabulary", "projector width", "block"):
        assert before[subject] == after[subject]
