"""Removes private data from texts: secrets, the names of user and machine, the path of the home folder.

First the values of secret environment variables are removed wherever they appear, then all that looks like a secret.
Removing too much costs a question, too little costs a key.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dflash_local.errors import DFlashError
from dflash_local.home_dir import home_dir

GONE = "<removed>"
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|PWD|KEY|CREDENTIAL|AUTH|COOKIE|SESSION|SIGNATURE", re.IGNORECASE)
_SAID = re.compile(r"PROMPT|TEMPLATE|KWARGS")  # texts for a model
_SHORTEST = 6  # characters of a searched value: shorter ones may be ordinary words
_NAMES_PATHS = {"PWD", "OLDPWD"}
_LOOKS_SECRET: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\Z)", re.DOTALL), GONE),
    (re.compile(r"(?<=://)[^\s/@]*@"), f"{GONE}@"),  # user:password@ of an address
    (re.compile(r"(https?://[^\s?#'\"]+)\?[^\s'\"]*"), rf"\1?{GONE}"),  # signed addresses
    (re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE), rf"\1 {GONE}"),
    (re.compile(r"\b(hf|ghp|gho|ghs|ghu|github_pat|glpat|pypi|npm|xox[abprs]|nvapi|gsk)[-_][\w-]{8,}"), GONE),
    (re.compile(r"\b(sk|pk|rk)-[\w-]{8,}"), GONE),
    (re.compile(r"\bA(KI|SI)A[0-9A-Z]{12,}\b"), GONE),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), GONE),
    # NAME=value, --name value and "name": "value" with a telling name.
    (
        re.compile(
            r"([\w-]*(?:token|secret|passw(?:or)?d|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|credential)[\w-]*"
            r"[\"']?\s*[=:\s]\s*[\"']?)([^\s\"',;]{6,})",
            re.IGNORECASE,
        ),
        rf"\1{GONE}",
    ),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"), "<address>"),
)


class Redaction:
    """Removes private data from texts. `environment` and `home` default to this process's own."""

    def __init__(self, environment: Mapping[str, str] | None = None, home: Path | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._secrets = sorted(set(self._values()), key=len, reverse=True)
        self._homes = sorted(set(self._home_paths(home)), key=len, reverse=True)
        self._words = {word: name for word, name in self._identity() if len(word) > 2}

    def __call__(self, text: str) -> str:
        """The text without secrets, and with ~ for the home folder."""
        for value in self._secrets:
            text = text.replace(value, GONE)
        for home in self._homes:
            text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
        text = re.sub(r"(/home/|/Users/|\\Users\\)[^/\\\s:'\"]+", r"\1<user>", text)  # of other people
        for pattern, instead in _LOOKS_SECRET:
            text = pattern.sub(instead, text)
        for word, name in self._words.items():
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", name, text)
        return text

    def variables(self, prefixes: tuple[str, ...]) -> Iterator[str]:
        """NAME=value of the variables with one of the prefixes; without the values of secrets."""
        for name, value in sorted(self._environment.items()):
            if name.startswith(prefixes):
                hidden = _is_secret(name) or _SAID.search(name)
                yield f"{name}={GONE if hidden else self(value)}"

    def _values(self) -> Iterator[str]:
        for name, value in self._environment.items():
            # pathlib raises an error for a long value, or a path that one may not see.
            if _is_secret(name) and len(value) >= _SHORTEST and not os.path.exists(value):  # noqa: PTH110
                yield value

    def _home_paths(self, home: Path | None) -> Iterator[str]:
        with suppress(DFlashError):  # a user without a home has no path to hide
            home = home or home_dir()
        for path in (home, home.resolve()) if home else ():
            if len(path.parts) > 1:
                yield str(path)
                yield str(path).replace("\\", "\\\\")  # as in JSON, on Windows

    def _identity(self) -> Iterator[tuple[str, str]]:
        with suppress(OSError, KeyError, ImportError):
            user = getpass.getuser()
            if user != "root":  # identifies nobody
                yield user, "<user>"
        with suppress(OSError):
            host = socket.gethostname()
            if host != "localhost":
                yield host, "<host>"


def _is_secret(name: str) -> bool:
    return name not in _NAMES_PATHS and _SECRET_NAME.search(name) is not None
