"""Is a file the projector of a target (mmproj), what does it read, and does it fit? Answered from GGUF headers.

What mtmd requires of the two (`mtmd_context` in tools/mtmd/mtmd.cpp, `clip_n_mmproj_embd` in clip.cpp of the pinned
llama.cpp), before anything is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_local.convert.dialects import as_text
from dflash_local.convert.gguf_glance import Glance
from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, read_header, read_metadata
from dflash_local.convert.names import ARCH as DRAFTER_ARCH
from dflash_local.diagnose.architectures import ASSISTANTS
from dflash_local.diagnose.companions import PROJECTOR_ARCH, is_projector
from dflash_local.diagnose.finding import Finding, fail, ok, same
from dflash_local.diagnose.pair import refuse_misfit
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import ModelError

ENCODERS = {"vision": "images", "audio": "audio"}  # as keys call them, and what they read

# The kinds that mtmd computes: PROJECTOR_TYPE_NAMES in clip-impl.h. tests/diagnose/test_projector.py compares them.
KINDS = frozenset({
    "adapter", "cogvlm", "deepseek4v", "deepseekocr", "deepseekocr2", "dots3note_a", "dots3note_v", "dots_ocr",
    "exaone4_5", "gemma3", "gemma3na", "gemma3nv", "gemma4a", "gemma4ua", "gemma4uv", "gemma4v", "glm4v", "glm5v",
    "glma", "granite4_vision", "granite_speech", "hunyuanvl", "idefics3", "internvl", "janus_pro", "kimik25", "kimivl",
    "ldp", "ldpv2", "lfm2", "lfm2a", "lightonocr", "ling3vl", "llama4", "meralion", "mimo_audio", "mimovl",
    "minicpmv4_6", "minimax_m3", "mlp", "muse-glimmer", "musicflamingo", "nemotron_v2_vl", "paddleocr", "parakeet",
    "phi4", "pixtral", "pockettts_gen", "pockettts_spkenc", "qwen2.5o", "qwen2.5vl_merger", "qwen2a", "qwen2vl_merger",
    "qwen3a", "qwen3tts_gen", "qwen3tts_spkenc", "qwen3vl_merger", "resampler", "step3vl", "ultravox", "voxtral",
    "yasa2", "youtuvl",
})  # fmt: skip
# Kinds of before projection_dim was the width of the rows: the tensors that show it, the first of them that is there,
# and which of its axes.
_WIDTH_TENSORS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "mlp": (("mm.3.bias", -1), ("mm.2.weight", 0)),
    "ldp": (("mm.model.mb_block.1.block.2.1.bias", -1),),
    "ldpv2": (("mm.model.peg.0.bias", -1),),
    "resampler": (("resampler.proj.weight", -1),),
    "adapter": (("adapter.linear.dense_4h_to_h.weight", 0),),
}
_DEEPSTACK = re.compile(r"v\.deepstack\.\d+\.fc1\.weight")
_TAKE_ITS_OWN = "take the mmproj file of this model's own repository"


@dataclass(frozen=True)
class Projector:
    """What the header of a projector says.

    Attributes:
        kinds: of its encoders, by "vision" and "audio".
        widths: of the rows that they give the target, alike; 0: not known without loading it.
        quantization: "" if unknown.
    """

    path: Path
    kinds: Mapping[str, str]
    widths: Mapping[str, int]
    quantization: str = ""

    @classmethod
    def read(cls, path: Path) -> Projector:
        """Raises ModelError; `field` is the missing or wrong key."""
        keys, tensors = read_header(path)

        def known(key: str, kind: type, default: Any) -> Any:
            data = keys[key].data if key in keys else default
            if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
                raise ModelError(
                    f"{path.name} is no usable projector: {key!r} is of the wrong type", field=key, hint=_TAKE_ITS_OWN
                )
            return data

        if (arch := known("general.architecture", bytes, b"").decode(errors="replace")) != PROJECTOR_ARCH:
            raise ModelError(
                f"{path.name} is {_what(path, arch, keys)}, not a projector",
                field="general.architecture",
                hint="the model goes to -m, a drafter to -md, and the model's projector (mmproj) to --mmproj",
            )
        encoders = [name for name in ENCODERS if known(f"clip.has_{name}_encoder", bool, False)]
        both = known("clip.projector_type", bytes, b"")
        kinds = {name: (both or known(f"clip.{name}.projector_type", bytes, b"")).decode() for name in encoders}
        if kinds.get("vision") == "gemma3nv":  # mtmd does not read its audio yet
            kinds.pop("audio", None)
        widths = {}
        for name, kind in kinds.items():
            widths[name] = _width(path, kind, known(f"clip.{name}.projection_dim", int, 0), keys, tensors)
        return cls(path, kinds, widths, Glance.of(path).quantization)

    @property
    def reads(self) -> tuple[str, ...]:
        """Of "images" and "audio", what it reads."""
        return tuple(ENCODERS[name] for name in self.kinds)


def input_width(target: Path) -> int:
    """The width of the rows that a target takes in place of embeddings: of deepstack targets those of several layers.
    0: unknown. Raises ModelError."""
    keys = read_metadata(target)
    arch = as_text(keys["general.architecture"]) if "general.architecture" in keys else ""

    def own(key: str, default: Any) -> Any:
        return keys[f"{arch}.{key}"].data if f"{arch}.{key}" in keys else default

    mapped = {layer for layer in own("deepstack_mapping", ()) if layer >= 0}
    return int(own("embedding_length", 0)) * (1 + (len(mapped) or int(own("n_deepstack_layers", 0))))


def compare_projector(target: Path, projector: Projector) -> Iterator[Finding]:
    """All findings about a target and its projector that the two headers allow. Raises ModelError."""
    name, key = projector.path.name, "clip.projector_type"
    unknown = [kind for kind in projector.kinds.values() if kind not in KINDS]
    if not projector.kinds:
        why = f"{name} reads neither images nor audio (clip.has_vision_encoder, clip.has_audio_encoder)"
        yield fail("projector", why, _TAKE_ITS_OWN, "clip.has_vision_encoder")
        return
    if unknown:
        why = f"llama.cpp computes no projectors of the kind {unknown[0]!r}, as {name} is"
        yield fail("projector", why, "run it without --mmproj, which reads text alone", key)
        return
    kinds = " and ".join(dict.fromkeys(projector.kinds.values()))
    quantization = f", {projector.quantization}" if projector.quantization else ""
    yield ok("projector", f"{kinds}, reads {' and '.join(projector.reads)}{quantization}")
    wanted = input_width(target)
    for encoder, width in projector.widths.items():
        if width and wanted:
            what = f"the rows of {name} are {width} wide, those of {target.name} {wanted}: it is another model's"
            yield same("projector width", width, wanted, what, _TAKE_ITS_OWN, f"clip.{encoder}.projection_dim")


def refuse_swapped(target: Path, path: Path) -> None:
    """Raise ModelError if a projector was given as the target; `path` was given as its projector."""
    if is_projector(Glance.of(target)):
        swapped = not is_projector(Glance.of(path))
        raise ModelError(
            f"{target.name} is a projector, not a model",
            field="general.architecture",
            hint="-m and --mmproj are swapped" if swapped else "give the model to -m and its projector to --mmproj",
        )


def check_projector(target: Path, path: Path) -> Projector:
    """Raise an error unless `path` is a projector that fits the target.

    Raises:
        ModelError: a file cannot be read, or is another than it should be.
        PairError: they do not fit each other; `field` is the projector's key to blame.
    """
    refuse_swapped(target, path)
    projector = Projector.read(path)
    refuse_misfit(compare_projector(target, projector))
    return projector


def check_options(options: EngineOptions) -> None:
    """Raise the errors of `check_projector` about an engine's options."""
    if options.mmproj is not None:
        check_projector(Path(options.model), Path(options.mmproj))


def _width(
    path: Path, kind: str, projection_dim: int, keys: Mapping[str, Value], tensors: Mapping[str, StoredGgufTensor]
) -> int:
    """The width of the rows of an encoder. Raises ModelError."""
    if kind in _WIDTH_TENSORS:
        return _width_by_tensor(path, kind, tensors)
    if kind == "qwen3vl_merger":
        return projection_dim * (1 + sum(_DEEPSTACK.fullmatch(name) is not None for name in tensors))
    if kind == "granite4_vision":
        layers = keys.get("clip.vision.feature_layer")
        return projection_dim * len(layers.data) if layers and layers.item is not None else 0
    return projection_dim


def _width_by_tensor(path: Path, kind: str, tensors: Mapping[str, StoredGgufTensor]) -> int:
    wanted = _WIDTH_TENSORS[kind]
    for name, axis in wanted:
        if name in tensors:
            return tensors[name].shape[axis]
    # mtmd would read it all the same.
    raise ModelError(
        f"{path.name} is damaged: it lacks the tensor {wanted[-1][0]!r}", field=wanted[-1][0], hint="download it again"
    )


def _what(path: Path, arch: str, keys: Mapping[str, Value]) -> str:
    """What a file is, which is no projector."""
    kind = as_text(keys["general.type"]) if "general.type" in keys else "model"
    if kind != "model":
        return f"a GGUF of the type {kind!r}"
    is_drafter = arch == DRAFTER_ARCH or arch in ASSISTANTS or any(word in arch for word in ("dspark", "eagle"))
    return f"a {'drafter' if is_drafter or path.name.startswith('mtp-') else 'model'} ({arch or 'no architecture'})"
