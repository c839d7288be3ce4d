"""JSON schemas: their patterns hold, whatever they look like, and what a grammar will not hold is told."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.native import NativeEngine, schema_ignored
from dflash_local.sampling import SamplingParams
from tests.engine.grammars import takes

Schema = dict[str, Any]


PATTERNS = [
    "ab", "^ab", "ab$", "^ab$", "", "^", "$", "^$", "a|b", "^a|b$", "^(a|b)$", "(^a|b$)", "(^|x)a", "a(x|$)",
    "^(?:ab)+$", "a.c", "^a.*c$", r"\d", r"^\d{2,3}$", r"\w\s\w", r"^\S+$", r"\D", r"^\W$", "[^ab]", "^[^ab]*$",
    "[a-c]x", r"^[\w.-]+$", r"[\]\\]", r"^a\.b$", r"\"", r"^\"a\\b\"$", r"\n", r"^[\t\n]$", "^.$", r"^[\s\S]$",
    "a{2}", "^a{2,}$", "^a{0,2}b$", "^(ab?){2}$", "a*?b", "^a+?$", "^(a|)b$", "^(|a)?b$", r"\x41", r"\u00e9",
    r"\u{1F600}", "é", "[à-ï]", "^[^\x00-\x7f]$", "^(a(b(c|)|)|)$", r"\/", "{", "a{", "}", "]", "^[.]$", "^a-b$",
    r"^[\d-]$",
    "(a*)*", "^(a*b*)+$", "(^a)*b$", "(a|^)b", "a{3,}b?$",
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
        ("a^b", "matches no string"),
        ("a$b", "matches no string"),
        ("(a", r"without its \)"),
        ("a)", r"without its \("),
        ("[a", r"without its \]"),
        ("*a", "repeats nothing"),
        ("a**", "repeats a repetition"),
        ("a{3,2}", "ends before it begins"),
        ("a{50000}", "repetitions"),
        ("(a{10000}b){10000}", "too large"),
        ("[b-a]", "ends before it begins"),
        ("[]", "matches no string"),
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
        engine.prepare({"tokens": [1], "n_predict": 8, "sampling": json.dumps({"json_schema": schema})})


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
    assert takes(engine, tree, '{"v": "1", "next": {"v": "2"}}')
    assert not takes(engine, tree, '{"v": "1", "next": {"v": "a"}}')
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
        "required": ["mail"],
        "additionalProperties": False,
        "minProperties": 1,
        "$defs": {"x": {"type": "string", "format": "uri"}},
    }
    expected = [
        "properties.mail.format",
        "properties.list.uniqueItems",
        "properties.link.nullable",
        "$defs.x.format",
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


def fields(schema: Schema) -> list[Schema]:
    """Every request field that carries a schema."""
    return [
        {"json_schema": schema},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]},
    ]


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        ({"minItems": 3, "maxItems": 1}, "minItems", "larger than maxItems"),
        ({"minLength": 3, "maxLength": 1}, "minLength", "larger than maxLength"),
        ({"minProperties": 2, "maxProperties": 1}, "minProperties", "larger than maxProperties"),
        ({"minimum": 3, "maximum": 1}, "minimum", "leaves no number"),
        ({"minimum": 3, "exclusiveMaximum": 3}, "minimum", "leaves no number"),
        ({"type": "string", "minLength": 30000}, "minLength", "above 19999"),
        ({"type": "array", "minItems": 30000}, "minItems", "above 19999"),
        ({"type": "string", "const": 5}, "const", "no value of the type"),
        ({"enum": ["a", "b"], "minLength": 2}, "enum", "no value that the keywords"),
        ({"type": "integer", "enum": [1, 3], "minimum": 20}, "enum", "no value that the keywords"),
        ({"enum": ["a"], "pattern": "^b"}, "enum", "no value that the keywords"),
        ({"enum": ["a"], "const": "b"}, "const", "not among the values"),
        ({"enum": []}, "enum", "non-empty array"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "", "lets no value through"),
        ({"allOf": [{"const": 1}, {"const": 2}]}, "", "lets no value through"),
        ({"$ref": "#/$defs/none"}, "$ref", "there is no"),
        ({"$ref": "other.json"}, "$ref", "unsupported"),
        ({"$ref": "#/properties/a"}, "", "refers to itself"),
        ({"required": ["b"], "additionalProperties": False}, "additionalProperties", "lets no value through"),
        ({"properties": {"b": {"$ref": "#/properties/a"}}, "required": ["b"]}, "properties.b", "lets no value through"),
        ({"multipleOf": 0}, "multipleOf", "above 0"),
        ({"maxLength": "3"}, "maxLength", "non-negative integer"),
        ({"maxLength": -1}, "maxLength", "non-negative integer"),
        ({"minimum": "3"}, "minimum", "must be a number"),
        ({"properties": []}, "properties", "must be an object"),
        ({"required": [1]}, "required[0]", "must be a string"),
        ({"items": 3}, "items", "must be a schema"),
        ({"type": "any"}, "type", "must be null, boolean"),
        ({"type": []}, "type", "is empty"),
        ({"anyOf": []}, "anyOf", "non-empty array"),
        ({"format": 3}, "format", "must be a string"),
    ],
)
def test_refusals_name_the_keyword(engine: NativeEngine, schema: Schema, path: str, why: str) -> None:
    outer = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    for body in fields(outer):
        with pytest.raises(RequestError, match=why) as caught:
            engine.chat_apply(None, json.dumps({"messages": [{"role": "user", "content": "x"}], **body}))
        inner = (caught.value.param or "").partition("properties.a")
        assert inner[1], caught.value
        assert inner[2] == (f".{path}" if path else "")
    with pytest.raises(RequestError, match=why) as caught:
        engine.prepare({"tokens": [1], "n_predict": 8, "sampling": json.dumps({"json_schema": outer})})
    assert (caught.value.param or "").startswith("json_schema.properties.a")


B, I = {"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 9}  # noqa: E741
FREE = {"type": "object", "properties": {"*": B}, "required": ["*"], "additionalProperties": {"type": "null"}}
OF_ALL_TYPES: list[Any] = [
    None,
    True,
    1,
    1.5,
    "a",
    [],
    {},
]  # as the values of an enum; other values of these types are wrong


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"$defs": {"名前": I, "年齢": B}, "prefixItems": [{"$ref": "#/$defs/名前"}, {"$ref": "#/$defs/年齢"}]},
            ["[1, true]"],
            ["[1, 1]", "[true, true]"],
        ),
        (
            {"$defs": {"a_b": I, "a-b": B}, "prefixItems": [{"$ref": "#/$defs/a_b"}, {"$ref": "#/$defs/a-b"}]},
            ["[1, true]"],
            ["[1, 1]", "[true, true]"],
        ),
        ({"properties": {"a_b": I, "a-b": B, "a b": I}}, ['{"a_b": 1, "a-b": true, "a b": 2}'], ['{"a-b": 1}']),
        ({"properties": {"": {"type": "null"}}, "required": [""]}, ['{"": null}'], ["null", "{}"]),
        ({"properties": {"root": B, "space": I, "schema-1": B}}, ['{"root": true, "space": 1}'], ['{"space": true}']),
        (FREE, ['{"*": true}', '{"*": false, "x": null}'], ['{"*": null}', '{"x": null}', '{"*": true, "*": null}']),
        (FREE, ['{"*": true, "\\n": null, "é😀": null}'], ['{"*": true, "\n": null}', '{"*": true, "\\q": null}']),
        (
            {"properties": {"ab": B}, "additionalProperties": I},
            ['{"a": 1}', '{"abc": 1}', '{"": 1}', '{"ab": true, "b": 1}'],
            ['{"\\u0061b": 1}', '{"a\\u0062": 1}', '{"ab": 1}', '{"a\x01": 1}', '{"a"": 1}'],
        ),
        (
            {"properties": {"c": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["c"]},
            ['{"c": {"c": null}}'],
            ['{"c": 1}', '{"c": {}}'],
        ),
        ({"$ref": "#/$defs/a~1b%20~0", "$defs": {"a/b ~": I}}, ["7"], ["10"]),
        ({"prefixItems": [I, B], "items": False}, ["[]", "[1]", "[1, true]"], ["[1, true, 1]", "[true]"]),
        ({"prefixItems": [I], "items": B, "minItems": 2}, ["[1, true]", "[1, true, false]"], ["[1]", "[1, 1]"]),
        ({"type": "integer", "enum": [1, 30], "minimum": 20}, ["30"], ["1"]),
        ({"type": ["string", "null"], "enum": ["a", 1, None]}, ['"a"', "null"], ["1"]),
        ({"enum": OF_ALL_TYPES}, ["null", "1.5", '"a"', "[]", "{}"], ["false", "2", '"b"', "[1]", '{"a": 1}']),
        ({"items": {"enum": OF_ALL_TYPES}}, ['[1.5, "a", {}]'], ["[2]", '["b"]', "[[1]]"]),
        ({"properties": {"k": {"enum": OF_ALL_TYPES}}}, ['{"k": "a"}'], ['{"k": "b"}', '{"k": 2}']),
        ({"additionalProperties": {"enum": OF_ALL_TYPES}}, ['{"x": "a"}'], ['{"x": "b"}']),
        ({"type": "string", "pattern": "^a+$", "maxLength": 3, "minLength": 2}, ['"aa"', '"aaa"'], ['"a"', '"aaaa"']),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b$"}]}, ['"ab"', '"a-b"'], ['"a"', '"ba"']),
        ({"allOf": [{"type": "string"}, {"minLength": 3}]}, ['"abc"'], ['"ab"', "3"]),
        ({"type": "string", "maxLength": 3001}, [f'"{"a" * 3001}"'], [f'"{"a" * 3002}"']),
        ({"type": "string", "minLength": 3000}, [f'"{"a" * 3000}"'], [f'"{"a" * 2999}"']),
        (
            {"items": {"type": "null"}, "maxItems": 2001},
            [f"[{', '.join(['null'] * 2001)}]"],
            [f"[{', '.join(['null'] * 2002)}]"],
        ),
        ({"type": "string", "maxLength": 1}, ['"é"', '"\\ud83d\\ude00"', '"\\n"'], ['"ab"', '"\\ud83d"', '"\\ude00"']),
        (
            {"type": "number", "minimum": -0.5, "exclusiveMaximum": 12.25},
            ["-0.5", "0", "12.2499", "9.99"],
            ["-0.51", "12.25", "13"],
        ),
        ({"type": "integer", "multipleOf": 7, "minimum": 50, "maximum": 500}, ["56", "497"], ["49", "57", "504"]),
        ({"type": "number", "multipleOf": 0.01}, ["4.51", "0.1", "-3"], ["4.512"]),
        (
            {"type": "object", "minProperties": 1, "maxProperties": 2},
            ['{"a": 1}', '{"a": 1, "b": 2}'],
            ["{}", '{"a": 1, "b": 2, "c": 3}'],
        ),
        ({"properties": {"a": I, "b": I}, "minProperties": 1}, ['{"b": 1}', '{"a": 1, "b": 2}'], ["{}"]),
        (
            {"patternProperties": {"^n": I, "s$": B}},
            ['{"n1": 1, "xs": true}'],
            ['{"n1": true}', '{"ns": 1}', '{"x": 1}'],
        ),
        ({"propertyNames": {"maxLength": 2}, "additionalProperties": I}, ['{"ab": 1}'], ['{"abc": 1}']),
        (
            {
                "type": "object",
                "properties": {"a": I},
                "anyOf": [{"required": ["a"]}, {"properties": {"b": B}, "required": ["b"]}],
            },
            ['{"a": 1}', '{"a": 1, "b": true}', '{"b": true}'],
            ["{}", '{"b": 1}'],
        ),
        ({"format": "date"}, ['"2024-02-29"', '"2023-12-31"'], ['"2023-02-29"', '"2023-04-31"', '"23-1-1"']),
    ],
)
def test_schemas_hold(engine: NativeEngine, schema: Schema, good: list[str], bad: list[str]) -> None:
    assert schema_ignored(schema) == []
    for text in good:
        assert takes(engine, schema, text), text
    for text in bad:
        assert not takes(engine, schema, text), text


def fan(n: int) -> Schema:
    """Arrays within arrays, each of which may be one of two kinds that begin alike."""
    levels: Schema = {f"d{i}": {"anyOf": [{"prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}], "minItems": 1, "items": rest}
                                          for rest in (False, {"type": "null"})]} for i in range(n)}  # fmt: skip
    return {"$ref": "#/$defs/d0", "$defs": {**levels, f"d{n}": {"type": "null"}}}


def parts(n_all: int) -> Schema:
    each: Schema = {"allOf": [{}] * n_all + [{"anyOf": [{}] * 10}] * 3}
    return {"prefixItems": [{"$ref": "#/$defs/y", "title": str(i)} for i in range(8)], "$defs": {"y": each}}


def ways(n: int, times: int) -> Schema:
    return {
        "type": "string",
        "pattern": "(" + "|".join(f"[{chr(256 + i)}-\uffff]" for i in range(n)) + f"){{{times}}}$",
    }


DIVISORS = [9.97e-14, 9.71e-14, 9.67e-14, 9.53e-14, 9.47e-14, 9.41e-14, 9.37e-14, 9.29e-14, 9.19e-14, 9.11e-14]
COSTLY: dict[str, Schema] = {
    "pattern of repetitions": {"type": "string", "pattern": "^(a?){9999}$"},
    "pattern of many ways": ways(150, 200),
    "pattern of many edges": {"type": "string", "pattern": "^[^" + "".join(map(chr, range(500, 1700, 2))) + "]{9000}$"},
    "many patterns": {
        "prefixItems": [{"type": "null", "pattern": chr(97 + i % 26) + f".{{12}}{i}"} for i in range(60)]
    },
    "divisors": {"prefixItems": [{"type": "null", "multipleOf": divisor} for divisor in DIVISORS * 4]},
    "divisor and bounds": {"type": "number", "multipleOf": 9.97e-14, "anyOf": [{"minimum": i} for i in range(20)]},
    "parts": parts(300),
    "kinds of keys": {"patternProperties": {f"^(.{{{n}}})*$": {} for n in (2, 3, 5, 7, 8, 11)}},
    "format and pattern": {"prefixItems": [{"format": "date-time", "pattern": f"{i}.{{11}}$"} for i in range(40)]},
}


@pytest.mark.parametrize("name", COSTLY)
def test_what_would_take_long_is_refused_soon(engine: NativeEngine, name: str) -> None:
    """A few hundred bytes that took seconds to minutes, and up to gigabytes."""
    begun = time.thread_time()
    try:
        engine.prepare({"tokens": [1], "sampling": json.dumps({"json_schema": COSTLY[name]})})
    except RequestError as error:
        assert "json_schema" in str(error) or "too large" in str(error), error
    assert time.thread_time() - begun < 6  # of a processor that others use, too


def test_answers_that_begin_alike_in_too_many_ways_are_refused(engine: NativeEngine) -> None:
    begun = time.thread_time()
    assert takes(engine, fan(4), "[[[[null]]]]")
    with pytest.raises(RequestError, match="too ambiguous"):
        fields = {"json_schema": fan(16), "generation_prompt": "[" * 15}
        engine.prepare({"tokens": [1], "sampling": json.dumps(fields)})
    assert time.thread_time() - begun < 6


def test_what_is_too_large_is_named(engine: NativeEngine) -> None:
    assert schema_ignored({"type": "string", "maxLength": 100000}) == ["json_schema.maxLength"]
    assert schema_ignored({"type": "integer", "multipleOf": 123457}) == ["json_schema.multipleOf"]
    assert schema_ignored({"oneOf": [{"type": "integer"}, {"minimum": 2}]}) == ["json_schema.oneOf"]
    kinds = [{"properties": {"k": {"const": k}}, "required": ["k"]} for k in ("a", "b")]
    assert schema_ignored({"type": "object", "oneOf": kinds}) == []
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)}
    assert takes(engine, {"$ref": "#/$defs/d0", "$defs": {**twice, "d25": {"type": "null"}}}, "null")
    either = [{"anyOf": [{"required": [f"{i}{n}"]} for n in range(8)]} for i in range(8)]
    with pytest.raises(RequestError, match="too many ways"):
        schema_ignored({"type": "object", "allOf": either})
    deep: Schema = {"properties": {f"d{n}": {"$ref": f"#/properties/d{n + 1}"} for n in range(400)}}
    with pytest.raises(RequestError, match="a reference to a reference"):
        schema_ignored({**deep, "properties": {**deep["properties"], "d400": {"type": "null"}}})


def test_nothing_of_a_schema_reaches_stderr(pocket: dict[str, Path]) -> None:
    """Warnings of llama.cpp's converter would: with what the client wrote, escape sequences and all."""
    script = f"""
import json
from dflash_local.errors import RequestError
from dflash_local.native import NativeEngine
engine = NativeEngine({{"model": {str(pocket["target"])!r}, "n_ctx": 64, "n_threads": 1, "warmup": False, "budget": 1}})
for pattern in ("a", "^\\\\d+$", "\\x1b[31m", "(?=x)", "^[a", "^(?i)a$"):
    schema = {{"type": "string", "pattern": pattern}}
    tool = {{"type": "function", "function": {{"name": "f", "parameters": {{"properties": {{"a": schema}}}}}}}}
    user = {{"messages": [{{"role": "user", "content": "x"}}]}}
    for call in (
        lambda: engine.prepare({{"tokens": [1], "n_predict": 8, "sampling": json.dumps({{"json_schema": schema}})}}),
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
