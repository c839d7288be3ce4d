"""Gives arguments to parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.release.powershell.cmdlets import Cmdlet
from tests.release.powershell.faults import Thrown, unknown
from tests.release.powershell.scope import MISSING
from tests.release.powershell.syntax import Block
from tests.release.powershell.values import converted, text_of


@dataclass(frozen=True)
class Argument:
    """A value, or `-name` and perhaps its value after a colon. `text` is that of a number without quotes."""

    name: str
    value: Any
    text: str = ""

    def words(self) -> Iterator[str]:
        """For a program."""
        if self.name:
            yield f"-{self.name}" + ("" if self.value is MISSING else f":{text_of(self.value)}")
        elif isinstance(self.value, list):
            yield from map(text_of, self.value)
        else:
            yield self.text or text_of(self.value)

    def as_type(self, type_name: str) -> Any:
        if type_name == "string" and self.text:
            return self.text
        return converted(self.value, type_name) if type_name else self.value


def bind(block: Block, arguments: list[Argument], name: str) -> dict[str, Any]:
    """Of a function or a script. Without CmdletBinding, PowerShell puts what has no parameter into $args and says
    nothing; here that is refused for functions, and for scripts it is as in PowerShell."""
    parameters = {parameter.name.lower(): parameter for parameter in block.parameters}
    values: dict[str, Any] = {}
    free: list[Argument] = []
    rest = iter(arguments)
    for argument in rest:
        key = argument.name.lower()
        if not key:
            free.append(argument)
        elif key not in parameters:
            if block.binding is not None:
                message = f"A parameter cannot be found that matches parameter name '{argument.name}'."
                raise Thrown(message, "ParameterBindingException")
            _leave_over(argument, block, name)
        elif parameters[key].type == "switch":
            values[key] = True if argument.value is MISSING else argument.as_type("switch")
        else:
            given = next(rest, None) if argument.value is MISSING else argument
            if given is None or (given is not argument and given.name):
                message = (
                    f"Missing an argument for parameter '{argument.name}'. Specify a parameter of type 'System.String'."
                )
                raise Thrown(message, "ParameterBindingException")
            values[key] = given.as_type(parameters[key].type)
    _bind_free(block, free, values, name)
    return values


def _bind_free(block: Block, free: list[Argument], values: dict[str, Any], name: str) -> None:
    """By their places."""
    by_place = block.binding is None or "positionalbinding=$false" not in block.binding
    places = [part for part in block.parameters if part.type != "switch" and part.name.lower() not in values]
    for number, argument in enumerate(free):
        if by_place and number < len(places):
            values[places[number].name.lower()] = argument.as_type(places[number].type)
        elif block.binding is not None:
            message = f"A positional parameter cannot be found that accepts argument '{text_of(argument.value)}'."
            raise Thrown(message, "ParameterBindingException")
        else:
            _leave_over(argument, block, name)


def _leave_over(argument: Argument, block: Block, name: str) -> None:
    if not name.lower().endswith(".ps1"):
        raise unknown(f"the argument {argument} of {name or 'a block'}, which has no parameter for it")


def bind_cmdlet(cmdlet: Cmdlet, arguments: list[Argument]) -> dict[str, Any]:
    """By names in lower case."""
    switches = {word.lower() for word in cmdlet.switches}
    last = cmdlet.positions[-1].removesuffix("...").lower() if cmdlet.positions else ""
    places = [word.removesuffix("...").lower() for word in cmdlet.positions]
    known = {word.lower() for word in cmdlet.values} | set(places)
    values: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        key = argument.name.lower()
        if key in switches and argument.value is MISSING:
            values[key] = True
        elif key in known:
            given = next(rest, None) if argument.value is MISSING else argument
            if given is None or (given is not argument and given.name):
                raise Thrown(f"Missing an argument for parameter '{argument.name}'.", "ParameterBindingException")
            values[key] = given.value
        elif key:
            raise unknown(f"{cmdlet.name} -{argument.name}")
        elif places and places[0] == last and cmdlet.positions[-1].endswith("..."):
            values.setdefault(last, []).append(argument.value)
        elif places:
            values[places.pop(0)] = argument.value
        else:
            raise unknown(f"this argument of {cmdlet.name}: {argument.value!r}")
    return values
