"""The worker: a process that holds one embedding model and answers the server over pipes.

    python -m dflash_local.server.embeddings.worker '{"path": "model.gguf", ...}'

It is a process of its own because llama-cpp-python's functions are unguarded: whatever a file makes llama.cpp assert
ends this process, not the server. Also, the numbers of a long answer are written as text here, where nobody waits for
Python's lock. It exits when its standard input ends.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import llama_cpp
import numpy as np

from dflash_local import native
from dflash_local.arguments import check_vocabulary
from dflash_local.errors import ComputeError, ContextLengthError, DFlashError, RequestError
from dflash_local.server.children.parent import Parent
from dflash_local.server.embeddings.embedding_model import EmbeddingModel
from dflash_local.server.embeddings.options import ModelOptions
from dflash_local.server.embeddings.texts import Tokens, parse_texts
from dflash_local.server.signals import ENDING

LOG_INFO, LOG_ERROR, LOG_MORE = 2, 4, 5  # of enum ggml_log_level

# Texts of a request that are tokenized before others have their turn.
TURN = 32

T = TypeVar("T")
Message = dict[str, Any]
Job = Iterator[None]


class Worker:
    """Answers requests in turn, one pass of each at a time or TURN texts to tokenize, so that a long list delays no
    other."""

    def __init__(self, model: EmbeddingModel, parent: Parent) -> None:
        self._model, self._parent = model, parent
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._jobs: deque[tuple[int, Job]] = deque()

    def serve(self) -> None:
        """Serve until the parent is gone."""
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            while not self._jobs or not self._inbox.empty():
                message = self._inbox.get()
                if message is None:
                    return
                self._take(message)
            self._turn()

    def _turn(self) -> None:
        """One pass of the next request."""
        number, job = self._jobs.popleft()
        try:
            next(job)
            self._jobs.append((number, job))
        except StopIteration:
            pass
        except DFlashError as error:
            self._fail(number, error)
        except Exception as error:  # that request's, which may ask for what nobody foresaw
            traceback.print_exc()
            self._fail(number, ComputeError(f"the embedding model's process failed: {type(error).__name__}"))

    def _listen(self) -> None:
        while frame := self._parent.read():
            self._inbox.put(frame[0])
        self._inbox.put(None)

    def _take(self, message: Message) -> None:
        number = message["id"]
        if message["do"] == "cancel":
            self._jobs = deque(job for job in self._jobs if job[0] != number)
            return
        kinds: dict[str, Callable[[Message], Job]] = {
            "embed": self._embed,
            "rerank": self._rerank,
            "tokenize": self._tokenize,
        }
        self._jobs.append((number, kinds[message["do"]](message)))

    def _fail(self, number: int, error: DFlashError) -> None:
        self._parent.say({"id": number, "error": error_message(error)})

    # ---- what is asked ----

    def _embed(self, message: Message) -> Job:
        texts = parse_texts(message["input"], message["param"])
        tokens = yield from self._each(texts, self._model.tokens_of, message["param"])
        yield
        encode = _base64 if message["base64"] else _numbers
        parts: list[bytes] = [b""] * len(tokens)
        for done in self._model.run(tokens):
            for index, result in done:
                pooled = result.ndim == 1
                parts[index] = encode(normalized(result, message["normalize"]) if pooled else result)
            yield
        self._answer(message, tokens, {"sizes": _lengths(parts)}, b"".join(parts))

    def _rerank(self, message: Message) -> Job:
        with blamed_on("query", "query"):
            pair = self._model.pairing(message["query"])
        pairs = yield from self._each(message["documents"], pair, "documents")
        yield
        scores = [0.0] * len(pairs)
        for done in self._model.run(pairs):
            for index, result in done:
                scores[index] = float(result[0])
            yield
        self._answer(message, pairs, {"scores": scores})

    def _tokenize(self, message: Message) -> Job:
        add, parse = message["add_special"], message["parse_special"]
        with blamed_on("content", "content[0]"):
            tokens = self._model.tokenize(message["text"], add_special=add, parse_special=parse)
        self._parent.say({"id": message["id"], "ids": tokens})
        yield

    def _answer(self, message: Message, tokens: list[Tokens], answer: Message, data: bytes = b"") -> None:
        counts = {"tokens": sum(_lengths(tokens)), "passes": self._model.n_passes}
        self._parent.say({"id": message["id"], **answer, **counts}, data)

    def _each(
        self, texts: Sequence[T], tokens_of: Callable[[T], Tokens], param: str
    ) -> Generator[None, None, list[Tokens]]:
        """The tokens of all texts."""
        all_tokens: list[Tokens] = []
        for index, text in enumerate(texts):
            if index and index % TURN == 0:
                yield
            with blamed_on(param, f"{param}[{index}]"):
                tokens = tokens_of(text)
            check_vocabulary(param, tokens, self._model.n_vocab)
            self._check(tokens, param, index)
            all_tokens.append(tokens)
        return all_tokens

    def _check(self, tokens: Tokens, param: str, index: int) -> None:
        if not tokens:
            raise RequestError(f"{param}[{index}] is empty: it has no tokens", param=param)
        if len(tokens) > self._model.n_ctx:
            trained = self._model.n_ctx_train
            hint = "start with a larger -c" if self._model.n_ctx < trained else "give it in smaller pieces"
            raise ContextLengthError(
                f"{param}[{index}] has {len(tokens)} tokens, which is too large to process: at most "
                f"{self._model.n_ctx} fit",
                param=param,
                hint=hint,
            )


@contextmanager
def blamed_on(param: str, place: str) -> Iterator[None]:
    """Errors of a text name its place in the request."""
    try:
        yield
    except RequestError as error:
        raise error.at(param, f"{place}: {error.message}") from None


def normalized(vector: np.ndarray, norm: int) -> np.ndarray:
    """common_embd_normalize() of llama.cpp: -1 none, 0 the largest is 32760, 1 taxicab, 2 Euclid, p the p-norm."""
    wide = np.abs(vector.astype(np.float64))
    largest = float(wide.max())
    if norm < 0 or largest == 0.0:
        return vector
    wide /= largest  # so that no power overflows
    total = largest * (1 / 32760.0 if norm == 0 else float((wide**norm).sum() ** (1.0 / norm)))
    return (vector / total).astype(np.float32)


def _base64(result: np.ndarray) -> bytes:
    return b'"' + base64.b64encode(result.astype("<f4").tobytes()) + b'"'


def _numbers(result: np.ndarray) -> bytes:
    """As JSON: nine digits distinguish every float32 from its neighbours."""
    if result.ndim == 2:
        return b"[" + b",".join(map(_numbers, result)) + b"]"
    return ("[" + ",".join([f"{number:.9g}" for number in result.tolist()]) + "]").encode()


def _lengths(items: list[Any]) -> list[int]:
    return [len(item) for item in items]


def error_message(error: DFlashError) -> Message:
    """A message from which the server raises the error again."""
    kind = type(error).__name__
    return {"kind": kind, "message": error.message, "hint": error.hint, "param": getattr(error, "param", None)}


def log_from(level: int) -> None:
    """Print llama.cpp's messages from `level` on. llama-cpp-python's own filter has outdated numbers for the levels."""
    printing = False

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def on_log(found: int, text: bytes, _user: Any) -> None:
        nonlocal printing
        printing = printing if found == LOG_MORE else found >= level
        if printing:
            print(text.decode("utf-8", "replace"), end="", file=sys.stderr, flush=True)

    llama_cpp.llama_log_set(on_log, None)
    _alive.append(on_log)


_alive: list[Any] = []  # callbacks that must not be collected: llama.cpp has a bare pointer to them


def _give_way(nice: int) -> None:
    """Let processes of ordinary priority go first."""
    if sys.platform == "win32":
        kernel = ctypes.windll.kernel32
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        kernel.SetPriorityClass(ctypes.c_void_p(kernel.GetCurrentProcess()), subprocess.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        os.nice(nice)


def main() -> None:
    """Load the model, report it, and serve."""
    # Ctrl-C in a terminal and a supervisor's SIGTERM reach the whole group, but it is the server that ends this
    # process, once it is done with it.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    parent = Parent()
    options = json.loads(sys.argv[1])
    if nice := options.pop("nice", 0):
        _give_way(nice)
    native.load()  # before log_from(), since it installs a log callback of its own
    log_from(LOG_INFO if options["verbose"] else LOG_ERROR)
    try:
        model = EmbeddingModel(ModelOptions(**options))
    except DFlashError as error:
        parent.say({"error": error_message(error)})
        return
    parent.say({"ready": model.facts()})
    Worker(model, parent).serve()


if __name__ == "__main__":
    main()
