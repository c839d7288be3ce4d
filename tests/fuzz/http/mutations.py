"""Mutations of sound requests: `mutate(endpoint, seed)` is a pure function of the endpoint and the seed.

Most change one or a few places of a body, so that what is behind the first check is reached too; some change bytes,
headers, the path or the method.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .client import Request
from .published import Published
from .sound import PARAMETERS, QUERIES, Sound

Json = Any
JSON_TYPE = ("Content-Type", "application/json")
# No place in a body holds more: requests must stay cheap.
LARGE = 20_000

TEXTS = [
    "", " ", "a", "\n", "\0", "\ud800", "\U0001f600", "‮", "%s%n", "{{ 1/0 }}", "{% for i in range(9999999) %}x",
    "<|im_end|>", "<|im_start|>assistant\n", "<tool_call>", "</think>", "auto", "none", "required", "null", "true",
    "-1", "1e999", "0x10", "../../etc/passwd", "a/b", "con", "data:image/png;base64,AAAA", "http://127.0.0.1:1/x",
    "root ::= root", 'root ::= "a"{1,999999}', "root ::= (", "^(a|a)*$", "[", "(?=a)", "\\", "{", '{"a":', "𝕏" * 50,
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 2, 3, 7, 64, 129, 1000, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30,
    0.0, -0.0, 0.5, 1.5, -0.5, 1e-320, 1e308, -1e308, 1e-9,
]  # fmt: skip
SCHEMAS: list[Json] = [
    {}, {"type": "nothing"}, {"$ref": "#"}, {"$ref": "#/definitions/a"}, {"$ref": "http://127.0.0.1:1/a"},
    {"type": "string", "pattern": "(a|a)*b"}, {"type": "string", "pattern": "^(a{1,50}){1,50}$"}, {"enum": []},
    {"type": "array", "items": {"$ref": "#"}}, {"type": "string", "minLength": 10**9}, {"anyOf": [{}] * 40},
    {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2**40}}, {"const": {"a": [None]}},
    {"type": "array", "minItems": 2**31, "maxItems": 1}, {"type": ["string", 3]}, {"properties": [1]},
]  # fmt: skip


def some_value(rng: random.Random) -> Json:
    """A value of any kind."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind < 6:
        return rng.choice(NUMBERS)
    if kind == 6:
        return rng.choice([None, True, False])
    if kind == 7:
        return rng.choice([[], {}, [None], [[]], [{}], {"": ""}, {"type": "text"}, {"role": "user"}])
    if kind == 8:
        return copy.deepcopy(rng.choice(SCHEMAS))  # they are changed in place later
    return rng.choice([large_text, deep, wide])(rng)


def large_text(rng: random.Random) -> Json:
    return rng.choice(["a", "ab ", "\n", "é", "{", "<think>", "[1,", "\U0001f600"]) * rng.choice([50, 500, LARGE // 4])


def deep(rng: random.Random) -> Json:
    value: Json = rng.choice(["x", 1, None])
    for _ in range(rng.choice([20, 100, 150, 400])):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def wide(rng: random.Random) -> Json:
    count = rng.choice([40, 300, 2000])
    item = rng.choice([1, "a", None, {}, [1], {"role": "user", "content": "a"}, {"type": "text", "text": "a"}, 2**31])
    return [item] * count if rng.random() < 0.6 else {f"k{n}": item for n in range(count)}


@dataclass(frozen=True)
class Known:
    """Names of fields that some endpoint has, and what is published of this endpoint's."""

    names: Sequence[str]
    published: Published


Place = tuple[Any, Any]  # a container and a key in it


def places(value: Json) -> list[Place]:
    """Every place of a body that holds a value."""
    found: list[Place] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        found += places(item)
    return found


def replace(body: Json, rng: random.Random, known: Known) -> str:
    container, key = rng.choice(places(body))
    container[key] = some_value(rng)
    return f"{key} becomes {str(container[key])[:40]!r}"


def nudge(body: Json, rng: random.Random, known: Known) -> str:
    """A value of the same type."""
    container, key = rng.choice(places(body))
    value = container[key]
    if isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, (int, float)):
        container[key] = rng.choice([-value, value + 1, value - 1, value * 1000, value / 3, rng.choice(NUMBERS)])
    elif isinstance(value, str):
        container[key] = rng.choice([value * 2, value[1:], value.upper(), value + rng.choice(TEXTS), rng.choice(TEXTS)])
    elif isinstance(value, list):
        container[key] = rng.choice([value * 2, value[1:], [*value, some_value(rng)], [[*value]]])
    else:
        container[key] = rng.choice([[value], {**value, "x": value}, {}, json.dumps(value)]) if value else []
    return f"{key} is nudged"


def remove(body: Json, rng: random.Random, known: Known) -> str:
    container, key = rng.choice(places(body))
    del container[key]
    return f"{key} is gone"


def add(body: Json, rng: random.Random, known: Known) -> str:
    containers = [body] + [item for item, _ in places(body) if isinstance(item, dict)]
    container = rng.choice([item for item in containers if isinstance(item, dict)] or [{}])
    name = rng.choice(known.names) if rng.random() < 0.8 else rng.choice(TEXTS)
    container[name] = some_value(rng)
    return f"{name} is more"


def exchange(body: Json, rng: random.Random, known: Known) -> str:
    """Two places change their values."""
    (a, i), (b, j) = rng.choice(places(body)), rng.choice(places(body))
    try:
        first, second = copy.deepcopy(a[i]), copy.deepcopy(b[j])
    except RecursionError:
        return "too deep to be exchanged"
    a[i] = second
    if any(place == b or place is b for place, _ in places(body)) or b is body:
        b[j] = first
    return f"{i} and {j} change places"


def publish(body: Json, rng: random.Random, known: Known) -> str:
    """A field of the published schema, with a value that is allowed there."""
    fields = sorted(known.published.fields)
    if not fields or not isinstance(body, dict):
        return add(body, rng, known)
    name = rng.choice(fields)
    body[name] = known.published.value(name, rng)
    return f"{name} is {str(body[name])[:40]!r}"


CHANGES: list[Callable[[Json, random.Random, Known], str]] = [
    replace, replace, nudge, nudge, remove, add, exchange, publish, publish, publish,
]  # fmt: skip


def text_of(body: Json, rng: random.Random) -> tuple[bytes, str]:
    """The body as bytes, sometimes damaged as such."""
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")
    if rng.random() > 0.08:
        return raw, ""
    what = rng.choice(["cut", "flip", "twice", "nan", "utf16", "bom", "empty", "deep", "twin", "comma", "digits"])
    at = rng.randrange(len(raw) + 1)
    damaged = {
        "cut": raw[:at],
        "flip": raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :],
        "twice": raw + raw,
        "nan": raw.replace(b"1", rng.choice([b"NaN", b"Infinity", b"-Infinity"]), 1),
        "utf16": raw.decode("utf-8", "replace").encode("utf-16"),
        "bom": b"\xef\xbb\xbf" + raw,
        "empty": b"",
        "deep": rng.choice([b"[", b'{"a":']) * rng.choice([10, 1000, 100_000]),
        "twin": b'{"messages":1,"prompt":2,' + raw[1:],
        "comma": raw[:-1] + b",}",
        "digits": raw.replace(b"1", b"1" * 5000, 1),
    }[what]
    return damaged, what


def headers(rng: random.Random) -> tuple[tuple[tuple[str, str], ...], str]:
    """Mostly the usual ones."""
    if rng.random() > 0.05:
        return (JSON_TYPE,), ""
    name = rng.choice([
        "Content-Type", "Accept", "Accept-Encoding", "Content-Encoding", "Authorization", "X-Api-Key", "Origin", "Host",
        "Cookie", "X-Conversation-Id", "Expect", "Range", "If-None-Match", "anthropic-version", "X-Forwarded-For",
    ])  # fmt: skip
    values = ["", "a", "text/plain", "*/*;q=x", "gzip", "Bearer ", "Basic YTpi", "null", "http://evil.example", "é"]
    value = rng.choice([*values, "127.0.0.1", "bytes=0-1", "x" * 4000, "application/x-www-form-urlencoded"])
    if name == "Expect" and value:
        value = "100-continue"
    return (JSON_TYPE, (name, value)), f"{name}: {value[:40]}"


def target(endpoint: Sound, rng: random.Random) -> str:
    path = endpoint.filled(rng.choice(PARAMETERS) if rng.random() < 0.6 else "0")
    if rng.random() < 0.02:
        path = rng.choice(
            [path + "/", "/" + path, path.upper(), path[:-1] or "/", path + "%00", path.replace("/", "//")]
        )
    query = rng.choice(QUERIES) if "{" in endpoint.path or rng.random() < 0.1 else ""
    if rng.random() < 0.02:
        query = rng.choice(["a" * 3000, "%", "%FF=%00", "a=1&a=2&=", "action=" + "x" * 100, "\xff"])
    return path + ("?" + query if query else "")


def mutate(endpoint: Sound, seed: int, names: Sequence[str]) -> tuple[Request, str]:
    """The request, and what was done to it."""
    rng = random.Random(f"{endpoint.method} {endpoint.path} {seed}")
    done: list[str] = []
    known = Known(names, endpoint.published)
    raw = b""
    body = copy.deepcopy(rng.choice(endpoint.bodies))
    if body is not None:
        for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
            if places(body):
                done.append(rng.choice(CHANGES)(body, rng, known))
        raw, damage = text_of(body, rng)
        done.append(damage)
    elif rng.random() < 0.1:
        raw = rng.choice([b"{}", b"x" * 1000, b"\0"])  # a body that nobody reads
    sent, odd = headers(rng)
    method = rng.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "get", "X"])
    if rng.random() > 0.01:
        method = endpoint.method
    return Request(method, target(endpoint, rng), raw, sent), "; ".join(what for what in [*done, odd] if what)
