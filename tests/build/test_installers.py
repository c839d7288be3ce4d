"""The wheels by the installers that give a program an environment of its own, without network: from the command to the
demo's answer."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from tests.build.wheelhouse import clean_environment, fill, output, without_network
from tests.extras import needs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="takes the network away as Linux does"),
]


@pytest.fixture(scope="module")
def packages(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # pipx begins with a newer pip of its own.
    return fill(tmp_path_factory.mktemp("packages") / "all", wheels, "dflash-local", "pip")


def commands(packages: Path) -> dict[str, list[str]]:
    """Each installer's command; `python -m` finds those of .venv."""
    offline = ["--no-index", "--find-links", str(packages)]
    arguments = f"--pip-args={shlex.join(offline)}"
    return {
        "pipx": ["pipx", "install", "--backend", "pip", "--python", sys.executable, arguments, "dflash-local"],
        "uv": ["uv", "tool", "install", "--offline", *offline, "--python", sys.executable, "dflash-local"],
    }


def variables(packages: Path, home: Path) -> dict[str, str]:
    """Everything that an installer writes goes below `home`, and nothing of this user's settings is read."""
    folders = {
        "HOME": "home",
        "PIPX_HOME": "pipx",
        "PIPX_BIN_DIR": "bin",
        "PIPX_MAN_DIR": "man",
        "UV_TOOL_DIR": "uv",
        "UV_TOOL_BIN_DIR": "bin",
        "UV_CACHE_DIR": "uv-cache",
        "DFLASH_CACHE": "cache",
    }
    pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages)}
    return {**pip, "UV_NO_CONFIG": "1", **{name: str(home / folder) for name, folder in folders.items()}}


@pytest.mark.parametrize("installer", ["pipx", "uv"])
def test_installs_what_answers(installer: str, packages: Path, tmp_path: Path) -> None:
    needs(installer)
    environment = {**clean_environment(), **variables(packages, tmp_path)}

    def run(*command: str) -> str:
        return output([*without_network(), *command], environment, tmp_path, timeout=600)

    started = time.monotonic()
    run(sys.executable, "-m", *commands(packages)[installer])
    installed = time.monotonic()
    said = run(str(tmp_path / "bin" / "dflash-local"), "demo", "--once")
    print(f"{installer}: {installed - started:.0f} s to install, {time.monotonic() - installed:.0f} s to the answer")
    assert "the same answer both ways" in said
    own = Path(run(str(tmp_path / "bin" / "dflash-local"), "--version"))
    assert "+" in own.name, "another wheel than the one that was made"
