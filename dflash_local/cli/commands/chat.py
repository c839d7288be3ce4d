"""`dflash-local chat`: talk to a pair, or to a running server, in the terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dflash_local.cli.chat.backends import Backend, EngineBackend, ServerBackend
from dflash_local.cli.chat.repl import HELP, Chat
from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.engine_arguments import load_engine
from dflash_local.cli.flags.flag import add_flags, flag
from dflash_local.cli.flags.idle_flags import refuse_idle
from dflash_local.cli.flags.model_flags import ModelFlags, add_model_flags
from dflash_local.cli.flags.named_models import NO_MODEL, take_models
from dflash_local.cli.flags.sampling_flags import SamplingFlags
from dflash_local.cli.flags.values import count, read_text
from dflash_local.cli.terminal.notes import aside
from dflash_local.errors import RequestError

_DESCRIPTION = "Chat with a model in the terminal; after each answer, its speed and AL (tokens per pass of the target)."
_OF_SERVERS = frozenset({"url", "api_key", "model_name", "system", "prompt", "file", "predict", "show"})


class ChatFlags(ModelFlags, SamplingFlags):
    url: str | None = flag(
        "--url", "talk to a running server, such as http://127.0.0.1:8080, instead of loading a model", metavar="URL"
    )
    api_key: str | None = flag("--api-key", "the server's key", env="LLAMA_API_KEY", metavar="KEY")
    model_name: str | None = flag("--model-name", "which model, if the server has several", metavar="NAME")
    system: str | None = flag("--system", "system prompt", metavar="TEXT")
    prompt: str | None = flag("-p --prompt", "ask this alone, and end", metavar="TEXT")
    file: Path | None = flag("-f --file", "ask what this file has (-: standard input), behind --prompt, and end")
    predict: int = flag("-n --predict", "most tokens per answer (default: no limit)", type=count(-1), default=-1)
    show: str = flag(
        "--show",
        "drafts: tint what was drafted, by whom and how deep, show what the last pass refused, and tell more "
        "after each answer (default: text)",
        choices=("text", "drafts"),
        default="text",
    )

    @property
    def key(self) -> str | None:
        """The key for --url. Of the variable, which may have all keys of a server, the first; none if the URL has a
        user."""
        if "api_key" in self.typed or not self.api_key:
            return self.api_key
        authority = (self.url or "").partition("://")[2].partition("/")[0]
        keys = () if "@" in authority else self.api_key.split(",")
        return next(filter(None, map(str.strip, keys)), None)

    def question(self) -> str | None:
        """Read what is asked alone; None: a conversation. Raises RequestError."""
        if self.file is None:
            text, given = self.prompt, "--prompt"
        else:
            read = sys.stdin.read() if str(self.file) == "-" else read_text(self.file, "--file")
            text, given = "\n\n".join(part for part in (self.prompt, read.rstrip()) if part), "--file"
        if text == "":
            raise RequestError(f"{given} has no text to ask", param=given, hint="give one, or leave it out to chat")
        return text


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "chat",
        ChatFlags,
        run,
        "chat in the terminal",
        _DESCRIPTION,
        epilog="commands inside the chat:\n" + HELP,
    )
    add_model_flags(parser)
    add_flags(parser, SamplingFlags)


def run(args: ChatFlags) -> int:
    """Chat until /exit or the end of input, or ask one question."""
    question = args.question()  # before a model loads
    settings = json.loads(args.sampling_params().to_json()) | {"max_tokens": args.predict}
    if args.url:
        others = [name for name in args.typed if name not in _OF_SERVERS and not name.startswith("sampling_")]
        refuse_idle(args.typed, others, "the model is loaded where --url is")
        # The server has defaults of its own: what was given is sent, even if it is ours.
        settings = {name: value for name, value in args.sampling.items() if value is not None}
        if "predict" in args.typed:
            settings["max_tokens"] = args.predict
        return _chat(ServerBackend(args.url, args.key, args.model_name), settings, args, question)
    refuse_idle(args.typed, ["api_key", "model_name"], "it is for the server of --url")
    if not args.model and not args.hf_repo:
        raise RequestError("no model to chat with", hint=f"{NO_MODEL}, or --url of a running server")
    models = take_models(args)
    aside("loading ...")
    with load_engine(args, models) as engine:
        return _chat(EngineBackend(engine), settings, args, question)


def _chat(backend: Backend, settings: dict[str, Any], args: ChatFlags, question: str | None) -> int:
    chat = Chat(backend, settings, args.system, args.show == "drafts")
    if question is None:
        return chat.loop()
    chat.is_interactive = False
    return chat.answer(question)
