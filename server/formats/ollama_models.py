"""Models as Ollama tells of them: from the header of a file, or from a loaded engine."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.convert.gguf_parts import part_paths
from dflash_local.errors import ModelError
from dflash_local.media.abilities import NO_MEDIA, Abilities
from dflash_local.sampling import SamplingParams
from dflash_local.server.fields.request import Defaults
from dflash_local.server.formats.ollama import tag, timestamp
from dflash_local.server.shapes.ollama import Capability, OllamaDetails, OllamaLoaded, OllamaModel, OllamaTag

if TYPE_CHECKING:
    from dflash_local.convert.gguf_metadata import Value

_BLOB = re.compile(r"[0-9a-f]{64}")  # names of files in the Hub's cache are their SHA-256
_SAMPLE = 1 << 20  # bytes of a file's beginning and end that identify it
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_THINKS = re.compile(r"enable_thinking|reasoning_effort|<think>|thinking")
_FOREVER = 100 * 365 * 86_400.0  # seconds
_FIM = ("pre", "suf", "mid")
_FIM_KEY = "tokenizer.ggml.fim_{}_token_id"
_SHOWN = ("temperature", "top_k", "top_p", "min_p", "seed", "repeat_penalty", "presence_penalty", "frequency_penalty")


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model.

    Attributes:
        keys: those of its GGUF, or what an engine knows of them.
        quantization: as llama.cpp names the type of most of its tensors.
        size, modified: of its files, in bytes and in seconds since 1970.
        digest: identifies its file; empty if that is not known.
        abilities: which media it reads, as far as that is known.
    """

    keys: Mapping[str, Any]
    n_params: int = 0
    quantization: str = ""
    size: int = 0
    modified: float = 0.0
    digest: str = ""
    abilities: Abilities = NO_MEDIA

    @property
    def arch(self) -> str:
        return str(self.keys.get("general.architecture", ""))

    @property
    def template(self) -> str:
        return str(self.keys.get("tokenizer.chat_template", ""))

    @property
    def n_ctx(self) -> int:
        """Tokens for which it was trained; 0: unknown."""
        return int(self.keys.get(f"{self.arch}.context_length", 0))

    @property
    def details(self) -> OllamaDetails:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.arch,
            "families": [self.arch],
            "parameter_size": _rounded(self.n_params),
            "quantization_level": self.quantization,
        }

    @property
    def capabilities(self) -> list[Capability]:
        """What can be asked of it."""
        if f"{self.arch}.pooling_type" in self.keys:
            return ["embedding"]
        found: list[Capability] = ["completion"]
        if re.search(r"\btools\b", self.template):
            found.append("tools")
        if _THINKS.search(self.template):
            found.append("thinking")
        if all(self.keys.get(_FIM_KEY.format(part), -1) >= 0 for part in _FIM):
            found.append("insert")
        if self.abilities.vision:
            found.append("vision")
        if self.abilities.audio:
            found.append("audio")
        return found


def file_facts(path: str) -> ModelFacts | None:
    """The facts of a file, or of the first part of a split model; None if it cannot be read. Each is read once."""
    try:
        status = Path(path).stat()
        return _read(path, status.st_size, status.st_mtime)
    except (OSError, ModelError):
        return None


def engine_facts(info: Mapping[str, Any], file: ModelFacts) -> ModelFacts:
    """The facts of a loaded model: its file's, as far as they are known, with the template that is used, and with the
    tokens for infill, which llama.cpp also finds by their texts."""
    target, arch = info["target"], info["target"]["arch"]
    found = {
        "general.architecture": arch,
        f"{arch}.context_length": target["n_ctx_train"],
        f"{arch}.embedding_length": target["n_embd"],
    }
    fim = {_FIM_KEY.format(part): token for part in _FIM if (token := info.get(f"fim_{part}", -1)) >= 0}
    template = info.get("chat_template") or file.template
    keys = {**(file.keys or found), **fim, "tokenizer.chat_template": template}
    abilities = Abilities.of(info)
    if file.keys:
        return replace(file, keys=keys, abilities=abilities)
    return ModelFacts(keys, target["n_params"], target.get("ftype") or "", target["size"], abilities=abilities)


@lru_cache(maxsize=256)
def _read(path: str, size: int, modified: float) -> ModelFacts:
    from dflash_local.convert.gguf_metadata import read_model  # numpy and gguf, for which no start waits

    metadata, tensors = read_model(Path(path))
    keys = {key: _plain(value) for key, value in metadata.items()}
    return ModelFacts(
        keys,
        sum(math.prod(tensor.shape) for tensor in tensors.values()),
        _file_type(keys.get("general.file_type")),
        sum(part.stat().st_size for part in part_paths(Path(path))),
        modified,
        _digest(Path(path), size),
    )


def _plain(value: Value) -> Any:
    """A value of JSON; None for a list, which may be a vocabulary."""
    if value.item is not None:
        return None
    return value.data.decode("utf-8", "replace") if isinstance(value.data, bytes) else value.data


def _file_type(number: Any) -> str:
    from gguf import LlamaFileType

    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return ""


def _digest(path: Path, size: int) -> str:
    """The SHA-256 by which the Hub's cache names the file; elsewhere that of its size, beginning and end, since reading
    all of it would take minutes."""
    if _BLOB.fullmatch(path.resolve().name):
        return path.resolve().name
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        found.update(file.read(_SAMPLE))
        file.seek(max(size - _SAMPLE, 0))
        found.update(file.read(_SAMPLE))
    return found.hexdigest()


def _rounded(n: int) -> str:
    """`8.2B`."""
    return next((f"{n / unit:.1f}{letter}" for unit, letter in _UNITS if n >= unit), str(n))


# ---- answers ----

UNKNOWN = ModelFacts({})


def _named_digest(name: str, facts: ModelFacts) -> str:
    """Never empty: programs take two models with the same digest for one."""
    return facts.digest or hashlib.sha256(name.encode()).hexdigest()


def listed(name: str, facts: ModelFacts) -> OllamaTag:
    """A line of `/api/tags`."""
    return {
        "name": tag(name),
        "model": tag(name),
        "modified_at": timestamp(facts.modified),
        "size": facts.size,
        "digest": _named_digest(name, facts),
        "details": facts.details,
    }


def loaded(
    name: str, facts: ModelFacts, *, size: int, size_vram: int, n_ctx: int, idle_left: float | None, now: float
) -> OllamaLoaded:
    """A line of `/api/ps`; the model sleeps in `idle_left` seconds, or never."""
    return {
        "name": tag(name),
        "model": tag(name),
        "size": size,
        "size_vram": size_vram,
        "digest": _named_digest(name, facts),
        "details": facts.details,
        "expires_at": timestamp(now + (_FOREVER if idle_left is None else idle_left)),
        "context_length": n_ctx,
    }


def shown(name: str, facts: ModelFacts, defaults: Defaults, n_ctx: int | None) -> OllamaModel:
    """`/api/show`; a request may have `n_ctx` tokens, if that is known. Programs plan with the context length that they
    find here, so it is that of a request."""
    template, parameters = facts.template, _parameters(defaults, n_ctx)
    hidden = {"tokenizer.chat_template": None}
    info = {**facts.keys, **hidden, "general.parameter_count": facts.n_params}
    if n_ctx is not None:
        info[f"{facts.arch}.context_length"] = n_ctx
    lines = ["# served by dflash-local: what FROM names is on its machine", f"FROM {tag(name)}"]
    model: OllamaModel = {
        "modelfile": "\n".join([*lines, *(f"PARAMETER {line}" for line in parameters)]),
        "parameters": "\n".join(parameters),
        "template": template,
        "details": facts.details,
        "model_info": info,
        "capabilities": facts.capabilities,
        "modified_at": timestamp(facts.modified),
    }
    if terms := facts.keys.get("general.license"):
        model["license"] = str(terms)
    return model


def _parameters(defaults: Defaults, n_ctx: int | None) -> list[str]:
    """What holds for requests that do not say, in the words of a Modelfile."""
    sampling: SamplingParams = defaults.sampling
    values: dict[str, Any] = {} if n_ctx is None else {"num_ctx": n_ctx}
    values |= {name: value for name in _SHOWN if (value := getattr(sampling, name)) is not None}
    if defaults.max_tokens >= 0:
        values["num_predict"] = defaults.max_tokens
    stops: Sequence[str] = defaults.stop
    return [f"{name} {value}" for name, value in values.items()] + [f'stop "{word}"' for word in stops]
