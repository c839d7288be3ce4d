"""A safe reader of pickles with plain values and tensors of `torch.save`.

A pickle is a program, and `pickle.load` runs it with all its imports and calls. Here Python's own unpickler is reduced
to the necessary instructions; it imports nothing and calls only functions of an allow-list. It is the one in pure
Python: the one in C has no table of instructions to reduce, allocates as much memo as a pickle demands, and overflows
the stack on a key of deeply nested tuples.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections.abc import Callable, Mapping
from typing import Any

# The allow-list, by `module.name`: functions, which get their arguments as one tuple, and constants.
Names = Mapping[str, Any]


class PickleError(Exception):
    """A bad pickle; the caller adds the file's name."""


def read_pickle(stream: io.BytesIO, names: Names, persistent: Callable[[Any], Any]) -> Any:
    """The value of the next pickle in the stream.

    `names` is the allow-list; `persistent` returns the value of a persistent id. Raises PickleError.
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
        # attributes of an ordered dictionary (`state_dict()._metadata`), not needed for tensors
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
