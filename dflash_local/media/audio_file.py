"""Audio files: wav, mp3 and flac, recognised by their first bytes. llama.cpp decodes them; what their headers say is
checked here, since it takes memory by that."""

from __future__ import annotations

from collections.abc import Callable

from dflash_local.errors import MediaError
from dflash_local.media.flac_file import checked_flac, is_flac
from dflash_local.media.media_limits import MAX_BYTES
from dflash_local.media.medium import Medium, hash_of
from dflash_local.media.mp3_file import checked_mp3, is_mp3
from dflash_local.media.wav_file import checked_wav
from dflash_local.words import MIB

# Each gives the bytes that are handed on, or raises ValueError that says what is wrong.
_READERS: dict[str, Callable[[bytes], bytes]] = {"wav": checked_wav, "mp3": checked_mp3, "flac": checked_flac}


def read_audio(data: bytes, param: str, declared: str | None = None) -> Medium:
    """An audio file, checked; `declared` is the format that a client says it has.

    Raises:
        MediaError: it is too large or too long, damaged, of another format, or no audio; `param` is to blame.
    """
    if not data:
        raise _refusal(param, "is empty")
    if len(data) > MAX_BYTES:
        raise _refusal(param, f"has {len(data)} bytes, at most {MAX_BYTES // MIB} MiB are read")
    found = audio_format(data)
    if found is None:
        raise _refusal(param, "is not audio that can be read: send wav, mp3 or flac")
    if declared is not None and declared != found:
        raise _refusal(param, f"is a {found} file, but the format says {declared:.40}")
    try:
        checked = _READERS[found](data)
    except ValueError as error:
        raise _refusal(param, f"is a damaged {found} file, or of a kind that cannot be read: {error}") from None
    return Medium("audio", checked, 0, 0, hash_of("audio", data))


def audio_format(data: bytes) -> str | None:
    """The format that a file's first bytes show; None if it is none of these."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if is_flac(data):
        return "flac"
    return "mp3" if is_mp3(data) else None


def _refusal(param: str, why: str) -> MediaError:
    return MediaError.of(param, "audio", why)
