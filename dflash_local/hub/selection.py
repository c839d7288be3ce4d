"""Resolves USER/NAME[:QUANT] to files of a repository: the model, its parts, and the drafters and projectors beside it.

The rules are upstream's (common/download.cpp of the pinned llama.cpp), so a name means the same as in llama-server.
Extensions are marked "beyond upstream".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_local.convert.gguf_parts import Parts, bits_of
from dflash_local.errors import HubError
from dflash_local.hub.cache import HubFile, is_repository

# A base name with one of these is not a model. Includes drafters of a kind that we do not run (eagle3-).
_NO_MODEL = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
# Sidecars that we can run, best first: DSpark is DFlash with a Markov head.
SIDECARS = ("dspark-", "dflash-")
_DRAFTER_NAME = re.compile(r"dflash|dspark", re.IGNORECASE)
_DEFAULT_TAGS = ("Q4_K_M", "Q8_0")
# Below 8 bits, drafters with sliding windows lose acceptance; above, they only grow.
_DRAFTER_BITS = 8


@dataclass(frozen=True)
class Name:
    """USER/NAME[@REVISION][:QUANT]. The revision (a branch, tag, pull request or commit) is ours: upstream takes the
    newest."""

    repo: str
    revision: str | None = None
    tag: str = ""

    @classmethod
    def parse(cls, text: str) -> Name:
        """Raises HubError if the text is not such a name."""
        match = re.fullmatch(r"([^@:]+)(?:@([^:]+))?(?::([^:]+))?", text)
        if not match or not is_repository(match[1]):
            raise HubError(
                f"{text!r} names no repository",
                hint="give USER/NAME, USER/NAME:QUANT or USER/NAME@REVISION:QUANT, such as "
                "unsloth/Qwen3-8B-GGUF:Q4_K_M",
            )
        return cls(match[1], match[2], match[3] or "")

    def __str__(self) -> str:
        return self.repo + (f"@{self.revision}" if self.revision else "") + (f":{self.tag}" if self.tag else "")


def model(files: Sequence[HubFile], tag: str = "") -> HubFile | None:
    """The model with the tag, or without one Q4_K_M, Q8_0 or the first; of a split one, the first part.

    Beyond upstream: a drafter with another spelling (X-DFlash.Q8_0.gguf) is chosen only if there is nothing else, and
    so is a file in whose name the tag is a part of something else (BF16 for F16).
    """
    usable = [file for file in files if _is_model(file)]
    targets = [file for file in usable if not is_drafter(file)]
    for candidates in (targets, usable):
        for wanted in [tag] if tag else _DEFAULT_TAGS:
            pattern = re.compile(re.escape(wanted) + "[.-]", re.IGNORECASE)
            named = [file for file in candidates if pattern.search(file.path)]
            if named:
                return next((file for file in named if Parts.of(file.path).tag == wanted.upper()), named[0])
        if candidates and not tag:
            return candidates[0]
    return None


def models(files: Sequence[HubFile]) -> list[HubFile]:
    """All models; of split ones the first part. Without drafters."""
    return [file for file in files if _is_model(file) and file.path.endswith(".gguf") and not is_drafter(file)]


def is_drafter(file: HubFile) -> bool:
    """Whether its name is a drafter's."""
    return _DRAFTER_NAME.search(file.name) is not None


def _is_model(file: HubFile) -> bool:
    parts = Parts.of(file.path)
    return parts.index == 1 and not any(word in file.name for word in _NO_MODEL)


def all_parts(files: Sequence[HubFile], first: HubFile) -> list[HubFile]:
    """Every part of a split model, in order. Raises HubError if one is missing."""
    wanted = Parts.of(first.path)
    if wanted.count <= 1:
        return [first]
    found = {}
    for file in files:
        parts = Parts.of(file.path)
        if (parts.prefix, parts.count) == (wanted.prefix, wanted.count):
            found[parts.index] = file
    missing = [index for index in range(1, wanted.count + 1) if index not in found]
    if missing:
        raise HubError(
            f"{first.repo} has {len(found)} of {wanted.count} parts of {wanted.prefix}; part {missing[0]} is missing",
            hint="choose another quantization, or download it again",
        )
    return [found[index] for index in sorted(found)]


def sidecar(files: Sequence[HubFile], beside: str, keyword: str, tag: str = "") -> HubFile | None:
    """The best GGUF with `keyword` in its path, in the model's folder or above: the deepest, then the one with the tag,
    then the nearest in bits to the tag or to the model `beside` ("" if there is none)."""
    named = [file for file in files if keyword in file.path]
    return _nearest(named, beside, tag, bits_of(tag) or Parts.of(beside).bits)


def drafters(files: Sequence[HubFile], beside: str = "", tag: str = "") -> Iterator[HubFile]:
    """Files that may be the drafter of the model `beside`, best first; their headers must be checked.

    First upstream's sidecars. Beyond upstream: any spelling of dflash or dspark in a base name.
    """
    seen = {beside}
    named = [file for file in files if is_drafter(file)]
    for file in (
        *(sidecar(files, beside, keyword, tag) for keyword in SIDECARS),
        _nearest(named, beside, tag, bits_of(tag) or _DRAFTER_BITS),
    ):
        if file and file.path not in seen:
            seen.add(file.path)
            yield file


def layers(files: Sequence[HubFile], beside: str = "", tag: str = "") -> HubFile | None:
    """The file with next-token (MTP) layers for the model `beside`. Upstream prefers them to other sidecars, we any
    DFlash drafter, which brings more."""
    return sidecar(files, beside, "mtp-", tag)


def projector(files: Sequence[HubFile], beside: str) -> HubFile | None:
    """The projector of the model `beside`: a GGUF with mmproj in its path."""
    return sidecar(files, beside, "mmproj")


def _nearest(files: Sequence[HubFile], beside: str, tag: str, bits: int) -> HubFile | None:
    folders = beside.split("/")[:-1]
    exact = f"-{tag}.".upper()

    def rank(file: HubFile) -> tuple[int, bool, int]:
        distance = abs(Parts.of(file.path).bits - bits)
        return len(file.path.split("/")), bool(tag) and exact in file.path.upper(), -distance

    def is_beside(file: HubFile) -> bool:
        theirs = file.path.split("/")[:-1]
        return Parts.of(file.path).index == 1 and folders[: len(theirs)] == theirs

    usable = [file for file in files if is_beside(file) and file.path != beside]
    return max(usable, key=rank, default=None)  # of equals the first, as upstream


def is_checkpoint(files: Sequence[HubFile]) -> bool:
    """Whether the repository holds a Hugging Face checkpoint."""
    return any(file.path == "config.json" for file in files) and bool(_weights(files))


def checkpoint(files: Sequence[HubFile]) -> list[HubFile]:
    """The files that a conversion reads, all in the repository's root."""
    wanted = {"config.json", "model.safetensors.index.json", "pytorch_model.bin.index.json", "mask_embedding.pt"}
    return [file for file in files if file.path in wanted] + _weights(files)


def _weights(files: Sequence[HubFile]) -> list[HubFile]:
    here = [file for file in files if "/" not in file.path]
    safetensors = [file for file in here if file.path.endswith(".safetensors")]
    return safetensors or [file for file in here if re.fullmatch(r"pytorch_model.*\.bin", file.path)]
