"""Draws docs/figures/terminal-*.svg, a chat as a terminal shows it: python -m tests.cli.figures TARGET.gguf
DRAFTER.gguf"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI, TerminalTheme
from rich.text import Text

from tests.cli.terminal import Terminal
from tests.cli.test_drafts import FOREIGN, QUESTION, TERMINAL, command

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
COLUMNS = 124
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": MONOKAI}


def chat(target: Path, drafter: Path) -> str:
    """What the chat writes, escape codes and all."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN} | TERMINAL
    argv = command({"target": target, "dflash": drafter}, "--show", "drafts")
    with (
        Terminal(COLUMNS) as terminal,
        subprocess.Popen(
            argv, env=env, stdin=terminal.slave, stdout=terminal.slave, stderr=terminal.slave, start_new_session=True
        ) as process,
    ):
        terminal.until("the target's own\n>")
        terminal.type(QUESTION + "\n")
        terminal.until("x plain (")
        terminal.look(0.5)
        process.kill()
        return terminal.bytes.decode()


def draw(shown: str, theme: TerminalTheme) -> str:
    """An SVG of it, with the reader's own fonts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="dflash-local chat --show drafts", theme=theme, unique_id="chat")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main(target: Path, drafter: Path) -> None:
    """Draw both."""
    lines = re.sub(r"\x1b7.*?\x1b8|\x1b\[K|\x1b\[\?[0-9]+[hl]", "", chat(target, drafter), flags=re.DOTALL).splitlines()
    start = next(i for i, line in enumerate(lines) if "the target's own" in line)
    end = next(i for i, line in enumerate(lines) if "x plain (" in line)
    for name, theme in THEMES.items():
        svg = draw("\n".join(lines[start : end + 1]), theme)
        (FOLDER / f"terminal-{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
