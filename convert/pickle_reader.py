"""The value of a pickle that holds nothing but plain values and what `torch.save` makes of tensors.

A pickle is a program, and `pickle.load` runs it, with every import and call that its author wished for. Here its
instructions are read (`pickletools.genops` parses them) and only those that such a value needs are known; none of them
imports, calls or allocates more than the file's own size. Source: pickletools.py of Python, where each instruction is
described.
"""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# What may be called: given the arguments as a tuple, the value that stands for the result.
Calls = Mapping[str, Callable[[Any], Any]]


class PickleError(Exception):
    """What is wrong with a pickle; who catches it knows the file's name."""


@dataclass(frozen=True)
class Name:
    """What a pickle would import. It stands for itself."""

    text: str


def read_pickle(stream: io.BytesIO, calls: Calls, constants: frozenset[str], persistent: Callable[[Any], Any]) -> Any:
    """The value of the pickle at the stream's place, which is then after it.

    `calls` and `constants` are the names that it may use, `module.name`; `persistent` makes a value of what it refers
    to by persistent identity. Raises PickleError.
    """
    machine = _Machine(calls, constants, persistent)
    try:
        for instruction, argument, _ in pickletools.genops(stream):
            machine.run(instruction.name, argument)
        return machine.pop()
    except (ValueError, OverflowError, struct.error) as error:
        raise PickleError(f"its pickle is damaged: {error}") from None
    except IndexError:
        raise PickleError("its pickle is damaged: an instruction has no operand") from None


_MARK = object()  # where the items of a list, tuple or dictionary begin on the stack
_LITERALS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ARGUMENTS = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"})
_NOTHING = frozenset({"PROTO", "FRAME", "STOP"})


class _Machine:
    """The stack that a pickle's instructions work on."""

    def __init__(self, calls: Calls, constants: frozenset[str], persistent: Callable[[Any], Any]) -> None:
        self._calls = calls
        self._names = constants | calls.keys()
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """One instruction of pickletools with its argument."""
        if name in _ARGUMENTS:
            self._stack.append(argument)
        elif name in _LITERALS:
            self._stack.append(_LITERALS[name])
        elif name not in _NOTHING:
            method = getattr(self, f"_{name.lower()}", None)
            if method is None:
                raise PickleError(f"its pickle uses {name}, which no tensor needs")
            if argument is None:
                method()
            else:
                method(argument)

    def pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise PickleError("its pickle is damaged: a mark stands where a value must")
        return value

    def _pop_to_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _mark(self) -> None:
        self._stack.append(_MARK)

    def _empty_tuple(self) -> None:
        self._stack.append(())

    def _empty_list(self) -> None:
        self._stack.append([])

    def _empty_dict(self) -> None:
        self._stack.append({})

    def _tuple(self) -> None:
        self._stack.append(tuple(self._pop_to_mark()))

    def _last(self, count: int) -> None:
        self._stack.append(tuple(reversed([self.pop() for _ in range(count)])))

    def _tuple1(self) -> None:
        self._last(1)

    def _tuple2(self) -> None:
        self._last(2)

    def _tuple3(self) -> None:
        self._last(3)

    def _append(self) -> None:
        self._extend([self.pop()])

    def _appends(self) -> None:
        self._extend(self._pop_to_mark())

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise PickleError("its pickle is damaged: it appends to what is no list")
        self._stack[-1].extend(items)

    def _setitem(self) -> None:
        value = self.pop()
        self._update([self.pop(), value])

    def _setitems(self) -> None:
        self._update(self._pop_to_mark())

    def _update(self, items: list[Any]) -> None:
        mapping = self._stack[-1]
        if not isinstance(mapping, dict) or len(items) % 2:
            raise PickleError("its pickle is damaged: it sets items of what is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise PickleError("a key of a dictionary is not a string")
            if key in mapping:
                raise PickleError(f"the key {key!r} is there twice")
            mapping[key] = value

    def _build(self) -> None:
        # attributes of an ordered dictionary (`state_dict()._metadata`), which say nothing about tensors
        self.pop()
        if not isinstance(self._stack[-1], dict):
            raise PickleError("its pickle sets attributes of what has none")

    def _binput(self, index: int) -> None:
        self._memo[index] = self.pop()
        self._stack.append(self._memo[index])

    _long_binput = _binput

    def _memoize(self) -> None:
        self._binput(len(self._memo))

    def _binget(self, index: int) -> None:
        if index not in self._memo:
            raise PickleError("its pickle is damaged: it remembers what was never there")
        self._stack.append(self._memo[index])

    _long_binget = _binget

    def _global(self, argument: str) -> None:
        self._use(*argument.split(" ", 1))

    def _stack_global(self) -> None:
        name = self.pop()
        self._use(self.pop(), name)

    def _use(self, module: Any, name: Any) -> None:
        text = f"{module}.{name}"
        if text not in self._names:
            raise PickleError(f"it wants to use {text[:200]!r}, which is not run")
        self._stack.append(Name(text))

    def _reduce(self) -> None:
        arguments, callee = self.pop(), self.pop()
        call = self._calls.get(callee.text) if isinstance(callee, Name) else None
        if call is None or not isinstance(arguments, tuple):
            raise PickleError("its pickle is damaged: it calls what is no function")
        self._stack.append(call(arguments))

    def _binpersid(self) -> None:
        self._stack.append(self._persistent(self.pop()))
