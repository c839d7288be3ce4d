"""The package as a stranger gets it: what the wheel holds, what may be imported, what the command says."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

import dflash_local
from dflash_local import errors, hub
from dflash_local.cli import COMMANDS
from dflash_local.demo.pocket import PAIRS, SHIPPED, bundled_pair
from dflash_local.engine import Engine
from dflash_local.hub.registry import targets_with_files

HUB = Path(hub.__file__).parent
ROOMS = {"dflash_local": "dflash_local", "convert": "dflash_local/convert", "server": "dflash_local/server"}


def python(code: str, cwd: Path, path: Path | None = None) -> str:
    """What a fresh interpreter in `cwd` prints."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | (
        {"PYTHONPATH": str(path)} if path else {}
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def wheel(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's wheel, unpacked. Built from a copy, since setuptools writes into the tree it builds from."""
    tree = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "node_modules")
    for name in (*ROOMS, "patches", "ggml_ops"):
        shutil.copytree(repo / name, tree / name, ignore=ignore)
    for file in repo.glob("*"):
        if file.is_file():
            shutil.copy(file, tree)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    name = python(code, tree).splitlines()[-1]
    unpacked = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(tree / "dist" / name) as archive:
        archive.extractall(unpacked)
    return unpacked


def test_wheel_holds_every_module(wheel: Path, repo: Path) -> None:
    sources = repo / "server" / "page"  # what is built from them is packed
    for room, package in ROOMS.items():
        for file in (repo / room).rglob("*"):
            if file.is_relative_to(sources) and not file.is_relative_to(sources / "dist"):
                continue
            if file.suffix in (".py", ".json", ".typed", ".html", ".css"):
                assert (wheel / package / file.relative_to(repo / room)).is_file(), (
                    f"pyproject.toml forgets {file.relative_to(repo)}"
                )


def test_wheel_holds_two_pocket_pairs_and_listed_drafters(wheel: Path) -> None:
    """They are most of it; the others are in a checkout, which whoever asks for them is told."""
    names = {name for drafter in SHIPPED for name in (path.name for path in bundled_pair(drafter))}
    listed = [file.relative_to(HUB) for target in targets_with_files() for file in target.files if HUB in file.parents]
    assert listed and all((wheel / "dflash_local" / "hub" / file).is_file() for file in listed)
    names |= {file.name for file in listed}
    assert {path.name for path in (wheel / "dflash_local").rglob("*.gguf")} == names
    code = (
        "from dflash_local.demo.pocket import PAIRS, SHIPPED, bundled_pair\n"
        "from dflash_local.errors import DFlashError\n"
        "for drafter in PAIRS:\n"
        "    try: print(drafter, *(path.is_file() for path in bundled_pair(drafter)))\n"
        "    except DFlashError as error: print(error)\n"
    )
    for drafter, line in zip(PAIRS, python(code, wheel.parent, wheel).splitlines(), strict=True):
        assert line == f"{drafter} True True" if drafter in SHIPPED else f"--drafter {drafter}'` in a checkout" in line


def test_wheel_holds_the_built_page_alone(wheel: Path, repo: Path) -> None:
    packed = wheel / "dflash_local" / "server" / "page"
    assert [entry.name for entry in packed.iterdir()] == ["dist"]
    built = {file.name: file.read_bytes() for file in (repo / "server" / "page" / "dist").iterdir()}
    assert {file.name: file.read_bytes() for file in (packed / "dist").iterdir()} == built


def test_wheel_holds_what_build_needs(wheel: Path, repo: Path) -> None:
    code = (
        "from dflash_local.build import recipe, upstream\n"
        "source = upstream.native_source()\n"
        "print(recipe.make_recipe(source, 'cpu').key, source)"
    )
    from_wheel, where = python(code, wheel.parent, wheel).split()
    assert Path(where) == wheel / "dflash_local" / "_native"
    assert from_wheel == python(code, repo).split()[0], "the wheel's patches/ or ggml_ops/ differ from the checkout's"


def test_wheel_has_one_script_and_one_top_level_package(wheel: Path) -> None:
    (metadata,) = wheel.glob("dflash_local-*.dist-info")
    assert (metadata / "entry_points.txt").read_text().split("\n")[:2] == [
        "[console_scripts]",
        "dflash-local = dflash_local.cli:main",
    ]
    assert "[console_scripts]" in (metadata / "entry_points.txt").read_text()
    assert (metadata / "entry_points.txt").read_text().count("=") == 1, "a second script"
    assert sorted(entry.name for entry in wheel.iterdir()) == ["dflash_local", metadata.name]


@pytest.mark.parametrize("installed", ["here", "from the wheel"])
def test_rooms_are_parts_of_the_package_only(wheel: Path, tmp_path: Path, installed: str) -> None:
    path = wheel if installed == "from the wheel" else None
    for room in ("convert", "server"):
        code = (
            f"import importlib.util as u; print(bool(u.find_spec('{room}')), bool(u.find_spec('dflash_local.{room}')))"
        )
        assert python(code, tmp_path, path) == "False True"


def test_import_is_cheap(tmp_path: Path) -> None:
    heavy = "numpy, gguf, fastapi, ctypes, torch, llama_cpp"
    code = f"import sys, dflash_local, dflash_local.cli; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    assert python(code, tmp_path) == "[]"


def test_public_names() -> None:
    assert set(dflash_local.__all__) == {
        "BuildError", "ChatCompletion", "ChatDelta", "Chunk", "Completion", "ComputeError", "ContextLengthError",
        "ConvertError", "DFlashError", "Engine", "EngineDeadError", "EngineLostError", "Generation", "HubError",
        "MediaError", "ModelError", "NativeLibraryError", "PairError", "QueueFullError", "RPCError", "RequestError",
        "ResultTimeoutError", "SamplingParams", "ServerError", "Stream", "__version__",
    }  # fmt: skip
    for name in dflash_local.__all__:
        assert getattr(dflash_local, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'engine_of_mine'"):
        _ = dflash_local.engine_of_mine


def test_what_the_methods_that_generate_return_is_public() -> None:
    for method in (Engine.generate, Engine.stream, Engine.chat, Engine.submit, Engine.submit_chat):
        names = set(re.findall(r"[A-Z]\w+", inspect.signature(method).return_annotation))
        assert names and names <= set(dflash_local.__all__)


def test_every_error_is_public_and_a_dflash_error() -> None:
    names = [name for name, value in vars(errors).items() if isinstance(value, type) and name[0] != "_"]
    assert set(names) < set(dflash_local.__all__)
    for name in names:
        assert issubclass(getattr(dflash_local, name), dflash_local.DFlashError)
    assert str(errors.ModelError("bad norm", field="blk.0", hint="convert again")) == "bad norm (fix: convert again)"


def test_help_lists_every_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dflash_local.cli", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for name in COMMANDS:
        assert f"\n    {name} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_imports_nothing_heavy(command: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom dflash_local.cli import main\n"
        f"try: main(['{command}', '--help'])\nexcept SystemExit as e: assert e.code == 0\n"
        "print('loaded', [m for m in ('numpy', 'gguf', 'fastapi', 'uvicorn', 'torch') if m in sys.modules])"
    )
    out = python(code, tmp_path)
    assert out.startswith(f"usage: dflash-local {command}")
    assert out.endswith("loaded []"), out.splitlines()[-1]


def test_a_server_of_a_plain_model_imports_little(tmp_path: Path) -> None:
    """Each import delays its first answer."""
    heavy = "numpy, gguf, yaml, huggingface_hub, dflash_local.convert.gguf_metadata"
    code = (
        "import sys, dflash_local.cli.serving.serve_app\n"
        "from dflash_local.cli.flags.named_models import suggest, take_models\n"
        "from dflash_local.server.app import create_app\ncreate_app(lambda progress: None)\n"
        "from dflash_local.cli import parse\n"
        "models = take_models(parse(['serve', '-m', 'any.gguf'])[1], must_exist=False)\n"
        "suggest(models, {'arch': 'llama', 'n_embd': 960})\n"
        f"print(models.may_suggest, [m for m in '{heavy}'.split(', ') if m in sys.modules])"
    )
    assert python(code, tmp_path) == "False []"


def test_unknown_command_is_a_usage_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dflash_local.cli", "sevre"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "sevre" in done.stderr


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    """pytest's own list of folders that it does not enter has `build`, so tests/build was never run by `make test`."""
    left_out = pytestconfig.getini("norecursedirs")
    folders = {file.parent.relative_to(pytestconfig.rootpath) for file in Path(__file__).parent.rglob("test_*.py")}
    assert len(folders) > 20
    assert [str(f) for f in folders for part in f.parts if any(fnmatch(part, name) for name in left_out)] == []
