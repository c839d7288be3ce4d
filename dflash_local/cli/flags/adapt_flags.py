"""What speaks against `serve --adapt`: a drafter that learns while nobody asks."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dflash_local.cli.flags.serve_flags import AppFlags, ServeFlags
from dflash_local.engine_options import DEFAULTS, OPTIONS
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.cli.flags.named_models import Models

log = logging.getLogger(__name__)

# Where the model lies: `train` loads it as it does by itself, but for --n-gpu-layers.
_PLACES = (
    "rpc", "device", "device_draft", "main_gpu", "split_mode", "tensor_split", "override_tensor",
    "override_tensor_draft", "cpu_moe", "n_cpu_moe", "n_cpu_ffn",
)  # fmt: skip


def check_adapt_flags(args: ServeFlags, *, several: bool = False) -> None:
    """Refuse --adapt where nothing could learn, and its details without it. A router, which has `several` models, gives
    all of them its flags: there it is the log of a model that tells what speaks against it.

    Raises:
        RequestError: nothing could learn; `hint` is what to change.
    """
    error = _refusal_here(args) if args.adapt else None
    if not several and error is None:
        error = _refusal(args)
    if error is None:
        return
    if not args.parent_pipes:
        raise error
    log.warning("%s", error.message)


def adapts(args: AppFlags) -> bool:
    """Whether --adapt was given, and nothing speaks against it."""
    return args.adapt is not None and _refusal_here(args) is None and _refusal(args) is None


def check_adapted_models(args: AppFlags, models: Models) -> None:
    """Raises RequestError if no file of a drafter is there that could learn; `check_adapt_flags` says where not."""
    if not adapts(args) or models.drafter or args.parent_pipes:
        return
    from dflash_local.train.adapted_pair import NO_DRAFTER

    raise _refused(NO_DRAFTER, "name one with -md (docs/training.md), or leave --adapt out")


def _refusal_here(args: AppFlags) -> RequestError | None:
    """Why no model of this server can learn."""
    if sys.platform == "win32":
        return _refused("Windows cannot stop a process while somebody asks", "leave --adapt out")
    if args.record:
        return _refused("it keeps answers itself, in its own folder", "leave --record or --adapt out")
    if find_spec("torch") is None:
        return _refused("training needs torch", "pip install 'dflash-local[train]'")
    return None


def _refusal(args: AppFlags) -> RequestError | None:
    """Why this model cannot."""
    if not args.adapt:
        if "adapt_tokens" not in args.typed:
            return None
        why = "--adapt-tokens has no effect: --adapt DIR trains the drafter"
        return RequestError(why, param="--adapt-tokens", hint="leave --adapt-tokens out, or add --adapt DIR")
    if isinstance(args, ServeFlags) and args.replicas:
        return _refused("replicas would all train", "leave --replicas or --adapt out")
    if args.writes_no_text:
        return _refused("the server writes no answers to learn from", "leave --adapt out")
    drafting = args.drafting
    if drafting.get("draft") == "off":
        return _refused("nothing drafts (--draft off)", "leave --adapt out")
    if (kind := drafting.get("draft_kind")) in ("lookup", "mtp"):
        return _refused(f"no drafter of a file is used (--draft-kind {kind})", "leave --draft-kind or --adapt out")
    options = args.options
    for name in _PLACES:
        if options.get(name, DEFAULTS[name]) != DEFAULTS[name]:
            (flag,) = [word for word in OPTIONS[name].flag.names if word.startswith("--")][:1]  # type: ignore[union-attr]
            return _refused(f"training would not place the model as {flag} says", f"leave {flag} or --adapt out")
    return None


def _refused(why: str, fix: str) -> RequestError:
    return RequestError(f"--adapt has no effect: {why}", param="--adapt", hint=fix)
