# ruff: noqa: RUF009  _option() makes a dataclasses.field()
"""EngineOptions: everything that can be chosen when an engine is made.

An option is one field, and everything else is derived from it:

* the keyword argument of `Engine` (engine.py),
* the field of dflash_engine_params (native/; the fields stand in the header's order),
* the command line flag and its environment variable (cli/flags/engine_flags.py),
* whether its value changes what a pass costs, and so which measured pass times hold (machine/costs.py),
* its text in --help, `help(EngineOptions)` and docs/options.md.

So a new option is a field of dflash_engine_params in dflash.h, a field here, and the C++ that reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_bool, c_char_p, c_float, c_int32, c_uint32, c_uint64
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Literal, get_args

from dflash_local.arguments import check_fields
from dflash_local.draft_options import (
    Accept,
    Budget,
    Draft,
    DraftKind,
    DraftVocab,
    accept_rule,
    budget_nodes,
    draft_kind_id,
    draft_mode,
    draft_tokens,
    draft_vocab_tokens,
)
from dflash_local.errors import RequestError
from dflash_local.option import Option, defaults_of, native_params, options_of, with_arguments

FlashAttention = Literal["auto", "on", "off"]
SplitMode = Literal["none", "layer", "row", "tensor"]
AnyPath = str | os.PathLike[str]

_FLASH_MODES = {"auto": -1, "off": 0, "on": 1}
_INTEGER_MAX = 2**31 - 1  # also of the fields that are unsigned in C
AUTO_SLOTS = 4  # what -np -1 means, as in llama-server


@dataclass(frozen=True, kw_only=True)
class Flag:
    """How the command line names an option.

    With a metavar or choices it takes a value. Else the field is a bool: `names` switch it on, `off_names` off.
    """

    group: str  # one of FLAG_GROUPS
    names: tuple[str, ...] = ()
    env: str | None = None  # llama-server's variable
    metavar: str | None = None
    choices: tuple[str, ...] = ()  # also the metavar
    default_text: str | None = None  # where the command line's default differs from Python's
    silent: bool = False  # --help leaves it out
    off_names: tuple[str, ...] = ()
    off_help: str | None = None


@dataclass(frozen=True, kw_only=True)
class EngineOption(Option):
    """An option of the engine; `in_cost`: it changes what a pass costs."""

    in_cost: bool = False
    flag: Flag | None = None


def _flag(group: str, names: str = "", *, off: str = "", env: str | None = None, **facts: Any) -> Flag:
    """A Flag; `names` and `off`, those that switch it off, are separated by blanks; `env` goes without LLAMA_ARG_."""
    variable = f"LLAMA_ARG_{env}" if env else None
    return Flag(group=group, names=tuple(names.split()), off_names=tuple(off.split()), env=variable, **facts)


def _option(default: Any = None, **facts: Any) -> Any:
    return field(default=default, metadata={"option": EngineOption(**facts)})


def _cost_option(default: Any = None, **facts: Any) -> Any:
    """An option that changes what a pass costs."""
    return _option(default, in_cost=True, **facts)


def _optional_path(path: AnyPath | None) -> str | None:
    return None if path is None else os.fspath(path)


def _file_or_none(cost_cache: bool | AnyPath) -> str | None:
    return None if isinstance(cost_cache, bool) else os.fspath(cost_cache)  # True: Engine knows the file


def _flash_mode(flash_attn: str) -> int:
    if flash_attn not in _FLASH_MODES:
        raise RequestError(
            f"flash_attn must be one of {', '.join(_FLASH_MODES)}, got {flash_attn!r}", param="flash_attn"
        )
    return _FLASH_MODES[flash_attn]


def _check_range(name: str, value: int | None, low: int) -> None:
    if value is not None and not low <= value <= _INTEGER_MAX:
        allowed = f"at least {low}" if value < low else f"between {low} and {_INTEGER_MAX}"
        raise RequestError(f"{name} must be {allowed}, got {value}", param=name)


def _number_or_default(number: int | None) -> int:
    return number or 0


def _mib_or_auto(mib: int | None) -> int:
    return -2 if mib is None else mib


def _one_stream(kv_unified: bool | None) -> bool:
    return kv_unified is not False


def _similarity(share: float) -> float:
    if not 0 <= share <= 1:
        raise RequestError(f"slot_similarity must be between 0 and 1, got {share}", param="slot_similarity")
    return share


# The titles under which --help lists flags, in its order.
FLAG_GROUPS = ("models", "drafting", "context and batching", "machine", "chat template")
_MODELS, _DRAFTING, _CONTEXT, _MACHINE, _TEMPLATE = FLAG_GROUPS


@dataclass(frozen=True)
class EngineOptions:
    """The arguments of `Engine`; docs/options.md lists them with their flags.

    Raises:
        RequestError: a value is out of range; `param` names the field.
    """

    model: AnyPath = field(
        metadata={
            "option": EngineOption(
                help="the target, a GGUF file",
                native_type=c_char_p,
                native_value=os.fspath,
                flag=_flag(_MODELS, "-m --model", env="MODEL", metavar="GGUF"),
            )
        }
    )
    drafter: AnyPath | None = _option(
        help="its DFlash drafter, a GGUF file made by 'dflash-local convert', or MTP layers that were split off it; "
        "without one, its own MTP layers and prompt lookup draft",
        native_type=c_char_p,
        native_value=_optional_path,
        flag=_flag(_MODELS, "-md --model-draft --spec-draft-model", env="SPEC_DRAFT_MODEL", metavar="GGUF"),
    )
    _: KW_ONLY
    chat_template: str | None = _option(
        help="Jinja source to use instead of the model's own template, or the name of one of llama.cpp's (chatml, "
        "llama3, ...)",
        native_type=c_char_p,
        flag=_flag(_TEMPLATE, "--chat-template", env="CHAT_TEMPLATE", metavar="JINJA"),
    )
    fenced_calls: bool = _option(
        True,
        help="let Qwen2.5-Coder write tool calls as fenced code blocks, as it was trained to, instead of the tags its "
        "template asks for",
        flag=_flag(
            _TEMPLATE, off="--no-fenced-calls", off_help="use the template of Qwen2.5-Coder as it is in the file"
        ),
    )
    mmproj: AnyPath | None = _option(
        help="the target's projector, a GGUF file (mmproj), with which it reads images or audio",
        default_text="text only",
        native_type=c_char_p,
        native_value=_optional_path,
        flag=_flag(_MODELS, "-mm --mmproj", env="MMPROJ", metavar="GGUF"),
    )
    mmproj_offload: bool = _option(
        True,
        help="compute the projector on the target's first device of this machine",
        native_type=c_bool,
        flag=_flag(
            _MACHINE, "--mmproj-offload", env="MMPROJ_OFFLOAD", off="--no-mmproj-offload", off_help="on the CPU"
        ),
    )
    image_min_tokens: int = _option(
        0,
        help="tokens that an image takes at least, with models that read images of any size",
        default_text="the model's own",
        native_type=c_int32,
        low=0,
        flag=_flag(_MODELS, "--image-min-tokens", env="IMAGE_MIN_TOKENS", metavar="N"),
    )
    image_max_tokens: int = _option(
        0,
        help="tokens that an image takes at most, with models that read images of any size",
        default_text="the model's own",
        native_type=c_int32,
        low=0,
        flag=_flag(_MODELS, "--image-max-tokens", env="IMAGE_MAX_TOKENS", metavar="N"),
    )
    n_ctx: int = _option(
        0,
        help="context of all slots together, in tokens; 0: what the model was trained with, as far as memory allows",
        native_type=c_uint32,
        low=0,
        flag=_flag(_CONTEXT, "-c --ctx-size", env="CTX_SIZE", metavar="N"),
    )
    n_ctx_slot: int = _option(
        0,
        help="most tokens of one slot; without a context size, also sets it to this for each slot",
        default_text="no limit",
        native_type=c_uint32,
        low=0,
        flag=_flag(_CONTEXT, "--kv-unified-per-slot", env="KV_UNIFIED_PER_SLOT", metavar="N"),
    )
    n_slots: int = _cost_option(
        1,
        help="requests that run at the same time, each in a slot; -1: 4 slots that share the context",
        native_type=c_uint32,
        low=1,
        flag=_flag(_CONTEXT, "-np --parallel", env="N_PARALLEL", metavar="N", default_text="-1 in serve, else 1"),
    )
    kv_unified: bool | None = _cost_option(
        help="one KV stream for all slots: each may use all of the context that the others leave",
        default_text="each has an equal part, unless -1 slots were given",
        native_type=c_bool,
        native_value=_one_stream,
        flag=_flag(
            _CONTEXT,
            "-kvu --kv-unified",
            env="KV_UNIFIED",
            off="-no-kvu --no-kv-unified",
            off_help="a KV cache for each slot",
        ),
    )
    share_ctx: bool | None = _option(
        help="each slot may use all of the context that the others leave, instead of an equal part; needs kv_unified",
        default_text="by kv_unified and n_slots",
        native_type=c_bool,
    )
    n_batch: int = _option(
        2048,
        help="most prompt rows of one target pass",
        native_type=c_uint32,
        low=1,
        flag=_flag(_CONTEXT, "-b --batch-size", env="BATCH", metavar="N"),
    )
    n_ubatch: int = _cost_option(
        512,
        help="rows computed at once; prompts are read in chunks of this size",
        native_type=c_uint32,
        low=1,
        flag=_flag(_CONTEXT, "-ub --ubatch-size", env="UBATCH", metavar="N"),
    )
    flash_attn: FlashAttention = _cost_option(
        "auto",
        help="flash attention; auto: where the device has it",
        native_type=c_int32,
        native_value=_flash_mode,
        flag=_flag(_CONTEXT, "-fa --flash-attn", env="FLASH_ATTN", metavar="on|off|auto"),
    )
    swa_full: bool = _cost_option(
        False,
        help="sliding-window layers keep the whole context, as other layers do, instead of their window",
        native_type=c_bool,
        flag=_flag(_CONTEXT, "--swa-full", env="SWA_FULL"),
    )
    bit_exact: bool | None = _option(
        help="refuse to start unless drafted text equals plain text bit for bit; implies `swa_full`, which needs "
        "memory",
        default_text="bit for bit where that costs nothing, on most CPUs",
        flag=_flag(_CONTEXT, "--bit-exact", off="--no-bit-exact", off_help="allow differences"),
    )
    cache_type_k: str = _cost_option(
        "f16",
        help="KV cache type for K: f32, f16, bf16, q8_0, q4_0, ...",
        native_type=c_char_p,
        native_name="type_k",
        flag=_flag(_CONTEXT, "-ctk --cache-type-k", env="CACHE_TYPE_K", metavar="TYPE"),
    )
    cache_type_v: str = _cost_option(
        "f16",
        help="KV cache type for V: f32, f16, bf16, q8_0, q4_0, ...",
        native_type=c_char_p,
        native_name="type_v",
        flag=_flag(_CONTEXT, "-ctv --cache-type-v", env="CACHE_TYPE_V", metavar="TYPE"),
    )
    cache_type_k_draft: str = _cost_option(
        "f16",
        help="KV cache type for the drafter's K: f16 or f32",
        native_type=c_char_p,
        native_name="type_k_draft",
        flag=_flag(
            _CONTEXT, "-ctkd --cache-type-k-draft --spec-draft-type-k", env="SPEC_DRAFT_CACHE_TYPE_K", metavar="TYPE"
        ),
    )
    cache_type_v_draft: str = _cost_option(
        "f16",
        help="KV cache type for the drafter's V: f16 or f32",
        native_type=c_char_p,
        native_name="type_v_draft",
        flag=_flag(
            _CONTEXT, "-ctvd --cache-type-v-draft --spec-draft-type-v", env="SPEC_DRAFT_CACHE_TYPE_V", metavar="TYPE"
        ),
    )
    cache_ram: int | None = _option(
        help="host cache in MiB for conversations that no slot holds any more; -1: no limit, 0: none",
        default_text="8192, less if memory is short",
        native_type=c_int32,
        native_value=_mib_or_auto,
        low=-1,
        flag=_flag(_CONTEXT, "-cram --cache-ram", env="CACHE_RAM", metavar="MIB"),
    )
    cache_idle_slots: bool = _option(
        True,
        help="save the conversation of an idle slot to the host cache when others need its room",
        native_type=c_bool,
        flag=_flag(
            _CONTEXT, "--cache-idle-slots", env="CACHE_IDLE_SLOTS", off="--no-cache-idle-slots", off_help="drop it"
        ),
    )
    slot_similarity: float = _option(
        0.1,
        help="a prompt continues in the slot that holds more than this share of it; 0: never",
        native_type=c_float,
        native_value=_similarity,
        flag=_flag(_CONTEXT, "-sps --slot-prompt-similarity", metavar="SHARE"),
    )
    n_checkpoints: int = _option(
        2,
        help="checkpoints per slot, to which recurrent states and sliding windows can go back",
        native_type=c_int32,
        low=0,
        flag=_flag(_CONTEXT, "-ctxcp --ctx-checkpoints --swa-checkpoints", env="CTX_CHECKPOINTS", metavar="N"),
    )
    checkpoint_step: int = _option(
        64,
        help="least tokens between two checkpoints",
        native_type=c_int32,
        low=0,
        flag=_flag(_CONTEXT, "-cms --checkpoint-min-step", env="CHECKPOINT_MIN_SPACING_NT", metavar="N"),
    )
    device: str | None = _cost_option(
        help="devices that the target may use (--list-devices), or none",
        default_text="all",
        native_type=c_char_p,
        flag=_flag(_MACHINE, "-dev --device", env="DEVICE", metavar="A,B,..."),
    )
    device_draft: str | None = _cost_option(
        help="devices that the drafter may use",
        default_text="the one where the target's output is",
        native_type=c_char_p,
        flag=_flag(_MACHINE, "-devd --device-draft --spec-draft-device", metavar="A,B,..."),
    )
    rpc: str | None = _cost_option(
        help="RPC servers ('dflash-local rpc-server' on other machines) for layers of the target",
        native_type=c_char_p,
        flag=_flag(_MACHINE, "--rpc", env="RPC", metavar="HOST:PORT,..."),
    )
    n_gpu_layers: int = _cost_option(
        -1,
        help="target layers on the GPU",
        default_text="all",
        native_type=c_int32,
        flag=_flag(_MACHINE, "-ngl --gpu-layers --n-gpu-layers", env="N_GPU_LAYERS", metavar="N"),
    )
    n_gpu_layers_draft: int = _cost_option(
        -1,
        help="drafter layers on the GPU",
        default_text="all",
        native_type=c_int32,
        flag=_flag(
            _MACHINE,
            "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl",
            env="N_GPU_LAYERS_DRAFT",
            metavar="N",
        ),
    )
    main_gpu: int = _cost_option(
        0,
        help="the device to use when the model is not split; with rows split, the one for intermediate results",
        native_type=c_int32,
        flag=_flag(_MACHINE, "-mg --main-gpu", env="MAIN_GPU", metavar="N"),
    )
    split_mode: SplitMode | None = _cost_option(
        help="how to split the target over devices: whole layers, the rows of its weights (SYCL), weights and K/V "
        "(experimental), or not at all",
        default_text="layer",
        native_type=c_char_p,
        flag=_flag(_MACHINE, "-sm --split-mode", env="SPLIT_MODE", choices=get_args(SplitMode)),
    )
    tensor_split: str | None = _cost_option(
        help="the target's share on each device, such as 3,1",
        default_text="by free memory",
        native_type=c_char_p,
        flag=_flag(_MACHINE, "-ts --tensor-split", env="TENSOR_SPLIT", metavar="A,B,..."),
    )
    override_tensor: str | None = _cost_option(
        help="put the target's tensors with matching names into that buffer, such as 'ffn_.*_exps=CPU'",
        native_type=c_char_p,
        flag=_flag(_MACHINE, "-ot --override-tensor", env="OVERRIDE_TENSOR", metavar="REGEX=BUFFER,..."),
    )
    override_tensor_draft: str | None = _cost_option(
        help="put the drafter's tensors with matching names into that buffer",
        native_type=c_char_p,
        flag=_flag(_MACHINE, "-otd --override-tensor-draft --spec-draft-override-tensor", metavar="REGEX=BUFFER,..."),
    )
    cpu_moe: bool = _cost_option(
        False,
        help="the weights of all experts stay on the CPU",
        native_type=c_bool,
        flag=_flag(_MACHINE, "-cmoe --cpu-moe", env="CPU_MOE"),
    )
    n_cpu_moe: int = _cost_option(
        0,
        help="the experts' weights of the first N layers stay on the CPU",
        native_type=c_int32,
        low=0,
        flag=_flag(_MACHINE, "-ncmoe --n-cpu-moe", env="N_CPU_MOE", metavar="N"),
    )
    n_cpu_ffn: int = _cost_option(
        0,
        help="the dense feed-forward weights of the first N layers stay on the CPU",
        native_type=c_int32,
        low=0,
        flag=_flag(_MACHINE, "-ncffn --n-cpu-ffn", env="N_CPU_FFN", metavar="N"),
    )
    kv_offload: bool = _cost_option(
        True,
        help="keep K, V and states with their layers",
        native_type=c_bool,
        flag=_flag(
            _MACHINE,
            "-kvo --kv-offload",
            env="KV_OFFLOAD",
            off="-nkvo --no-kv-offload",
            off_help="keep them in the host's memory",
        ),
    )
    mmap: bool = _option(True, help="map the files instead of reading them", native_type=c_bool, native_name="use_mmap")
    mlock: bool = _option(False, help="keep the weights in memory", native_type=c_bool, native_name="use_mlock")
    host_memory: int = _option(0, help="bytes of free memory to assume; 0: as the system reports", native_type=c_uint64)
    fit: bool = _option(
        True,
        help="choose context, layers and shares, unless given, so that devices keep `fit_target` free; refuse what "
        "cannot fit before it is loaded",
        flag=_flag(_MACHINE, "-fit --fit", env="FIT", metavar="on|off"),
    )
    fit_target: str = _option(
        "1024",
        help="MiB that `fit` leaves free on each device; one for all, or one for each",
        flag=_flag(_MACHINE, "-fitt --fit-target", env="FIT_TARGET", metavar="MIB,MIB,..."),
    )
    fit_ctx: int = _option(
        4096,
        help="the least context of a slot that `fit` may choose",
        low=1,
        flag=_flag(_MACHINE, "-fitc --fit-ctx", env="FIT_CTX", metavar="N"),
    )
    n_threads: int | None = _cost_option(
        help="CPU threads",
        default_text="one for each physical core that may be used",
        native_type=c_int32,
        native_value=_number_or_default,
        flag=_flag(_MACHINE, "-t --threads", env="THREADS", metavar="N"),
    )
    n_threads_batch: int | None = _cost_option(
        help="CPU threads for prompts",
        default_text="as many as for steps",
        native_type=c_int32,
        native_value=_number_or_default,
        flag=_flag(_MACHINE, "-tb --threads-batch", metavar="N"),
    )
    warmup: bool = _option(
        True,
        help="run the first passes at the start, to measure this machine's costs",
        native_type=c_bool,
        flag=_flag(
            _MACHINE,
            "--warmup",
            silent=True,
            off="--no-warmup",
            off_help="skip the first passes that measure this machine's costs",
        ),
    )
    cost_cache: bool | AnyPath = _option(
        True,
        help="keep the measured costs on disk for the next start: in the cache folder, or in the file of this path",
        native_type=c_char_p,
        native_value=_file_or_none,
        flag=_flag(_MACHINE, off="--no-cost-cache", off_help="measure them at every start, without a file"),
    )
    draft_kind: DraftKind = _cost_option(
        "auto",
        help="what drafts, beside lookup: auto takes the drafter and the model's own next-token (MTP) layers, at each "
        "step whichever pays; dflash and mtp take one alone; lookup uses neither",
        native_type=c_int32,
        native_value=draft_kind_id,
        flag=_flag(_DRAFTING, "--draft-kind", choices=get_args(DraftKind)),
    )
    draft: Draft = _option(
        "tree",
        help="the shape that drafts may have; where the target cannot check trees, tree means chain",
        native_type=c_int32,
        native_value=draft_mode,
        flag=_flag(_DRAFTING, "--draft", choices=get_args(Draft)),
    )
    accept: Accept = _option(
        "match",
        help="match: a seed gives the text of plain decoding; block: block verification (arXiv 2403.10444) of "
        "chains, for drafters with a lattice (all kinds but DFlash and DFlare), without quotations: the same "
        "distribution, other text",
        native_type=c_int32,
        native_value=accept_rule,
        flag=_flag(_DRAFTING, "--accept", choices=get_args(Accept)),
    )
    budget: Budget = _option(
        "auto",
        help="tokens checked per step, the certain one counted: auto chooses by measured cost, 1 drafts nothing",
        native_type=c_int32,
        native_value=budget_nodes,
        flag=_flag(_DRAFTING, "--budget", metavar="auto|N"),
    )
    draft_n_max: int = _option(
        0,
        help="most draft tokens on a path",
        default_text="what the drafter's block holds",
        native_type=c_int32,
        native_value=draft_tokens,
        flag=_flag(_DRAFTING, "--spec-draft-n-max --draft-max", env="SPEC_DRAFT_N_MAX", metavar="N"),
    )
    draft_ctx: int = _cost_option(
        0,
        help="newest positions that the drafter looks at; bounds its memory",
        default_text="4096",
        native_type=c_uint32,
        low=0,
        flag=_flag(_DRAFTING, "--draft-ctx", metavar="N"),
    )
    draft_vocab: DraftVocab = _cost_option(
        "auto",
        help="tokens that a drafter without an output projection of its own may propose: auto chooses by the "
        "vocabulary's size, which tokens follows the texts; fewer cost less and miss more",
        native_type=c_uint32,
        native_value=draft_vocab_tokens,
        flag=_flag(_DRAFTING, "--draft-vocab", metavar="auto|all|N"),
    )
    lookup: bool = _option(
        True,
        help="also draft what followed earlier occurrences of the last tokens; without a drafter, nothing else",
        native_type=c_bool,
        flag=_flag(_DRAFTING, "--lookup", metavar="on|off"),
    )
    lookup_answers: int = _option(
        0,
        help="tokens of its latest answers, in memory, that lookup may quote in later answers for the same API key; "
        "0: none",
        native_type=c_uint32,
        low=0,
        flag=_flag(_DRAFTING, "--lookup-answers", metavar="N"),
    )
    lookup_corpus: Sequence[str | os.PathLike[str]] = _option(
        (),
        help="text files that lookup may quote, such as a code base; of a folder, all text files below it",
        default_text="none",
        flag=_flag(_DRAFTING, "--lookup-corpus", metavar="FILE|DIR"),
    )
    max_queue: int = _option(64, help="requests that may wait for a slot")
    progress: Callable[[float], bool] | None = _option(
        help="called with 0..1 while loading; returning False cancels", default_text="not called"
    )

    def __post_init__(self) -> None:
        check_fields(self, [spec.name for spec in fields(self)], deep=True)
        if self.share_ctx is None:
            share = self.kv_unified if self.kv_unified is not None else self.n_slots == -1
            object.__setattr__(self, "share_ctx", share)
        if self.n_slots == -1:
            object.__setattr__(self, "n_slots", AUTO_SLOTS)
        if self.lookup_corpus and not self.lookup:
            raise RequestError(
                "lookup_corpus is for lookup, which is off", param="lookup_corpus", hint="leave one of them out"
            )
        if 0 < self.image_max_tokens < self.image_min_tokens:
            raise RequestError(
                f"image_min_tokens is {self.image_min_tokens}, more than image_max_tokens, {self.image_max_tokens}",
                param="image_min_tokens",
                hint="raise image_max_tokens, or lower image_min_tokens",
            )
        if self.bit_exact:  # a smaller cache reuses its cells in another order
            object.__setattr__(self, "swa_full", True)
        for name, option in OPTIONS.items():
            if option.low is not None:
                _check_range(name, getattr(self, name), option.low)
        self.native_params()
        _ = self.fit_targets

    @property
    def fit_targets(self) -> list[int]:
        """MiB of `fit_target`."""
        sizes = self.fit_target.split(",")
        if not all(size.isdecimal() for size in sizes):
            raise RequestError(
                f"fit_target must be MiB such as 1024 or 1024,2048, got {self.fit_target!r}", param="fit_target"
            )
        return [int(size) for size in sizes]

    def native_params(self) -> dict[str, Any]:
        """Fields of dflash_engine_params by their names there, as str, numbers or None."""
        return native_params(self, OPTIONS)


OPTIONS: Mapping[str, EngineOption] = options_of(EngineOptions)

DEFAULTS: Mapping[str, Any] = defaults_of(EngineOptions)

COST_OPTIONS: tuple[str, ...] = tuple(name for name, option in OPTIONS.items() if option.in_cost)
"""The options that change what a pass costs. The context's size does not: rows attend only to used cells."""

EngineOptions.__doc__ = with_arguments(EngineOptions.__doc__, EngineOptions)
