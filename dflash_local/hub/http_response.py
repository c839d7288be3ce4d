"""What a response of the Hub, or of any server with a file, says: whether a refusal may end, and which of the file's
bytes it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from dflash_local.errors import HubError
from dflash_local.retry_after import retry_after

LONGEST_WAIT = 60.0  # seconds that a server may demand


class Response(Protocol):
    """What is used of a streamed response of httpx or httpx2."""

    @property
    def status_code(self) -> int: ...
    @property
    def reason_phrase(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def links(self) -> Mapping[str | None, Mapping[str, str]]: ...
    def iter_bytes(self) -> Iterator[bytes]: ...
    def iter_raw(self) -> Iterator[bytes]: ...


class TemporaryFault(Exception):
    """A try may succeed later; `wait` is the server's demand in seconds, None if it has none, and `status` its refusal,
    0 if the connection broke."""

    def __init__(self, reason: str, wait: float | None = None, status: int = 0) -> None:
        super().__init__(reason)
        self.wait, self.status = wait, status


def temporary_refusal(response: Response, server: str, hint: str = "try again then") -> Exception | None:
    """What to raise if an answer may be another one later: a TemporaryFault, or a HubError with `hint` if the server
    demands too long a pause. `server`: its name in a sentence."""
    status = response.status_code
    if status not in (408, 429) and status < 500:
        return None
    reason = f"{server} limits requests" if status == 429 else f"the server answered {status}"
    wait = retry_after(response.headers)
    if wait is not None and wait > LONGEST_WAIT:
        return HubError(f"{reason} and asks to wait {wait:.0f} s", hint=hint, status=status, cache_may_serve=True)
    return TemporaryFault(f"{reason} for {wait:.0f} s" if status == 429 and wait else reason, wait, status)


def body_start(response: Response, what: str, asked: int) -> int:
    """Where in the file `what` the body of a 200 or 206 begins: at byte `asked`, or at 0 from a server without ranges.

    Raises:
        TemporaryFault: it begins elsewhere, or is of several parts.
        HubError: it is compressed, so that its bytes are not the file's.
    """
    if response.headers.get("Content-Encoding", "").lower() not in ("", "identity"):
        raise HubError(
            f"{what}: the file came compressed, which was not asked for",
            hint="a proxy on the way may do that; an address must be that of the file itself",
            cache_may_serve=True,
        )
    if response.status_code == 200:
        return 0
    if not response.headers.get("Content-Range", "").lower().startswith(f"bytes {asked}-"):
        raise TemporaryFault("the server sent another part than it was asked for")
    return asked
