"""The value of a pickle that holds nothing but plain values and what `torch.save` makes of tensors.

A pickle is a program, and `pickle.load` runs it, with every import and call that its author wished for. Here Python's
own unpickler is left with the instructions that such a value needs; it imports nothing and calls only what it is given.
It is the one written in Python: the one in C has no table of instructions to cut down, allocates as much as a pickle
asks it to remember, and overflows the stack on a key of deeply nested tuples.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections.abc import Callable, Mapping
from typing import Any

# What a pickle may name, `module.name`: a function, which gets its arguments as one tuple, or a constant.
Names = Mapping[str, Any]


class PickleError(Exception):
    """What is wrong with a pickle; who catches it knows the file's name."""


def read_pickle(stream: io.BytesIO, names: Names, persistent: Callable[[Any], Any]) -> Any:
    """The value of the pickle at the stream's place, which is then after it.

    `names` is all that it may use; `persistent` makes a value of what it refers to by persistent identity. Raises
    PickleError.
    """
    try:
        return _Unpickler(stream, names, persistent).load()
    except (IndexError, EOFError):
        raise PickleError("its pickle is damaged: an instruction has no operand, or the end is missing") from None
    except (pickle.UnpicklingError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise PickleError(f"its pickle is damaged: {error}") from None


class _Unpickler(pickle._Unpickler):
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, stream: io.BytesIO, names: Names, persistent: Callable[[Any], Any]) -> None:
        super().__init__(stream)
        self._names = names
        self._persistent = persistent

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)

    def find_class(self, module: str, name: str) -> Any:
        text = f"{module}.{name}"
        if text not in self._names:
            raise PickleError(f"it wants to use {text[:200]!r}, which is not run")
        return self._names[text]

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not callable(function) or not isinstance(arguments, tuple):
            raise PickleError("its pickle is damaged: it calls what is no function")
        self.stack.append(function(arguments))

    def load_build(self) -> None:
        # attributes of an ordered dictionary (`state_dict()._metadata`), which say nothing about tensors
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise PickleError("its pickle sets attributes of what has none")

    def load_setitem(self) -> None:
        value = self.stack.pop()
        self._update([self.stack.pop(), value])

    def load_setitems(self) -> None:
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        mapping = self.stack[-1]
        if not isinstance(mapping, dict) or len(items) % 2:
            raise PickleError("its pickle is damaged: it sets items of what is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise PickleError("a key of a dictionary is not a string")
            if key in mapping:
                raise PickleError(f"the key {key!r} is there twice")
            mapping[key] = value


_NAMES = {ord(instruction.code): instruction.name for instruction in pickletools.opcodes}
_ALLOWED = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT LONG_BINPUT "
    "MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID"
)
_OWN = {"REDUCE": _Unpickler.load_reduce, "BUILD": _Unpickler.load_build,
        "SETITEM": _Unpickler.load_setitem, "SETITEMS": _Unpickler.load_setitems}  # fmt: skip


class _Instructions(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        if code in _NAMES:
            raise PickleError(f"its pickle uses {_NAMES[code]}, which no tensor needs")
        raise PickleError(f"its pickle is damaged: {code} is no instruction")


_Unpickler.dispatch = _Instructions(
    {
        code: _OWN.get(name, pickle._Unpickler.dispatch[code])
        for code, name in _NAMES.items()
        if name in _ALLOWED.split()
    }
)
