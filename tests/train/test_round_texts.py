"""What a round of adaptation learns from: what of a record is new, and which texts are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dflash_local.train import round_texts
from dflash_local.train.examples import key_of
from dflash_local.train.round_texts import choose_texts, ends, n_new_tokens, read_record
from dflash_local.train.written_texts import Text, read_texts


@pytest.fixture(autouse=True)
def few_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_texts, "LEAST_PROMPTS", 4)


def write(path: Path, prompts: Sequence[int], *, n_prompt: int = 12, n_answer: int = 10) -> list[Text]:
    """A record of an answer to each of these prompts."""
    found = []
    for prompt in prompts:
        tokens = [prompt, *range(1, n_prompt)]
        found.append(Text(key_of(tokens), 0, tokens, [prompt, *range(1, n_answer)], 0.0, True, "target.gguf (1)"))
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(text.to_json() + "\n" for text in found)
    return found


def first_tokens(path: Path, chosen: round_texts.RoundTexts | None) -> list[int]:
    """Of the texts that a round writes."""
    assert chosen is not None
    with path.open("wb") as file:
        chosen.write(file)
    return [text.prompt[0] for text in read_texts(path)]


def test_new_is_what_was_not_seen_of_any_file(tmp_path: Path) -> None:
    write(tmp_path / "answers-t-1.jsonl", range(3))
    seen = ends(read_record(tmp_path, 512) or [])
    write(tmp_path / "answers-t-1.jsonl", [3])
    write(tmp_path / "answers-t-2.jsonl", [4, 5])
    lines = read_record(tmp_path, 512)
    assert lines is not None and len(lines) == 6
    assert (n_new_tokens(lines, {}), n_new_tokens(lines, seen), n_new_tokens(lines, ends(lines))) == (60, 30, 0)


def test_lines_without_use_are_left_out(tmp_path: Path) -> None:
    """A repeated answer, media, prompts without room, answers without length, other files, half a line."""
    record = tmp_path / "answers-t-1.jsonl"
    write(record, [1, 1, -2])
    write(record, [3], n_prompt=300)
    write(record, [4], n_answer=7)
    write(record, [5])
    write(tmp_path / "state.jsonl", [6])
    record.write_bytes(record.read_bytes() + b'{"key":"a","round":0,"prompt":[1],"answer":[1,2,3,4,5,6,7,8,9],')
    lines = read_record(tmp_path, 512)
    assert lines is not None
    assert [(line.n_prompt, line.n_answer) for line in lines] == [(12, 10), (12, 10)]


def test_a_long_answer_loses_its_end(tmp_path: Path) -> None:
    write(tmp_path / "answers-t-1.jsonl", [1], n_answer=600)
    (line,) = read_record(tmp_path, 512) or []
    assert line.n_answer == 500


def test_reading_ends_when_somebody_asks(tmp_path: Path) -> None:
    write(tmp_path / "answers-t-1.jsonl", range(9))
    asked = iter([False, False, True])
    assert read_record(tmp_path, 512, lambda: next(asked)) is None
    assert next(asked, None) is None


def test_a_record_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "answers", 512)


def test_the_newest_and_a_quarter_of_the_older(tmp_path: Path) -> None:
    """Another quarter in each round, in the record's order."""
    write(tmp_path / "answers-t-1.jsonl", range(60))
    write(tmp_path / "answers-t-2.jsonl", range(60, 100))
    lines = read_record(tmp_path, 512) or []
    rounds = [first_tokens(tmp_path / "texts", choose_texts(lines, {}, 100, number)) for number in range(2)]
    for found in rounds:
        assert len(found) == 40 and found[10:] == [*range(70, 100)]
        assert found[:10] == sorted(set(found[:10])) and found[9] < 70
    assert rounds[0][:10] != rounds[1][:10]


def test_long_prompts_leave_fewer_texts(tmp_path: Path) -> None:
    """Each token's hidden states take disk and time, those of prompts, too."""
    write(tmp_path / "answers-t-1.jsonl", range(100), n_prompt=240)
    lines = read_record(tmp_path, 512) or []
    found = first_tokens(tmp_path / "texts", choose_texts(lines, {}, 500, 0))
    assert len(found) == 3750 // 250 + 1250 // 250


def test_new_prompts_are_held_out(tmp_path: Path) -> None:
    """None that an earlier round may have learned from, and half of them at most."""
    record = tmp_path / "answers-t-1.jsonl"
    write(record, range(8))
    seen = ends(read_record(tmp_path, 512) or [])
    write(record, [2, 3], n_answer=20)  # asked again
    new = write(record, range(10, 15))
    lines = read_record(tmp_path, 512) or []
    chosen = choose_texts(lines, seen, 40, 1)
    assert chosen is not None
    assert len(chosen.held_out) == 2 and set(chosen.held_out) <= {text.key for text in new}
    assert {line.key for line in chosen.lines} >= set(chosen.held_out)


def test_too_few_different_prompts_make_no_round(tmp_path: Path) -> None:
    record = tmp_path / "answers-t-1.jsonl"
    for n_answer in range(10, 30):
        write(record, [1, 2, 3], n_answer=n_answer)
    lines = read_record(tmp_path, 512) or []
    assert choose_texts(lines, {}, 40, 0) is None
    write(record, [4])
    assert choose_texts(read_record(tmp_path, 512) or [], {}, 40, 0) is not None


@pytest.mark.parametrize(("n_prompt", "n_answer", "length"), [(12, 10, 512), (200, 20, 512), (300, 400, 768)])
def test_the_length_has_room_for_all(tmp_path: Path, n_prompt: int, n_answer: int, length: int) -> None:
    """A text whole, or a held-out prompt and the answer that is measured."""
    write(tmp_path / "answers-t-1.jsonl", range(8), n_prompt=n_prompt, n_answer=n_answer)
    chosen = choose_texts(read_record(tmp_path, 4096) or [], {}, 40, 0)
    assert chosen is not None and chosen.length == length
