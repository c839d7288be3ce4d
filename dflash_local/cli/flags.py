"""Command line flags that load an engine, with llama-server's names and its LLAMA_ARG_* environment variables.

Names and variables are those of llama.cpp's `common/arg.cpp`; a flag on the command line beats its variable.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams

if TYPE_CHECKING:
    from dflash_local.engine import Engine

# llama-server's other spellings of sampling flags, and those of its variables that exist.
_SAMPLING_ALIASES = {
    "seed": ("-s",),
    "temperature": ("--temp",),
    "typical_p": ("--typical",),
    "dynatemp_exponent": ("--dynatemp-exp",),
    "mirostat_tau": ("--mirostat-ent",),
    "mirostat_eta": ("--mirostat-lr",),
    "reasoning_budget_tokens": ("--reasoning-budget",),
}
_SAMPLING_ENV = {
    **{name: f"LLAMA_ARG_{name.upper()}" for name in ("temperature", "top_k", "top_p", "min_p")},
    **{name: f"LLAMA_ARG_{name.upper()}" for name in ("repeat_penalty", "presence_penalty", "frequency_penalty")},
    "reasoning_budget_tokens": "LLAMA_ARG_THINK_BUDGET",
}


class FlagGroup(Protocol):
    """An argparse parser or group."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action: ...


def add_flag(group: FlagGroup, *names: str, env: str | None = None, **options: Any) -> None:
    """`add_argument`, with the environment variable `env` as the default."""
    if env and options.get("help"):
        options["help"] += f" [{env}]"
    action = group.add_argument(*names, **options)
    value = os.environ.get(env) if env else None
    if value is not None:
        # argparse converts a default that is a string like a typed argument.
        action.default = truth(value) if action.nargs == 0 else value


def truth(value: str) -> bool:
    """llama.cpp's spelling of on and off."""
    if value.lower() in ("on", "enabled", "true", "1"):
        return True
    if value.lower() in ("off", "disabled", "false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"must be on or off, got {value!r}")


def count(low: int = 0) -> Callable[[str], int]:
    """An integer of at least `low`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}") from None
        if number < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, got {number}")
        return number

    return parse


def one_of(*names: str) -> Callable[[str], str]:
    """One of `names`; unlike `choices`, this also holds for the environment."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(names)}, got {text!r}")
        return text

    return parse


def _layers(text: str) -> int:
    return -1 if text in ("all", "auto") else count(-1)(text)


def _flash(text: str) -> str:
    return "auto" if text in ("auto", "-1") else ("on" if truth(text) else "off")


def _budget(text: str) -> int | str:
    return "auto" if text == "auto" else count(1)(text)


def _draft(text: str) -> str:
    if text.isdigit():  # older llama.cpp had --draft N
        raise argparse.ArgumentTypeError(
            f"takes off, chain or tree; the most draft tokens are --spec-draft-n-max {text}"
        )
    return one_of("off", "chain", "tree")(text)


def add_engine_flags(parser: argparse.ArgumentParser, *, model_required: bool = True) -> None:
    """Add the flags that `engine_options` reads."""
    model = parser.add_argument_group("models")
    required = model_required and "LLAMA_ARG_MODEL" not in os.environ
    add_flag(
        model,
        "-m",
        "--model",
        env="LLAMA_ARG_MODEL",
        dest="model",
        metavar="GGUF",
        required=required,
        help="the target model",
    )
    add_flag(
        model, "-md", "--model-draft", "--spec-draft-model", env="LLAMA_ARG_SPEC_DRAFT_MODEL", dest="drafter",
        metavar="GGUF", help="its DFlash drafter, made by 'dflash-local convert'; without one, decoding is plain",
    )  # fmt: skip

    drafting = parser.add_argument_group("drafting")
    add_flag(
        drafting, "--budget", type=_budget, default="auto", metavar="auto|N",
        help="tokens checked per step, the certain one counted: auto chooses by measured cost, 1 drafts nothing "
        "(default: auto)",
    )  # fmt: skip
    add_flag(
        drafting, "--spec-draft-n-max", "--draft-max", env="LLAMA_ARG_SPEC_DRAFT_N_MAX", dest="draft_n_max",
        type=count(), default=0, metavar="N",
        help="most draft tokens on a path (default: what the drafter's block holds)",
    )  # fmt: skip
    add_flag(
        drafting, "--draft", type=_draft, default="tree", metavar="off|chain|tree",
        help="the shape that drafts may have; where the target cannot check trees, tree means chain (default: tree)",
    )  # fmt: skip
    add_flag(
        drafting, "--accept", type=one_of("match", "block"), default="match", metavar="match|block",
        help="match: a seed gives the text of plain decoding; block: block verification of chains, for DFlash 2 "
        "drafters (default: match)",
    )  # fmt: skip
    add_flag(
        drafting, "--lookup", type=truth, default=True, metavar="on|off",
        help="draft also what followed earlier occurrences of the last tokens (default: on)",
    )  # fmt: skip
    add_flag(
        drafting, "--draft-ctx", type=count(), default=0, metavar="N",
        help="newest positions that the drafter looks at; bounds its memory (default: 4096)",
    )  # fmt: skip

    context = parser.add_argument_group("context and batching")
    add_flag(
        context, "-c", "--ctx-size", env="LLAMA_ARG_CTX_SIZE", dest="n_ctx", type=count(), default=0, metavar="N",
        help="context of all slots together, in tokens (default: for each slot what the model was trained with, 16384 "
        "at most)",
    )  # fmt: skip
    add_flag(
        context, "-np", "--parallel", env="LLAMA_ARG_N_PARALLEL", dest="n_slots", type=count(-1), default=1,
        metavar="N", help="slots: requests that run at the same time (default: 1)",
    )  # fmt: skip
    add_flag(
        context, "-b", "--batch-size", env="LLAMA_ARG_BATCH", dest="n_batch", type=count(1), default=2048, metavar="N",
        help="most rows of one target pass (default: 2048)",
    )  # fmt: skip
    add_flag(
        context, "-ub", "--ubatch-size", env="LLAMA_ARG_UBATCH", dest="n_ubatch", type=count(1), default=512,
        metavar="N", help="rows computed at once; prompts are read in chunks of this size (default: 512)",
    )  # fmt: skip
    for kv, name in (("k", "K"), ("v", "V")):
        add_flag(
            context, f"-ct{kv}", f"--cache-type-{kv}", env=f"LLAMA_ARG_CACHE_TYPE_{name}", default="f16",
            metavar="TYPE", help=f"KV cache type for {name}: f32, f16, bf16, q8_0, q4_0, ... (default: f16)",
        )  # fmt: skip
        add_flag(
            context, f"-ct{kv}d", f"--cache-type-{kv}-draft", f"--spec-draft-type-{kv}",
            env=f"LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_{name}", default="f16", metavar="TYPE",
            help=f"the same for the drafter's {name}: f16 or f32 (default: f16)",
        )  # fmt: skip
    add_flag(
        context, "-fa", "--flash-attn", env="LLAMA_ARG_FLASH_ATTN", type=_flash, nargs="?", const="on", default="auto",
        metavar="on|off|auto", help="flash attention (default: auto)",
    )  # fmt: skip
    add_flag(
        context, "-kvu", "--kv-unified", env="LLAMA_ARG_KV_UNIFIED", dest="kv_unified", action="store_true",
        default=True, help="one KV cache for all slots (default)",
    )  # fmt: skip
    context.add_argument(
        "-no-kvu", "--no-kv-unified", dest="kv_unified", action="store_false", help="one KV cache for each slot"
    )
    context.add_argument(
        "--bit-exact", dest="bit_exact", action="store_true", default=None,
        help="run only if drafted text is plain text bit for bit, else say why not; implies --swa-full, which takes "
        "memory (default: bit for bit where that costs nothing, on most CPUs)",
    )  # fmt: skip
    context.add_argument("--no-bit-exact", dest="bit_exact", action="store_false", help="promise no such thing")
    add_flag(
        context, "--swa-full", env="LLAMA_ARG_SWA_FULL", action="store_true",
        help="sliding-window layers keep the whole context, as other layers do, instead of their window",
    )  # fmt: skip

    machine = parser.add_argument_group("machine")
    add_flag(
        machine, "-t", "--threads", env="LLAMA_ARG_THREADS", dest="n_threads", type=count(-1), default=0, metavar="N",
        help="CPU threads (default: physical cores)",
    )  # fmt: skip
    add_flag(
        machine, "-tb", "--threads-batch", dest="n_threads_batch", type=count(-1), default=0, metavar="N",
        help="CPU threads for prompts (default: those of -t)",
    )  # fmt: skip
    add_flag(
        machine, "-ngl", "--gpu-layers", "--n-gpu-layers", env="LLAMA_ARG_N_GPU_LAYERS", dest="n_gpu_layers",
        type=_layers, default=-1, metavar="N", help="target layers on the GPU: a number or 'all' (default: all)",
    )  # fmt: skip
    add_flag(
        machine, "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl",
        env="LLAMA_ARG_N_GPU_LAYERS_DRAFT", dest="n_gpu_layers_draft", type=_layers, default=-1, metavar="N",
        help="drafter layers on the GPU (default: all)",
    )  # fmt: skip
    add_flag(
        machine, "-sm", "--split-mode", env="LLAMA_ARG_SPLIT_MODE", type=one_of("none", "layer", "row"),
        metavar="none|layer|row", help="how to split the target over GPUs",
    )  # fmt: skip
    add_flag(
        machine,
        "-ts",
        "--tensor-split",
        env="LLAMA_ARG_TENSOR_SPLIT",
        metavar="A,B,...",
        help="its share on each GPU, such as 3,1",
    )
    add_flag(
        machine,
        "-mg",
        "--main-gpu",
        env="LLAMA_ARG_MAIN_GPU",
        type=count(),
        default=0,
        metavar="N",
        help="the GPU to use without a split",
    )
    add_flag(
        machine, "-lm", "--load-mode", env="LLAMA_ARG_LOAD_MODE",
        type=one_of("auto", "none", "mmap", "mlock", "mmap+mlock"), default="auto", metavar="MODE",
        help="auto, none, mmap, mlock or mmap+mlock (default: auto, which is mmap)",
    )  # fmt: skip
    machine.add_argument("--mlock", dest="load_mode", action="store_const", const="mmap+mlock", help=argparse.SUPPRESS)
    machine.add_argument("--no-mmap", dest="load_mode", action="store_const", const="none", help=argparse.SUPPRESS)
    machine.add_argument("--warmup", action="store_true", default=True, help=argparse.SUPPRESS)
    machine.add_argument(
        "--no-warmup",
        dest="warmup",
        action="store_false",
        help="skip the first passes that measure this machine's costs",
    )
    machine.add_argument(
        "--no-cost-cache",
        dest="cost_cache",
        action="store_false",
        help="measure them at every start, and keep nothing of it on disk",
    )

    template = parser.add_argument_group("chat template")
    add_flag(
        template, "--chat-template", env="LLAMA_ARG_CHAT_TEMPLATE", metavar="JINJA",
        help="Jinja source to use instead of the model's own template",
    )  # fmt: skip
    add_flag(
        template,
        "--chat-template-file",
        env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
        type=Path,
        metavar="FILE",
        help="the same from a file",
    )


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `Engine` from parsed flags.

    Raises:
        RequestError: the chat template file cannot be read.
    """
    names = (
        "model", "drafter", "n_ctx", "n_batch", "n_ubatch", "n_gpu_layers", "n_gpu_layers_draft", "flash_attn",
        "cache_type_k", "cache_type_v", "cache_type_k_draft", "cache_type_v_draft", "draft_ctx", "draft_n_max",
        "budget", "draft", "accept", "lookup", "kv_unified", "bit_exact", "cost_cache", "swa_full", "warmup",
        "main_gpu", "tensor_split", "split_mode",
    )  # fmt: skip
    options = {name: getattr(args, name) for name in names}
    options["n_slots"] = max(args.n_slots, 1)
    options["n_threads"] = max(args.n_threads, 0) or None
    options["n_threads_batch"] = max(args.n_threads_batch, 0) or None
    options["mmap"] = args.load_mode in ("auto", "mmap", "mmap+mlock")
    options["mlock"] = "mlock" in args.load_mode
    options["chat_template"] = args.chat_template
    if args.chat_template_file:
        try:
            options["chat_template"] = args.chat_template_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"cannot read the chat template: {error}", param="--chat-template-file") from None
    return options


def load_engine(
    args: argparse.Namespace, *, progress: Callable[[float], bool] | None = None, **overrides: Any
) -> Engine:
    """The engine that the flags describe; `overrides` are arguments of `Engine`."""
    from dflash_local.engine import Engine

    return Engine(**{**engine_options(args), "progress": progress, **overrides})


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for every numeric field of SamplingParams."""
    group = parser.add_argument_group("sampling", "defaults for requests that do not say; 0 temperature is greedy")
    for name, (kind, default) in _sampling_numbers().items():
        names = [*_SAMPLING_ALIASES.get(name, ()), "--" + name.replace("_", "-")]
        text = "seed (default: random)" if name == "seed" else f"default: {default:g}"
        add_flag(group, *names, env=_SAMPLING_ENV.get(name), dest=f"sampling_{name}", type=kind, metavar="N", help=text)


def sampling_options(args: argparse.Namespace) -> SamplingParams:
    """The SamplingParams that the flags describe.

    Raises:
        RequestError: a value is out of range.
    """
    given = {name: getattr(args, f"sampling_{name}") for name in _sampling_numbers()}
    return SamplingParams(**{name: value for name, value in given.items() if value is not None})


def _sampling_numbers() -> dict[str, tuple[type, Any]]:
    """Type and default of each numeric field."""
    numbers: dict[str, tuple[type, Any]] = {"seed": (int, None)}
    return numbers | {
        spec.name: (spec.metadata["type"], spec.default) for spec in fields(SamplingParams) if spec.metadata
    }
