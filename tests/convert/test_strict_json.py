"""JSON from untrusted files: UTF-8 only, numbers that JSON has, and each key once."""

from __future__ import annotations

import pytest

from dflash_local.convert.strict_json import DuplicateKeyError, strict_json

VALUE = {"ä": [1, -2.5, 1e300, True, None, {"": "\U0001f600"}]}
TEXT = '{"ä": [1, -2.5, 1e300, true, null, {"": "\\ud83d\\ude00"}]}'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf_8_is_read(encoding: str) -> None:
    assert strict_json(TEXT.encode(encoding)) == VALUE


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match="it is not UTF-8 at byte"):
        strict_json(TEXT.encode(encoding))


def test_the_error_says_where_a_text_is_not_utf_8() -> None:
    with pytest.raises(ValueError, match="it is not UTF-8 at byte 2"):
        strict_json(b'["\xff"]')


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks(name: str) -> None:
    with pytest.raises(ValueError, match=f"JSON has no number {name}"):
        strict_json(f'{{"a": [1, {name}]}}'.encode())
    assert strict_json(f'["{name}"]'.encode()) == [name]


def test_numbers_that_become_infinite() -> None:
    with pytest.raises(ValueError):
        strict_json(b"[-1e400]")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"x": 1, "a": 2, "a": 3}}]', '{"a": 1, "\\u0061": 2}'])
def test_keys_listed_twice(text: str) -> None:
    with pytest.raises(DuplicateKeyError) as error:
        strict_json(text.encode())
    assert error.value.key == "a"


def test_a_text_nested_without_end() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        strict_json(b"[" * 100_000)
