"""The body of a request to save or restore a slot."""

from __future__ import annotations

from pydantic import Field

from dflash_local.errors import RequestError
from dflash_local.server.fields.any_model import AnyModelFields

MAX_NAME = 255  # bytes, the least that common file systems allow
# What Windows or a shell would read as more than a name, and look-alikes of the dot and the slashes.
FORBIDDEN = frozenset('/\\:*?"<>|\uff0e\u2215\u2216\ufffd\ufeff')
RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))})


class SlotFileRequest(AnyModelFields):
    """Which file of the folder of saved slots."""

    filename: str | None = Field(None, description="a name without a folder")


def checked_filename(filename: str | None) -> str:
    """The name of a file in a folder, and of nothing else, on every system (llama.cpp's fs_validate_filename).

    Raises:
        RequestError: it is not one.
    """
    if not filename or len(filename.encode()) > MAX_NAME:
        raise RequestError(f"filename must be a name of 1 to {MAX_NAME} bytes", param="filename")
    bad = next((c for c in filename if c in FORBIDDEN or ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0), None)
    if bad is not None:
        raise RequestError(f"filename holds {bad!r}: give a name without a folder", param="filename")
    stem = filename.partition(".")[0].strip().lower()
    if ".." in filename or filename[0] == " " or filename[-1] in " ." or stem in RESERVED:
        raise RequestError(f"filename is {filename!r}, which some systems read as another one", param="filename")
    return filename
