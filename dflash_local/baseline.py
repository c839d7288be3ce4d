"""Upstream's own server as a baseline of `bench`: the same target, prompts and flags, with another draft head or none.

The server runs as a child process while it is measured, and answers one request at a time.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from dflash_local.child_process import end_process
from dflash_local.errors import DFlashError, RequestError, ServerError
from dflash_local.server_client import ServerClient

Started = TypeVar("Started", bound="ServerProcess")

HOST = "127.0.0.1"
# Timeouts in seconds. An answer comes whole, after a prompt and thousands of tokens of a large model on a slow machine.
START, ANSWER, HEALTH = 600.0, 3600.0, 5.0
# llama-server's name of each way of drafting; "none" drafts nothing.
KINDS = {
    "none": None,
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
}
# One K/V buffer and no host cache make it fastest here. No fit to free memory, since our engine shares the memory.
QUIET = ("-np", "1", "--kv-unified", "-cram", "0", "--fit", "off", "--no-webui", "-lv", "2", "--offline")


@dataclass(frozen=True)
class Baseline:
    """One way of drafting, `n_max` tokens at a time, with its head (None for mtp if the target has one itself)."""

    kind: str
    head: Path | None = None
    n_max: int = 0

    @property
    def name(self) -> str:
        return f"upstream {self.kind}, {self.n_max} tokens" if self.n_max else "upstream"

    def flags(self) -> list[str]:
        """The flags for llama-server."""
        spec = KINDS[self.kind]
        if spec is None:
            return []
        head = [] if self.head is None else ["-md", str(self.head)]
        return [*head, "--spec-type", spec, "--spec-draft-n-max", str(self.n_max)]


def parse(text: str, drafter: Path | None, lengths: Sequence[int]) -> list[Baseline]:
    """Baselines of `KIND` or `KIND=HEAD.gguf`, one for each draft length. The default head is the drafter, for mtp only
    if it has MTP layers.

    Raises:
        RequestError: there is no such kind, or it lacks a head.
    """
    kind, _, file = text.partition("=")
    if kind not in KINDS:
        raise RequestError(f"--baseline {kind}: there is {', '.join(KINDS)}", param="--baseline")
    if kind == "none":
        return [Baseline(kind)]
    from dflash_local.diagnose.mtp_layers import has_layers

    takes_ours = kind in ("dflash", "dspark") or (kind == "mtp" and drafter and has_layers(drafter))
    head = Path(file) if file else drafter if takes_ours else None
    if head is None and kind != "mtp":
        raise RequestError(f"--baseline {kind} needs its head: --baseline {kind}=HEAD.gguf", param="--baseline")
    if head is not None and not head.is_file():
        raise RequestError(f"--baseline {kind}: there is no file {head}", param="--baseline")
    return [Baseline(kind, head, n_max) for n_max in lengths]


def check(baseline: Baseline, target: Path) -> None:
    """Find early what upstream's server would complain about only when its turn comes.

    Raises:
        RequestError: mtp was asked for, but neither head nor target has prediction layers.
        ModelError: the file that should have them is not a GGUF file.
    """
    from dflash_local.diagnose.mtp_layers import has_layers

    if baseline.kind != "mtp":
        return
    model = baseline.head or target
    if not has_layers(model):
        raise RequestError(
            f"--baseline mtp: {model.name} has no prediction (MTP) layers",
            param="--baseline",
            hint="give a head, mtp=HEAD.gguf, or a target that was converted without --no-nextn",
        )


@dataclass(frozen=True)
class Reply:
    """One answer, by the server's own clock. Times in seconds; `n_tokens` includes the one that ends the answer."""

    text: str
    n_tokens: int
    generate: float  # from the first token to the last
    prompt: float
    n_drafted: int
    n_accepted: int


def free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dflash-", ignore_cleanup_errors=True)


class ServerProcess:
    """An HTTP server as a child process. A context manager: entering starts `argv`, with an address appended, and waits
    until it is ready; leaving ends it. `log`: the file of its output, else a temporary one.

    Raises:
        DFlashError, or what `failure` is: it cannot start, ended, or was not ready in time; its last lines are in the
            message.
    """

    failure: Callable[[str], Exception] = DFlashError
    patience = START
    poll = 0.1  # seconds between two looks whether it is ready

    def __init__(self, name: str, argv: Sequence[str], log: Path | None = None, **options: Any) -> None:
        self.name, self.port, self._log_file, self._options = name, free_port(), log, options
        self.argv = [*argv, "--host", HOST, "--port", str(self.port)]
        self._url = f"http://{HOST}:{self.port}"
        self._health = ServerClient(self._url, silence=HEALTH)  # now, since to import httpx takes time of the start

    def __enter__(self: Started) -> Started:
        with ExitStack() as held:
            try:
                self._log_path = self._log_file or Path(held.enter_context(_folder())) / "log"
                self._log: IO[bytes] = held.enter_context(self._log_path.open("wb"))
                self._process = subprocess.Popen(
                    self.argv, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, **self._options
                )
            except OSError as error:
                raise self._failed(f"cannot start: {error}") from None
            held.callback(self._end, self._process)
            self._wait()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        end_process(process, 10.0)

    def _wait(self) -> None:
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            if (status := self._process.poll()) is not None:
                raise self._failed(f"ended with status {status}:\n{self._last_lines()}")
            with suppress(ServerError):
                if self._health.ask("/health").status == 200:
                    return
            time.sleep(self.poll)
        raise self._failed(f"was not ready after {self.patience:.0f} s:\n{self._last_lines()}")

    def _failed(self, how: str) -> Exception:
        return type(self).failure(f"{self.name} {how}")

    def _last_lines(self) -> str:
        return "\n".join(self._output().splitlines()[-15:])

    def _output(self) -> str:
        """The log. It is opened anew: the process writes at the offset of the file that is open."""
        return self._log_path.read_bytes().decode(errors="replace")


class UpstreamServer(ServerProcess):
    """`program` for a baseline."""

    def __init__(self, program: Path, baseline: Baseline, flags: Sequence[str]) -> None:
        super().__init__(baseline.name, [str(program), *flags, *QUIET, *baseline.flags()])
        self._client = ServerClient(self._url, silence=ANSWER)

    def answer(self, prompt: Mapping[str, Any], sampling: Mapping[str, Any], n_predict: int) -> Reply:
        """Answer one prompt in the form of `bench` (`messages` or `prompt`), without reuse of the last one.

        Raises:
            DFlashError: the server refuses it, is gone, or does not answer as llama-server does.
        """
        path = "/v1/chat/completions" if "messages" in prompt else "/v1/completions"
        body = {**prompt, **sampling, "max_tokens": n_predict, "cache_prompt": False, "stream": False}
        try:
            answer = self._client.ask(path, body)
        except ServerError as error:
            raise DFlashError(f"{self.name} did not answer: {error.message}\n{self._last_lines()}") from None
        said = answer.body[:500].decode(errors="replace")
        if answer.status != 200:
            raise DFlashError(f"{self.name} refused a prompt: HTTP {answer.status}: {said}")
        try:
            return _reply(answer.object or {})
        except (LookupError, TypeError, AttributeError):
            raise DFlashError(
                f"{self.name} does not answer as llama-server does: {said}", hint="take a newer llama-server"
            ) from None


def _reply(data: Mapping[str, Any]) -> Reply:
    choice, timings = data["choices"][0], data["timings"]
    message = choice.get("message", {})
    text = message.get("content") if message else choice.get("text")
    return Reply(
        text=(message.get("reasoning_content") or "") + (text or ""),
        n_tokens=timings["predicted_n"],
        generate=timings["predicted_ms"] / 1e3,
        prompt=timings["prompt_ms"] / 1e3,
        n_drafted=timings.get("draft_n", 0),
        n_accepted=timings.get("draft_n_accepted", 0),
    )
