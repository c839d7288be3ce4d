"""The dialects of drafter GGUFs: their names of things, where they differ from upstream's `dflash` dialect.

Before llama.cpp had DFlash, several projects wrote their own GGUFs, and some drafters exist only as such. A dialect is
recognised by its architecture, never by a tensor's name: `post_attention_norm` is the norm of the attention's output in
one and the norm before the feed-forward part in another. docs/converting.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dflash_local.errors import ConvertError

from .gguf_metadata import Value
from .names import ARCH


@dataclass(frozen=True)
class Dialect:
    """`prefix` precedes the drafter's own keys, after the architecture's name and a dot. `tensors` maps patterns of
    names to upstream's names. `samples_from_anchor`: the default for files with a Markov head (does a block's first row
    propose?); None: unknown. `causal_of_all`: `attention.causal: false` is about all layers, as upstream; if not, all
    files of the dialect have it, and its programs compute sliding layers causally."""

    name: str
    writers: str
    archs: tuple[str, ...]
    prefix: str = "dflash."
    tensors: tuple[tuple[str, str], ...] = ()
    samples_from_anchor: bool | None = None
    causal_of_all: bool = False

    def renamed(self, tensor: str) -> str:
        """Upstream's name of a tensor."""
        for pattern, name in self.tensors:
            if re.fullmatch(pattern, tensor):
                return re.sub(pattern, name, tensor)
        return tensor

    def own(self, arch: str, key: str) -> str | None:
        """A key without architecture and prefix; None if it is not one of the architecture."""
        if not key.startswith(arch + "."):
            return None
        return key.removeprefix(arch + ".").removeprefix(self.prefix)


_FUSION = ((r"dflash[_.]fc\.weight", "fc.weight"), (r"(dflash[_.])?hidden_norm\.weight", "enc.output_norm.weight"))
_PRE_NORM = (r"(blk\.\d+\.)post_attention_norm\.weight", r"\1ffn_norm.weight")

A = Dialect("A", "llama.cpp", (ARCH,), causal_of_all=True)
A0 = Dialect(
    "A0", "early builds of llama.cpp's DFlash", (ARCH,), tensors=_FUSION, samples_from_anchor=True, causal_of_all=True
)
D = Dialect("D", "qvac", (ARCH,), tensors=_FUSION, causal_of_all=True)
_OTHERS = (
    Dialect("B", "buun, BeeLlama and ik_llama.cpp", ("dflash-draft",), tensors=(*_FUSION, _PRE_NORM)),
    Dialect(
        "C",
        "lucebox",
        ("qwen35-dflash-draft", "gemma4-dflash-draft"),
        tensors=(
            *_FUSION,
            _PRE_NORM,
            (r"dflash\.dspark\.markov\.(w[12])(\.weight)?", r"markov_\1.weight"),
            (r"dflash\.dspark\.confidence\.(weight|bias)", r"conf_proj.\1"),
        ),
        samples_from_anchor=False,
    ),
    Dialect(
        "E",
        "PrismML",
        ("dspark",),
        prefix="dspark.",
        tensors=(
            (r"dspark\.fc\.weight", "fc.weight"),
            (r"dspark\.hidden_norm\.weight", "enc.output_norm.weight"),
            (r"dspark\.markov_head_a\.weight", "markov_w1.weight"),
            (r"dspark\.markov_head_b\.weight", "markov_w2.weight"),
            (r"dspark\.confidence_head\.(weight|bias)", r"conf_proj.\1"),
        ),
        samples_from_anchor=True,
    ),
)
FOREIGN_ARCHS = frozenset(arch for dialect in _OTHERS for arch in dialect.archs)

# Drafters that cannot run in any dialect: an architecture, or a part of a key or tensor, and why.
_REFUSED_ARCHS = {
    "deepseek4-dflash-draft": "a DeepSeek-V4 drafter: its layers have hyper-connections and experts",
    "deepseek4-dspark": "a DeepSeek-V4 drafter: its layers have hyper-connections and experts",
    "eagle3": "an EAGLE-3 drafter, which drafts token by token",
}
_HYPER_CONNECTIONS = "hyper_connection.count"
_REFUSED_KEYS = {
    _HYPER_CONNECTIONS: "a DeepSeek-V4 drafter: its layers have hyper-connections and experts",
    "laguna": "a Laguna drafter: its attention is gated",
    "context_kv_layer_norm": "a Laguna drafter: its context keys are normed in each layer",
    "domino.enabled": "a Domino drafter: a recurrent network runs over its proposals",
    "log_snr_conditioning": "conditioned on the noise level (log_snr), which shifts the embeddings of a block",
}
_REFUSED_TENSORS = {
    r"blk\.\d+\.attn_gate\..*": "a Laguna drafter: its attention is gated",
    r".*aux_hidden_norm\..*": "a Laguna drafter: each tap has its own norm",
    r".*domino.*": "a Domino drafter: a recurrent network runs over its proposals",
    r".*(hidden_)?correction[_.].*": "a DFly drafter: proposals are corrected one by one",
    r".*log_snr.*": "conditioned on the noise level (log_snr), which shifts the embeddings of a block",
    r"output_extra\..*": "a drafter with a second head (output_extra)",
}


def recognise(arch: str, metadata: Mapping[str, Value], tensors: Collection[str] = ()) -> Dialect:
    """The dialect of a file with these keys and tensor names. Raises ConvertError, with the reason, if it is not a
    drafter of a known dialect, or if the engine cannot run it in any."""

    def refused(what: str, why: str) -> ConvertError:
        return ConvertError(f"it is {why}; dflash-local cannot run it", field=what)

    if arch in _REFUSED_ARCHS:
        raise refused("general.architecture", _REFUSED_ARCHS[arch])
    dialect = _of_arch(arch, metadata)
    if (decoder := metadata.get(f"{arch}.decoder_arch") or metadata.get(f"{arch}.dflash.decoder_arch")) is not None:
        raise refused(f"{arch}.decoder_arch", f"a drafter with the layers of {as_text(decoder)!r}")
    for key, value in metadata.items():
        name = dialect.own(arch, key)
        if name in _REFUSED_KEYS and value.data and (dialect is not A or name == _HYPER_CONNECTIONS):
            raise refused(key, _REFUSED_KEYS[name])
    for tensor in () if dialect is A else tensors:  # in upstream's dialect, the engine refuses them
        for pattern, why in _REFUSED_TENSORS.items():
            if re.fullmatch(pattern, tensor):
                raise refused(tensor, why)
    return dialect


def _of_arch(arch: str, metadata: Mapping[str, Value]) -> Dialect:
    if arch == ARCH:
        # early builds and qvac write "dflash.dflash.x" for upstream's "dflash.x"
        if f"{ARCH}.dflash.num_target_layers" in metadata:
            return D
        is_old = any(key.startswith(f"{ARCH}.dflash.") for key in metadata) or f"{ARCH}.target_layers" not in metadata
        return A0 if is_old else A
    for dialect in _OTHERS:
        if arch in dialect.archs:
            return dialect
    known = ", ".join(sorted({ARCH, *FOREIGN_ARCHS}))
    raise ConvertError(
        f"the architecture {arch!r} is no dialect of drafters that is known ({known})",
        field="general.architecture",
        hint="convert the drafter's checkpoint instead: its directory with config.json and safetensors files",
    )


def is_foreign(arch: str, metadata: Mapping[str, Value]) -> bool:
    """Whether a file with these keys is a drafter that must be rewritten before it can run."""
    return arch in FOREIGN_ARCHS or (arch == ARCH and _of_arch(arch, metadata) is not A)


def as_text(value: Value) -> str:
    """A string of a GGUF; "" for anything else."""
    data = value.data
    return data.decode(errors="replace") if isinstance(data, bytes) else data if isinstance(data, str) else ""
