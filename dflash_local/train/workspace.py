"""Workspace: the folder with what the stages of a training run leave, so that a stopped run goes on.

Every file appears whole or not at all, except the list of answers, which grows line by line and is cut to its last
whole line.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dflash_local.convert.complete_file import complete_or_absent
from dflash_local.disk import is_full
from dflash_local.errors import DFlashError, RequestError
from dflash_local.file_lock import locked
from dflash_local.train.train_settings import flag
from dflash_local.words import file_size_text

STAGES = ("answer", "tap", "fit")
_FORMAT = 1
_KEPT_EVERY = 60.0  # seconds after which the time of a stage is written down, so that a kill loses less
_DROPPED = {"texts", "micro"}  # settings that earlier versions kept of a stage, and that may change
_ADDED = {"held_out"}  # settings that earlier versions did not keep


class Workspace:
    """`state` is what `state.json` says: the settings with which each stage was begun, seconds spent in each, held-out
    prompts, evaluations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {"format": _FORMAT, "stages": {}, "seconds": {}}
        self._timed: tuple[str, float] | None = None  # the running stage, and since when its time is not kept

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    @property
    def prompts(self) -> Path:
        """Tokens of the prompts, as they were first rendered."""
        return self.folder / "prompts.json"

    @property
    def order(self) -> Path:
        """Digests of the texts, in the order in which their hidden states lie."""
        return self.folder / "order.json"

    @property
    def taps(self) -> Path:
        return self.folder / "taps"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "fit.pt"

    @property
    def best(self) -> Path:
        """The drafter of the best evaluation."""
        return self.folder / "best.gguf"

    @property
    def best_values(self) -> Path:
        """Its values (BestValues)."""
        return self.folder / "best.safetensors"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """The folder for this process alone.

        Raises:
            RequestError: it is another kind of folder, or of another version; DFlashError: it cannot be used.
        """
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / "lock", lambda: _raise_busy(self.folder)):
                self._read()
                for part in self.folder.rglob(".*.part"):  # what a killed run was writing
                    part.unlink()
                yield

    def _read(self) -> None:
        path = self.folder / "state.json"
        if not path.exists():
            strangers = [entry.name for entry in self.folder.iterdir() if entry.name not in ("lock", "taps")]
            if strangers and not all(name.endswith(".part") for name in strangers):
                raise RequestError(
                    f"{self.folder} is a folder of something else: it holds {strangers[0]}",
                    param="--work",
                    hint="name a new folder with --work",
                )
            self.save()  # first of all, so that the folder is known for what it is
            return
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            state = None
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise RequestError(
                f"{path} is damaged, or of another version of dflash-local",
                param="--work",
                hint=f"begin anew: remove {self.folder}, or name another folder with --work",
            )
        self.state = state

    def last_state(self) -> dict[str, Any]:
        """What is written down, without opening the folder; empty if there is nothing that can be read."""
        try:
            state = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def save(self) -> None:
        self.write("state.json", json.dumps(self.state, indent=1).encode())

    def write(self, name: str, data: bytes) -> None:
        with whole_file(self.folder / name) as file:
            file.write(data)

    # ---- stages ----

    def begin(self, stage: str, settings: Mapping[str, Any]) -> None:
        """Enter a stage with the settings that its results depend on. Raises RequestError, as `check`."""
        self.check(stage, settings)
        before = self.state["stages"].get(stage)
        unknown = _ADDED - before.keys() if before is not None else set()  # what it was begun with is not known
        kept = {name: value for name, value in json.loads(json.dumps(settings)).items() if name not in unknown}
        self.state["stages"][stage] = {**(before or {}), **kept}
        if before is None:
            self.save()

    def check(self, stage: str, settings: Mapping[str, Any]) -> None:
        """Raise RequestError if a stage was begun with other settings; says what differs and what to do."""
        before, settings = self.state["stages"].get(stage), json.loads(json.dumps(settings))
        if before is None:
            return
        unknown = _DROPPED | (_ADDED - before.keys())
        for name in [name for name in {**settings, **before} if name not in unknown]:
            if not _agree(before.get(name), settings.get(name)):
                raise RequestError(
                    f"{self.folder} was begun with {flag(name)} {as_flag_value(before.get(name))}, and now it is "
                    f"{as_flag_value(settings.get(name))}",
                    param=flag(name),
                    hint=f"give the same again, or '--restart {stage}' to do this stage and those after it anew, or "
                    "another folder with --work",
                )

    def restart(self, stage: str) -> None:
        """Forget a stage and those after it. What was made of --init stays: this run has read it already, or writes it
        anew."""
        for name in STAGES[STAGES.index(stage) :]:
            self.state["stages"].pop(name, None)
            self.state["seconds"].pop(name, None)
            for path in self._files(name):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        if stage == "answer":
            self.state.pop("held_out", None)
        if stage != "fit":
            self.state.pop("recorded_tokens", None)
        for name in ("evaluations", "before", "mask_token", "measured_answers", "measured_as"):
            self.state.pop(name, None)
        self.state["seconds"].pop("measure", None)
        self.save()

    def _files(self, stage: str) -> tuple[Path, ...]:
        return {
            "answer": (self.prompts, self.answers),
            "tap": (self.taps, self.order),
            "fit": (self.checkpoint, self.best, self.best_values),
        }[stage]

    def read_prompts(self) -> dict[str, Any]:
        """As they were rendered (examples.Rendered), by their digests (examples.digest_of); empty in a new folder."""
        if not self.prompts.exists():
            return {}
        found: dict[str, Any] = json.loads(self.prompts.read_text(encoding="utf-8"))
        return found

    def write_prompts(self, prompts: Mapping[str, Any]) -> None:
        """Raises DFlashError."""
        with whole_file(self.prompts) as file:
            file.write(json.dumps(prompts).encode())

    def read_order(self) -> list[str]:
        """Empty in a new folder, and in one of an earlier version."""
        return list(json.loads(self.order.read_text(encoding="utf-8"))) if self.order.exists() else []

    def write_order(self, digests: Sequence[str]) -> None:
        """Raises DFlashError."""
        if digests != self.read_order():
            self.write(self.order.name, json.dumps(digests).encode())

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the seconds of a block for a stage, over all runs."""
        self._timed = (stage, time.monotonic())
        try:
            yield
        finally:
            self.keep_time(0.0)
            self._timed = None

    def keep_time(self, after: float = _KEPT_EVERY) -> None:
        """Write down the time of the stage that is timed, if `after` seconds of it are not."""
        assert self._timed
        stage, since = self._timed
        now = time.monotonic()
        if now - since >= after:
            self._timed = (stage, now)
            self.add_seconds(stage, now - since)

    def add_seconds(self, stage: str, seconds: float) -> None:
        self.state["seconds"][stage] = self.state["seconds"].get(stage, 0.0) + seconds
        self.save()

    def seconds(self, stage: str) -> float:
        return float(self.state["seconds"].get(stage, 0.0))

    @property
    def last_evaluated(self) -> int:
        """The step of the last evaluation, 0: none of what was fitted."""
        return max((evaluation["step"] for evaluation in self.state.get("evaluations", ())), default=0)

    # ---- disk ----

    def room(self) -> int:
        """Bytes that may be written."""
        return max(shutil.disk_usage(self.folder).free - _MARGIN, 0)

    def stored(self) -> int:
        """Bytes of hidden states and of the fit so far."""
        files = [*self.taps.glob("*"), *self._files("fit"), *self.folder.glob("init*.gguf")]
        return sum(path.stat().st_size for path in files if path.is_file())

    def need(self, n_bytes: int, what: str, n_freed: int = 0) -> None:
        """Raise DFlashError unless the disk has room for `n_bytes` more, once `n_freed` are removed."""
        if self.room() + n_freed < n_bytes:
            free = shutil.disk_usage(self.folder).free
            raise DFlashError(
                f"{what} takes {file_size_text(n_bytes)} in {self.folder}, where {file_size_text(free)} are free",
                hint="free some, or name a folder on a larger disk with --work; what is done so far is kept",
            )


_MARGIN = 64 << 20


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """`complete_or_absent` with a run's errors. Raises DFlashError."""
    with disk_errors(path.parent), complete_or_absent(path) as file:
        yield file


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise DFlashError(
                f"the disk of {folder} is full",
                hint="free some space and give the same command again: what is done so far is kept",
            ) from error
        why = error.strerror or error
        if isinstance(error.filename, str) and not _is_about(folder.absolute(), Path(error.filename).absolute()):
            hint = "check that it is there, and who may read it"
            raise DFlashError(f"{error.filename} cannot be used: {why}", hint=hint) from error
        raise DFlashError(f"{folder} cannot be used: {why}", hint="check --work and -o") from error


def _is_about(folder: Path, path: Path) -> bool:
    """Is `path` the folder, something in it, or a folder above?"""
    return folder in (path, *path.parents) or path in folder.parents


def _raise_busy(folder: Path) -> None:
    raise RequestError(
        f"another training run uses {folder}", param="--work", hint="wait for it, or name another folder with --work"
    )


def _agree(before: Any, now: Any) -> bool:
    """Is a setting the same? Of a folder, earlier versions kept the name alone."""
    return before == now or (isinstance(before, str) and isinstance(now, str) and now.rpartition(" (")[0] == before)


def as_flag_value(value: Any) -> str:
    """A setting, as the user would give it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "nothing" if value is None else str(value)
