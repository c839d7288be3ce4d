"""`dflash-local build --out DIR`: what a machine without compiler and network gets."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu_proof import unpacked
from dflash_local.build import builder, bundle, peer, programs
from dflash_local.errors import BuildError

from .conftest import World

UPSTREAM = ("llama-server", "libllama.so.0.5.0", "libllama-server-impl.so")


@pytest.fixture
def compiled(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Test programs and upstream's server that need no compiler."""
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    for name in UPSTREAM:
        (upstream / name).write_text(name)
    (upstream / "libllama.so.0").symlink_to("libllama.so.0.5.0")
    (upstream / "libllama.so").symlink_to("libllama.so.0")

    def build(_tests: Path, _llama: Path, libraries: Path, work: Path, *_rest: object) -> list[Path]:
        assert (libraries / "libdflash.so").is_file(), "the programs are linked to the libraries in the wheel"
        work.mkdir(parents=True, exist_ok=True)
        for name in programs.NAMES:
            (work / name).write_text(name)
        return [work / name for name in programs.NAMES]

    monkeypatch.setattr(programs, "build", build)
    monkeypatch.setattr(peer, "build", lambda _recipe: upstream)
    return world


def test_all_that_a_bare_machine_needs(compiled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 300)  # so that files are split
    out = tmp_path / "out"
    assert builder.build("cpu", out=out, python="3.12") is True
    assert "install" not in compiled.calls()
    manifest = json.loads((out / "manifest.json").read_text())
    names = {entry["name"] for entry in manifest["files"]}
    assert "programs.tar.xz" in names and any(name.startswith("llama_cpp_python") for name in names)
    assert manifest["recipe"]["backend"] == "cpu" and len(manifest["key"]) == 16
    assert any(len(entry["pieces"]) > 1 for entry in manifest["files"])
    pieces = [piece for entry in manifest["files"] for piece in entry["pieces"]]
    assert sorted([*pieces, "manifest.json"]) == sorted(path.name for path in out.iterdir())
    assert all((out / piece).stat().st_size <= 300 for piece in pieces)

    (packed,) = [entry for entry in manifest["files"] if entry["name"] == "programs.tar.xz"]
    (tmp_path / "programs.tar.xz").write_bytes(unpacked.joined(out, packed))
    with tarfile.open(tmp_path / "programs.tar.xz") as archive:
        assert sorted(archive.getnames()) == sorted(
            [f"tests/{name}" for name in programs.NAMES]
            + ["upstream/llama-server", "upstream/libllama.so.0", "upstream/libllama-server-impl.so"]
        ), "every library once, by the name that is asked for"


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        '{"manifest_version": 3, "name": "extension"}',
        '[{"format": 1}]',
        '{"format": 1, "key": "k", "recipe": {}, "files": []}',
        '{"format": 2, "files": [{"pieces": ["thesis.txt"]}]}',
        '{"format": 1, "files": [{"pieces": [{}]}]}',
        "no JSON",
    ],
)
def test_a_folder_of_other_things_is_left_alone(compiled: World, tmp_path: Path, manifest: str | None) -> None:
    """Many programs have a manifest.json."""
    out = tmp_path / "precious"
    out.mkdir()
    (out / "thesis.txt").write_text("years")
    if manifest is not None:
        (out / "manifest.json").write_text(manifest)
    with pytest.raises(BuildError, match="not an empty folder"):
        builder.build("cpu", out=out)
    assert (out / "thesis.txt").read_text() == "years"
    assert compiled.calls() == [], "refused before anything is compiled"


def test_a_bundle_is_replaced(compiled: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    builder.build("cpu", out=out)
    manifest = out / "manifest.json"
    old = json.loads(manifest.read_text())
    old["files"].append({"name": "old", "pieces": ["old.01", "old.02"]})
    manifest.write_text(json.dumps(old))
    (out / "old.01").write_text("")
    builder.build("cpu", out=out)
    assert manifest.is_file() and not (out / "old.01").exists()


def test_a_bundle_with_files_of_others_is_left_alone(
    compiled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    builder.build("cpu", out=out)
    made = (out / "manifest.json").stat().st_ino
    upstream = tmp_path / "upstream"

    def meanwhile(_recipe: object) -> Path:
        (out / "notes").write_text("mine")
        return upstream

    monkeypatch.setattr(peer, "build", meanwhile)
    for _ in range(2):  # a file that comes during the build, and one that was there
        with pytest.raises(BuildError, match="not an empty folder"):
            builder.build("cpu", out=out)
        assert (out / "notes").read_text() == "mine" and (out / "manifest.json").stat().st_ino == made


def test_without_the_packages_there_is_no_bundle(compiled: World, tmp_path: Path) -> None:
    builder.build("cpu")  # the wheel is there
    (compiled.pip / "fail-download").write_text("no network")
    with pytest.raises(BuildError, match="Python packages"):
        builder.build("cpu", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
