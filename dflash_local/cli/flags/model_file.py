"""Checks a typed model path: is it a GGUF, and if not, what was probably meant?"""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

from dflash_local.cli.closest_word import closest
from dflash_local.cli.typed_path import is_folder
from dflash_local.convert.gguf_parts import MAGIC
from dflash_local.errors import ModelError

_DOWNLOAD = "-hf USER/NAME:QUANT downloads one"  # for commands with this flag
_HERE = "'dflash-local' alone lists the models that are here; "
_MOST_LISTED = 3


def check_model_file(text: str, flag: str, download: str = _DOWNLOAD) -> None:
    """Raise ModelError, with a command to try next, unless `text`, given with `flag`, is a file that starts like a
    GGUF. The engine checks its contents. `download` is advice how to get a model."""
    path = Path(text)
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"{text}: no such file", hint=_missing(path, flag, download)) from None
    except (OSError, ValueError) as error:  # ValueError: a null byte
        if is_folder(path):
            hint = _in_folder(path, flag, download)
            raise ModelError(f"{text} is a folder, {flag} takes a .gguf file", hint=hint) from None
        why = getattr(error, "strerror", None) or error
        raise ModelError(f"{text} cannot be read: {why}", hint="check who may read it: ls -l") from None
    if start != MAGIC:
        hint = _HERE + download
        if path.suffix in (".safetensors", ".bin", ".pt"):
            hint = _convert(path.parent, flag, download)
        elif start == b"vers":  # a pointer of Git LFS
            hint = "it is a pointer of Git LFS: run 'git lfs pull' in its folder"
        raise ModelError(f"{text} is not a GGUF file (it does not start with 'GGUF')", hint=hint)


def _in_folder(folder: Path, flag: str, download: str) -> str:
    """Advice about a folder: name one of its GGUFs, or convert its checkpoint."""
    files = _ggufs(folder)
    if files:
        return "name one of its files: " + ", ".join(_typed(flag, file) for file in files[:_MOST_LISTED])
    if (folder / "config.json").is_file():
        return _convert(folder, flag, download)
    return _HERE + download


def _convert(folder: Path, flag: str, download: str) -> str:
    """Advice about a checkpoint: drafters are converted by our command, the others by llama.cpp's."""
    if flag == "--mmproj":
        return "a projector must be a GGUF: llama.cpp's convert_hf_to_gguf.py --mmproj makes one"
    if flag == "-md":
        return shlex.join(("dflash-local", "convert", str(folder), "--target", "TARGET.gguf"))
    return f"a target must be a GGUF: {download}; llama.cpp's convert_hf_to_gguf.py makes one"


def _missing(path: Path, flag: str, download: str) -> str:
    """Advice about a missing file: one with a similar name, if any."""
    close = closest(path.name, [file.name for file in _ggufs(path.parent)])
    here = _HERE + download
    return f"did you mean {_typed(flag, path.parent / close)}? {here}" if close else here


def _typed(flag: str, path: Path) -> str:
    return shlex.join((flag, str(path)))


def _ggufs(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.glob("*.gguf"))
    return []
