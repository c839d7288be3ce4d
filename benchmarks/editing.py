"""A session of edits, and the requests that an editor's plugin sends for it: what llama.vscode 0.0.63 sends, chunk by
chunk of its ring of open files.

The files are this repository's own. In each, a few lines are taken out and written again: at the beginning of each line
and after a third of it the plugin asks for a suggestion. What is written is the file's own text, whatever was
suggested, so the requests are the same for every server. When the editor goes on to the next file it has saved this
one: the lines around the cursor become a chunk, and the plugin sends all chunks ahead, as it does while nobody types.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The plugin's settings of the same names, at their defaults.
N_PREFIX, N_SUFFIX = 256, 64  # lines
N_PREDICT = 128
RING_N_CHUNKS, RING_CHUNK_SIZE = 16, 64
T_MAX_PROMPT_MS, T_MAX_PREDICT_MS = 500, 2500

N_LINES = 3  # written at each place
SAMPLERS: dict[str, Any] = {
    "top_k": 40, "top_p": 0.99, "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True,
}  # fmt: skip

# Each file, and how far down the place lies.
PLACES = {
    "server/formats/native.py": (0.3, 0.8),
    "server/formats/responses.py": (0.5,),
    "server/page/src/chat/answer.ts": (0.5,),
    "ggml_ops/draft/quotation.cpp": (0.8,),
    "ggml_ops/draft/block_drafter.cpp": (0.7,),
}


@dataclass(frozen=True)
class Request:
    """One request: a suggestion that somebody waits for, or chunks that are sent ahead."""

    body: dict[str, Any]
    is_awaited: bool


class Ring:
    """The plugin's ring of chunks: parts of open files, the newest last."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._chunks: list[dict[str, Any]] = []

    def pick(self, name: str, lines: Sequence[str]) -> None:
        """Take a part of these lines, at most half of RING_CHUNK_SIZE; chunks that are almost the same go."""
        if len(lines) + 1 >= RING_CHUNK_SIZE:
            first = self._random.randrange(len(lines) - RING_CHUNK_SIZE // 2 + 1)
            lines = lines[first : first + RING_CHUNK_SIZE // 2]
        others = [chunk for chunk in self._chunks if _similarity(chunk["text"].splitlines(), lines) <= 0.9]
        self._chunks = [*others, {"text": "\n".join(lines) + "\n", "time": 0, "filename": name}][-RING_N_CHUNKS:]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return list(self._chunks)

    def ahead(self) -> Request:
        """The request that sends all chunks while nobody waits."""
        body = {
            "id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": self.chunks, "prompt": "",
            "n_predict": 0, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": T_MAX_PROMPT_MS,
            "t_max_predict_ms": 1,
        }  # fmt: skip
        return Request(body, is_awaited=False)


@dataclass(frozen=True)
class Cursor:
    """A place in a file: the line it is in, as far as it is written, and the lines before and after it."""

    before: Sequence[str]
    line: str
    after: Sequence[str]

    def ask(self, chunks: list[dict[str, Any]], **changes: Any) -> Request:
        """The request for a suggestion here. A line of blanks is sent as an empty one."""
        indent = len(self.line) - len(self.line.lstrip())
        body = {
            "id_slot": 0,
            "input_prefix": "\n".join(self.before[-N_PREFIX:]) + "\n",
            "input_suffix": "\n" + "\n".join(self.after[:N_SUFFIX]) + "\n",
            "input_extra": chunks,
            "prompt": self.line if self.line.strip() else "",
            "n_predict": N_PREDICT,
            "n_cmpl": 1,
            **SAMPLERS,
            **({"n_indent": indent} if indent else {}),
            "t_max_prompt_ms": T_MAX_PROMPT_MS,
            "t_max_predict_ms": T_MAX_PREDICT_MS,
        }
        return Request(body | changes, is_awaited=True)


def session(root: Path, ring_seed: int = 0, **changes: Any) -> Iterator[Request]:
    """All requests of a session over PLACES below `root`, in order; `changes` to the bodies of suggestions."""
    texts = {name: (root / name).read_text(encoding="utf-8").splitlines() for name in PLACES}
    ring = Ring(ring_seed)
    for name, lines in texts.items():  # opened, one after the other
        ring.pick(name, lines)
    yield ring.ahead()
    for name, parts in PLACES.items():
        for part in parts:
            first = place(texts[name], part)
            for cursor in written(texts[name], first):
                yield cursor.ask(ring.chunks, **changes)
            around = texts[name][max(0, first - RING_CHUNK_SIZE // 2) : first + RING_CHUNK_SIZE // 2]
            ring.pick(name, around)
            yield ring.ahead()


def place(lines: Sequence[str], part: float) -> int:
    """The first line, this far down, from which on N_LINES indented lines follow each other."""
    for first in range(int(part * len(lines)), len(lines) - N_LINES):
        if all(line.startswith((" ", "\t")) and line.strip() for line in lines[first : first + N_LINES]):
            return first
    raise ValueError(f"no {N_LINES} indented lines follow each other after {part:.0%} of the file")


def written(lines: Sequence[str], first: int) -> Iterator[Cursor]:
    """The cursor's places while N_LINES lines from `first` on are written: each line empty but for the indentation that
    an editor gives it, then a third of it."""
    after = lines[first + N_LINES :]
    for at in range(first, first + N_LINES):
        text = lines[at].strip()
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        for typed in ("", text[: max(2, len(text) // 3)]):
            yield Cursor(lines[:at], indent + typed, after)


def _similarity(lines: Sequence[str], others: Sequence[str]) -> float:
    """Jaccard's, of two sets of lines."""
    one, other = set(lines), set(others)
    return len(one & other) / len(one | other) if one | other else 1.0


def totals(requests: Sequence[Request]) -> Mapping[str, int]:
    """What a session consists of, for its record."""
    awaited = [request for request in requests if request.is_awaited]
    return {"suggestions": len(awaited), "sent ahead": len(requests) - len(awaited), "files": len(PLACES)}
