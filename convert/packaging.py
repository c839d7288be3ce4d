"""Who saved a checkpoint, and what follows from it where config.json says nothing.

The same drafter is published under many class names and with many habits. A packaging is one set of habits: how it is
recognised, what its tensors are called, and what its silence means. A wrong guess raises no error and changes no text;
only fewer drafts are accepted. So what no packaging decides is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local.errors import ConvertError

from .keys import Keys, wrong


@dataclass(frozen=True)
class Packaging:
    """`samples_from_anchor`: whether the first row of a block, the anchor's, proposes the token after it ("anchor
    first") or nothing ("bonus anchor"); None if silence decides nothing. `partial_rotary`: whether
    `partial_rotary_factor` means something beside default RoPE; elsewhere it was copied from the target's config.json,
    and the published code rotates whole heads. `renames`: patterns of tensor names and what stands for them in the
    authors' names. `marks`: keys of which config.json must have all, where a class name has several meanings.
    `copies_vocabulary`: embeddings and a head of the whole vocabulary are copies of the target's, saved but never
    trained, so the target's serve. `depth_key`: what config.json calls the number of the target's layers."""

    name: str
    architectures: tuple[str, ...]
    samples_from_anchor: bool | None = False
    partial_rotary: bool = False
    is_dflash2: bool = False
    is_dflare: bool = False
    marks: tuple[str, ...] = ()
    copies_vocabulary: bool = False
    depth_key: str = "num_target_layers"
    renames: tuple[tuple[str, str], ...] = ()

    def renamed(self, tensor: str) -> str:
        """The authors' name of a tensor."""
        for pattern, name in self.renames:
            tensor = re.sub(pattern, name, tensor)
        return tensor

    def drops(self, tensor: str, found: Collection[str]) -> bool:
        """Whether a tensor (by the authors' name) is a copy of the target's."""
        copies = ("embed_tokens.weight", *(() if "d2t" in found else ("lm_head.weight",)))
        return self.copies_vocabulary and tensor in copies


@dataclass(frozen=True)
class Refusal:
    """A kind of drafter that is known and not converted, and why. Any one of its marks tells it: a class name, a tensor
    whose name begins so, a key of config.json with one of these values."""

    name: str
    reason: str
    architectures: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    key: str = ""
    values: tuple[str, ...] = ()

    def holds(self, config: Mapping[str, Any], names: Collection[Any], found: Collection[str]) -> bool:
        nested = config.get("dflash_config")
        stated = [place.get(self.key) for place in (config, nested) if self.key and isinstance(place, dict)]
        return (
            any(name in self.architectures for name in names)
            or any(value in self.values for value in stated)
            or any(tensor.startswith(self.tensors) for tensor in found)
        )


_REFUSALS = (
    Refusal(
        "DFly",
        "it corrects the hidden state of each row by the token before it, so that every row needs a whole pass of the "
        "target's head before the next one",
        architectures=("Qwen3DFlyModel", "Qwen3DSparkDFlareV2Model"),
        tensors=("hidden_correction.",),
    ),
    Refusal(
        "Laguna's DFlash",
        "it gates each head of attention and normalizes each tap, for a target (laguna) whose graph offers no taps",
        architectures=("DFlashLagunaForCausalLM",),
        tensors=("aux_hidden_norms.",),
    ),
    Refusal(
        "Muse Glimmer's assistant",
        "its settings and tensors have names and places of their own; ggml-org publishes it as a GGUF of the dialect "
        "that this converter writes (dflash-Muse-Glimmer-30B-*.gguf)",
        architectures=("MuseGlimmerAssistantModel",),
    ),
    Refusal(
        "xpress",
        "it refines its block by repeated passes of a head of its own, and no checkpoint of it is published",
        architectures=("XPressSpeculator", "XPressDraftModel"),
        tensors=("refiner_head.",),
        key="speculators_model_type",
        values=("xpress",),
    ),
    Refusal(
        "AngelSpec's gated sum",
        "it mixes the taps by gates that depend on them (fusion_type gated_sum)",
        key="fusion_type",
        values=("gated_sum",),
    ),
    Refusal(
        "an older Domino",
        "its recurrent cell has biases and a learned start, unlike SpecForge's",
        tensors=("domino_gru.", "domino_start", "domino_head.", "prefix_gru.bias_"),
    ),
)

_PACKAGINGS = (
    Packaging(
        "AngelSpec",
        ("DFlashDraftModel",),
        marks=("model_arch",),
        copies_vocabulary=True,  # `load_embedding`, `freeze_embedding` of its DFlashDraftModel
        depth_key="target_num_hidden_layers",  # its num_target_layers counts taps
        renames=(
            (r"^draft_model\.", ""),
            (r"^context_proj\.", "fc."),
            (r"^context_norm\.", "hidden_norm."),
            (r"^final_norm\.", "norm."),
        ),
    ),
    Packaging("DFlash", ("DFlashDraftModel", "DFlashSpeculator", "QwenDFlashDraftModel")),
    Packaging("DFlash 2", ("DFlash2DraftModel",), is_dflash2=True),
    Packaging("DFlare", ("QwenDFlareDraftModel",), is_dflare=True),
)


def recognise(config: Mapping[str, Any], found: Collection[str]) -> Packaging:
    """The packaging of the checkpoint with this config.json and these tensor names. Raises ConvertError."""
    names = config.get("architectures")
    if config.get("fusion_type") == "gated_sum":
        raise ConvertError(
            "the checkpoint is AngelSpec's gated sum, which dflash-local does not draft with: it mixes the taps by "
            "gates that depend on them",
            field="fusion_type",
        )
    if isinstance(names, list):
        _refuse(config, names, found)
        for packaging in _PACKAGINGS:
            if any(name in packaging.architectures for name in names) and config.keys() >= set(packaging.marks):
                return packaging
    known = ", ".join(name for packaging in _PACKAGINGS for name in packaging.architectures)
    shown = ", ".join(map(str, names)) if isinstance(names, list) and names else "not given"
    raise ConvertError(
        f"config.json: the architecture is {shown}; this converter takes {known}",
        field="architectures",
        hint="give the directory of a DFlash drafter, not of the target",
    )


def _refuse(config: Mapping[str, Any], names: list[Any], found: Collection[str]) -> None:
    for refusal in _REFUSALS:
        if refusal.holds(config, names, found):
            raise ConvertError(
                f"the checkpoint is {refusal.name}, which dflash-local does not draft with: {refusal.reason}",
                field="architectures",
                hint="docs/drafters.md names the kinds of drafters that run",
            )


def samples_from_anchor(keys: Keys, packaging: Packaging) -> bool:
    """Whether a block's first row proposes a token: what config.json says, or else the packaging. Raises
    ConvertError."""
    stated = keys.maybe_flag("sample_from_anchor")
    if stated is not None:
        return stated
    bonus = keys.maybe_flag("dspark_bonus_anchor")
    if bonus is not None:
        return not bonus
    if packaging.samples_from_anchor is None:
        raise wrong("sample_from_anchor", "it is missing, and nothing else tells which row of a block proposes first")
    return packaging.samples_from_anchor
