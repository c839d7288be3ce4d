"""The pages: links, anchors and files that they name exist, commands and targets too, and prose fits 120 columns."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from dflash_local.cli import COMMANDS, parser
from dflash_local.cli.parser_actions import commands_of

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "patches" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
COLUMNS = 120

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
# A file or folder of this repository in backquotes, with or without stars.
NAMED_FILE = re.compile(r"`((?:convert|patches|ggml_ops|dflash_local|server|tests|benchmarks|docs)/[\w./*{},-]*)`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@cache
def prose(page: Path) -> str:
    """The page without its blocks of code, which are blank lines instead."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub makes of the page's headings."""
    titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]) for heading in HEADING.finditer(prose(page)))
    return frozenset(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles)


def broken_links(page: Path) -> list[str]:
    """Relative links of the page that lead nowhere."""
    broken = []
    for match in LINK.finditer(prose(page)):
        link = match[1] or match[2]
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@each_page
def test_prose_fits_the_columns(page: Path) -> None:
    """Tables and lines that are one link or picture cannot be broken."""
    unbreakable = re.compile(r"^ *(\||!?\[[^\]]*\]\([^)]*\)[.,]?$)")
    lines = enumerate(prose(page).split("\n"), 1)
    assert [f"line {n}: {len(s)}" for n, s in lines if len(s) > COLUMNS and not unbreakable.match(s)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_named_files_exist(page: Path) -> None:
    """The changelog is left out: it tells of its day."""
    names = {match[1] for match in NAMED_FILE.finditer(prose(page))}
    assert [name for name in sorted(names) if not any(list(ROOT.glob(one)) for one in alternatives(name))] == []


def alternatives(name: str) -> list[str]:
    """Patterns of the files that a name stands for: `a/{b,c}.d` is `a/b.d` or `a/c.d`, NAME any name, and
    `patches/0001` the patch of that number."""
    pattern = re.sub(r"\bNAME\b|\b000N\b", "*", name.rstrip("/"))
    pattern = re.sub(r"^patches/\d{4}$", r"\g<0>-*.patch", pattern)
    braces = re.search(r"\{([^}]*)\}", pattern)
    return [pattern.replace(braces[0], choice) for choice in braces[1].split(",")] if braces else [pattern]


def block_commands(page: Path) -> list[str]:
    """Command lines of the page's blocks of code; a backslash continues one."""
    blocks = re.sub(r" *\\\n *", " ", "\n".join(FENCE.findall(page.read_text(encoding="utf-8"))))
    return [plain(line) for line in re.split(r"\n|&& |; ", blocks)]


@cache
def commands(page: Path) -> list[str]:
    """Those lines, and what stands in backquotes within a line."""
    return block_commands(page) + [plain(text) for text in re.findall(r"`([^`]+)`", prose(page))]


def plain(line: str) -> str:
    return re.sub(r"\s+", " ", line.strip()).removeprefix(".venv/bin/")


def starts(page: Path, program: str) -> set[str]:
    """The first words after `program` in the page's command lines."""
    return {match[1] for line in commands(page) if (match := re.match(rf"{program} ([a-z][a-z-]*)", line))}


@each_page
def test_commands_and_targets_exist(page: Path) -> None:
    assert starts(page, "dflash-local") <= set(COMMANDS)
    phony = re.search(r"^\.PHONY: *(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony and starts(page, "make") <= set(phony[1].split())


@each_page
def test_flags_exist(page: Path) -> None:
    """Every flag that a command line of the page gives to a command is in that command's help."""
    unknown = {
        f"{command} {flag}"
        for line in commands(page)
        for command in re.findall(r"^dflash-local ([a-z]+(?:-[a-z]+)*)", line)
        for flag in re.findall(r" (--?[a-z][a-z-]*)", re.split(r" -- |#", line)[0])
        if not re.search(rf"(?<![\w-]){flag}(?![\w-])", help_of(command))
    }
    assert unknown == set()


def lines_to_run(page: Path) -> list[str]:
    """Command lines of the page's blocks that can be run as they are, without what a shell reads."""
    lines = (re.split(r" -- | # | [|&>] ?", line)[0] for line in block_commands(page))
    return [line for line in lines if line.startswith("dflash-local ") and not re.search(r"[\[$]|\.\.\.", line)]


@each_page
def test_lines_can_be_read(page: Path) -> None:
    for line in lines_to_run(page):
        words = shlex.split(line)[1:]
        if words[0] in COMMANDS and "-h" not in words:
            parser(words[:1]).parse_args(words)


@cache
def help_of(command: str) -> str:
    """What `dflash-local COMMAND --help` prints."""
    return commands_of(parser([command]))[command].format_help()


def test_the_checks_find_faults(tmp_path: Path) -> None:
    page = tmp_path / "links.md"
    page.write_text(
        "# One `two.py`: three\n[a](links.md#one-twopy-three) [b](#two) [c](none.md)\n```\n[d](none)\n```\n"
    )
    assert broken_links(page) == ["#two", "none.md"]
    page = tmp_path / "commands.md"
    page.write_text("Say `make tea` now.\n```\n.venv/bin/dflash-local fly --high   # how\n```\ndflash-local is here\n")
    assert commands(page) == ["```", "dflash-local fly --high # how", "```", "make tea"]
    assert starts(page, "make") == {"tea"} and starts(page, "dflash-local") == {"fly"}
    page.write_text("```\ndflash-local pull A \\\n  B   # how\n.venv/bin/dflash-local serve [-m M]\n```\n")
    assert lines_to_run(page) == ["dflash-local pull A B"]
    assert alternatives("a/{b,c}.d") == ["a/b.d", "a/c.d"]
    assert alternatives("patches/0001") == ["patches/0001-*.patch"]
