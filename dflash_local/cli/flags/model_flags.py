"""Flags that name a target, its drafter and its projector, and their resolution to files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.engine_flags import EngineFlags, add_engine_flags
from dflash_local.cli.flags.flag import Flags, add_fields, flag
from dflash_local.cli.flags.model_file import check_model_file
from dflash_local.cli.terminal.notes import note
from dflash_local.cli.terminal.progress import Progress
from dflash_local.errors import DFlashError, HubError, RequestError

if TYPE_CHECKING:
    from dflash_local.hub.client import Hub
    from dflash_local.hub.selection import Name

NO_MODEL = "give -m TARGET.gguf, or -hf USER/NAME:QUANT, such as unsloth/Qwen3-8B-GGUF:Q4_K_M"


class HubFlags(Flags):
    """How the Hub is reached."""

    hf_token: str | None = flag(
        "-hft --hf-token",
        "token for gated and private repositories (default: that of 'hf auth login')",
        env="HF_TOKEN",
        metavar="TOKEN",
    )
    offline: bool = flag("--offline", "use only the cache, never the network", env="LLAMA_ARG_OFFLINE")


class HubModelFlags(HubFlags):
    """Which models of the Hub."""

    hf_repo: str | None = flag(
        "-hf -hfr --hf-repo",
        "the target from the Hugging Face Hub, its drafter, if one is beside it or known ('dflash-local pairs'), and "
        "its projector, if one is beside it; downloaded once",
        env="LLAMA_ARG_HF_REPO",
        metavar="USER/NAME[:QUANT]",
    )
    hf_file: str | None = flag(
        "-hff --hf-file",
        "the file of that repository, whatever the quantization",
        env="LLAMA_ARG_HF_FILE",
        metavar="FILE",
    )
    hf_repo_draft: str | None = flag(
        "-hfd -hfrd --spec-draft-hf --hf-repo-draft",
        "its drafter from the Hub: a GGUF, or a checkpoint to convert; -md then names a file in it",
        env="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
        metavar="USER/NAME[:QUANT]",
    )
    mmproj_url: str | None = flag(
        "-mmu --mmproj-url",
        "its projector from this address; downloaded once",
        env="LLAMA_ARG_MMPROJ_URL",
        metavar="URL",
    )
    mmproj_auto: bool = flag(
        "--mmproj-auto",
        "use the projector that a target named by -hf, or kept by another program, comes with (default)",
        env="LLAMA_ARG_MMPROJ_AUTO",
        off="--no-mmproj --no-mmproj-auto",
        off_help="use only one that --mmproj or --mmproj-url names",
    )


class ModelFlags(EngineFlags, HubModelFlags):
    """A target, its drafter and its projector, as files or by name, and the engine that runs them. `typed` has the
    words of each flag that comes from the command line, not from its variable, by its place."""

    typed: Mapping[str, tuple[str, ...]]
    model: str | None
    drafter: str | None
    mmproj: str | None


def add_model_flags(parser: argparse.ArgumentParser, defaults: Mapping[str, Any] | None = None) -> None:
    """Add ModelFlags; `defaults` are the command's own for options of the engine."""
    models = add_engine_flags(parser, defaults=defaults)["models"]
    add_fields(models, HubModelFlags)
    add_fields(models, HubFlags)


@dataclass
class Models:
    """The files of a target, its drafter and its projector.

    Attributes:
        name: what the target is called, if that is another than its file.
        auto_convert: whether the drafter may be in another dialect, which is then rewritten.
        may_suggest: whether `suggest` may still tell of a drafter.
    """

    target: str
    drafter: str | None = None
    projector: str | None = None
    name: str | None = None
    auto_convert: bool = False
    may_suggest: bool = False


def take_models(args: ModelFlags, *, must_exist: bool = True, writes: bool = True) -> Models:
    """The models that the flags name: one on this disk that -m names, those of -hf and -hfd, which are downloaded, and,
    if it `writes` text, the drafter of a target given by -hf, converted if necessary, and the projector that it came
    with. A drafter from the Hub may be in another dialect. `suggest` tells of a drafter that is known for a local file.

    Raises:
        RequestError: no target is named, or several are.
        ModelError: a named file is not a GGUF.
        DFlashError: a model cannot be fetched, or a named drafter does not fit.
    """
    repo = target_repository(args)
    models = Models("", args.drafter, args.mmproj, repo, args.auto_convert) if repo else _named_here(args)
    drafter_repo = _unless_typed(args, "hf_repo_draft", "drafter")
    if must_exist:
        _check_files(models, args, target=not repo, drafter=not drafter_repo)
    needs_none = args.drafter or args.drafting["draft"] == "off" or args.drafting["draft_kind"] == "lookup"
    find_drafter = writes and not needs_none
    models.may_suggest = find_drafter and not (repo or drafter_repo)
    if repo or drafter_repo:
        _fetch(models, args, repo, drafter_repo, find_drafter=find_drafter, find_projector=writes and args.mmproj_auto)
    if args.mmproj_url and not args.mmproj:
        models.projector = _fetch_url(args.mmproj_url, args)
    return models


def _named_here(args: ModelFlags) -> Models:
    """The file of -m, and its name and projector if it is named as `dflash-local models` lists it. Raises RequestError
    if it could be several."""
    from dflash_local.hub.local_models import find_models

    text = args.model or ""
    models, path = Models(text, args.drafter, args.mmproj, None, args.auto_convert), Path(text)
    if path.suffix == ".gguf" or path.is_absolute() or path.exists() or not (model := find_models().named(text)):
        return models
    note(f"model: {model.name}, {model.path} ({model.program})")
    models.target, models.name = str(model.path), model.name
    if model.projector and args.mmproj_auto and not (args.mmproj or args.mmproj_url):
        from dflash_local.diagnose.projector import fitting

        if fitting(model.path, model.projector, note):
            models.projector = str(model.projector)
            note(f"projector: {model.projector}")
    return models


def _check_files(models: Models, args: ModelFlags, *, target: bool, drafter: bool) -> None:
    """Raise ModelError if a file that is named is no GGUF: the target, the drafter, if they are meant to be files, or
    the projector."""
    if target:
        check_model_file(models.target, "-m")
    if args.drafter and drafter:
        check_model_file(args.drafter, "-md")
    if args.mmproj:
        check_model_file(args.mmproj, "--mmproj")


def target_repository(args: ModelFlags) -> str | None:
    """The repository of -hf, if the target comes from there. Raises RequestError if there is no target, or two."""
    repo = _unless_typed(args, "hf_repo", "model")
    if not repo and not args.model:
        raise RequestError("no model is named", param="--model", hint=NO_MODEL)
    if repo and "model" in args.typed:
        raise RequestError("-m and -hf both name the target", param="--hf-repo", hint="give one of them")
    return repo


def _unless_typed(args: ModelFlags, name: str, other: str) -> str | None:
    """The flag `name`, unless it comes from its variable and the flag `other` was typed."""
    return None if other in args.typed and name not in args.typed else getattr(args, name)


def _fetch(
    models: Models,
    args: ModelFlags,
    repo: str | None,
    drafter_repo: str | None,
    *,
    find_drafter: bool,
    find_projector: bool,
) -> None:
    from dflash_local.hub.pairing import Pairing
    from dflash_local.hub.selection import Name

    with hub_of(args.offline, args.hf_token) as hub, Pairing(hub) as pairing:
        if repo:
            pairing.hub_target(Name.parse(repo), args.hf_file)
        else:
            pairing.local_target(Path(models.target))
        if drafter_repo:
            pairing.hub_drafter(Name.parse(drafter_repo), args.drafter)
        elif repo and find_drafter:
            pairing.find_drafter(args.drafting["draft_kind"])
        if repo and find_projector and not (args.mmproj or args.mmproj_url):
            pairing.find_projector()
        target, drafter = pairing.fetch()
        if repo:
            models.target = str(target)
        if projector := pairing.fetch_projector():
            models.projector = str(projector)
            note(f"projector: {projector.name}")
        if drafter:
            models.drafter, models.auto_convert = str(drafter), True
            note(f"drafter: {pairing.drafter}")


def _fetch_url(url: str, args: HubFlags) -> str:
    from dflash_local.hub.url_file import fetch_url

    with hub_of(args.offline, args.hf_token) as hub:
        return str(fetch_url(url, hub))


def suggest(models: Models, facts: Mapping[str, Any] | None = None) -> None:
    """Note the drafter that is known for the target, once, if it is a local file without one.

    Args:
        facts: of the loaded target (`Engine.info["target"]`). They show of most models that none is known; to read the
            header here takes more imports than to serve the model.
    """
    from dflash_local.hub import registry

    if not models.may_suggest:
        return
    models.may_suggest = False
    with suppress(DFlashError):  # the engine reports what is wrong with the file
        if facts and not registry.may_know(models.target, {"architecture": facts["arch"], "n_embd": facts["n_embd"]}):
            return
        from dflash_local.hub.client import Hub
        from dflash_local.hub.pairing import Pairing

        with Pairing(Hub(offline=True)) as pairing:
            pairing.local_target(Path(models.target))
            if line := pairing.suggestion():
                note(line)


@contextmanager
def local_header(text: str, args: HubFlags) -> Iterator[Path]:
    """The path `text`, or, if there is no such file and it names a repository (USER/NAME[:QUANT]), a file with the
    header of that model. Raises HubError."""
    from dflash_local.hub.pairing import Pairing

    if (name := _name(text)) is None:
        yield Path(text)
        return
    with hub_of(args.offline, args.hf_token) as hub, Pairing(hub) as pairing:
        pairing.hub_target(name)
        yield pairing.header().path


def local_target(text: str, args: HubFlags) -> Path:
    """The path `text`, or, if there is no such file and it names a repository, that model, downloaded. Raises
    HubError."""
    from dflash_local.hub.pairing import Pairing

    if (name := _name(text)) is None:
        return Path(text)
    with hub_of(args.offline, args.hf_token) as hub, Pairing(hub) as pairing:
        pairing.hub_target(name)
        return pairing.fetch()[0]


def _name(text: str) -> Name | None:
    """The repository that `text` names; None if it is a local file or not such a name."""
    from dflash_local.hub.selection import Name

    try:
        return None if Path(text).exists() else Name.parse(text)
    except HubError:
        return None


@contextmanager
def hub_of(offline: bool, token: str | None = None) -> Iterator[Hub]:
    """The Hub, or its cache alone, with progress and notes on standard error."""
    from dflash_local.hub.client import Hub

    with Progress() as progress:

        def tell(text: str) -> None:
            progress.close()
            note(text)

        yield Hub(token=token, offline=offline, progress=progress, note=tell)
