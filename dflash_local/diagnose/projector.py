"""Is a file the projector of a target (mmproj), what does it read, and does it fit? Answered from GGUF headers.

What mtmd requires of the two (`mtmd_context` in tools/mtmd/mtmd.cpp, `clip_n_mmproj_embd` in clip.cpp of the pinned
llama.cpp), before anything is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_local.convert.dialects import as_text
from dflash_local.convert.gguf_glance import Glance
from dflash_local.convert.gguf_metadata import INTEGERS, StoredGgufTensor, Value, read_header, read_metadata
from dflash_local.convert.names import ARCH as DRAFTER_ARCH
from dflash_local.diagnose.architectures import ASSISTANTS
from dflash_local.diagnose.companions import ENCODERS, PROJECTOR_ARCH, is_projector
from dflash_local.diagnose.finding import Finding, fail, ok, same
from dflash_local.diagnose.pair import refuse_misfit
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import DFlashError, ModelError

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
# Kinds whose projection_dim may be another size than the width of the rows: the tensors that show it, the first of them
# that is there, and which of its axes.
_WIDTH_TENSORS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "mlp": (("mm.3.bias", -1), ("mm.2.weight", 0)),
    "ldp": (("mm.model.mb_block.1.block.2.1.bias", -1),),
    "ldpv2": (("mm.model.peg.0.bias", -1),),
    "resampler": (("resampler.proj.weight", -1),),
    "adapter": (("adapter.linear.dense_4h_to_h.weight", 0),),
    "gemma3nv": (("mm.input_projection.weight", -1),),
}
# What is in the name of the tensor that reads an image. mtmd would compute without it all the same, and crash.
_FIRST_TENSOR = "patch_embd"
_OTHER_FIRST_TENSORS = {"gemma3nv": "conv_stem", "dots3note_v": ""}  # "": any
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
        """Raises ModelError; `field` is the missing or wrong key, or the tensor that is not there."""
        keys, tensors = read_header(path)
        header = _Header(path, keys, tensors)
        if (arch := header.text("general.architecture")) != PROJECTOR_ARCH:
            raise ModelError(
                f"{path.name} is {_what(path, arch, keys)}, not a projector",
                field="general.architecture",
                hint="the model goes to -m, a drafter to -md, and the model's projector (mmproj) to --mmproj",
            )
        kinds = header.kinds()
        if "vision" in kinds:
            header.check_first_tensor(kinds["vision"])
        widths = {encoder: header.width(encoder, kind) for encoder, kind in kinds.items()}
        return cls(path, kinds, widths, Glance.of(path).quantization)

    @property
    def reads(self) -> tuple[str, ...]:
        """Of "images" and "audio", what it reads."""
        return tuple(ENCODERS[name] for name in self.kinds)


@dataclass(frozen=True)
class _Header:
    """The keys and tensors of a file that should be a projector. Methods raise ModelError."""

    path: Path
    keys: Mapping[str, Value]
    tensors: Mapping[str, StoredGgufTensor]

    def known(self, key: str, kind: type, default: Any) -> Any:
        data = self.keys[key].data if key in self.keys else default
        if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
            what = f"{self.path.name} is no usable projector: {key!r} is of the wrong type"
            raise ModelError(what, field=key, hint=_TAKE_ITS_OWN)
        return data

    def text(self, key: str) -> str:
        return str(self.known(key, bytes, b"").decode(errors="replace"))

    def kinds(self) -> dict[str, str]:
        """By encoder."""
        encoders = [name for name in ENCODERS if self.known(f"clip.has_{name}_encoder", bool, False)]
        of_all = self.text("clip.projector_type")
        kinds = {name: of_all or self.text(f"clip.{name}.projector_type") for name in encoders}
        if kinds.get("vision") == "gemma3nv":  # mtmd does not read its audio yet
            kinds.pop("audio", None)
        return kinds

    def check_first_tensor(self, kind: str) -> None:
        word = _OTHER_FIRST_TENSORS.get(kind, _FIRST_TENSOR)
        if not any(word in name and ".weight" in name for name in self.tensors):
            raise self._damaged(f"v.{word}.weight")

    def width(self, encoder: str, kind: str) -> int:
        """Of the rows of an encoder."""
        if kind in _WIDTH_TENSORS:
            return self._width_by_tensor(kind)
        width = int(self.known(f"clip.{encoder}.projection_dim", int, 0))
        if kind == "qwen3vl_merger":
            return width * (1 + sum(_DEEPSTACK.fullmatch(name) is not None for name in self.tensors))
        if kind == "granite4_vision":
            return width * len(self.known("clip.vision.feature_layer", Sequence, ()))
        return width

    def _width_by_tensor(self, kind: str) -> int:
        for name, axis in _WIDTH_TENSORS[kind]:
            if name in self.tensors:
                return self.tensors[name].shape[axis]
        raise self._damaged(name)

    def _damaged(self, tensor: str) -> ModelError:
        what = f"{self.path.name} is damaged: it lacks the tensor {tensor!r}"
        return ModelError(what, field=tensor, hint="download the file again")


def input_width(target: Path) -> int:
    """The width of the rows that a target takes in place of embeddings: of deepstack targets those of several layers.
    0: unknown. Raises ModelError."""
    keys = read_metadata(target)
    arch = as_text(keys["general.architecture"]) if "general.architecture" in keys else ""

    def number(key: str) -> int:
        value = keys.get(f"{arch}.{key}")
        return int(value.data) if value and value.type in INTEGERS else 0

    mapping = keys.get(f"{arch}.deepstack_mapping")
    mapped = {layer for layer in mapping.data if layer >= 0} if mapping and mapping.item in INTEGERS else set()
    return number("embedding_length") * (1 + (len(mapped) or number("n_deepstack_layers")))


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


def fitting(target: Path, path: Path, note: Callable[[str], None]) -> bool:
    """Whether a projector that was found, not named, can be used; if not, `note` is told why."""
    try:
        check_projector(target, path)
    except DFlashError as error:
        note(f"{path.name} cannot be used: {error.message}; {target.name} reads text only")
        return False
    return True


def check_options(options: EngineOptions) -> None:
    """Raise the errors of `check_projector` about an engine's options."""
    if options.mmproj is not None:
        check_projector(Path(options.model), Path(options.mmproj))


def _what(path: Path, arch: str, keys: Mapping[str, Value]) -> str:
    """What a file is, which is no projector."""
    kind = as_text(keys["general.type"]) if "general.type" in keys else "model"
    if kind != "model":
        return f"a GGUF of the type {kind!r}"
    is_drafter = arch == DRAFTER_ARCH or arch in ASSISTANTS or any(word in arch for word in ("dspark", "eagle"))
    return f"a {'drafter' if is_drafter or path.name.startswith('mtp-') else 'model'} ({arch or 'no architecture'})"
