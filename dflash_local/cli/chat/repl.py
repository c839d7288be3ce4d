"""Chat: a conversation in the terminal, with its commands and settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dflash_local.cli.chat.attachment import Attachment, paths_of
from dflash_local.cli.chat.backends import Backend, Message
from dflash_local.cli.terminal.answer_view import AnswerView
from dflash_local.cli.terminal.notes import aside, error_text
from dflash_local.cli.typed_path import is_file
from dflash_local.errors import DFlashError, RequestError
from dflash_local.media.medium import Kind

_PLURALS: Mapping[Kind, str] = {"image": "images", "audio": "audio"}


@dataclass
class Chat:
    """A conversation on standard input and output; reasoning, speeds and hints go to standard error."""

    backend: Backend
    settings: dict[str, Any]
    system: str | None = None
    shows_drafts: bool = False
    messages: list[Message] = field(default_factory=list)
    attached: list[Attachment] = field(default_factory=list)  # to the next message

    def loop(self) -> int:
        """Read and answer until the end. Returns 1 if the last answer failed."""
        if sys.stdin.isatty():
            _enable_line_editing()
            aside("/help shows the commands")
            if self.shows_drafts:
                self.show_drafts(True)
        status = 0
        for line in lines():
            command, _, rest = line.partition(" ")
            if command == "/exit":
                break
            if line.startswith("/"):
                try:
                    self.obey(command, rest.strip())
                except KeyboardInterrupt:  # while it waits for a server, say
                    aside("[stopped]")
            elif line:
                status = self.answer(line)
        return status

    def obey(self, command: str, rest: str) -> None:
        if command in COMMANDS:
            COMMANDS[command].run(self, rest)
        elif any(map(is_file, paths_of(f"{command} {rest}"))):
            aside("to show a file to the model: /image PATH or /audio PATH")
        else:
            aside(f"there is no {command}; /help shows the commands")

    def reset(self) -> None:
        self.start_over()
        aside("starting over")

    def set_system(self, prompt: str) -> None:
        self.system = prompt or None
        self.start_over()
        aside(f"system prompt: {self.system}")

    def start_over(self) -> None:
        self.messages.clear()
        self.attached.clear()

    def attach(self, kind: Kind, rest: str) -> None:
        """Attach files to the next message, or say why not."""
        if not rest:
            aside(f"/{kind} needs the path of a file")
            return
        try:
            abilities = self.backend.abilities()
            if abilities is not None and not abilities.reads(kind):
                aside(f"this model reads no {_PLURALS[kind]}: it has no projector for that (--mmproj)")
                return
            for path in paths_of(rest):
                self.attached.append(one := Attachment.of(path, kind))
                aside(f"attached to the next message: {one.name} ({one.facts})")
        except DFlashError as error:
            aside(error_text(error))

    def set(self, name: str = "", value: str | None = None) -> None:
        """Check and change a setting; without a value, show all."""
        from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams

        if value is None:
            aside("\n".join(f"{name} = {value}" for name, value in self.settings.items()))
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
                aside(error.message)
                return
            self.settings[name] = parsed
        else:
            aside(f"cannot set {name} to {value}; names are max_tokens and those of llama-server's sampling fields")
            return
        aside(f"{name} = {parsed}")

    def answer(self, text: str) -> int:
        """Stream one answer. Returns 0, or 1 if it failed."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*self.messages, self.question(text)]
        reply: Message = {"role": "assistant", "content": ""}
        timings: Mapping[str, Any] = {}
        status, ended, thoughts, view = 0, "", "", self.view()
        asked = self.settings | ({"return_drafts": True} if self.shows_drafts else {})
        changes = self.backend.answer([*system, *messages], asked)
        try:
            for change in changes:
                timings = change.timings or timings
                if change.drafted:
                    view.on_pass(change.drafted)
                if change.thought:
                    thoughts += change.thought
                    view.thought(change.thought)
                if change.content:
                    reply["content"] += change.content
                    view.content(change.content)
        except KeyboardInterrupt:
            ended = "[stopped]"
        except DFlashError as error:
            status, ended = 1, error_text(error)
        finally:
            changes.close()  # cancels what still runs
            view.end()
        if ended:
            aside(ended)
        if timings:
            view.figures(timings)
        if thoughts and not reply["content"]:  # stopped meanwhile: the question stays
            reply["reasoning_content"] = thoughts
        if reply["content"] or thoughts:  # also of a stopped answer
            self.messages = [*messages, reply]
        elif self.attached:
            aside(f"not attached any more: {', '.join(one.name for one in self.attached)}")
        self.attached = []
        return status

    def question(self, text: str) -> Message:
        """A message with what is attached before the text."""
        if not self.attached:
            return {"role": "user", "content": text}
        return {"role": "user", "content": [*(one.part for one in self.attached), {"type": "text", "text": text}]}

    def view(self) -> AnswerView:
        if not self.shows_drafts:
            return AnswerView()
        from dflash_local.cli.drafts.draft_view import DraftView  # rich is slow to import

        return DraftView()

    def show_drafts(self, shown: bool) -> None:
        self.shows_drafts = shown
        if not shown:
            aside("drafts are not shown")
            return
        from dflash_local.cli.drafts.draft_view import legend

        no_colours = "drafts are shown in the figures after each answer; this terminal has no colours to tint text"
        print(legend() or no_colours, file=sys.stderr, flush=True)


class Command(NamedTuple):
    """What a line that begins with its name does with the rest of the line."""

    argument: str
    help: str
    run: Callable[[Chat, str], None]


COMMANDS: dict[str, Command] = {
    "/set": Command(
        "NAME VALUE",
        "change a setting, such as temperature, top_p, seed or max_tokens; /set alone shows them",
        lambda chat, rest: chat.set(*rest.split(None, 1)),
    ),
    "/image": Command(
        "PATH",
        "attach images to the next message; files can be dropped onto the terminal behind it",
        lambda chat, rest: chat.attach("image", rest),
    ),
    "/audio": Command("PATH", "the same with audio: wav, mp3 or flac", lambda chat, rest: chat.attach("audio", rest)),
    "/system": Command("TEXT", "set the system prompt and start over", Chat.set_system),
    "/reset": Command("", "start over", lambda chat, _: chat.reset()),
    "/drafts": Command("", "show or hide drafts (--show)", lambda chat, _: chat.show_drafts(not chat.shows_drafts)),
    "/help": Command("", "show this", lambda chat, _: aside(HELP)),
    "/exit": Command("", "leave, as does Ctrl-D", lambda chat, _: None),
}
HELP: str = "\n".join(f"{f'{name} {command.argument}':<18}{command.help}" for name, command in COMMANDS.items()) + (
    "\nCtrl-C stops an answer. A line that ends with \\ continues in the next one."
)


def lines() -> Iterator[str]:
    """Lines of input; a line that ends with a backslash continues in the next. Ctrl-C discards an unfinished line."""
    interactive = sys.stdin.isatty()
    begun: list[str] = []
    while True:
        try:
            line = _asked("... " if begun else "> ") if interactive else input()
        except EOFError:
            if interactive:
                print(file=None if sys.stdout.isatty() else sys.stderr)
            if begun:
                yield "\n".join(begun)
            return
        except KeyboardInterrupt:
            begun.clear()
            aside("\n/exit or Ctrl-D leaves")
            continue
        if line.endswith("\\"):
            begun.append(line[:-1])
            continue
        yield "\n".join([*begun, line.rstrip()])
        begun.clear()


def _asked(prompt: str) -> str:
    """A typed line. The prompt is no part of what goes into a file or a pipe."""
    if sys.stdout.isatty():
        return input(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)
    return input()


def _enable_line_editing() -> None:
    with suppress(ImportError):  # Windows has its own
        import readline  # noqa: F401  # its import gives input() history and editing
