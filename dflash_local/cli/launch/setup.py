"""Setup: what a program needs to talk to a server, as values and as lines of a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dflash_local.errors import RequestError

# Ends the text of a file among lines of a shell.
_END = "EOF"
_COLUMNS = 120


@dataclass(frozen=True)
class Place:
    """Where a program finds its model.

    Attributes:
        url: the server's, without /v1 and without a slash at the end.
        model: its name there.
        context: tokens that a conversation may have.
        key: shown as the API key; a server without keys takes any.
        folder: our own, for config files.
    """

    url: str
    model: str
    context: int
    key: str
    folder: Path


@dataclass(frozen=True)
class Setup:
    """Variables, arguments and files of a program.

    Attributes:
        variables: of its environment; "" hides one that the user may have set.
        arguments: come before those of the user.
        files: text by path. They lie in our own folder, so no file of the user is overwritten.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    files: Mapping[Path, str] = field(default_factory=dict)

    def write_files(self) -> None:
        """Write the files, for this user's eyes alone: keys may be in them. Raises RequestError."""
        for path, text in self.files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(mode=0o600)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise RequestError(
                    f"cannot write {path}: {error.strerror}", hint="point DFLASH_CACHE at a folder that can be written"
                ) from None

    def shell_lines(self, command: str, passed: Sequence[str]) -> Iterator[str]:
        """What a POSIX shell runs instead; `passed` are the user's arguments."""
        for name, value in self.variables.items():
            yield f"export {name}={shlex.quote(value) if value else ''}"
        for path, text in self.files.items():
            yield f"(umask 077; mkdir -p {_quoted(path.parent)}; cat > {_quoted(path)}) <<'{_END}'"
            yield from text.splitlines()
            yield _END
        yield _command([command, *self.arguments, *passed])


def _command(words: Sequence[str]) -> str:
    """A command line; one that is too long goes on in further lines, each from a flag on."""
    line = shlex.join(words)
    if len(line) <= _COLUMNS:
        return line
    parts = [(" \\\n  " if word.startswith("-") else " ") + shlex.quote(word) for word in words]
    return "".join(parts).lstrip()


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
