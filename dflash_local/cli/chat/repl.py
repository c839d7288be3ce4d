"""Chat: a conversation in the terminal, with its commands and settings."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dflash_local.cli.chat.attachment import Attachment, paths_of
from dflash_local.cli.chat.backends import Backend, Message
from dflash_local.cli.chat.shown_answer import ShownAnswer
from dflash_local.cli.chat.typed_text import enable_line_editing, texts
from dflash_local.cli.terminal.answer_view import AnswerView
from dflash_local.cli.terminal.notes import aside, error_text
from dflash_local.cli.typed_path import is_file
from dflash_local.errors import DFlashError, RequestError
from dflash_local.media.medium import Kind

_PLURALS: Mapping[Kind, str] = {"image": "images", "audio": "audio"}


@dataclass
class Chat:
    """A conversation on standard input and output; reasoning, speeds and hints go to standard error. `is_interactive`:
    somebody types, so that Ctrl-C stops an answer and not the program."""

    backend: Backend
    settings: dict[str, Any]
    system: str | None = None
    shows_drafts: bool = False
    messages: list[Message] = field(default_factory=list)
    attached: list[Attachment] = field(default_factory=list)  # to the next message
    is_interactive: bool = field(default_factory=lambda: sys.stdin.isatty())

    def loop(self) -> int:
        """Read and answer until the end. Returns 1 if the last answer failed."""
        if self.is_interactive:
            enable_line_editing()
            aside("/help shows the commands")
            if self.shows_drafts:
                self.show_drafts(True)
        status = 0
        for text in texts(self.is_interactive):
            if is_command(text):
                command, rest = split(text)
                if command == "/exit":
                    break
                try:
                    self.obey(command, rest)
                except KeyboardInterrupt:  # while it waits for a server, say
                    if not self.is_interactive:
                        raise
                    aside("[stopped]")
            elif text:
                status = self.answer(text)
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
        messages = [*self.messages, self.question(text)]
        reply = ShownAnswer(self.view())
        status, ended = 0, ""
        try:
            self.stream(messages, reply)
        except KeyboardInterrupt:
            if not self.is_interactive:
                raise
            ended = "[stopped]"
        except DFlashError as error:
            status, ended = 1, error_text(error)
        if ended:
            aside(ended)
        if reply.timings:
            reply.view.figures(reply.timings)
        if message := reply.message():  # also of a stopped answer
            self.messages = [*messages, message]
        elif self.attached:
            aside(f"not attached any more: {', '.join(one.name for one in self.attached)}")
        self.attached = []
        return status

    def stream(self, messages: list[Message], reply: ShownAnswer) -> None:
        """Ask for the answer to these messages, and add it to `reply` as it comes."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        asked = self.settings | ({"return_drafts": True} if self.shows_drafts else {})
        changes = self.backend.answer([*system, *messages], asked)
        try:
            for change in changes:
                reply.add(change)
        finally:
            changes.close()  # cancels what still runs
            reply.view.end()

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


class ChatCommand(NamedTuple):
    """What a text that begins with its name does with the rest of it."""

    argument: str
    help: str
    run: Callable[[Chat, str], None]


COMMANDS: dict[str, ChatCommand] = {
    "/set": ChatCommand(
        "NAME VALUE",
        "change a setting, such as temperature, top_p, seed or max_tokens; /set alone shows them",
        lambda chat, rest: chat.set(*rest.split(None, 1)),
    ),
    "/image": ChatCommand(
        "PATH",
        "attach images to the next message; files can be dropped onto the terminal behind it",
        lambda chat, rest: chat.attach("image", rest),
    ),
    "/audio": ChatCommand(
        "PATH", "the same with audio: wav, mp3 or flac", lambda chat, rest: chat.attach("audio", rest)
    ),
    "/system": ChatCommand("TEXT", "set the system prompt and start over", Chat.set_system),
    "/reset": ChatCommand("", "start over", lambda chat, _: chat.reset()),
    "/drafts": ChatCommand("", "show or hide drafts (--show)", lambda chat, _: chat.show_drafts(not chat.shows_drafts)),
    "/help": ChatCommand("", "show this", lambda chat, _: aside(HELP)),
    "/exit": ChatCommand("", "leave, as does Ctrl-D", lambda chat, _: None),
}
HELP: str = "\n".join(f"{f'{name} {command.argument}':<18}{command.help}" for name, command in COMMANDS.items()) + (
    "\nCtrl-C stops an answer. A line that ends with \\ continues in the next one. Pasted lines are one message."
)


def is_command(text: str) -> bool:
    """Whether a text is no message. One of several lines is a command only if that takes them: a pasted program or path
    may begin with / too."""
    command, _ = split(text)
    takes_lines = command in COMMANDS and COMMANDS[command].argument in ("TEXT", "NAME VALUE")
    return command.startswith("/") and (takes_lines or "\n" not in text)


def split(text: str) -> tuple[str, str]:
    """Its first word, and the rest."""
    first = re.split(r"\s", text, maxsplit=1)[0]
    return first, text[len(first) :].strip()
