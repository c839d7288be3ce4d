"""DrafterFile: a drafter as its GGUF has it, to go on from or new, and the writer of the trained one."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_VERSION

from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.conversion import convert
from dflash_local.convert.dialects import as_text
from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, read_model, string, u32
from dflash_local.convert.gguf_parts import is_gguf
from dflash_local.convert.kinds import KINDS, DFlash2, DSpark
from dflash_local.convert.names import ARCH, OPTIONAL, metadata, sources, tensors
from dflash_local.convert.outtypes import RowQuantizer, find_outtype, quantized
from dflash_local.convert.rope import yarn_scale
from dflash_local.convert.target import MASK_TOKEN, TOKENS, Target
from dflash_local.convert.tensor_spec import TensorSpec
from dflash_local.convert.writer import OutputTensor, write_drafter
from dflash_local.errors import ConvertError, ModelError, RequestError
from dflash_local.train.tensors_file import write_tensors

HISTORY = "dflash_local.training"
Values = Mapping[str, npt.NDArray[np.float32]]

# Tensors that stay as they are; the others are trained.
EMBEDDINGS, HEAD, D2T, FACTORS, MASK_ROW = (
    "token_embd.weight", "output.weight", "d2t", "rope_freqs.weight", "mask_embd.weight",
)  # fmt: skip
MARKOV = "markov_w1.weight"
_FROZEN = {EMBEDDINGS, HEAD, D2T, FACTORS, MASK_ROW}
_DFLASH2 = "DFlash2DraftModel"
_NEW_MARKOV = (MARKOV, "markov_w2.weight", "conf_proj.weight", "conf_proj.bias")


@dataclass(frozen=True)
class DrafterFile:
    """`keys` are all keys of the GGUF; `settings` the same as the authors' config.json; `values` the numbers of trained
    tensors by their checkpoint names; `frozen` the other tensors by their GGUF names. `n_ff_before`: the units of each
    feed-forward part before they were `narrowed`; `kind_before`: what it was before it was `grown`."""

    config: DrafterConfig
    settings: dict[str, Any]
    keys: dict[str, Value]
    specs: list[TensorSpec]
    values: dict[str, npt.NDArray[np.float32]]
    frozen: dict[str, StoredGgufTensor] = field(default_factory=dict)
    n_ff_before: int | None = None
    kind_before: str | None = None

    @property
    def kind(self) -> str:
        """ "dflash", "dflash2" or "dspark"."""
        return {DFlash2: "dflash2", DSpark: "dspark"}.get(type(self.config.kind), "dflash")

    @property
    def block(self) -> int:
        """Its length, as --block says it."""
        return self.config.block_size

    @classmethod
    def read(cls, path: Path, target: Target, work: Path) -> DrafterFile:
        """From a GGUF or a Hugging Face folder, which is converted in the folder `work`.

        Raises:
            ConvertError, ModelError: it is damaged, or of a kind that is not trained.
        """
        if path.is_dir():
            converted = work / "init.gguf"
            convert(path, target.path, converted, outtype="f32")
            return cls.read(converted, target, work)
        stored, form = cls.read_form(path, target)
        values = {spec.source: stored[spec.name].numbers() for spec in form.specs if spec.name not in _FROZEN}
        return replace(form, values=values)

    @classmethod
    def read_form(cls, path: Path, target: Target) -> tuple[dict[str, StoredGgufTensor], DrafterFile]:
        """All tensors of a GGUF, and what `read` makes of its header alone: without `values`. Raises its errors."""
        if not path.exists() or not is_gguf(path):
            raise RequestError(
                f"{path} is no drafter", param="--init", hint="give a drafter's GGUF, or its Hugging Face folder"
            )
        keys, stored = read_model(path)
        settings = settings_of(keys, stored, target, path.name)
        config, specs = _understood(settings, target, stored)
        expected = {spec.name for spec in specs}
        if missing := sorted(expected - stored.keys()):
            raise ConvertError(f"{path.name}: the tensor {missing[0]!r} is missing", field=missing[0])
        if strange := sorted(stored.keys() - {FACTORS} - expected):
            raise ConvertError(f"{path.name}: the tensor {strange[0]!r} is not one that is trained", field=strange[0])
        frozen = {name: tensor for name, tensor in stored.items() if name in _FROZEN}
        return stored, cls(config, settings, _with_tokens_of(target, keys, stored, path.name), specs, {}, frozen)

    @classmethod
    def new(cls, settings: dict[str, Any], target: Target, name: str, seed: int) -> DrafterFile:
        """A drafter that knows nothing, of the shape of `settings` (new_settings). Raises ConvertError."""
        config, specs = _new_form(settings, target)
        rng = np.random.default_rng(seed)
        values = {spec.source: _beginning(spec, rng) for spec in specs if spec.name not in _FROZEN}
        return cls(config, settings, metadata(config, target, name), specs, values)

    @staticmethod
    def new_shapes(settings: dict[str, Any], target: Target) -> tuple[DrafterConfig, dict[str, tuple[int, ...]]]:
        """What `new` makes, without its numbers: the shapes of `values`. Raises ConvertError."""
        config, specs = _new_form(settings, target)
        return config, {spec.source: spec.shape for spec in specs if spec.name not in _FROZEN}

    def narrowed(self, n_ff: int, target: Target) -> DrafterFile:
        """The same with feed-forward parts of `n_ff` units, fewer than it has: of each layer those that can write most,
        by the product of the norms of their row of gate and up and their column of down."""
        values = dict(self.values)
        for layer in range(self.config.n_layer):
            gate, up, down = (f"layers.{layer}.mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
            norms = [np.linalg.norm(values[name], axis=axis) for name, axis in ((gate, 1), (up, 1), (down, 0))]
            kept = np.sort(np.argsort(-np.prod(norms, axis=0), kind="stable")[:n_ff])
            values |= {gate: values[gate][kept], up: values[up][kept], down: values[down][:, kept]}
        settings = {**self.settings, "intermediate_size": n_ff}
        config, specs = _understood(settings, target, {spec.name for spec in self.specs})
        return replace(
            self, config=config, settings=settings, keys={**self.keys, f"{ARCH}.feed_forward_length": u32(n_ff)},
            specs=specs, values=values, n_ff_before=self.config.n_ff,
        )  # fmt: skip

    def grown(self, kind: str, target: Target, seed: int) -> DrafterFile:
        """The same, a DFlash drafter, with new parts of `kind`: "dflash2" or "dspark". They change no draft yet,
        but for the selector's small first numbers. Raises RequestError if it proposes a part of the tokens, and the
        kind cannot."""
        new = new_kind(kind, self.config.n_embd)
        names = {spec.name for spec in self.specs}
        added: dict[str, Any]
        if kind == "dflash2":
            added = {"architectures": [_DFLASH2], "dflash_config": {**self.settings["dflash_config"], **new}}
        else:
            names |= set(_NEW_MARKOV)
            added = {"sample_from_anchor": self.config.samples_from_anchor, **new}
        settings = {**self.settings, **added}
        config, specs = _understood(settings, target, names)
        if D2T in self.frozen and (why := config.kind.needs_all_tokens):
            raise RequestError(
                f"--kind {kind} is not for a drafter that proposes {self.config.n_vocab_draft} tokens: its {why[0]} "
                "needs all of them",
                param="--kind",
                hint="give the drafter with its whole head to --init, or leave --kind out",
            )
        rng = np.random.default_rng(seed)
        begun = {spec.source: _beginning(spec, rng) for spec in specs if spec.name not in _FROZEN}
        keys = {f"{ARCH}.{key}": value for key, value in config.kind.metadata().items()}
        return replace(
            self, config=config, settings=settings, keys={**self.keys, **keys}, specs=specs,
            values={**begun, **self.values}, kind_before=self.kind,
        )  # fmt: skip

    # ---- writing ----

    def write(
        self,
        path: Path,
        values: Values,
        outtype: str,
        history: Mapping[str, Any],
        ggml: RowQuantizer | None = None,
        *,
        fc_type: str | None = None,
    ) -> None:
        """Write the drafter with these values as a GGUF, whole or not at all. Raises ConvertError."""
        chosen = find_outtype(outtype, fc_type)
        keys = {**self.keys, HISTORY: string(json.dumps(history))}
        keys["general.file_type"] = u32(chosen.file_type)
        keys["general.quantization_version"] = u32(GGML_QUANT_VERSION)
        outputs = [OutputTensor.of(tensor) for tensor in self.frozen.values()]
        for spec in self.specs:
            if spec.name not in _FROZEN:
                outputs.append(_output(spec, values[spec.source], chosen.of(spec, "BF16"), ggml))
        write_drafter(path, keys, outputs, None)

    def check_checkpoint(self) -> None:
        """Raise ConvertError where the authors' form cannot say what the GGUF does."""
        if FACTORS in self.frozen:
            raise ConvertError(
                "a drafter with a table of rotation factors cannot be written as a Hugging Face folder",
                field=FACTORS,
                hint="leave --hf out",
            )
        biases = [name for name in self.values if name.endswith(".bias") and ".self_attn." in name]
        if biases and not self.settings["attention_bias"]:  # of theirs, all four projections have one, or none
            raise ConvertError(
                "a drafter with biases in a part of its attention cannot be written as a Hugging Face folder",
                field=biases[0],
                hint="leave --hf out",
            )

    def write_checkpoint(self, folder: Path, values: Values) -> None:
        """Write the authors' form: config.json and model.safetensors, in bfloat16. Raises the errors of
        `check_checkpoint`."""
        self.check_checkpoint()
        from dflash_local.train.shards import bfloat16

        kept = {OPTIONAL[name]: tensor.numbers() for name, tensor in self.frozen.items() if name in OPTIONAL}
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, npt.NDArray[Any]] = {
            name: bfloat16(np.ascontiguousarray(value, np.float32)) for name, value in {**kept, **values}.items()
        }
        if D2T in self.frozen:
            stored = self.frozen[D2T]
            tokens = stored.rows(0, 1).view(np.int64).reshape(-1)
            arrays["d2t"] = tokens - np.arange(tokens.size)
        write_tensors(folder / "model.safetensors", arrays, {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(self.settings, indent=2) + "\n", encoding="utf-8")


def _understood(
    settings: dict[str, Any], target: Target, names: Collection[str]
) -> tuple[DrafterConfig, list[TensorSpec]]:
    found = sources(names)
    config = DrafterConfig.read(settings, target, found)
    return config, [spec for spec in tensors(config, found) if spec.name != FACTORS]


def _new_form(settings: dict[str, Any], target: Target) -> tuple[DrafterConfig, list[TensorSpec]]:
    return _understood(settings, target, _NEW_MARKOV if "markov_rank" in settings else ())


def _output(
    spec: TensorSpec, values: npt.NDArray[np.float32], kind: GGMLQuantizationType, ggml: RowQuantizer | None
) -> OutputTensor:
    def chunks() -> Iterator[npt.NDArray[Any]]:
        yield quantized(values.reshape(-1, spec.shape[-1]), kind, spec.name, ggml)

    return OutputTensor(spec.name, spec.shape, kind, chunks)


def _beginning(spec: TensorSpec, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """First values: norms are ones, convolutions the identity, corrections nothing, all else small numbers."""
    if spec.name.endswith("_conv_base"):
        kernel = np.zeros(spec.shape, np.float32)
        kernel[:, 0] = 1.0
        return kernel
    if "_conv_proj" in spec.name or spec.name in ("markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        return np.zeros(spec.shape, np.float32)
    if len(spec.shape) == 1:
        value = 0.0 if spec.name.endswith(".bias") else 1.0
        return np.full(spec.shape, value, np.float32)
    deviation = 0.05 if spec.name.startswith("selector_") else 0.02
    return (deviation * rng.standard_normal(spec.shape, np.float32)).astype(np.float32)


# ---- settings as in config.json ----


def settings_of(
    keys: Mapping[str, Value], stored: Mapping[str, StoredGgufTensor], target: Target, name: str
) -> dict[str, Any]:
    """The authors' config.json of a drafter GGUF with these keys. Raises ConvertError for a kind that is not trained,
    ModelError for a file that is not a drafter of this target."""
    if as_text(keys["general.architecture"]) != ARCH:
        raise ConvertError(
            f"{name} is not a drafter of architecture {ARCH!r}",
            field="general.architecture",
            hint="another dialect becomes one by 'dflash-local convert'; --kind mtp goes on with a model's MTP layer",
        )
    found = {key.removeprefix(f"{ARCH}."): value.data for key, value in keys.items() if key.startswith(f"{ARCH}.")}
    for key, what in _UNTRAINED.items():
        if key in found or key in stored:
            raise ConvertError(f"{name}: {what} is not trained here", field=key)
    for key in (*(f"{ARCH}.{key}" for key in _NEEDED), MASK_TOKEN):
        if key not in keys:
            raise ModelError(f"{name}: the key {key!r} is missing", field=key)
    _check_rotation(found, name)
    _check_biases(stored, found["block_count"], name)
    if found["embedding_length"] != target.n_embd:
        raise ModelError(
            f"{name} was trained for a target of width {found['embedding_length']}, {target.path.name} has "
            f"{target.n_embd}",
            field=f"{ARCH}.embedding_length",
            hint="give the drafter of this model, or of one that it was made from",
        )
    shapes = {tensor.name: tensor.shape for tensor in stored.values()}
    return _settings(found, shapes, target, keys[MASK_TOKEN].data)


def _check_rotation(found: Mapping[str, Any], name: str) -> None:
    """Raise ConvertError if not all of a head rotates, which the authors' config.json cannot say."""
    head_dim = found.get("attention.key_length", found["embedding_length"] // found["attention.head_count"])
    n_dims = found.get("rope.dimension_count", head_dim)
    if n_dims < head_dim:
        raise ConvertError(
            f"{name}: a drafter that rotates {n_dims} of a head's {head_dim} dimensions is not trained here",
            field=f"{ARCH}.rope.dimension_count",
            hint="if the key was copied from the target by mistake, 'dflash-local convert' takes it out",
        )


def _check_biases(stored: Mapping[str, StoredGgufTensor], n_layer: int, name: str) -> None:
    """Raise ConvertError if layers differ in which projections have biases."""
    for part in _PROJECTIONS:
        biases = [f"blk.{layer}.attn_{part}.bias" for layer in range(n_layer)]
        found = [bias for bias in biases if bias in stored]
        if found and found != biases:
            why = f"{name}: a drafter with biases in a part of its layers is not trained here"
            raise ConvertError(why, field=found[0])


def _with_tokens_of(
    target: Target, keys: Mapping[str, Value], stored: Mapping[str, StoredGgufTensor], name: str
) -> dict[str, Value]:
    """The keys with the target's tokens: a finetune may have more than the drafter has seen. Raises ModelError if the
    drafter has tensors for other tokens."""
    n_tokens = len(keys[TOKENS].data) if TOKENS in keys else target.n_vocab
    own = [tensor.name for tensor in stored.values() if len(tensor.shape) > 1 and tensor.shape[0] == n_tokens]
    if own and n_tokens != target.n_vocab:
        raise ModelError(
            f"{name} has {n_tokens} tokens and {own[0]!r} for them, {target.path.name} has {target.n_vocab} tokens",
            field=TOKENS,
            hint="give a drafter that uses its target's embeddings and head, or train a new one: without --init",
        )
    others = {key: value for key, value in keys.items() if not key.startswith("tokenizer.")}
    return {**others, **target.tokenizer, MASK_TOKEN: keys[MASK_TOKEN]}


_NEEDED = ("block_count", "embedding_length", "attention.head_count", "feed_forward_length",
           "attention.layer_norm_rms_epsilon", "context_length", "block_size", "target_layers")  # fmt: skip
_UNTRAINED = {
    "attention.scale": "a drafter with the layers of Gemma 4",
    "backbone_rotary_base": "a drafter whose injected keys rotate otherwise (MiMo)",
    "blk.0.attn_sinks.weight": "a drafter with attention sinks",
    **{kind.key: f"a {kind.name} drafter" for kind in KINDS if not kind.trains},
}
# keys that have other names in config.json
_SCALES = {
    "embedding_scale": "input_embedding_scale",
    "logit_scale": "output_multiplier",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.value_scale": "attention_value_scale",
}
_PROJECTIONS = ("q", "k", "v", "output")  # of attention: with `attention_bias` each has one, else as there are tensors
_SAME = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k", "selector_vocab_size")


def _settings(
    found: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], target: Target, mask_token: int
) -> dict[str, Any]:
    """The authors' config.json of a drafter with these keys of a GGUF (without "dflash.") and shapes of tensors."""
    n_layer, n_embd, n_head = found["block_count"], found["embedding_length"], found["attention.head_count"]
    places = _SCALES | dict(zip(_SAME, _SAME, strict=True))
    settings: dict[str, Any] = {
        "architectures": [_DFLASH2 if DFlash2.key in found else "DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": n_layer,
        "hidden_size": n_embd,
        "intermediate_size": found["feed_forward_length"],
        "num_attention_heads": n_head,
        "num_key_value_heads": found.get("attention.head_count_kv", n_head),
        "head_dim": found.get("attention.key_length", n_embd // n_head),
        "rms_norm_eps": found["attention.layer_norm_rms_epsilon"],
        "max_position_embeddings": found["context_length"],
        "hidden_act": _text(found.get("hidden_activation", b"silu")),
        "attention_bias": all(
            f"blk.{layer}.attn_{part}.bias" in shapes for layer in range(n_layer) for part in _PROJECTIONS
        ),
        "vocab_size": target.n_vocab,
        "num_target_layers": target.n_layer,
        "tie_word_embeddings": False,
        "block_size": found["block_size"],
        "rope_parameters": _rope(found),
        "dflash_config": {
            "mask_token_id": mask_token,
            "target_layer_ids": [layer - 1 for layer in found["target_layers"]],
            **{place: found[key] for key, place in places.items() if key in found},
        },
    }
    if "sample_from_anchor" in found or MARKOV in shapes:
        settings["sample_from_anchor"] = bool(found.get("sample_from_anchor", False))
    if D2T in shapes:
        settings["draft_vocab_size"] = shapes[D2T][-1]
    if MARKOV in shapes:
        settings["markov_rank"] = shapes[MARKOV][-1]
    return settings | _attention(found, n_layer)


def _text(value: Any) -> str:
    return bytes(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)


def _rope(found: Mapping[str, Any]) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": found.get("rope.freq_base", 10000.0)}
    kind = _text(found.get("rope.scaling.type", b"none"))
    if kind in ("linear", "yarn"):
        rope |= {"rope_type": kind, "factor": found["rope.scaling.factor"]}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = found["rope.scaling.original_context_length"]
        for key, name in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
            if f"rope.scaling.{key}" in found:
                rope[name] = found[f"rope.scaling.{key}"]
        if "rope.scaling.attn_factor" in found:
            rope["attention_factor"] = found["rope.scaling.attn_factor"] * yarn_scale(rope["factor"])
    return rope


def _attention(found: Mapping[str, Any], n_layer: int) -> dict[str, Any]:
    window = found.get("attention.sliding_window", 0)
    pattern = found.get("attention.sliding_window_pattern", [True] * n_layer) if window else [False] * n_layer
    causal = {"is_causal": bool(found["attention.causal"])} if "attention.causal" in found else {}
    return {
        "layer_types": ["sliding_attention" if slides else "full_attention" for slides in pattern],
        "sliding_window": window or None,
        "use_sliding_window": bool(window),
        **causal,
    }


def new_settings(
    target: Target,
    keys: Mapping[str, Value],
    kind: str,
    *,
    layers: int,
    block: int,
    taps: Sequence[int],
    mask_token: int,
    feed_forward: int | None = None,
) -> dict[str, Any]:
    """The authors' config.json of a new drafter, in the shape of the target's own layers where they say it. `taps`:
    Hugging Face layer ids; `feed_forward` None: as wide as the target's, at most four times the hidden states."""
    n_embd = target.n_embd

    def number(key: str, default: float) -> Any:
        value = keys.get(f"{target.arch}.{key}")
        return value.data if value is not None and type(value.data) in (int, float) and value.data else default

    head_dim = int(number("attention.key_length", 0)) or n_embd // int(number("attention.head_count", n_embd // 64))
    if not 32 <= head_dim <= 128 or head_dim % 2:
        head_dim = 128 if n_embd % 128 == 0 else 64
    n_head = max(n_embd // head_dim, 1)
    found: dict[str, Any] = {
        "block_count": layers,
        "embedding_length": n_embd,
        "feed_forward_length": feed_forward or min(int(number("feed_forward_length", 3 * n_embd)), 4 * n_embd),
        "attention.head_count": n_head,
        "attention.head_count_kv": math.gcd(n_head, int(number("attention.head_count_kv", max(n_head // 4, 1)))),
        "attention.key_length": head_dim,
        "attention.layer_norm_rms_epsilon": number("attention.layer_norm_rms_epsilon", 1e-6),
        "context_length": int(number("context_length", 8192)),
        "rope.freq_base": number("rope.freq_base", 10000.0),
        "block_size": block,
        "target_layers": [layer + 1 for layer in taps],
    }
    if kind == "dflash2":
        found |= {"attention.causal": False, **new_kind(kind, n_embd)}
    if target.logit_softcap:
        found["final_logit_softcapping"] = target.logit_softcap
    if target.arch.startswith("gemma"):
        found["embedding_scale"] = math.sqrt(n_embd)
    shapes = {MARKOV: (target.n_vocab, new_kind(kind, n_embd)["markov_rank"])} if kind == "dspark" else {}
    return _settings(found, shapes, target, mask_token)


def new_kind(kind: str, n_embd: int) -> dict[str, int]:
    """What config.json says of the parts that a kind adds to a DFlash drafter, where they are new."""
    rank = 64 if n_embd <= 1024 else 256
    dflash2 = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": rank, "selector_top_k": 8}
    return {"dflash2": dflash2, "dspark": {"markov_rank": rank}}[kind]


def spread_taps(n_layer: int, n_taps: int = 5) -> tuple[int, ...]:
    """Hugging Face ids of `n_taps` layers, evenly from the second to the third but last (build_target_layer_ids of the
    authors); small targets have fewer."""
    n_taps = min(n_taps, max(1, n_layer // 2))
    if n_taps == 1:
        return (n_layer // 2,)
    first, last = (1, n_layer - 3) if n_layer > 8 else (0, max(n_layer - 2, 1))
    return tuple(dict.fromkeys(round(first + i * (last - first) / (n_taps - 1)) for i in range(n_taps)))


def choose_mask_token(target: Target, used: set[int]) -> int:
    """A token that no text holds, to stand for what is to be drafted: a control or unused one, if there is any. Raises
    RequestError."""
    if target.mask_token is not None:
        return target.mask_token
    types = target.tokenizer.get("tokenizer.ggml.token_type")
    special = {value.data for key, value in target.tokenizer.items() if key.endswith("_token_id")}
    free = [token for token in range(target.n_vocab) if token not in used and token not in special]
    ranks = {5: 0, 3: 1}  # LLAMA_TOKEN_TYPE_UNUSED, _CONTROL
    best = min(free, key=lambda token: (ranks.get(types.data[token], 2) if types else 2, -token), default=None)
    if best is None:
        raise RequestError("the texts use every token: there is none to stand for what is to be drafted")
    return best
