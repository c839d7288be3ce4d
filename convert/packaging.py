"""The publishers' conventions for checkpoints, which decide what config.json leaves open.

Drafters are published under many class names and conventions. A packaging is one set of conventions: how it is
recognised, its tensor names, and its defaults. A wrong guess would raise no error and change no text, but fewer drafts
would be accepted. So it is an error if no packaging decides.
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
    """`samples_from_anchor`: does the first row of a block, the anchor's, propose the token after it ("anchor first")
    or nothing ("bonus anchor")? None: there is no default. `anchor_key`: this packaging's own flag for it.
    `partial_rotary`: is `partial_rotary_factor` used with default RoPE? Elsewhere it was copied from the target's
    config.json, and the published code rotates whole heads. `renames`: patterns of tensor names and their replacements
    by the authors' names. `kind`: the name of the kind by its class names; tensors may refine it. `marks`: keys that
    config.json must have ("key" or "key=value", also inside dflash_config) where a class name is ambiguous; `tensor`: a
    tensor with this prefix must exist. `copies_vocabulary`: embeddings and a head of the whole vocabulary are untrained
    copies of the target's, so the target's are used. `left_out`: a prefix of tensors that drafting does not need.
    `depth_key`: the key of config.json for the number of the target's layers. `confidence_sees_markov`: the default for
    whether the confidence head reads the token before. `is_assistant`: it is Gemma 4's assistant (assistant.py) and no
    DFlash drafter."""

    name: str
    architectures: tuple[str, ...]
    samples_from_anchor: bool | None = False
    anchor_key: str = ""
    partial_rotary: bool = False
    kind: str = "DFlash"
    is_gemma4: bool = False
    is_assistant: bool = False
    marks: tuple[str, ...] = ()
    tensor: str = ""
    depth_key: str = "num_target_layers"
    renames: tuple[tuple[str, str], ...] = ()
    copies_vocabulary: bool = False
    left_out: str = ""
    confidence_sees_markov: bool = True

    def fits(self, config: Mapping[str, Any], found: Collection[str]) -> bool:
        """Whether a checkpoint with one of its class names is of this packaging."""
        return all(_has(config, mark) for mark in self.marks) and (
            not self.tensor or any(name.startswith(self.tensor) for name in found)
        )

    def drops(self, tensor: str, found: Collection[str]) -> bool:
        """Whether a tensor (by the authors' name) is a copy of the target's, or not needed."""
        if self.left_out and tensor.startswith(self.left_out):
            return True
        copies = ("embed_tokens.weight", *(() if "d2t" in found else ("lm_head.weight",)))
        return self.copies_vocabulary and tensor in copies

    def renamed(self, tensor: str) -> str:
        """The authors' name of a tensor."""
        for pattern, name in self.renames:
            tensor = re.sub(pattern, name, tensor)
        return tensor


def _has(config: Mapping[str, Any], mark: str) -> bool:
    key, _, value = mark.partition("=")
    nested = config.get("dflash_config")
    found = [place.get(key) for place in (config, nested) if isinstance(place, dict)]
    return any(v is not None and (not value or v == value) for v in found)


@dataclass(frozen=True)
class Refusal:
    """A known kind of drafter that is not converted, and why. Any one of its marks is enough: a class name or a
    pattern of them; a tensor with the prefix or pattern; a key of config.json with one of the values (none: any
    value)."""

    name: str
    reason: str
    architectures: tuple[str, ...] = ()
    class_pattern: str = ""
    tensors: tuple[str, ...] = ()
    pattern: str = ""
    key: str = ""
    values: tuple[Any, ...] = ()

    def _fits(self, class_name: str) -> bool:
        return bool(self.class_pattern and re.search(self.class_pattern, class_name))

    def mark(self, config: Mapping[str, Any], names: Collection[Any], found: Collection[str]) -> str | None:
        """The key or tensor that shows this kind; None: it is another."""
        if any(name in self.architectures or self._fits(str(name)) for name in names):
            return "architectures"
        for place in (config, config.get("dflash_config")):
            value = place.get(self.key) if self.key and isinstance(place, dict) else None
            if value is not None and (not self.values or value in self.values):
                return self.key
        for tensor in found:
            if tensor.startswith(self.tensors) or (self.pattern and re.search(self.pattern, tensor)):
                return tensor
        return None


_REFUSALS = (
    Refusal(
        "EAGLE",
        "it drafts token by token; 'dflash-local bench --baseline eagle3=HEAD.gguf' measures it in upstream's server",
        class_pattern=r"Eagle(?!2)",  # as LlamaForCausalLMEagle3 and Eagle3Speculator; Eagle2_5_VL is a model of images
        key="speculators_model_type",
        values=("eagle", "eagle3", "peagle"),
    ),
    Refusal(
        "a drafter inside DeepSeek-V4",
        "its layers are DeepSeek-V4's own, saved with the target (dspark_* keys, mtp.* tensors)",
        architectures=("DeepseekV4DSparkModel", "DeepseekV4ForCausalLM"),
        tensors=("mtp.",),
        key="dspark_noise_token_id",
    ),
    Refusal(
        "Kimi-K3's DSpark",
        "its attention is K3's own (latent keys and values), and what its taps were trained on is not published",
        architectures=("K3DSparkModel", "KimiK3DSparkModel", "k3_dspark"),
        pattern=r"\.self_attn\.kv_a_proj",
        key="model_type",
        values=("k3_dspark",),
    ),
    Refusal(
        "a Qwen3.5-shaped DSpark",
        "it gates its attention and stores every norm as the distance from one",
        architectures=("Qwen35DSparkModel",),
    ),
    Refusal(
        "a DSpark drafter whose Markov head depends on hidden states",
        "the GGUF dialect has only the vanilla Markov head, over pairs of tokens",
        pattern=r"markov_head\.(gate|joint)_proj\.",
        key="markov_head_type",
        values=("gated", "rnn"),
    ),
    Refusal(
        "a GIDD drafter",
        "it tells each row how noisy it is (log_snr_conditioning), which the GGUF dialect cannot say",
        pattern=r"(^|\.)log_snr_embed\.",
        key="log_snr_conditioning",
        values=(True,),
    ),
    Refusal(
        "a drafter with experts",
        "the GGUF dialect has only dense feed-forward layers",
        pattern=r"\.mlp\.(experts|gate|shared_experts?)\.",
    ),
    Refusal(
        "a drafter with NVFP4 or FP8 weights",
        "the GGUF dialect has no types like theirs: give the checkpoint in bfloat16",
        pattern=r"\.weight_scale(_2|_inv)?$",
    ),
    Refusal(
        "DFly",
        "it corrects the hidden state of each row by the token before it, so that every row needs a whole pass of the "
        "target's head before the next one",
        architectures=("Qwen3DFlyModel", "Qwen3DSparkDFlareV2Model"),
        tensors=("hidden_correction.",),
    ),
    Refusal(
        "Laguna's DFlash",
        "it gates each attention head and normalizes each tap, for a target (laguna) without taps",
        architectures=("DFlashLagunaForCausalLM",),
        tensors=("aux_hidden_norms.",),
    ),
    Refusal(
        "Muse Glimmer's assistant",
        "it has its own names of settings and tensors; ggml-org publishes it as a GGUF of the dialect "
        "that this converter writes (dflash-Muse-Glimmer-30B-*.gguf)",
        architectures=("MuseGlimmerAssistantModel",),
    ),
    Refusal(
        "xpress",
        "it refines its block by repeated passes of its own head, and no checkpoint is published",
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

_DEEPSPEC_NAMES = ((r"^backbone\.", ""), (r"^confidence_proj\.", "confidence_head.proj."))
_DOMINO_NAMES = ((r"^logit_head\.", ""),)  # older checkpoints wrap the head

# the first match counts
_PACKAGINGS = (
    Packaging("MiMo", ("DFlashDraftModel",), partial_rotary=True, marks=("backbone_rotary_base",)),
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
    Packaging(
        "speculators DSpark",
        ("DSparkDraftModel", "DSparkSpeculator"),
        marks=("transformer_layer_config",),
        copies_vocabulary=True,
    ),
    Packaging(
        "SpecForge DSpark",
        ("DSparkDraftModel",),
        samples_from_anchor=True,
        marks=("projector_type=dspark",),
        confidence_sees_markov=False,
    ),
    Packaging("DSpark", ("DSparkDraftModel", "DSparkSpeculator"), samples_from_anchor=None, copies_vocabulary=True),
    Packaging(
        "ModelOpt DSpark",
        ("Qwen3DSparkModel",),
        samples_from_anchor=None,
        marks=("dspark_fixup_head_type=markov",),
        copies_vocabulary=True,
    ),
    Packaging(
        "DeepSpec",
        ("Qwen3DSparkModel",),
        samples_from_anchor=True,
        renames=_DEEPSPEC_NAMES,
        copies_vocabulary=True,
    ),
    Packaging(
        "DeepSpec for Gemma 4",
        ("Gemma4DSparkModel",),
        samples_from_anchor=True,
        is_gemma4=True,
        renames=_DEEPSPEC_NAMES,
        copies_vocabulary=True,
    ),
    Packaging("LiquidAI DSpark", ("Lfm2DSparkDraftModel",), samples_from_anchor=True),
    Packaging("Ling DSpark", ("LingDSparkModel",), samples_from_anchor=True),
    Packaging(
        "DFlash with a Markov head",
        ("DFlashDraftModel", "DFlashSpeculator", "QwenDFlashDraftModel"),
        samples_from_anchor=None,
        tensor="markov_head.",
    ),
    Packaging(
        "SpecForge Domino", ("DominoDraftModel",), anchor_key="shift_label", kind="Domino", renames=_DOMINO_NAMES
    ),
    Packaging(
        "SpecForge Domino",
        ("DFlashDraftModel",),
        anchor_key="shift_label",
        kind="Domino",
        marks=("projector_type=domino",),
        renames=_DOMINO_NAMES,
    ),
    Packaging("ModelOpt LiliCorr", ("LiLiCorrDraftModel",), kind="LiliCorr"),
    Packaging("ModelOpt LiliCorr", ("DFlashDraftModel",), kind="LiliCorr", marks=("projector_type=lilicorr",)),
    Packaging("DFlash", ("DFlashDraftModel", "DFlashSpeculator", "QwenDFlashDraftModel")),
    Packaging("DFlash 2", ("DFlash2DraftModel",), kind="DFlash 2"),
    Packaging("DFlare", ("QwenDFlareDraftModel",), kind="DFlare"),
    Packaging(
        "Gemma 4's assistant",
        ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"),
        is_assistant=True,
        left_out="masked_embedding.",  # an index into the output projection, which llama.cpp computes whole
    ),
)


def recognise(config: Mapping[str, Any], found: Collection[str]) -> Packaging:
    """The packaging of the checkpoint with this config.json and these tensor names. Raises ConvertError."""
    names = config.get("architectures")
    if isinstance(names, list):
        _refuse(config, names, found)
        for packaging in _PACKAGINGS:
            if any(name in packaging.architectures for name in names) and packaging.fits(config, found):
                return packaging
    known = ", ".join(dict.fromkeys(name for packaging in _PACKAGINGS for name in packaging.architectures))
    shown = ", ".join(map(str, names)) if isinstance(names, list) and names else "not given"
    raise ConvertError(
        f"config.json: the architecture is {shown}; this converter takes {known}",
        field="architectures",
        hint="give the directory of a DFlash drafter, not of the target",
    )


def _refuse(config: Mapping[str, Any], names: list[Any], found: Collection[str]) -> None:
    for refusal in _REFUSALS:
        if (mark := refusal.mark(config, names, found)) is not None:
            raise ConvertError(
                f"the checkpoint is {refusal.name}, which dflash-local does not draft with: {refusal.reason}",
                field=mark,
                hint="docs/drafters.md names the kinds of drafters that run",
            )


def samples_from_anchor(keys: Keys, packaging: Packaging) -> bool:
    """Whether a block's first row proposes a token, by config.json or else the packaging. Raises ConvertError."""
    stated = keys.maybe_flag("sample_from_anchor")
    if stated is not None:
        return stated
    bonus = keys.maybe_flag("dspark_bonus_anchor")
    if bonus is not None:
        return not bonus
    tokens = _speculative_tokens(keys)
    if tokens is not None and (n_silent := keys.integer("block_size", 16) - tokens) in (0, 1):
        return n_silent == 0
    if packaging.anchor_key:
        return keys.flag(packaging.anchor_key, False)
    if packaging.samples_from_anchor is None:
        raise wrong(
            "sample_from_anchor",
            "it is missing, and nothing else shows which row of a block proposes first: ask the drafter's publisher "
            "whether the anchor's does",
        )
    return packaging.samples_from_anchor


def _speculative_tokens(keys: Keys) -> int | None:
    """The number of tokens that a block proposes, by the speculators library's key; None without it."""
    settings = keys.find("speculators_config")[1]
    methods = settings.get("proposal_methods") if isinstance(settings, dict) else None
    listed = methods if isinstance(methods, list) else []
    tokens = [method.get("speculative_tokens") for method in listed if isinstance(method, dict)]
    return tokens[0] if tokens and type(tokens[0]) is int else None
