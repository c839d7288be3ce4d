"""llama-server's flags about the log: destination, level and format."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from dflash_local.cli.flags.flag import Flags, flag
from dflash_local.cli.flags.values import count, on_off_auto
from dflash_local.cli.terminal.console import has_escapes
from dflash_local.errors import RequestError

# llama-server's levels: 0 and 1 are errors, 3 is the default, 4 and 5 add llama.cpp's messages.
_LEVELS = (logging.ERROR, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_INFO, _TRACE, _ALL = 3, 4, 5
_COLORS = {logging.CRITICAL: 31, logging.ERROR: 31, logging.WARNING: 35, logging.DEBUG: 33}


class LogFlags(Flags, title="log"):
    """Destination, level and format of the log."""

    verbosity: int = flag(
        "-lv --verbosity --log-verbosity",
        "1 errors, 2 warnings, 3 a line for each request, 4 what llama.cpp says, 5 all (default: 3)",
        env="LLAMA_ARG_LOG_VERBOSITY",
        type=count(),
        default=_INFO,
        also={"-v --verbose --log-verbose": {"action": "store_const", "const": _ALL, "help": "the same as -lv 5"}},
    )
    log_disable: bool = flag("--log-disable", "log nothing; errors that end the server are still printed")
    log_file: Path | None = flag("--log-file", "log to this file, too; it is appended to", env="LLAMA_ARG_LOG_FILE")
    log_jsonl: bool = flag(
        "--log-jsonl",
        "log one JSON object a line, to standard output",
        env="LLAMA_ARG_LOG_JSONL",
        off="--no-log-jsonl",
        default=False,
    )
    log_colors: str = flag(
        "--log-colors",
        "color warnings and errors (default: auto, on a terminal)",
        env="LLAMA_ARG_LOG_COLORS",
        type=on_off_auto,
        default="auto",
        metavar="on|off|auto",
    )
    log_prefix: bool = flag(
        "--log-prefix", "begin lines with the level (default: on)", env="LLAMA_ARG_LOG_PREFIX", off="--no-log-prefix"
    )
    log_timestamps: bool = flag(
        "--log-timestamps",
        "begin lines with the time (default: on)",
        env="LLAMA_ARG_LOG_TIMESTAMPS",
        off="--no-log-timestamps",
    )

    @property
    def is_verbose(self) -> bool:
        """Whether everything is logged."""
        return self.verbosity >= _ALL


def set_up_logs(args: LogFlags) -> int:
    """Set up the log by the flags. Returns the lowest level of llama.cpp's messages.

    Raises:
        RequestError: the file cannot be opened.
    """
    if args.log_disable:
        logging.disable(logging.CRITICAL)
        return logging.CRITICAL
    handlers = [*_handlers(args)]
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each of our own requests would be in the way
    logging.basicConfig(level=_LEVELS[min(args.verbosity, len(_LEVELS) - 1)], handlers=handlers, force=True)
    if args.is_verbose:
        return logging.DEBUG
    # Up to level 3 llama.cpp logs only warnings and errors.
    return logging.INFO if args.verbosity == _TRACE else max(logging.WARNING, logging.getLogger().level)


def _handlers(args: LogFlags) -> Iterator[logging.Handler]:
    stream = logging.StreamHandler(sys.stdout if args.log_jsonl else sys.stderr)
    stream.setFormatter(JsonLines() if args.log_jsonl else Lines(args, colors=_has_colors(args.log_colors)))
    yield stream
    if args.log_file:
        try:
            file = logging.FileHandler(args.log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise RequestError(
                f"cannot write the log: {error}",
                param="--log-file",
                hint="give --log-file a file in a folder that exists",
            ) from None
        file.setFormatter(JsonLines() if args.log_jsonl else Lines(args, colors=False))
        yield file


def _has_colors(wanted: str) -> bool:
    return wanted == "on" or (wanted == "auto" and has_escapes(sys.stderr))


class Lines(logging.Formatter):
    """Time and level, if the flags want them, and the message."""

    def __init__(self, args: LogFlags, *, colors: bool) -> None:
        parts = ["%(asctime)s"] * args.log_timestamps + ["%(levelname)s"] * args.log_prefix + ["%(message)s"]
        super().__init__(" ".join(parts))
        self._colors = _COLORS if colors else {}

    def format(self, record: logging.LogRecord) -> str:
        text, color = super().format(record), self._colors.get(record.levelno)
        return f"\x1b[{color}m{text}\x1b[0m" if color else text


class JsonLines(logging.Formatter):
    """llama-server's --log-jsonl: {"type": "log", "time" (microseconds since 1970), "level", "msg"}."""

    def format(self, record: logging.LogRecord) -> str:
        level = {logging.WARNING: "warn", logging.CRITICAL: "error"}.get(record.levelno, record.levelname.lower())
        message = super().format(record)
        return json.dumps({"type": "log", "time": int(record.created * 1e6), "level": level, "msg": message})
