"""API keys: where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dflash_local.errors import RequestError


def read_keys(listed: str | None, file: Path | None) -> tuple[str, ...]:
    """The keys of --api-key (`listed`, separated by commas) and of --api-key-file, where a line that begins with # is a
    comment.

    Raises:
        RequestError: the file cannot be read, or one of the two is given and has no key: a server that was meant to be
            closed must not be open.
    """
    keys: list[str] = []
    if listed is not None:
        keys += _some(listed.split(","), "--api-key", "--api-key (or LLAMA_API_KEY) is given, but empty")
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()  # Windows' editors put a mark before it
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"cannot read the API keys: {error}", param="--api-key-file") from None
        keys += _some((line for line in lines if not line.startswith("#")), "--api-key-file", f"{file} has no key")
    return tuple(keys)


def _some(lines: Sequence[str] | Iterator[str], param: str, why_not: str) -> list[str]:
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise RequestError(why_not, param=param, hint=f"give a key, or leave {param} out to let everybody in")
    return keys
