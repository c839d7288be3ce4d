"""What is made for package managers and registries of images: versions, hashes and names are those of the release."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from dflash_local import __version__
from release import hashes, images, installers, recipes, windows_zip
from tests.extras import needs
from tests.release.stand_in_wheels import write_pair

URL = "https://forge.example/somebody/dflash-local"
FILES = f"{URL}/releases/download/v{__version__}"
TAGS = {
    "cpu": ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "win_amd64"),
    "metal": ("macosx_13_3_arm64",),
    "cuda": ("manylinux_2_28_x86_64",),
    "vulkan": ("manylinux_2_28_x86_64",),
}


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """The files of a release: wheels without content, and empty archives."""
    folder = tmp_path / "dist"
    for backend, tags in TAGS.items():
        for tag in tags:
            write_pair(folder, __version__, backend, tag)
    for name in (recipes.SDIST, recipes.WINDOWS):
        (folder / name.replace("VERSION", __version__)).write_text(name)
    hashes.write(folder)
    return folder


@pytest.fixture
def made(dist: Path, tmp_path: Path) -> Path:
    recipes.write_recipes(URL, dist, tmp_path / "recipes")
    return tmp_path / "recipes"


def sha256(dist: Path, pattern: str) -> str:
    (file,) = dist.glob(pattern.replace("VERSION", __version__))
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_each_name_is_filled_in(made: Path) -> None:
    files = [file for file in made.rglob("*") if file.is_file()]
    assert len(files) == 5
    for file in files:
        assert not re.search(r"@[A-Z_]+@", file.read_text())


def test_conda_has_the_dependencies_and_the_hash(made: Path, dist: Path) -> None:
    recipe = yaml.safe_load((made / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__
    assert recipe["source"] == {
        "url": f"{FILES}/dflash_local-{__version__}.tar.gz",
        "sha256": sha256(dist, recipes.SDIST),
    }
    run = {line.split()[0] for line in recipe["requirements"]["run"]}
    needed = {Requirement(line).name for line in requires("dflash-local") or [] if "extra ==" not in line}
    assert run == needed | {"python", "pip", "c-compiler", "cxx-compiler", "cmake", "ninja"}
    assert "numpy >=1.26,<3" in recipe["requirements"]["run"]
    assert recipe["build"]["python"]["entry_points"] == ["dflash-local = dflash_local.cli:main"]


def test_rattler_build_reads_the_recipe(made: Path) -> None:
    needs("rattler_build")
    from rattler_build import Stage0Recipe

    (variant,) = Stage0Recipe.from_file(made / "recipe.yaml").render()
    rendered: Any = variant.recipe.to_dict()
    assert rendered["package"] == {"name": "dflash-local", "version": __version__}


def test_winget_has_the_archive_and_its_hash(made: Path, dist: Path) -> None:
    version, locale, installer = (
        yaml.safe_load((made / "winget" / f"{name}.yaml").read_text())
        for name in ("version", "locale.en-US", "installer")
    )
    for manifest in (version, locale, installer):
        assert manifest["PackageIdentifier"] == "somebody.dflash-local"
        assert manifest["PackageVersion"] == __version__
        assert manifest["ManifestVersion"] == version["ManifestVersion"]
    assert locale["PackageLocale"] == version["DefaultLocale"]
    assert len(locale["ShortDescription"]) <= 256
    (archive,) = installer["Installers"]
    assert archive["InstallerUrl"] == f"{FILES}/dflash-local-{__version__}-windows-amd64.zip"
    assert archive["InstallerSha256"] == sha256(dist, recipes.WINDOWS)


# The words of a formula, printed one a line.
FORMULA = """\
class Formula
  BLOCKS = %i[on_macos on_linux on_arm on_intel resource]
  def self.test
  end
  def self.method_missing(name, *arguments, **options, &block)
    puts [name, *arguments].join(" ")
    class_eval(&block) if block && BLOCKS.include?(name)
  end
end
"""


def test_homebrew_has_each_wheel_and_its_hash(made: Path, dist: Path, tmp_path: Path) -> None:
    if shutil.which("ruby") is None:
        pytest.skip("needs ruby: apt-get install ruby")
    (tmp_path / "formula.rb").write_text(FORMULA)
    command = ["ruby", "-r", str(tmp_path / "formula.rb"), str(made / "dflash-local.rb")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    found = {
        url.removeprefix(f"url {FILES}/").replace("%2B", "+"): digest.removeprefix("sha256 ")
        for url, digest in pairwise(lines)
        if url.startswith("url ")
    }
    native = r"llama_cpp_python-.*-(macosx_13_3_arm64|manylinux_2_28_(x86_64|aarch64))\.whl"
    assert len(found) == 7
    assert sum(1 for name in found if re.fullmatch(native, name)) == 3
    sums = {name: digest for digest, name in map(str.split, (dist / hashes.NAME).read_text().splitlines())}
    assert {name: sums[name] for name in found} == found
    for own in (name for name in found if name.startswith("dflash_local-") and name.endswith(".whl")):
        version = recipes.native_version(dist / own)
        assert any(name.startswith(f"llama_cpp_python-{version}-") for name in found), "of another build"


def test_what_is_missing_is_named(dist: Path, tmp_path: Path) -> None:
    next(dist.glob("*+metal-*")).unlink()
    hashes.write(dist)
    with pytest.raises(recipes.RecipeError, match=r"0 files dflash_local-[\d.]+\+metal-.*\n  fix: make what is"):
        recipes.write_recipes(URL, dist, tmp_path / "out")
    (dist / hashes.NAME).unlink()
    with pytest.raises(recipes.RecipeError, match="fix: make hashes"):
        recipes.write_recipes(URL, dist, tmp_path / "out")
    with pytest.raises(recipes.RecipeError, match="fix: https://HOST/USER/NAME"):
        recipes.write_recipes("forge.example", dist, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unknown_name_in_a_template_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "template").write_text("@VERSION@ @VERSOIN@")
    with pytest.raises(recipes.RecipeError, match="unknown names: VERSOIN"):
        recipes.fill(tmp_path / "template", {"VERSION": "1"})


def test_scripts_of_a_release_know_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["installers", "--url", URL + "/", "--out", str(tmp_path)])
    assert installers.main() == 0
    assert f'RELEASE_WHEELS="{FILES}" #' in (tmp_path / "install.sh").read_text()
    assert f"$ReleaseWheels = '{FILES}' #" in (tmp_path / "install.ps1").read_text()
    for url in ("", "http://forge.example/a/b", "https://forge.example/$(rm)/b"):
        monkeypatch.setattr(sys, "argv", ["installers", "--url", url])
        with pytest.raises(SystemExit, match="fix: make installers"):
            installers.main()


def test_archive_for_windows(dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for Python; what is in the archive is where python.exe looks for it."""

    def unpack(folder: Path) -> Path:
        (folder / "cp311").mkdir()
        (folder / "cp311" / "python.exe").touch()
        return folder / "cp311"

    monkeypatch.setattr(windows_zip, "unpack_python", unpack)
    path = windows_zip.write_zip(dist)
    assert path.name == recipes.WINDOWS.replace("VERSION", __version__)
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        assert {"python.exe", "packages/dflash_local/cli.py", "packages/llama_cpp/__init__.py"} <= names
        assert "packages" in archive.read("python311._pth").decode().split()
        start = archive.read("dflash-local.exe")
    assert start.startswith(b"MZ")
    assert b"#!<launcher_dir>\\python.exe\r\n" in start
    for wheel in dist.glob("*win_amd64.whl"):
        wheel.unlink()
    with pytest.raises(SystemExit, match="fix: make wheels MACHINE=windows-amd64"):
        windows_zip.write_zip(dist)


def test_archive_has_what_only_windows_needs(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, "9.9.1", needs="colorama>=0.4.6; sys_platform == 'win32'")
    assert list(windows_zip.for_windows(tmp_path / pair.own)) == ["colorama>=0.4.6"]
    pair = write_pair(tmp_path, "9.9.1", needs="uvloop; sys_platform == 'linux'")
    assert list(windows_zip.for_windows(tmp_path / pair.own)) == []


def test_images_have_the_names_of_a_release_and_wheels_of_one_backend(
    dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tmp_path / "podman"
    engine.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    engine.chmod(0o755)
    monkeypatch.setenv("CONTAINER_ENGINE", str(engine))
    monkeypatch.setattr("os.uname", lambda: type("Uname", (), {"machine": "x86_64"}))
    name = "registry.example/me/dflash-local"
    monkeypatch.setattr(sys, "argv", ["images", "--image", name, "--dist", str(dist), "--push"])
    assert images.main() == 0
    said = (tmp_path / "said").read_text().splitlines()
    built = [line for line in said if line.startswith("build ")]
    assert [re.findall(rf"-t {name}:(\S+)", line) for line in built] == [
        [f"{__version__}-cpu", "cpu", __version__, "latest"],
        [f"{__version__}-cuda", "cuda"],
        [f"{__version__}-vulkan", "vulkan"],
    ]
    assert said.index(built[-1]) < min(i for i, line in enumerate(said) if line.startswith("push "))
    assert f"push {name}:latest" in said
    for kind in images.KINDS:
        own, native = images.wheels_of(kind, dist)
        assert f"+{kind}-" in own.name
        assert recipes.native_version(own) in native.name
    monkeypatch.setattr(sys, "argv", ["images", "--image", name + ":1", "--dist", str(dist)])
    with pytest.raises(SystemExit, match="has a tag"):
        images.main()
    with pytest.raises(SystemExit, match=r"has no wheels of .* for cpu"):
        images.wheels_of("cpu", tmp_path)


def test_each_image_has_a_containerfile_and_differs_where_it_must(repo: Path) -> None:
    texts = {kind: (repo / "containers" / kind / "Containerfile").read_text() for kind in images.KINDS}
    ends = {text[text.index("COPY containers/dflash-healthy") :] for text in texts.values()}
    assert len(ends) == 1
    for kind, text in texts.items():
        assert f"--backend {kind}" in text
        assert '-p 127.0.0.1:8080:8080 -v "$PWD/models:/models:Z" ' in text  # for nobody else; SELinux lets it read
        assert ("--portable" in text) == (kind != "cuda")  # Ubuntu has no packages of Debian's older C library
