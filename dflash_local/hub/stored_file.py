"""StoredFile: a file that a program keeps as a model, and what of these files cannot be served as one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dflash_local.convert.gguf_glance import Glance
from dflash_local.convert.gguf_parts import SPLIT_NAME, part_paths
from dflash_local.diagnose.companions import PROJECTOR, companion, is_mtp_file, is_projector
from dflash_local.errors import ModelError
from dflash_local.hub.model_programs import Program

# Architectures of models that give vectors, if their header does not say so otherwise.
_EMBEDDING = {
    "bert", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llama-embed", "modern-bert", "neo-bert",
    "nomic-bert", "nomic-bert-moe", "t5encoder",
}  # fmt: skip
# Names of architectures that only Ollama's engine knows.
_OLLAMA_ONLY = {"gptoss", "mllama", "qwen25vl"}
_RANK = 4  # pooling type of rerankers
_TAKE_UPSTREAM = "take the GGUF of its repository on the Hub instead: dflash-local pull USER/NAME:QUANT"


@dataclass(frozen=True)
class StoredFile:
    """A file, or the first part of a split model.

    Attributes:
        names: what `-m` may call it, without the program's word; the first is shown.
        size: bytes that it must have; None: unknown.
        quantization: what its program says of it.
        refused: why it cannot be served, if its program's records show that already.
        projector: the file that its program keeps as its projector.
    """

    program: Program
    path: Path
    names: tuple[str, ...]
    size: int | None = None
    quantization: str = ""
    refused: str = ""
    projector: Path | None = None

    def identity(self) -> tuple[object, ...]:
        """The same for two names of one file. Raises OSError, also for a link without a target."""
        status = self.path.stat()
        return (status.st_dev, status.st_ino) if status.st_ino else (self.path.resolve(),)

    def n_bytes(self) -> int:
        """The size of all parts. Raises OSError if one is missing."""
        return sum(part.stat().st_size for part in part_paths(self.path))

    def refusal(self) -> str:
        """Why it cannot be a model, before it is opened."""
        if self.refused:
            return self.refused
        if why := companion(self.path.name):
            return why
        if self.path.name.startswith("incomplete-") or self.path.with_name(self.path.name + ".aria2").exists():
            return "its download is not complete"
        parts = part_paths(self.path)
        missing = [number for number, part in enumerate(parts, 1) if not part.is_file()]
        if missing:
            return f"part {missing[0]} of {len(parts)} is missing" if len(parts) > 1 else "it is no file"
        if self.size is not None and self.path.stat().st_size < self.size:
            return "its download is not complete"
        return ""

    def glance(self) -> tuple[Glance, str]:
        """Its header, and why it is no model that writes text. Raises ModelError."""
        found = Glance.of(self.path)
        return found, _not_a_model(found, is_part=SPLIT_NAME.fullmatch(self.path.stem) is not None)

    def own_projector(self) -> Glance | None:
        """The header of its projector, if that is on this disk, and one."""
        with suppress(ModelError, ValueError):  # ValueError: a path that no file can have
            if self.projector and is_projector(found := Glance.of(self.projector)):
                return found
        return None

    def is_drafter(self, glance: Glance) -> bool:
        """Whether its architecture is that of a drafter, of any kind, or it has MTP layers that were split off."""
        if any(word in glance.architecture for word in ("dflash", "dspark", "eagle", "assistant")):
            return True
        return is_mtp_file(self.path.name) and glance.n_next_token_layers > 0


def _not_a_model(glance: Glance, *, is_part: bool) -> str:
    arch, kind = glance.architecture, glance.text("general.type") or "model"
    if not arch:
        return "its header names no architecture"
    if is_projector(glance):
        return PROJECTOR
    if kind == "adapter" or "adapter.type" in glance.keys:
        return "an adapter (LoRA), not a model"
    if kind != "model":
        return f"a GGUF of the type {kind!r}"
    if glance.number("split.count", 1) > 1 and not is_part:
        return "a part of a split model whose other parts cannot be found by its name"
    if not glance.n_tensors and not is_part:
        return "only a vocabulary, without weights"
    if not glance.n_vocab:
        return f"it has no vocabulary, so it writes no text ({arch})"
    if (pooling := glance.size("pooling_type")) or arch in _EMBEDDING:
        flag = "--rerank-model" if pooling == _RANK else "--embedding-model"
        return f"a model that gives {'scores' if pooling == _RANK else 'embeddings'}: dflash-local serve {flag} FILE"
    if arch in _OLLAMA_ONLY or any(key.startswith((f"{arch}.vision.", f"{arch}.audio.")) for key in glance.keys):
        return f"only Ollama reads its layout ({arch}); {_TAKE_UPSTREAM}"
    return ""


def header_fault(error: ModelError) -> str:
    """Why a file is left out whose header cannot be read."""
    return error.message.partition(" is ")[2] or error.message
