"""Do a target and a drafter belong together? Answered from their GGUF headers, in pure Python and well under a second.

A drafter is trained on the hidden states and the vocabulary of one target. With another one it may load and run, but
never guess a token; so everything that the two headers show is checked before any model is loaded.
Source of llama.cpp's requirements: src/models/dflash.cpp and common/speculative.cpp of the pinned source.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dflash_local.convert.dialects import is_foreign
from dflash_local.convert.gguf_metadata import Value, read_metadata
from dflash_local.convert.kinds import Kind, kind_in, lattice_kinds
from dflash_local.convert.names import ARCH
from dflash_local.convert.relabel import has_copied_rotation
from dflash_local.convert.target import MASK_TOKEN, TOKENS, Target
from dflash_local.diagnose.architectures import ASSISTANTS, NO_ROLLBACK, TAPPED_TO_THE_END, no_drafting
from dflash_local.diagnose.assistants import Assistant, compare_assistant
from dflash_local.diagnose.finding import Finding, Level, fail, ok, same, warn
from dflash_local.diagnose.mtp_layers import compare_layers, split_off_arch
from dflash_local.draft_options import DraftKind
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import ModelError, PairError, RequestError
from dflash_local.native import MAX_NODES, check_gguf

# Tokens that may differ in the same vocabulary: converters treat padding and added tokens differently.
FEW_TOKENS = 128

PRE_TOKENIZER = "tokenizer.ggml.pre"
CONVERT_AGAIN = "convert the drafter again: dflash-local convert DRAFTER_DIR --target TARGET.gguf"


@dataclass(frozen=True)
class Drafter:
    """The facts of a drafter that pairing needs. `taps` are layer inputs: tap k is what enters the target's layer k."""

    path: Path
    n_embd: int
    taps: tuple[int, ...]
    block_size: int
    mask_token: int  # -1: none
    kind: type[Kind]
    tokens: list[bytes]
    pre_tokenizer: bytes
    keys: Mapping[str, Value] = field(default_factory=dict, repr=False)  # all of the file's

    @classmethod
    def read(cls, path: Path, target: Path | None = None) -> Drafter:
        """Raises ModelError; `field` is the missing or wrong key. Its hint names the file `target`, if given."""
        keys = read_metadata(path)

        def known(key: str, kind: type, default: Any = None) -> Any:
            data = keys[key].data if key in keys else default
            if not isinstance(data, kind) or isinstance(data, bool):
                what = f"{path.name} is not a usable drafter: {key!r} is missing or of the wrong type"
                raise ModelError(what, field=key, hint=CONVERT_AGAIN)
            return data

        arch = known("general.architecture", bytes).decode(errors="replace")
        if is_foreign(arch, keys):
            raise _foreign(path, arch, target)
        if arch != ARCH:
            raise ModelError(
                f"{path.name} is not a DFlash drafter: its architecture is {arch!r}",
                field="general.architecture",
                hint="give the GGUF that 'dflash-local convert' made; the target goes to -m, the drafter to -md",
            )
        return cls(
            path=path,
            n_embd=known(f"{ARCH}.embedding_length", int),
            taps=tuple(int(layer) for layer in known(f"{ARCH}.target_layers", tuple)),
            block_size=known(f"{ARCH}.block_size", int, 16),  # upstream's default
            mask_token=known(MASK_TOKEN, int, -1),
            kind=kind_in({key.removeprefix(f"{ARCH}.") for key in keys}),
            tokens=known(TOKENS, list),
            pre_tokenizer=known(PRE_TOKENIZER, bytes, b""),
            keys=keys,
        )


# What is known of a file that drafts: a DFlash drafter, MTP layers of the target, or its assistant.
DrafterFile = Drafter | Target | Assistant


def block_refusal(drafter: DrafterFile | None) -> str:
    """Why an engine cannot use accept=block, "" if it can; known before a model loads. libdflash checks requests."""
    kind = drafter.kind if isinstance(drafter, Drafter) else None
    if kind and kind.lattice:
        return ""
    # Block verification needs the probability with which a draft was drawn, and only a lattice has that.
    found = f"this one is a {kind.name} drafter" if kind else "there is none"
    return f"accept=block needs a {lattice_kinds()} drafter, and {found}"


def kind_refusal(draft_kind: DraftKind, drafter: Path, is_mtp: bool) -> str:
    """Why a drafter's file cannot draft in the way that was asked for, "" if it can."""
    if draft_kind == "mtp" and not is_mtp:
        return f"draft_kind is mtp, but {drafter.name} has no MTP layers of the target"
    if draft_kind == "dflash" and is_mtp:
        return f"draft_kind is dflash, but {drafter.name} has MTP layers of the target"
    return ""


def check(target: Path, drafter: Path, draft_kind: DraftKind = "auto") -> DrafterFile:
    """Raise an error unless the two belong together, and can draft in the way that is asked for.

    Returns:
        What is known of the drafter's file.

    Raises:
        ModelError: a file cannot be read, or is not a target or a drafter.
        PairError: they do not fit each other; `field` is the drafter's key to blame.
    """
    model = Target.read(target)
    known = read_drafter(drafter, model, draft_kind)
    refuse_misfit(compare_files(model, known))
    return known


def refuse_misfit(findings: Iterable[Finding]) -> None:
    """Raise PairError if one of the findings is a failure."""
    for finding in findings:
        if finding.level is Level.FAIL:
            raise PairError(finding.text, field=finding.field, hint=finding.advice)


def read_drafter(path: Path, target: Target, draft_kind: DraftKind = "auto") -> DrafterFile:
    """What is known of a file that is to draft for `target`.

    Raises:
        ModelError: it cannot be read, or is neither.
        PairError: it cannot draft in the way that is asked for.
    """
    mtp_arch = split_off_arch(path, target.arch)
    if why := kind_refusal(draft_kind, path, bool(mtp_arch)):
        raise PairError(why, field="general.architecture", hint="leave it out, or leave draft_kind at auto")
    if not mtp_arch:
        return Drafter.read(path, target.path)
    return Assistant.read(path) if mtp_arch in ASSISTANTS else Target.read(path)


def check_options(options: EngineOptions) -> None:
    """Raise the errors of an engine's options that the files' headers show, before anything is loaded.

    Raises:
        ModelError, PairError: a file is damaged or of another dialect, or the two do not belong together.
        RequestError: this drafter cannot be accepted in blocks.
    """
    drafter = None
    if options.drafter is not None and options.draft_kind != "lookup":
        target, path = Path(options.model), Path(options.drafter)
        check_gguf(target)  # first, so that a damaged file is not reported as one of another kind
        try:
            check_gguf(path)
        except ModelError:
            refuse_foreign(path, target)
            raise
        drafter = check(target, path, options.draft_kind)
    if options.accept == "block" and (why := block_refusal(drafter)):
        raise RequestError(why, param="accept", hint="leave accept at match")


def convert_command(drafter: Path, target: Path | None) -> str:
    """The command that makes a drafter of another dialect usable."""
    return f"dflash-local convert {shlex.quote(str(drafter))} --target {shlex.quote(str(target or 'TARGET.gguf'))}"


def _foreign(path: Path, arch: str, target: Path | None) -> ModelError:
    key, why = "general.architecture", f"general.architecture is {arch!r}"
    if arch == ARCH:
        key, why = f"{ARCH}.target_layers", f"{ARCH}.target_layers is missing or spelled otherwise"
    return ModelError(
        f"{path.name} is a drafter in another dialect of GGUF than llama.cpp's: {why}",
        field=key,
        hint=f"rewrite it: {convert_command(path, target)}; or start with --auto-convert",
    )


def refuse_foreign(drafter: Path, target: Path) -> None:
    """Raise ModelError, with the command to run, if `drafter` is in another project's dialect. This comes first, since
    nothing else matters for such a file."""
    try:
        keys = read_metadata(drafter)
        arch = keys["general.architecture"].data.decode()
    except (ModelError, KeyError, AttributeError, UnicodeDecodeError):
        return
    if is_foreign(arch, keys):
        raise _foreign(drafter, arch, target)


def compare_files(target: Target, drafter: DrafterFile) -> Iterator[Finding]:
    """All findings about a target and what `read_drafter` says of the file that is to draft for it."""
    if isinstance(drafter, Target):
        return compare_layers(target, drafter)
    if isinstance(drafter, Assistant):
        return compare_assistant(target, drafter)
    return compare(target, drafter)


def compare(target: Target, drafter: Drafter) -> Iterator[Finding]:
    """All findings about the pair that the two headers allow, one per subject."""
    yield from _architecture(target)
    yield from _width(target, drafter)
    yield from _taps(target, drafter)
    yield from _vocabulary(target, drafter)
    yield from _block(target, drafter)
    yield from _rotation(target, drafter)


def _architecture(target: Target) -> Iterator[Finding]:
    key, why = "general.architecture", no_drafting(target.arch)
    if target.arch in NO_ROLLBACK:
        advice = "run it without -md, which saves the drafter's memory"
        yield warn("architecture", f"{why}, so nothing will be drafted", advice, key)
    elif why:
        advice = "run it without -md; docs/limits.md lists the architectures with drafting"
        yield fail("architecture", why, advice, key)
    else:
        yield ok("architecture", f"{target.arch}, {target.n_layer} layers")


def _width(target: Target, drafter: Drafter) -> Iterator[Finding]:
    key = f"{ARCH}.embedding_length"
    what = f"the drafter is {drafter.n_embd} wide, the target {target.n_embd}: it was trained for another model"
    yield same("width", drafter.n_embd, target.n_embd, what, "take the drafter that was trained for this target", key)


def _taps(target: Target, drafter: Drafter) -> Iterator[Finding]:
    key = f"{ARCH}.target_layers"
    last = target.n_layer if target.arch in TAPPED_TO_THE_END else target.n_layer - 1
    outside = [layer for layer in drafter.taps if not 0 <= layer <= last]
    if not drafter.taps:
        yield fail("taps", "the drafter names no layers of the target", CONVERT_AGAIN, key)
    elif outside:
        what = f"the drafter reads the input of layer {outside[0]}, but the target's inputs end at {last}"
        yield fail("taps", what, "take the drafter that was trained for this target", key)
    elif len(set(drafter.taps)) < len(drafter.taps):
        yield warn("taps", f"layer inputs {list(drafter.taps)}: one is listed twice", CONVERT_AGAIN, key)
    else:
        yield ok("taps", f"inputs of layers {', '.join(map(str, drafter.taps))}")


def _vocabulary(target: Target, drafter: Drafter) -> Iterator[Finding]:
    theirs = target.tokenizer[TOKENS].data
    n_both, padding = min(len(drafter.tokens), len(theirs)), len(drafter.tokens) - len(theirs)
    differing = [i for i, (ours, other) in enumerate(zip(drafter.tokens, theirs, strict=False)) if ours != other]
    if differing:
        first = differing[0]
        what = (
            f"{len(differing)} of {n_both} tokens differ; the first is {first}: "
            f"{_shown(drafter.tokens[first])} in the drafter, {_shown(theirs[first])} in the target"
        )
        verdict = fail if len(differing) > FEW_TOKENS else warn
        yield verdict("vocabulary", what, CONVERT_AGAIN, TOKENS)
    elif padding:
        whose = "drafter" if padding > 0 else "target"
        what = f"{n_both} tokens, the same; the {whose} has {abs(padding)} more, padding that is never drafted"
        yield ok("vocabulary", what)
    else:
        yield ok("vocabulary", f"{len(theirs)} tokens, the same")
    pre = target.tokenizer.get(PRE_TOKENIZER)
    if pre is not None and pre.data != drafter.pre_tokenizer:
        what = f"pre-tokenizer {_shown(drafter.pre_tokenizer)} in the drafter, {_shown(pre.data)} in the target"
        # Only the target tokenizes text, so this is just a sign of files of different origin.
        yield warn("vocabulary", what, CONVERT_AGAIN, PRE_TOKENIZER)


def _block(target: Target, drafter: Drafter) -> Iterator[Finding]:
    key, n_vocab = f"{ARCH}.block_size", min(target.n_vocab, len(drafter.tokens))
    if not 2 <= drafter.block_size <= MAX_NODES:
        yield fail(
            "block",
            f"the drafter's block size is {drafter.block_size}; it must be 2 to {MAX_NODES}",
            CONVERT_AGAIN,
            key,
        )
    elif not 0 <= drafter.mask_token < n_vocab:
        what = f"the drafter's mask token {drafter.mask_token} is not in the vocabulary of {n_vocab}"
        yield fail("block", what, CONVERT_AGAIN, MASK_TOKEN)
    else:
        yield ok("block", f"{drafter.kind.name}, {drafter.block_size} tokens, mask token {drafter.mask_token}")


def _rotation(target: Target, drafter: Drafter) -> Iterator[Finding]:
    if has_copied_rotation(drafter.keys, target):
        yield warn(
            "rotation",
            "the drafter rotates a part of each head, like its target: its converter copied that from the target's "
            "configuration, and few of its guesses are right",
            f"fix it: {convert_command(drafter.path, target.path)}",
            f"{ARCH}.rope.dimension_count",
        )


def _shown(token: bytes) -> str:
    return repr(token.decode(errors="replace")[:40])
