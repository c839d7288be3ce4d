"""`dflash-local chat`: talk to a pair, or to a running server, in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.engine_flags import (
    add_engine_flags,
    add_sampling_flags,
    count,
    load_engine,
    sampling_options,
)
from dflash_local.cli.flags.model_flags import NO_MODEL, take_models
from dflash_local.cli.terminal.answer_view import AnswerView
from dflash_local.cli.terminal.notes import note
from dflash_local.cli.usage import Commands, add_command
from dflash_local.errors import DFlashError, RequestError

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.server.formats.passes import ChoicePasses

HELP = """\
/set NAME VALUE   change a setting, such as temperature, top_p, seed or max_tokens; /set alone shows them
/system TEXT      set the system prompt and start over
/reset            start over
/drafts           show or hide drafts (--show)
/help             show this
/exit             leave, as does Ctrl-D
Ctrl-C stops an answer. A line that ends with \\ continues in the next one."""

Message = dict[str, Any]
# Streams the answer to a conversation: deltas in OpenAI's shape, {"pass": {...}} before those of each pass if drafts
# are shown, and {"timings": {...}} at the end.
Backend = Callable[[list[Message], dict[str, Any]], Generator[dict[str, Any], None, None]]


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands, "chat", run, "chat in the terminal",
        "Chat with a model in the terminal; after each answer, its speed and AL (tokens per pass of the "
        "target).",
        epilog="commands inside the chat:\n" + HELP,
        allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument(
        "--url", metavar="URL",
        help="talk to a running server, such as http://127.0.0.1:8080, instead of loading a model",
    )  # fmt: skip
    parser.add_argument("--api-key", metavar="KEY", help="the server's key")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument(
        "-n", "--predict", type=count(-1), default=-1, metavar="N", help="most tokens per answer (default: no limit)"
    )
    parser.add_argument(
        "--show", choices=("text", "drafts"), default="text",
        help="drafts: tint what was drafted, by whom and how deep, show what the last pass refused, and tell more "
        "after each answer (default: text)",
    )  # fmt: skip
    add_engine_flags(parser)
    add_sampling_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Chat until /exit or the end of input."""
    settings = json.loads(sampling_options(args).to_json()) | {"max_tokens": args.predict}
    if args.url:
        return Chat(remote(args.url, args.api_key), settings, args.system, args.show == "drafts").loop()
    if not args.model and not args.hf_repo:
        raise RequestError("no model to chat with", hint=f"{NO_MODEL}, or --url of a running server")
    take_models(args)
    note("loading ...")
    with load_engine(args) as engine:
        return Chat(local(engine), settings, args.system, args.show == "drafts").loop()


def local(engine: Engine) -> Backend:
    """A backend over an engine of this process."""

    def answer(messages: list[Message], settings: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        passes = _passes(engine) if settings.get("return_drafts") else None
        for change in engine.chat(messages, stream=True, **settings):
            if passes and change.chunk and change.chunk.step:
                yield {"pass": passes.push(change.chunk.step, change.chunk.tokens)}
            yield change.delta
            if change.completion:
                timings = change.completion.timings
                yield {"timings": timings.to_dict() | timings.drafting()}

    return answer


def _passes(engine: Engine) -> ChoicePasses:
    """Formats the passes of an answer like the server."""
    from dflash_local.server.formats.passes import ChoicePasses

    return ChoicePasses(0, engine.pieces(special=True))


def remote(url: str, api_key: str | None) -> Backend:
    """A backend over a server's `/v1/chat/completions`."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    endpoint = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"

    def answer(messages: list[Message], settings: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        body = json.dumps({"messages": messages, "stream": True, **settings}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(endpoint, body, headers)) as response:
                for line in response:
                    if line.startswith(b"data: {"):
                        yield from _changes(json.loads(line[6:]))
        except urllib.error.HTTPError as error:
            raise DFlashError(_message(error.read()) or f"{endpoint}: {error}") from None
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise DFlashError(
                f"cannot talk to {endpoint}: {error}", hint="is 'dflash-local serve' running there?"
            ) from None

    return answer


def _changes(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "error" in event:
        raise DFlashError(event["error"]["message"])
    if one_pass := event.get("dflash", {}).get("pass"):
        yield {"pass": one_pass}
    yield from (choice["delta"] for choice in event["choices"])
    if "timings" in event:
        yield {"timings": event["timings"] | event.get("dflash", {})}


def _message(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return None


@dataclass
class Chat:
    """A conversation on standard input and output; reasoning, speeds and hints go to standard error."""

    backend: Backend
    settings: dict[str, Any]
    system: str | None = None
    shows_drafts: bool = False
    messages: list[Message] = field(default_factory=list)

    def loop(self) -> int:
        """Read and answer until the end. Returns 1 if the last answer failed."""
        if sys.stdin.isatty():
            _enable_line_editing()
            note("/help shows the commands")
            if self.shows_drafts:
                self.show_drafts(True)
        status = 0
        for line in lines():
            command, _, rest = line.partition(" ")
            if command == "/exit":
                break
            if line.startswith("/"):
                self.obey(command, rest.strip())
            elif line:
                status = self.answer(line)
        return status

    def obey(self, command: str, rest: str) -> None:
        if command == "/help":
            note(HELP)
        elif command == "/reset":
            self.messages.clear()
            note("starting over")
        elif command == "/system":
            self.system = rest or None
            self.messages.clear()
            note(f"system prompt: {self.system}")
        elif command == "/drafts":
            self.show_drafts(not self.shows_drafts)
        elif command == "/set":
            self.set(*rest.split(None, 1))
        else:
            note(f"there is no {command}; /help shows the commands")

    def set(self, name: str = "", value: str | None = None) -> None:
        """Check and change a setting; without a value, show all."""
        from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams

        if value is None:
            note("\n".join(f"{name} = {value}" for name, value in self.settings.items()))
            return
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        if name == "max_tokens" and type(parsed) is int and parsed >= -1:
            self.settings[name] = parsed
        elif name in SAMPLING_FIELDS:
            try:
                SamplingParams(**{name: parsed})
            except RequestError as error:
                note(error.message)
                return
            self.settings[name] = parsed
        else:
            note(f"cannot set {name} to {value}; names are max_tokens and those of llama-server's sampling fields")
            return
        note(f"{name} = {parsed}")

    def answer(self, text: str) -> int:
        """Stream one answer. Returns 0, or 1 if it failed."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*self.messages, {"role": "user", "content": text}]
        reply: Message = {"role": "assistant", "content": ""}
        timings: dict[str, Any] = {}
        status, ended, view = 0, "", self.view()
        asked = self.settings | ({"return_drafts": True} if self.shows_drafts else {})
        changes = self.backend([*system, *messages], asked)
        try:
            for change in changes:
                timings = change.get("timings", timings)
                if one_pass := change.get("pass"):
                    view.on_pass(one_pass)
                if thought := change.get("reasoning_content"):
                    view.thought(thought)
                if content := change.get("content"):
                    reply["content"] += content
                    view.content(content)
        except KeyboardInterrupt:
            ended = "[stopped]"
        except DFlashError as error:
            status, ended = 1, f"error: {error}"
        finally:
            changes.close()  # cancels what still runs
            view.end()
        if ended:
            note(ended)
        if timings:
            view.figures(timings)
        if reply["content"]:  # also of a stopped answer
            self.messages = [*messages, reply]
        return status

    def view(self) -> AnswerView:
        if not self.shows_drafts:
            return AnswerView()
        from dflash_local.cli.drafts.draft_view import DraftView  # rich is slow to import

        return DraftView()

    def show_drafts(self, shown: bool) -> None:
        self.shows_drafts = shown
        if not shown:
            note("drafts are not shown")
            return
        from dflash_local.cli.drafts.draft_view import legend

        no_colours = "drafts are shown in the figures after each answer; this terminal has no colours to tint text"
        print(legend() or no_colours, file=sys.stderr, flush=True)


def lines() -> Iterator[str]:
    """Lines of input; a line that ends with a backslash continues in the next. Ctrl-C discards an unfinished line."""
    interactive = sys.stdin.isatty()
    begun: list[str] = []
    while True:
        try:
            line = input(("... " if begun else "> ") if interactive else "")
        except EOFError:
            if interactive:
                print()
            if begun:
                yield "\n".join(begun)
            return
        except KeyboardInterrupt:
            begun.clear()
            note("\n/exit or Ctrl-D leaves")
            continue
        if line.endswith("\\"):
            begun.append(line[:-1])
            continue
        yield "\n".join([*begun, line.rstrip()])
        begun.clear()


def _enable_line_editing() -> None:
    with suppress(ImportError):  # Windows has its own
        import readline  # noqa: F401  # its import gives input() history and editing
