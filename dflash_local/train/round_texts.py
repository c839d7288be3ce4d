"""What a round of adaptation learns from: the newest answers of a record, and some of the older ones, so that the rest
is not forgotten."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from dflash_local.train.answer_record import LEAST, record_files

# A text without media, as Text.to_json() writes it. Read as JSON, a long prompt would keep a server's other threads
# waiting.
_LINE = re.compile(rb'\{"key":"(\w+)","round":\d+,"prompt":\[([\d,]+)\],"answer":\[([\d,]+)\],')

LONGEST = 4096  # tokens of prompt and answer: each token's hidden states are stored
ROOM = 256  # tokens that a prompt leaves for its answer: train's --predict
_NEWEST, _OLDER = 3, 1  # times as many tokens of answers as make a round due
_READ = 10  # times as many tokens at most, prompts and all
_STEP = 256  # of a round's --length
HELD_OUT = 10  # prompts to measure on
LEAST_PROMPTS = 20  # different new ones, of which those that are held out are a part


@dataclass(frozen=True)
class RecordedLine:
    """A text in a record: `n_bytes` of `file` from `begin`, of so many tokens."""

    file: Path
    begin: int
    n_bytes: int
    key: str
    n_prompt: int
    n_answer: int

    @property
    def n_tokens(self) -> int:
        return self.n_prompt + self.n_answer

    def is_new(self, seen: Mapping[str, int]) -> bool:
        """Is it behind what was `seen`, of each file by its name?"""
        return self.begin >= seen.get(self.file.name, 0)


@dataclass(frozen=True)
class RoundTexts:
    """`lines` in the record's order; `held_out` are keys of new prompts; `length` is as much as a text and a measured
    answer take."""

    lines: list[RecordedLine]
    held_out: list[str]
    length: int

    def write(self, file: BinaryIO) -> None:
        """Copy the texts. Raises OSError."""
        for path, lines in groupby(self.lines, key=lambda line: line.file):
            with path.open("rb") as record:
                for line in lines:
                    record.seek(line.begin)
                    file.write(record.read(line.n_bytes))


def read_record(folder: Path, longest: int, stop: Callable[[], bool] = lambda: False) -> list[RecordedLine] | None:
    """All texts of a record that a round could learn from, each once, with at most `longest` tokens, of which an answer
    may lose its end. None: `stop` said so. Raises OSError."""
    found: list[RecordedLine] = []
    known: set[int] = set()
    for path in record_files(folder):
        with path.open("rb") as file:
            for line in _texts(path, file, longest, known):
                if stop():
                    return None
                if line:
                    found.append(line)
    return found


def _texts(path: Path, file: Iterable[bytes], longest: int, known: set[int]) -> Iterator[RecordedLine | None]:
    """One for each line; None: it is of no use, or `known` by its hash. The last line may be being written."""
    begin = 0
    for data in file:
        match = _LINE.match(data)
        n_prompt, n_answer = (part.count(b",") + 1 for part in match.group(2, 3)) if match else (0, 0)
        n_answer = min(n_answer, longest - n_prompt)
        fits = n_prompt <= longest - min(ROOM, longest // 2) and n_answer >= LEAST
        if match and fits and data.endswith(b"}\n") and (digest := hash(data)) not in known:
            known.add(digest)
            yield RecordedLine(path, begin, len(data), match[1].decode(), n_prompt, n_answer)
        else:
            yield None
        begin += len(data)


def n_new_tokens(lines: Iterable[RecordedLine], seen: Mapping[str, int]) -> int:
    """Of new answers."""
    return sum(line.n_answer for line in lines if line.is_new(seen))


def ends(lines: Iterable[RecordedLine]) -> dict[str, int]:
    """What is `seen` once these lines were: the end of the last one of each file, by the file's name."""
    return {line.file.name: line.begin + line.n_bytes for line in lines}


def choose_texts(
    lines: Sequence[RecordedLine], seen: Mapping[str, int], n_tokens: int, number: int
) -> RoundTexts | None:
    """Those of round `number`, `n_tokens` being what makes one due; None: there are too few different new prompts."""
    newest = _within(reversed(lines), _NEWEST * n_tokens, LEAST_PROMPTS)[::-1]
    before = lines[: len(lines) - len(newest)]
    older = _within(sorted(before, key=lambda line: _drawn(line, number)), _OLDER * n_tokens)
    known = {line.key for line in lines if not line.is_new(seen)}
    fresh = {line.key: line for line in newest if line.is_new(seen) and line.key not in known}
    if len(fresh) < LEAST_PROMPTS:
        return None
    held_out = _spread(list(fresh), min(HELD_OUT, len(fresh) // 2))
    chosen = set(older)
    texts = [line for line in before if line in chosen] + newest
    longest = max([line.n_tokens for line in texts] + [fresh[key].n_prompt + ROOM for key in held_out])
    return RoundTexts(texts, held_out, -(-longest // _STEP) * _STEP)


def _within(lines: Iterable[RecordedLine], n_tokens: int, n_least: int = 0) -> list[RecordedLine]:
    """The first lines, `n_least` in any case, while their answers have at most `n_tokens`, and prompts and all not much
    more than that."""
    found: list[RecordedLine] = []
    n_answer = n_read = 0
    for line in lines:
        n_answer, n_read = n_answer + line.n_answer, n_read + line.n_tokens
        if len(found) >= n_least and (n_answer > n_tokens or n_read > _READ * n_tokens // (_NEWEST + _OLDER)):
            break
        found.append(line)
    return found


def _drawn(line: RecordedLine, number: int) -> bytes:
    """Sorts lines in another order for each round."""
    return hashlib.sha256(f"{number} {line.file.name} {line.begin}".encode()).digest()


def _spread(keys: Sequence[str], n: int) -> list[str]:
    """`n` of them, evenly spread."""
    return [keys[i * len(keys) // n] for i in range(n)]
