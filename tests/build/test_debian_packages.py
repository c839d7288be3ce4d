"""Packages of another Debian release: what apt is told, and that a folder is made whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_local.build import debian_packages
from dflash_local.errors import BuildError

# Both stand-ins write down how they were called. A package is an empty file, which is unpacked into one of its name.
APT = """\
#!/bin/sh
echo "apt-get $*" >> {calls}
case "$*" in
    *indextargets*) echo "Other|Other|main|http://other.invalid"; echo "Debian|Debian|main|http://mirror.invalid" ;;
    *download*) {download} ;;
esac
"""
DPKG = """\
#!/bin/sh
echo "dpkg-deb $*" >> {calls}
touch "$3/$(basename "$2" .deb)"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    keyring = tmp_path / "key.gpg"
    keyring.touch()
    monkeypatch.setattr(debian_packages, "KEYRING", keyring)
    install(tmp_path, "touch b.deb a.deb")
    return tmp_path / "calls"


def install(folder: Path, download: str) -> None:
    for name, text in (("apt-get", APT), ("dpkg-deb", DPKG)):
        path = folder / "bin" / name
        path.write_text(text.format(calls=folder / "calls", download=download))
        path.chmod(0o755)


def test_packages_are_unpacked_and_changed(tmp_path: Path, calls: Path) -> None:
    home = tmp_path / "made" / "home"
    assert debian_packages.can_fetch()
    debian_packages.fetch("trixie", ["a", "b"], home, lambda folder: (folder / "c").touch())
    assert sorted(path.name for path in home.iterdir()) == ["a", "b", "c"]
    assert [path.name for path in home.parent.iterdir()] == ["home"]
    lines = calls.read_text().splitlines()
    assert lines[1].endswith("-qq update") and lines[2].endswith("-qq download a b")
    assert all("-oDir::Etc::SourceParts=/dev/null" in line for line in lines[1:3])


def test_a_failure_leaves_what_was_there(tmp_path: Path, calls: Path) -> None:
    home = tmp_path / "made" / "home"
    home.mkdir(parents=True)
    (home / "old").touch()
    install(tmp_path, "echo 'no such package' >&2; exit 100")
    with pytest.raises(BuildError, match="apt-get failed: no such package"):
        debian_packages.fetch("trixie", ["a"], home)
    assert [path.name for path in home.parent.iterdir()] == ["home"]
    assert [path.name for path in home.iterdir()] == ["old"]


@pytest.mark.usefixtures("calls")
def test_an_apt_without_a_mirror(tmp_path: Path) -> None:
    (tmp_path / "bin" / "apt-get").write_text("#!/bin/sh\n")
    with pytest.raises(BuildError, match="no Debian mirror"):
        debian_packages.fetch("trixie", ["a"], tmp_path / "home")
