"""JSON schemas: their patterns hold, whatever they look like, and what a grammar will not hold is told."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.native import Drafting, NativeEngine, schema_ignored
from dflash_local.sampling import SamplingParams

Schema = dict[str, Any]


@pytest.fixture(scope="module")
def engine(pocket: dict[str, Path]) -> Iterator[NativeEngine]:
    engine = NativeEngine({"model": str(pocket["target"]), "n_ctx": 256, "n_threads": 1, "warmup": False, "budget": 1})
    yield engine
    engine.destroy()


def takes(engine: NativeEngine, schema: Schema, text: str) -> bool:
    """Whether the schema's grammar takes all of `text`: as if a template had begun and ended the answer with it."""
    fields = {"json_schema": schema, "generation_prompt": text + "<|im_end|>"}
    try:
        engine.prepare([1], 8, json.dumps(fields), Drafting(), True).free()
    except RequestError as error:
        assert error.param == "generation_prompt", error
        return False
    return True


PATTERNS = [
    "ab", "^ab", "ab$", "^ab$", "", "^", "$", "^$", "a|b", "^a|b$", "^(a|b)$", "(^a|b$)", "(^|x)a", "a(x|$)",
    "^(?:ab)+$", "a.c", "^a.*c$", r"\d", r"^\d{2,3}$", r"\w\s\w", r"^\S+$", r"\D", r"^\W$", "[^ab]", "^[^ab]*$",
    "[a-c]x", r"^[\w.-]+$", r"[\]\\]", r"^a\.b$", r"\"", r"^\"a\\b\"$", r"\n", r"^[\t\n]$", "^.$", r"^[\s\S]$",
    "a{2}", "^a{2,}$", "^a{0,2}b$", "^(ab?){2}$", "a*?b", "^a+?$", "^(a|)b$", "^(|a)?b$", r"\x41", r"\u00e9",
    r"\u{1F600}", "é", "[à-ï]", "^[^\x00-\x7f]$", "^(a(b(c|)|)|)$", r"\/", "{", "a{", "}", "]", "^[.]$", "^a-b$",
    r"^[\d-]$",
    r"^(?<year>\d{4})-(?<month>\d\d)$", "^[!-~]$", r"[\b]", r"^\0$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_hold(engine: NativeEngine, pattern: str) -> None:
    """Against Python's regular expressions, on strings that are made of what the patterns talk about."""
    translated = re.sub(r"\\u\{(\w+)\}", lambda m: chr(int(m[1], 16)), pattern.replace("(?<", "(?P<"))
    translated = translated.replace("$", r"\Z") if r"\$" not in translated else translated
    expression = re.compile(translated.replace(r"[^\x00-\x7f]", "[^\x00-\x7f]"), re.ASCII)
    rng = random.Random(pattern)
    alphabet = 'abcx12AB é😀"\\\n\t./-{}]_\b\0ï!'
    strings = ["", "a", "b", "ab", "aab", "abab", "abc", "acc", "a.b", "é", "😀", "2024-12", '"a\\b"', "xa", "ax", "ba"]
    strings += ["12", "a{", ".", "a-b", "-", "\0", "\b", "\t", "!", "x", "aaa", "", "ï", "{", "c"]
    strings += ["".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 5))) for _ in range(60)]
    hits = 0
    for string in strings:
        expected = expression.search(string) is not None
        hits += expected
        assert (
            takes(engine, {"type": "string", "pattern": pattern}, json.dumps(string, ensure_ascii=False)) == expected
        ), f"{string!r} and {pattern}"
    assert hits


@pytest.mark.parametrize("pattern", ["a", "^.*$", "^[^x]+$", r'^".*"$', r"\S"])
def test_what_a_pattern_lets_through_is_json(engine: NativeEngine, pattern: str) -> None:
    """llama.cpp's own "." takes a quotation mark as it stands, which ends the string."""
    for text in ('"a"b"', '"a\\"', '"a\nb"', '"a\\qb"', '"a'):
        assert not takes(engine, {"type": "string", "pattern": pattern}, text), text


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a(?=b)", "looks ahead or behind"),
        ("(?<!b)a", "looks ahead or behind"),
        (r"\bword\b", "boundary of a word"),
        (r"(a)\1", "back reference"),
        (r"\p{L}+", "character property"),
        ("(?i)a", "flags"),
        ("a^b", "anchor"),
        ("(^a)*b", "anchor"),
        ("(a", r"without its \)"),
        ("a)", r"without its \("),
        ("[a", r"without its \]"),
        ("*a", "repeats nothing"),
        ("a**", "repeats a repetition"),
        ("(a*)*", "repeats what may be empty"),
        ("a{3,2}", "ends before it begins"),
        ("a{5000}", "repetitions"),
        ("[b-a]", "ends before it begins"),
        ("[]", "no character is in"),
        ("a\\", "ends in a backslash"),
        (r"\x4", "too few digits"),
        ("(" * 60 + "a" + ")" * 60, "nested deeper"),
    ],
)
def test_patterns_that_no_grammar_holds_are_refused(engine: NativeEngine, pattern: str, why: str) -> None:
    schema = {"type": "object", "properties": {"name": {"anyOf": [{"type": "string", "pattern": pattern}]}}}
    for body, field in (
        ({"json_schema": schema}, "json_schema"),
        ({"response_format": {"type": "json_object", "schema": schema}}, "response_format.schema"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]},
            "tools[0].function.parameters",
        ),
    ):
        with pytest.raises(RequestError, match=why) as caught:
            engine.chat_apply(None, json.dumps({"messages": [{"role": "user", "content": "x"}], **body}))
        assert caught.value.param == f"{field}.properties.name.anyOf[0].pattern"
    with pytest.raises(RequestError, match=why):
        engine.prepare([1], 8, json.dumps({"json_schema": schema}), Drafting(), True)


def test_patterns_everywhere(engine: NativeEngine) -> None:
    """Wherever llama.cpp looks for schemas: properties, items, alternatives, references."""
    word = {"type": "string", "pattern": r"\d"}
    schemas: list[Schema] = [
        {"type": "object", "properties": {"a": word}, "required": ["a"]},
        {"type": "object", "additionalProperties": word},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/word"}}, "required": ["a"], "$defs": {"word": word}},
        {"properties": {"a": {"allOf": [word], "description": "one"}}, "required": ["a"]},
        {"properties": {"a": {"type": ["string", "null"], "pattern": r"\d"}}, "required": ["a"]},
        {"allOf": [{"properties": {"a": word}}, {"properties": {"b": {"type": "integer"}}, "required": []}]},
    ]
    for schema in schemas:
        more = ', "b": 1' if "allOf" in schema else ""
        assert takes(engine, schema, f'{{"a": "x1"{more}}}'), schema
        assert not takes(engine, schema, f'{{"a": "x"{more}}}'), schema
    array = {"type": "array", "items": word, "minItems": 1}
    assert takes(engine, array, '["1", "a2"]')
    assert not takes(engine, array, '["1", "a"]')
    pair = {"type": "array", "prefixItems": [word, {"type": "boolean"}]}
    assert takes(engine, pair, '["1", true]')
    assert not takes(engine, pair, '["a", true]')
    # a reference to itself, as trees have; a constant that looks like a schema stays as it is
    tree = {"type": "object", "properties": {"v": word, "next": {"$ref": "#"}}, "required": ["v"]}
    with pytest.raises(RequestError, match="unsupported \\$ref"):
        engine.prepare([1], 8, json.dumps({"json_schema": tree}), Drafting(), True)
    nested = {
        "$ref": "#/$defs/node",
        "$defs": {"node": {**tree, "properties": {"v": word, "next": {"$ref": "#/$defs/node"}}}},
    }
    assert takes(engine, nested, '{"v": "1", "next": {"v": "2"}}')
    assert not takes(engine, nested, '{"v": "1", "next": {"v": "a"}}')
    assert takes(engine, {"const": {"pattern": "a"}}, '{"pattern":"a"}')


def test_tools_are_shown_as_they_are(engine: NativeEngine) -> None:
    parameters = {"type": "object", "properties": {"day": {"type": "string", "pattern": r"\d\d"}}, "required": ["day"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool], "tool_choice": "required"}
    applied = engine.chat_apply(None, json.dumps(body))
    assert json.dumps(parameters) in applied["prompt"]
    assert "[\\x30-\\x39]" in applied["sampling"]["grammar"]
    body["tool_choice"] = {"type": "function", "function": {"name": "f"}}
    assert engine.chat_apply(None, json.dumps(body))["sampling"]["grammar"] == applied["sampling"]["grammar"]


def test_what_a_grammar_does_not_hold_is_told(engine: NativeEngine) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "T",
        "type": "object",
        "properties": {
            "mail": {"type": "string", "format": "email", "maxLength": 9},
            "day": {"type": "string", "format": "date", "minLength": 3},
            "code": {"type": "string", "pattern": "a", "maxLength": 9},
            "price": {"type": "number", "minimum": 0, "multipleOf": 0.5, "default": 1},
            "count": {"type": "integer", "minimum": 0, "multipleOf": 2},
            "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": True},
            "pair": {"prefixItems": [{"type": "integer"}], "minItems": 1},
            "either": {"anyOf": [{"type": "null"}, {"type": "number", "maximum": 9}], "properties": {}},
            "link": {"$ref": "#/$defs/x", "nullable": True, "description": "d"},
            "color": {"type": "string", "enum": ["red"], "minLength": 1},
        },
        "required": ["mail", "other"],
        "additionalProperties": False,
        "minProperties": 1,
        "$defs": {"x": {"type": "string", "format": "uri"}},
    }
    expected = [
        "properties.code.maxLength",
        "properties.count.multipleOf",
        "properties.day.minLength",
        "properties.either.anyOf[].maximum",
        "properties.either.properties",
        "$defs.x.format",
        "properties.link.nullable",
        "properties.list.uniqueItems",
        "properties.mail.format",
        "properties.pair.minItems",
        "properties.price.minimum",
        "properties.price.multipleOf",
        "required",
        "minProperties",
    ]
    assert schema_ignored(schema) == [f"json_schema.{name}" for name in expected]
    user = [{"role": "user", "content": "x"}]
    told = engine.chat_apply(None, json.dumps({"messages": user, "json_schema": schema}))["ignored"]
    assert told == [f"json_schema.{name}" for name in expected]
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    told = engine.chat_apply(None, json.dumps({"messages": user, "tools": tools}))["ignored"]
    assert told == [f"tools[].function.parameters.{name}" for name in expected]
    assert Engine.ignored(SamplingParams(json_schema=schema)) == tuple(f"json_schema.{name}" for name in expected)
    assert Engine.ignored(SamplingParams()) == ()
    assert schema_ignored({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}) == []


@pytest.mark.parametrize(
    "parts", [[{"type": "string"}, {"minLength": 3}], [{"type": "object"}, {"type": "integer"}], [{"const": 1}, {}]]
)
def test_all_of_other_schemas_is_refused(engine: NativeEngine, parts: list[Schema]) -> None:
    """llama.cpp would take them for the empty object."""
    with pytest.raises(RequestError, match="write them as one") as caught:
        schema = {"type": "object", "properties": {"a": {"allOf": parts}}}
        engine.prepare([1], 8, json.dumps({"json_schema": schema}), Drafting(), True)
    assert (caught.value.param or "").startswith("json_schema.properties.a.allOf[")


def test_nothing_of_a_schema_reaches_stderr(pocket: dict[str, Path]) -> None:
    """Warnings of llama.cpp's converter would: with what the client wrote, escape sequences and all."""
    script = f"""
import json
from dflash_local.errors import RequestError
from dflash_local.native import Drafting, NativeEngine
engine = NativeEngine({{"model": {str(pocket["target"])!r}, "n_ctx": 64, "n_threads": 1, "warmup": False, "budget": 1}})
for pattern in ("a", "^\\\\d+$", "\\x1b[31m", "(?=x)", "^[a", "^(?i)a$"):
    schema = {{"type": "string", "pattern": pattern}}
    tool = {{"type": "function", "function": {{"name": "f", "parameters": {{"properties": {{"a": schema}}}}}}}}
    user = {{"messages": [{{"role": "user", "content": "x"}}]}}
    for call in (
        lambda: engine.prepare([1], 8, json.dumps({{"json_schema": schema}}), Drafting(), True),
        lambda: engine.chat_apply(None, json.dumps({{**user, "json_schema": schema}})),
        lambda: engine.chat_apply(None, json.dumps({{**user, "tools": [tool]}})),
    ):
        try:
            call()
        except RequestError:
            pass
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "JSON schema" not in done.stderr
    assert "\x1b" not in done.stderr
