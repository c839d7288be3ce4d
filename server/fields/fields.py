"""Fields: what a request's body may hold, as a pydantic model, and what becomes of each name that a client sends."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, get_origin

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from typing_extensions import Self

from dflash_local.errors import RequestError

log = logging.getLogger(__name__)

IGNORED = "X-DFlash-Ignored"  # the header with their names
MAX_NAMES = 16  # of ignored fields in a header
MAX_NAME = 64  # characters of each
MAX_LOGGED = 256  # different names that the log ever shows

Kind = Literal["read", "mapped", "harmless", "refused"]


class Part(NamedTuple):
    """A value that `Mapped.to` took from a key of an object: clients know it by the names of both."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Mapped:
    """A field that stands for others: `to` makes them from its value, under any of their names; `help` says which.

    A value may be a `Part`. A name that begins with a dot is an unknown part of the value.
    """

    help: str
    to: Callable[[Any], Mapping[str, Any]]
    schema: Mapping[str, Any] | None = None  # of its values, for the docs; None: anything


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that is refused, and why. The values in `unless` are accepted: they ask for what happens anyway."""

    why: str
    unless: tuple[Any, ...] = (False, 0, "", [], {})


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one name in a body: `target` is the field that it names, `rank` its place among several names."""

    kind: Kind
    text: str
    target: str = ""
    rank: int = 0
    nested: type[Fields] | None = None
    mapped: Mapped | None = None
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What is known about the names in a body, besides the fields themselves.

    Attributes:
        names: other names of a field. The first that is sent counts; the field's own is at its place among them, or
            before them.
        must: what a value must be, for types that no single word describes.
        nothing: values of a field that count as absent, as null does, to llama-server too: forms send empty texts.
        mapped, harmless, refused: names that stand for other fields; names that change nothing, and why that is right;
            names that are refused, and why.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    must: Mapping[str, str] = field(default_factory=dict)
    nothing: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    mapped: Mapping[str, Mapped] = field(default_factory=dict)
    harmless: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Refused | str] = field(default_factory=dict)

    def over(self, base: Policy) -> Policy:
        """Both policies; where they differ, this one counts."""
        return Policy(**{spec.name: getattr(base, spec.name) | getattr(self, spec.name) for spec in fields(self)})


class _Rules:
    """The rules of a class, made when they are first asked for: only bodies and objects in them are read, and each of
    their bases would have rules of its own."""

    def __get__(self, _body: Fields | None, model: type[Fields]) -> Mapping[str, Rule]:
        return _rules(model)


class Fields(BaseModel):
    """A body, or an object in it. Its pydantic fields are what is read; null counts as absent everywhere.

    POLICY has what else clients are known to send, and adds to that of the bases. Every other name is unknown: it is
    listed in `ignored`, or refused if `strict`.
    """

    # A class is built when its first body comes (`built`): all of them would take an eighth of the time of all imports.
    model_config = ConfigDict(strict=True, extra="forbid", serialize_by_alias=True, defer_build=True)

    POLICY: ClassVar[Policy] = Policy()
    RULES: ClassVar[_Rules] = _Rules()

    _ignored: list[str] = PrivateAttr([])
    _sent_as: dict[str, str] = PrivateAttr({})

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for base in cls.__mro__[1:]:
            if base_policy := vars(base).get("POLICY"):
                cls.POLICY = cls.POLICY.over(base_policy)

    @classmethod
    def of(cls, body: Mapping[str, Any], *, strict: bool = False) -> Self:
        """Read a body.

        Raises:
            RequestError: a field has the wrong type, cannot be granted, or (`strict`) is unknown; `param` names it.
        """
        reader = _Reader(cls)
        reader.read(body)
        return reader.made(strict)

    @classmethod
    def inside(cls, name: str, value: Mapping[str, Any]) -> Self:
        """Read the object that the field `name` holds; errors name both."""
        try:
            return cls.of(value)
        except RequestError as error:
            raise error.at(f"{name}.{error.param}") from None

    @property
    def ignored(self) -> list[str]:
        """Names that were sent but changed nothing: they are unknown, or another name had already set the field."""
        return self._ignored

    def ignore(self, names: list[str], *, strict: bool = False) -> None:
        """Add to `ignored`.

        Raises:
            RequestError: `strict`, and there are some.
        """
        if strict and names:
            raise RequestError(
                f"{shown(names[0])} is unknown here, or has no effect", param=shown(names[0]), hint="leave it out"
            )
        self._ignored += names

    def sent_parts(self, names: Iterable[str]) -> list[str]:
        """The parts of fields, such as "tools[].mood", that came in this body, not in a flag, by the client's names."""
        given, parts = self.given(), []
        for name in names:
            root, rest = parted(name)
            argument = rest.removeprefix(".")
            if root == "chat_template_kwargs" and argument not in (given.get(root) or {}):
                root, rest = argument, ""  # such as enable_thinking
            if root in given:
                parts.append(self._sent_as.get(root, root) + rest)
        return parts

    def given(self) -> dict[str, Any]:
        """The fields that were sent, by their own names."""
        named = {(info.alias or name): getattr(self, name) for name, info in type(self).model_fields.items()}
        return {name: value for name, value in named.items() if value is not None}

    def own_name(self, param: str) -> str:
        """What this format calls a field of the chat completion that it became."""
        return param

    def blame(self, error: RequestError) -> RequestError:
        """`error` with the client's name for the field, or for the one that it is a part of, if that is another."""
        root, rest = parted(error.param or "")
        sent = self._sent_as.get(root)
        if sent is None:
            return error
        return error.at(sent + rest) if rest else error.at(sent, f"{sent}: {error.message}")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """The published schema has all names that are accepted; unknown ones are accepted too (and listed)."""
        schema: dict[str, Any] = handler(core_schema)
        inner = handler.resolve_ref_schema(schema)
        inner["properties"] = _published(cls, inner.get("properties", {}), inner.get("required", ()))
        inner["additionalProperties"] = True
        return schema


class _Reader:
    """Sorts the names of one body."""

    def __init__(self, model: type[Fields]) -> None:
        self._model = model
        self._values: dict[str, Any] = {}
        # Per field: its rank (values sent directly come before implied ones, then by the order of names) and the name
        # the client used.
        self._sent_as: dict[str, tuple[tuple[bool, int], str]] = {}
        self._ignored: list[str] = []

    def read(self, body: Mapping[str, Any], mapped_from: str | None = None) -> None:
        rules = self._model.RULES
        for name, value in body.items():
            sent = mapped_from or name
            if isinstance(value, Part):
                sent, value = f"{sent}.{value.key}", value.value
            if value is None:
                continue
            rule = rules.get(name)
            if rule is not None and value in self._model.POLICY.nothing.get(rule.target or name, ()):
                continue
            if rule is None or (mapped_from and rule.mapped):
                self._ignored.append(f"{mapped_from}.{name.removeprefix('.')}" if mapped_from else name)
            elif rule.kind == "read":
                self._take(rule, sent, value, implied=mapped_from is not None)
            elif rule.mapped is not None:
                try:
                    self.read(rule.mapped.to(value), sent)
                except RequestError as error:
                    is_part = (error.param or "").startswith(f"{sent}.")
                    raise (error if is_part else error.at(sent, error.message)) from None
            elif rule.refused is not None and value not in rule.refused.unless:
                raise RequestError(f"{sent}: {rule.refused.why}", param=sent)

    def _take(self, rule: Rule, sent: str, value: Any, *, implied: bool) -> None:
        """Keep the value under the best name; another name's value is listed as ignored if it differs."""
        rank = implied, rule.rank
        if rule.target in self._values:
            held_rank, held = self._sent_as[rule.target]
            differs = self._values[rule.target] != value
            if held_rank <= rank:
                self._ignored += [sent] * differs
                return
            self._ignored += [held] * differs
        if rule.nested is not None and isinstance(value, Mapping):
            inner = rule.nested.inside(sent, value)
            self._ignored += [f"{sent}.{name}" for name in inner.ignored]
            value = inner
        self._values[rule.target], self._sent_as[rule.target] = value, (rank, sent)

    def made(self, strict: bool) -> Any:
        try:
            body = built(self._model).model_validate(self._values)
        except ValidationError as error:
            raise self._refusal(error) from None
        body._sent_as = {target: sent for target, (_, sent) in self._sent_as.items() if sent != target}
        body.ignore(self._ignored, strict=strict)
        return body

    def _refusal(self, error: ValidationError) -> RequestError:
        """pydantic's first complaint in our words."""
        found = error.errors(include_url=False)[0]
        name = str(found["loc"][0]) if found["loc"] else ""
        if found["type"] == "missing":
            return RequestError(f"{name} is missing", param=name)
        sent = self._sent_as[name][1] if name in self._sent_as else name
        rule = self._model.RULES[name]
        must = self._model.POLICY.must.get(rule.target) or _complaint(found)
        return RequestError(f"{sent} must be {must}, got {self._values[rule.target]!r:.80}", param=sent)


_build = threading.Lock()


def built(model: type[Fields]) -> type[Fields]:
    """The class, ready to be used: pydantic itself may build it in two threads at once, and use half of it."""
    if not model.__pydantic_complete__:
        with _build:
            model.model_rebuild()
    return model


def parted(name: str) -> tuple[str, str]:
    """A field, and the rest of the name of a part of it."""
    root = re.split(r"[.\[]", name, maxsplit=1)[0]
    return root, name.removeprefix(root)


def shown(name: str) -> str:
    """A client's name as it may appear in a header or a log."""
    clean = re.sub(r"[^A-Za-z0-9_.\-\[\]]", "?", name[: MAX_NAME + 1])
    return (clean if len(clean) <= MAX_NAME else clean[:MAX_NAME] + "...") or '""'


def ignored_header(names: list[str]) -> str:
    """The value of X-DFlash-Ignored."""
    known = list(dict.fromkeys(shown(name) for name in names[: 4 * MAX_NAMES]))
    return ", ".join(known[:MAX_NAMES] + ["..."] * (len(known) > MAX_NAMES or len(names) > 4 * MAX_NAMES))


_logged: set[tuple[str, str]] = set()


def log_ignored(path: str, names: list[str]) -> None:
    """Log the unknown names, each once."""
    for name in names[:MAX_NAMES]:
        key = (path, shown(name))
        if key not in _logged and len(_logged) < MAX_LOGGED:
            _logged.add(key)
            log.warning("%s: the field %s is unknown or has no effect (--strict-fields refuses it)", *key)


# ---- tables ----


@cache
def _rules(model: type[Fields]) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    policy = model.POLICY
    for attribute, info in model.model_fields.items():
        name = info.alias or attribute
        nested = next((kind for kind in _types(info.annotation) if issubclass(kind, Fields)), None)
        names = policy.names.get(name, ())
        for rank, other in enumerate(names if name in names else (name, *names)):
            rules[other] = Rule("read", info.description or "", name, rank, nested)
    for name, why in policy.harmless.items():
        rules.setdefault(name, Rule("harmless", why))
    for name, mapped in policy.mapped.items():
        rules.setdefault(name, Rule("mapped", mapped.help, mapped=mapped))
    for name, refused in policy.refused.items():
        refused = Refused(refused) if isinstance(refused, str) else refused
        rules.setdefault(name, Rule("refused", refused.why, refused=refused))
    return rules


def _types(annotation: Any) -> list[type]:
    """The classes in `A | B | None`."""
    parts = getattr(annotation, "__args__", ()) or (annotation,)
    return [part for part in parts if isinstance(part, type) and get_origin(part) is None]


def _published(model: type[Fields], properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    published = {}
    for name, rule in model.RULES.items():
        if rule.kind == "read":
            schema = dict(properties[rule.target])
            published[name] = schema if rule.target in required else _nullable(schema)
            if name != rule.target:
                published[name]["description"] = f"Another name of {rule.target}."
        elif rule.mapped is not None:
            published[name] = {"description": rule.text, **(rule.mapped.schema or {})}
        elif rule.kind == "harmless":
            published[name] = {"description": f"Accepted; it changes nothing: {rule.text}."}
    return published


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that also takes null, which counts as absent."""
    kind, options = schema.get("type"), schema.get("anyOf")
    if isinstance(kind, str) and kind != "null":
        return schema | {"type": [kind, "null"]}
    if isinstance(kind, list) and "null" not in kind:
        return schema | {"type": [*kind, "null"]}
    if options is not None and not any(
        option.get("type") == "null" or None in option.get("enum", ()) for option in options
    ):
        return schema | {"anyOf": [*options, {"type": "null"}]}
    return schema


# ---- words ----

_TYPES = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def _complaint(found: Any) -> str:
    limits = found.get("ctx", {})
    match found["type"]:
        case "greater_than_equal":
            return f"at least {limits['ge']}"
        case "less_than_equal":
            return f"at most {limits['le']}"
        case "string_too_long":
            return f"at most {limits['max_length']} characters long"
        case "literal_error":
            return f"one of {limits['expected']}"
        case kind:
            return _TYPES.get(kind, found["msg"])
