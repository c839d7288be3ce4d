"""AnswerRecord: keeps what a server was asked and answered, for `train --data`.

Only where somebody asked for it (`serve --record DIR`, `serve --adapt DIR`). The folder and its files are the user's
alone, and bounded. Answers about images and audio are left out: token ids say nothing of what was shown.
"""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.errors import RequestError
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.sampling import SamplingParams
from dflash_local.train.examples import key_of
from dflash_local.train.written_texts import Text, identity

if TYPE_CHECKING:
    from dflash_local.generation import Completion
    from dflash_local.request_options import RequestOptions

log = logging.getLogger(__name__)

_FILES = "answers-"  # with which the names of its files begin; the rest tells in which order they were begun
LEAST = 8  # tokens of an answer worth keeping
_N_FILES = 64  # of an AnswerRecord that makes room, about: each answer counts what they have
_STEM = 48  # letters of a model's name in that of a file, which has at most 255 bytes


def record_files(folder: Path) -> list[Path]:
    """Those of a record, in the order in which they were begun. Raises OSError."""
    return sorted(path for path in folder.iterdir() if path.name.startswith(_FILES) and path.suffix == ".jsonl")


class AnswerRecord:
    """Appends each finished answer to a file of its own in `folder`, until all files there have `n_most` bytes. What it
    is given is written on another thread; a failure is logged once and ends the record, nothing else.

    Raises:
        RequestError: the folder, which `param` named, cannot be made or written.
    """

    def __init__(self, folder: Path, model: Path, n_most: int, param: str = "--record") -> None:
        self._target, self._n_most, self._full = identity(model), n_most, False
        self._folder, self._stem = folder, model.stem[:_STEM]
        self._told = False  # that media are left out
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._begin_file()
        except OSError as error:
            raise RequestError(f"cannot record in {folder}: {error.strerror}", param=param) from None
        self._writer = ThreadPoolExecutor(1, "record")
        log.warning(
            "PROMPTS AND ANSWERS ARE RECORDED in %s, as token ids, at most %d MiB; only this user may read them; none "
            "with images or audio",
            self._path, n_most >> 20,
        )  # fmt: skip

    def _begin_file(self) -> None:
        """Raises OSError."""
        path = self._folder / f"{_FILES}{self._stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._path = path

    def __call__(self, request: RequestOptions, completion: Completion) -> None:
        if self._full or len(completion.tokens) < LEAST:
            return
        if isinstance(request.prompt_tokens, MediaPrompt):
            self._tell_of_media()
            return
        self._writer.submit(self._keep, request, completion)  # the engine's thread has an answer to deliver

    def _tell_of_media(self) -> None:
        if not self._told:
            log.warning("answers about images and audio are not recorded")
            self._told = True

    def _keep(self, request: RequestOptions, completion: Completion) -> None:
        if self._full:
            return
        try:
            prompt = list(request.prompt_tokens)
            temperature = (request.sampling or SamplingParams()).temperature
            self._write(Text.written(key_of(prompt), 0, prompt, temperature, completion, self._target))
        except Exception:  # nobody reads the result of this call
            self._full = True
            log.exception("an answer could not be recorded: later answers are not kept")

    def _write(self, text: Text) -> None:
        if self._full:
            return
        try:
            self._full = not self._append(text.to_json().encode() + b"\n")
        except OSError as error:
            self._stop(error)
            return
        if self._full:
            log.warning("the record in %s is full: later answers are not kept", self._folder)

    def _stop(self, error: OSError) -> None:
        self._full = True
        log.warning("%s cannot be written (%s): later answers are not kept", self._path, error.strerror)

    def _append(self, line: bytes) -> bool:
        """Add a whole line, or nothing; False: it was too much. What the folder has is counted afterwards, since other
        processes write there, too: of two at once, the later one to count sees both lines. Raises OSError."""
        before = os.fstat(self._file).st_size
        fits = False
        try:
            _write_all(self._file, line)
            fits = self._others() + before + len(line) <= self._n_most
        finally:
            if not fits:
                os.ftruncate(self._file, before)
        return fits

    def _others(self) -> int:
        """Bytes of the folder's other files."""
        n_bytes = 0
        for path in self._folder.glob("*.jsonl"):
            with suppress(FileNotFoundError):  # removed in the meantime
                n_bytes += path.stat().st_size if path != self._path else 0
        return n_bytes

    def flush(self) -> None:
        """Wait until all that it was given is written, or refused."""
        self._writer.submit(lambda: None).result()

    def make_room(self) -> None:
        """Go on in a new file, unless this one is small, and remove the oldest ones as long as all together have more
        than half of what they may: for whoever has read them, and wants to learn from answers to come."""
        self._writer.submit(self._make_room)

    def _make_room(self) -> None:
        before = self._file
        try:
            if os.fstat(before).st_size > self._n_most // _N_FILES:
                self._begin_file()
                os.close(before)
            for path in record_files(self._folder):
                if path != self._path and self._others() > self._n_most // 2:
                    path.unlink()
            self._full = False
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        """Write what is left."""
        self._writer.shutdown()
        os.close(self._file)


def _write_all(file: int, data: bytes) -> None:
    """os.write() may write less than it is given, of which a full disk is one reason. Raises OSError."""
    while data:
        data = data[os.write(file, data) :]
