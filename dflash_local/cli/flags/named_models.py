"""The models that flags name, as files on this disk: found, downloaded, suggested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.idle_flags import refuse_idle
from dflash_local.cli.flags.model_file import check_model_file
from dflash_local.cli.flags.model_flags import HubFlags, ModelFlags
from dflash_local.cli.terminal.notes import note
from dflash_local.cli.terminal.progress import Progress
from dflash_local.cli.typed_path import exists, is_file
from dflash_local.errors import DFlashError, HubError, ModelError, RequestError

if TYPE_CHECKING:
    from dflash_local.hub.cache import HubFile
    from dflash_local.hub.client import Hub
    from dflash_local.hub.local_models import LocalModel
    from dflash_local.hub.pairing import Pairing
    from dflash_local.hub.selection import Name

NO_MODEL = "give -m TARGET.gguf, or -hf USER/NAME:QUANT, such as unsloth/Qwen3-8B-GGUF:Q4_K_M"


@dataclass
class Models:
    """The files of a target, its drafter and its projector.

    Attributes:
        name: what the target is called, if that is another than its file; `names`: all that it is called.
        auto_convert: whether the drafter may be in another dialect, which is then rewritten.
        may_suggest: whether `suggest` may still tell of a drafter.
        remote: those of target, drafter and projector that come from the Hub, with the words that name them.
    """

    target: str
    drafter: str | None = None
    projector: str | None = None
    name: str | None = None
    names: Sequence[str] = ()
    auto_convert: bool = False
    may_suggest: bool = False
    remote: Mapping[str, Sequence[str]] = field(default_factory=dict)


def take_models(args: ModelFlags, *, must_exist: bool = True, writes: bool = True) -> Models:
    """The models that the flags name: one on this disk that -m names, those of -hf and -hfd, which are downloaded, and,
    if it `writes` text, the drafter of a target given by -hf, converted if necessary, and the projector that it came
    with. A drafter from the Hub may be in another dialect. With a local file goes the drafter on this disk that is
    listed for its name; `suggest` tells of others that are known for it.

    Raises:
        RequestError: no target is named, or several are.
        ModelError: a named file is not a GGUF.
        DFlashError: a model cannot be fetched, or a named drafter does not fit.
    """
    with _chosen(args, must_exist=must_exist, writes=writes) as (models, pairing):
        if pairing:
            _fetch(models, pairing)
        _fetch_projector(models, args)
    return models


@contextmanager
def models_to_plan(args: ModelFlags, *, must_exist: bool = True) -> Iterator[tuple[Models, Sequence[HubFile]]]:
    """`take_models`, but while a file of the Hub is missing, its models are files that have their headers alone, as
    long as this is open. Also yields the files that are missing. Only a projector with an address is downloaded, and a
    drafter whose header is not at its beginning. Raises the errors of `take_models`."""
    with _chosen(args, must_exist=must_exist, writes=True) as (models, pairing), ExitStack() as stack:
        missing: Sequence[HubFile] = pairing.missing() if pairing else ()
        if pairing and missing:
            from dflash_local.hub.pair_headers import pair_headers

            headers = stack.enter_context(pair_headers(pairing))
            _take_files(models, pairing, headers.target, headers.drafter, headers.projector)
            models.auto_convert = models.auto_convert and not headers.drafter  # that is rewritten already
            missing = pairing.missing()
        elif pairing:
            _fetch(models, pairing)
        _fetch_projector(models, args)
        yield models, missing


@contextmanager
def _chosen(args: ModelFlags, *, must_exist: bool, writes: bool) -> Iterator[tuple[Models, Pairing | None]]:
    """The models that the flags name, without the files of those that come from the Hub, which the pairing has chosen.
    Raises the errors of `take_models`."""
    repo = target_repository(args)
    if not repo:
        refuse_idle(args.typed, ["hf_file"], "it names a file of -hf")
    models = Models("", args.drafter, args.mmproj, repo) if repo else _named_here(args)
    models.auto_convert = args.auto_convert
    drafter_repo = _unless_typed(args, "hf_repo_draft", "drafter")
    if must_exist:
        files = (
            ("-m", not repo and models.target),
            ("-md", not drafter_repo and args.drafter),
            ("--mmproj", args.mmproj),
        )
        for flag, path in files:
            if path:
                check_model_file(path, flag)
    needs_none = args.drafter or args.drafting["draft"] == "off" or args.drafting["draft_kind"] == "lookup"
    find_drafter = writes and not needs_none
    models.may_suggest = find_drafter and not (repo or drafter_repo)
    if repo or drafter_repo:
        find_projector = writes and args.mmproj_auto
        with _paired(models, args, repo, drafter_repo, find_drafter=find_drafter, find_projector=find_projector) as it:
            yield models, it
        return
    if find_drafter and args.drafting["draft_kind"] != "mtp":
        _take_listed(models)
    yield models, None


def _named_here(args: ModelFlags) -> Models:
    """The file of -m, and its name and projector if it is named as `dflash-local models` lists it. Raises RequestError
    if it could be several."""
    text = args.model or ""
    models, model = Models(text, args.drafter, args.mmproj, names=(Path(text).stem,)), model_named(text)
    if model is None:
        return models
    from dflash_local.hub.local_models import target_names

    models.target, models.name, models.names = str(model.path), model.name, target_names(model)
    if model.projector and args.mmproj_auto and not (args.mmproj or args.mmproj_url):
        from dflash_local.diagnose.projector import fitting

        if fitting(model.path, model.projector, note):
            models.projector = str(model.projector)
            note(f"projector: {model.projector}")
    return models


def model_named(text: str) -> LocalModel | None:
    """The model that `dflash-local models` lists by this name; None if `text` is a path, or no such name. Raises
    RequestError if it could be several."""
    path = Path(text)
    if path.suffix == ".gguf" or path.is_absolute() or exists(path):
        return None
    from dflash_local.hub.local_models import find_models

    if model := find_models().named(text):
        note(f"model: {model.name}, {model.path} ({model.program})")
    return model


def target_repository(args: ModelFlags) -> str | None:
    """The repository of -hf, if the target comes from there. Raises RequestError if there is no target, or two."""
    repo = _unless_typed(args, "hf_repo", "model")
    if not repo and not args.model:
        raise RequestError("no model is named", param="--model", hint=NO_MODEL)
    if repo and "model" in args.typed:
        raise RequestError("-m and -hf both name the target", param="--hf-repo", hint="give one of them")
    return repo


def names_downloads(args: ModelFlags) -> bool:
    """Whether `take_models` asks other computers for files."""
    repositories = (_unless_typed(args, "hf_repo", "model"), _unless_typed(args, "hf_repo_draft", "drafter"))
    return any(repositories) or bool(args.mmproj_url and not args.mmproj)


def _unless_typed(args: ModelFlags, name: str, other: str) -> str | None:
    """The flag `name`, unless it comes from its variable and the flag `other` was typed."""
    return None if other in args.typed and name not in args.typed else getattr(args, name)


@contextmanager
def _paired(
    models: Models,
    args: ModelFlags,
    repo: str | None,
    drafter_repo: str | None,
    *,
    find_drafter: bool,
    find_projector: bool,
) -> Iterator[Pairing]:
    """The pairing that has chosen what comes from the Hub; the words that name it are in `models.remote` then."""
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
        models.remote = _remote(pairing, args, repo, drafter_repo)
        yield pairing


def _remote(pairing: Pairing, args: ModelFlags, repo: str | None, drafter_repo: str | None) -> dict[str, Sequence[str]]:
    """`Models.remote`. A drafter and a projector that are found by the target's name need no words."""
    remote: dict[str, Sequence[str]] = {}
    if repo:
        remote["target"] = ["-hf", repo, *(["-hff", args.hf_file] if args.hf_file else [])]
    if drafter_repo:
        remote["drafter"] = ["-hfd", drafter_repo, *(["-md", args.drafter] if args.drafter else [])]
    elif pairing.drafter and pairing.drafter.files:
        remote["drafter"] = []
    if pairing.projector:
        remote["projector"] = []
    return remote


def _fetch(models: Models, pairing: Pairing) -> None:
    target, drafter = pairing.fetch()
    _take_files(models, pairing, target, drafter, pairing.fetch_projector())


def _take_files(models: Models, pairing: Pairing, target: Path, drafter: Path | None, projector: Path | None) -> None:
    """Take what a pairing has chosen, in these files."""
    if "target" in models.remote:
        models.target = str(target)
    if projector:
        models.projector = str(projector)
        note(f"projector: {projector.name}")
    if drafter:
        models.drafter, models.auto_convert = str(drafter), True
        note(f"drafter: {pairing.drafter}")


def _fetch_projector(models: Models, args: ModelFlags) -> None:
    """Download the projector that --mmproj-url names."""
    if args.mmproj_url and not args.mmproj:
        from dflash_local.hub.url_file import fetch_url

        with hub_of(args.offline, args.hf_token) as hub:
            models.projector = str(fetch_url(args.mmproj_url, hub))


def _take_listed(models: Models) -> None:
    """Take the drafter on this disk that the list has for a target of these names, if it fits."""
    from dflash_local.hub import registry

    try:
        targets = registry.targets_with_files()
    except HubError as error:
        note(f"{error.message} ({error.hint})")
        models.may_suggest = False
        return
    known = [registry.by_file_name(targets, name) for name in models.names]
    if not any(target and target.files for target in known) or not is_file(Path(models.target)):
        return
    from dflash_local.hub.pairing import Pairing

    with suppress(ModelError), hub_of(offline=True) as hub, Pairing(hub) as pairing:  # the engine reports what is wrong
        pairing.local_target(Path(models.target))
        models.may_suggest = False
        if pairing.find_file(targets, models.names):
            models.drafter = str(pairing.drafter)
            note(f"drafter: {pairing.drafter}")


def suggest(models: Models, facts: Mapping[str, Any] | None = None) -> None:
    """Note the drafter that is known for the target, once, if it is a local file without one.

    Args:
        facts: of the loaded target (`Engine.info["target"]`). They show of most models that none is known; to read the
            header here takes more imports than to serve the model.
    """
    if not models.may_suggest:
        return
    from dflash_local.hub import registry

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
        return None if text.endswith(".gguf") or exists(Path(text)) else Name.parse(text)
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
