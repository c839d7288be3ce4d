"""Runs what parser.py has read. Values go through pipelines one by one: each statement and command is an iterator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.release.powershell import programs
from tests.release.powershell.binding import Argument, bind, bind_cmdlet
from tests.release.powershell.cmdlets import ALIASES, CMDLETS, Call, Cmdlet
from tests.release.powershell.command_line import write
from tests.release.powershell.dotnet import Classes, Context, string_member
from tests.release.powershell.faults import Exited, NetFault, NotInSubset, Returned, Thrown, unknown
from tests.release.powershell.operators import binary, joined_or_negated
from tests.release.powershell.parser import parse
from tests.release.powershell.scope import MISSING, ItemScope, Scope
from tests.release.powershell.syntax import (
    Array,
    ArrayOf,
    Assignment,
    Binary,
    Block,
    Cast,
    Command,
    Constant,
    Expandable,
    Expression,
    Foreach,
    Function,
    Grouped,
    If,
    Index,
    Inner,
    Invocation,
    Leave,
    Member,
    Named,
    Pipeline,
    Redirection,
    Splat,
    Statement,
    Table,
    Try,
    TypeName,
    Unary,
    Variable,
)  # fmt: skip
from tests.release.powershell.values import (
    NOTHING,
    ErrorRecord,
    Hashtable,
    NetObject,
    collapsed,
    converted,
    each,
    integer,
    plain,
    text_of,
    truth,
)  # fmt: skip
from tests.release.powershell.version import PowerShell
from tests.release.powershell.windows import PROCESS, Machine


@dataclass
class Interpreter:
    machine: Machine
    powershell: PowerShell

    def __post_init__(self) -> None:
        self.console: list[str] = []
        self.classes = Classes(self.machine, self.powershell)
        self.exit_code = 0  # of the last script
        self.root = Scope()
        self.root.own |= {
            "erroractionpreference": "Continue", "progresspreference": "Continue", "pid": PROCESS,
            "executioncontext": Context(self.machine), "home": self.machine.home,
        }  # fmt: skip

    # Statements

    def statements(self, statements: tuple[Statement, ...], scope: Scope) -> Iterator[Any]:
        for statement in statements:
            try:
                yield from self.statement(statement, scope)
            except NotInSubset as fault:
                if not str(fault).startswith("line "):
                    raise NotInSubset(f"line {statement.line}: {fault}") from fault
                raise

    def statement(self, statement: Statement, scope: Scope) -> Iterator[Any]:
        match statement:
            case Pipeline():
                return self.pipeline(statement, scope)
            case Assignment():
                return self.assignment(statement, scope)
            case If():
                return self.choice(statement, scope)
            case Foreach():
                return self.loop(statement, scope)
            case Try():
                return self.attempt(statement, scope)
            case Function():
                scope.functions[statement.name.lower()] = statement.body
                return iter(())
            case Leave():
                return self.leave(statement, scope)
        raise unknown(statement)

    def value(self, statement: Statement, scope: Scope) -> Any:
        """What a variable gets of a statement: an expression's value as it is, or all output."""
        if isinstance(statement, Pipeline) and len(statement.elements) == 1:
            (element,) = statement.elements
            if isinstance(element, Expression):
                return self.expression(element, scope)
        return collapsed(list(self.statement(statement, scope)))

    def pipeline(self, pipeline: Pipeline, scope: Scope) -> Iterator[Any]:
        stream: Iterator[Any] | None = None
        for element in pipeline.elements:
            if isinstance(element, Command):
                stream = self.command(element, scope, stream)
            else:
                stream = each(self.expression(element, scope))
        assert stream is not None
        yield from stream

    def assignment(self, assignment: Assignment, scope: Scope) -> Iterator[Any]:
        value = self.value(assignment.value, scope)
        target = assignment.target
        if assignment.operator == "+=":
            value = binary("+", self.expression(target, scope), value, scope)
        match target:
            case Variable(name, "env"):
                self.machine.variables[name] = text_of(value)
            case Variable(name, where):
                (scope.root if where else scope).set(name, value)
            case Member(TypeName(name), member):
                static = self.classes.static(name)
                setattr(static, self._member_name(static, member), value)
            case Member(table, key):
                self._table(self.expression(table, scope))._set(key, plain(value))
            case Index(table, index):
                self._table(self.expression(table, scope))._set(self.expression(index, scope), plain(value))
            case _:
                raise unknown("this target of an assignment")
        return iter(())

    def _table(self, value: Any) -> Hashtable:
        if not isinstance(value, Hashtable):
            raise unknown(f"an assignment to a member of {type(value).__name__}")
        return value

    def choice(self, choice: If, scope: Scope) -> Iterator[Any]:
        for condition, body in choice.clauses:
            if truth(self.value(condition, scope)):
                yield from self.statements(body.statements, scope)
                return
        if choice.otherwise:
            yield from self.statements(choice.otherwise.statements, scope)

    def loop(self, loop: Foreach, scope: Scope) -> Iterator[Any]:
        source = self.value(loop.source, scope)
        for item in [] if source is None else list(each(source)):
            scope.set(loop.variable, item)
            yield from self.statements(loop.body.statements, scope)

    def attempt(self, attempt: Try, scope: Scope) -> Iterator[Any]:
        try:
            try:
                yield from self.statements(attempt.body.statements, scope)
            except Thrown as fault:
                if not attempt.handler:
                    raise
                record = ErrorRecord(fault.message, fault.kind)
                yield from self.statements(attempt.handler.statements, ItemScope(scope, record))
        finally:
            if attempt.last and list(self.statements(attempt.last.statements, scope)):
                raise unknown("output of `finally`")

    def leave(self, leave: Leave, scope: Scope) -> Iterator[Any]:
        value = NOTHING if leave.value is None else self.value(leave.value, scope)
        if leave.word == "exit":
            raise Exited(integer(value))
        if leave.word == "throw":
            if not isinstance(value, str):
                raise unknown("throw of others than strings")
            raise Thrown(value)
        yield from each(value)
        raise Returned

    # Blocks

    def call(self, block: Block, arguments: list[Argument], caller: Scope, name: str = "") -> Iterator[Any]:
        """In a scope of its own, as functions and `& {}` run."""
        scope = Scope(caller, block.file)
        self._set_parameters(block, arguments, scope, name)
        try:
            yield from self.statements(block.statements, scope)
        except Returned:
            return

    def _set_parameters(self, block: Block, arguments: list[Argument], scope: Scope, name: str) -> None:
        values = bind(block, arguments, name)
        for parameter in block.parameters:
            given = values.get(parameter.name.lower(), MISSING)
            if given is MISSING:
                given = None if parameter.default is None else plain(self.expression(parameter.default, scope))
                given = False if parameter.type == "switch" and given is None else given
            scope.types[parameter.name.lower()] = parameter.type
            scope.set(parameter.name, given)

    def in_place(self, block: Block, scope: Scope, item: Any) -> Iterator[Any]:
        """In the scope of its caller, with $_."""
        if block.parameters:
            raise unknown("parameters of such a block")
        try:
            yield from self.statements(block.statements, ItemScope(scope, item))
        except Returned:
            return

    def dotted(self, block: Block, scope: Scope) -> Iterator[Any]:
        """In the scope of its caller, which gets back what its parameters hide there."""
        names = [parameter.name.lower() for parameter in block.parameters]
        before = {name: scope.own[name] for name in names if name in scope.own}
        file = scope.own["pscommandpath"]
        scope.own["pscommandpath"] = block.file
        try:
            self._set_parameters(block, [], scope, "")
            yield from self.statements(block.statements, scope)
        except Returned:
            return
        finally:
            for name in names:
                scope.own.pop(name, None)
                scope.types.pop(name, None)
            scope.own |= before | {"pscommandpath": file}

    # Commands

    def command(self, command: Command, scope: Scope, stream: Iterator[Any] | None) -> Iterator[Any]:
        """Its arguments are evaluated at once; it runs when its output is read."""
        target = self.expression(command.name, scope)
        arguments = [argument for word in command.arguments for argument in self._arguments(word, scope)]
        if isinstance(target, Block):
            self._refuse(stream, command.redirections)
            return self.call(target, arguments, scope)
        name = ALIASES.get(text_of(target).lower(), text_of(target))
        if function := scope.function(name):
            self._refuse(stream, command.redirections)
            return self.call(function, arguments, scope, name)
        if found := CMDLETS.get(name.lower()):
            self._refuse(None if found.takes_input else stream, command.redirections)
            return self._cmdlet(found, arguments, scope, stream)
        if name.lower().endswith(".ps1"):
            self._refuse(stream, command.redirections)
            return self._script(name, arguments, scope)
        self._refuse(stream, ())
        return self._program(name, arguments, command.redirections, scope)

    def _refuse(self, stream: Iterator[Any] | None, redirections: tuple[Redirection, ...]) -> None:
        if stream is not None or redirections:
            raise unknown("input or redirections of such a command")

    def _arguments(self, word: Expression | Named | Splat, scope: Scope) -> Iterator[Argument]:
        match word:
            case Named(name, value):
                yield Argument(name, MISSING if value is None else plain(self.expression(value, scope)))
            case Splat(variable):
                for item in self.expression(Variable(variable), scope) or []:
                    yield Argument("", item)
            case Constant(value, text):
                yield Argument("", value, text)
            case _:
                yield Argument("", plain(self.expression(word, scope)))

    def _cmdlet(
        self, cmdlet: Cmdlet, arguments: list[Argument], scope: Scope, stream: Iterator[Any] | None
    ) -> Iterator[Any]:
        yield from cmdlet.run(Call(self, scope, bind_cmdlet(cmdlet, arguments), stream))

    def _script(self, path: str, arguments: list[Argument], scope: Scope) -> Iterator[Any]:
        """`exit` of a script ends only that."""
        place = self.machine.here(path)
        if not place.is_file():
            raise Thrown(f"The term '{path}' is not recognized.", "CommandNotFoundException")
        block = parse_file(place.read_text(), path)
        try:
            yield from self.call(block, arguments, scope, path)
        except Exited as end:
            self.root.own["lastexitcode"] = self.exit_code = end.code

    def _program(
        self, name: str, arguments: list[Argument], redirections: tuple[Redirection, ...], scope: Scope
    ) -> Iterator[Any]:
        path = self.machine.find(name)
        if path is None and re.fullmatch(r"[A-Za-z]+-[A-Za-z]+", name):
            raise unknown(name)
        if path is None:
            raise Thrown(f"The term '{name}' is not recognized.", "CommandNotFoundException")
        words = [word for argument in arguments for word in argument.words()]
        try:
            process = programs.start(self.machine, path, write(words, self.powershell, path))
        except NetFault as fault:
            raise Thrown(f"Program '{name}' failed to run: {fault.message}", "ApplicationFailedException") from None
        streams = self._streams(redirections, scope)
        for number, line in process.lines:
            yield from streams[number](line)
        self.root.own["lastexitcode"] = process.code
        if (
            process.code
            and self.powershell.escapes
            and truth(self._preference(scope, "psnativecommanduseerroractionpreference"))
        ):
            self.report(f'Program "{name}" ended with non-zero exit code: {process.code}.', "", scope, None)

    def _streams(self, redirections: tuple[Redirection, ...], scope: Scope) -> dict[int, Callable[[str], list[Any]]]:
        """What becomes of a line of stdout (1) and of stderr (2)."""

        def shown(line: str) -> list[Any]:
            self.console.append(line)
            return []

        def record(line: str) -> list[Any]:
            if self.powershell.stderr_stops and self._preference(scope, "erroractionpreference") == "Stop":
                raise Thrown(line, "RemoteException")
            return [ErrorRecord(line, "RemoteException")]

        streams: dict[int, Callable[[str], list[Any]]] = {1: lambda line: [line], 2: shown}
        for redirection in redirections:
            if redirection == Redirection("2", None):
                streams[2] = record
            elif redirection.target == Variable("null"):
                streams[2] = lambda line: record(line)[:0]
                if redirection.source == "*":
                    streams[1] = lambda line: []
            else:
                raise unknown("this redirection")
        return streams

    def report(self, message: str, kind: str, scope: Scope, action: str | None) -> None:
        """An error that need not end the script."""
        action = action or text_of(self._preference(scope, "erroractionpreference"))
        if action == "Stop":
            raise Thrown(message, kind)
        if action == "Continue":
            self.console.append(message)
        elif action != "SilentlyContinue":
            raise unknown(f"the preference {action}")

    def _preference(self, scope: Scope, name: str) -> Any:
        found = scope.find(name)
        return None if found is MISSING else found

    # Expressions

    def expression(self, expression: Expression, scope: Scope) -> Any:
        match expression:
            case Constant(value):
                return value
            case Expandable(parts):
                return "".join(
                    part if isinstance(part, str) else text_of(self.expression(part, scope)) for part in parts
                )
            case Variable():
                return self.variable(expression, scope)
            case Array(items):
                return [plain(self.expression(item, scope)) for item in items]
            case ArrayOf(statements):
                return list(self.statements(statements, scope))
            case Inner(statements):
                return collapsed(list(self.statements(statements, scope)))
            case Grouped(statement):
                return self.value(statement, scope)
            case Table(pairs):
                table = Hashtable()
                for name, value in pairs:
                    table._set(name, plain(self.expression(value, scope)))
                return table
            case Block():
                return expression
            case Cast(type_name, operand):
                return converted(plain(self.expression(operand, scope)), type_name)
            case Unary(operator, operand):
                return joined_or_negated(operator, self.expression(operand, scope))
            case Binary():
                return self.operation(expression, scope)
            case Member(target, name):
                return self.member(target, name, None, scope)
            case Invocation(target, name, arguments):
                return self.member(target, name, [plain(self.expression(word, scope)) for word in arguments], scope)
            case Index(target, index):
                return self.element(self.expression(target, scope), self.expression(index, scope), scope)
        raise unknown(expression)

    def variable(self, variable: Variable, scope: Scope) -> Any:
        if variable.scope == "env":
            return self.machine.variables[variable.name]
        value = (scope.root if variable.scope else scope).find(variable.name)
        if value is not MISSING:
            return value
        if scope.is_strict:
            raise Thrown(f"The variable '${variable.name}' cannot be retrieved because it has not been set.")
        return None

    def operation(self, operation: Binary, scope: Scope) -> Any:
        left = self.expression(operation.left, scope)
        if operation.operator in ("-and", "-or"):
            if truth(left) == (operation.operator == "-or"):
                return truth(left)
            return truth(self.expression(operation.right, scope))
        if operation.operator in ("-is", "-isnot"):
            return self._is(left, operation.right) == (operation.operator == "-is")
        return binary(operation.operator, left, self.expression(operation.right, scope), scope)

    def _is(self, value: Any, type_name: Expression) -> bool:
        match type_name:
            case TypeName("System.Management.Automation.ErrorRecord"):
                return isinstance(value, ErrorRecord)
            case TypeName("string"):
                return isinstance(value, str)
        raise unknown(f"-is {type_name}")

    def member(self, target: Expression, name: str, arguments: list[Any] | None, scope: Scope) -> Any:
        owner = self.classes.static(target.name) if isinstance(target, TypeName) else self.expression(target, scope)
        if plain(owner) is None:
            if arguments is not None:
                raise Thrown("You cannot call a method on a null-valued expression.")
            return self._absent(name, scope)
        if isinstance(owner, str):
            if name.lower() == "count":
                return self._absent(name, scope)
            return string_member(owner, name, arguments)
        if isinstance(owner, list):
            if name.lower() in ("count", "length") and arguments is None:
                return len(owner)
            raise unknown(f"an array's {name}")
        if isinstance(owner, Hashtable) and arguments is None:
            if owner.ContainsKey(name):
                return owner._get(name)
            if name.lower() not in ("count", "keys"):
                return self._absent(name, scope)
        if not isinstance(owner, NetObject):
            raise unknown(f"the member {name} of {owner!r}")
        found = getattr(owner, self._member_name(owner, name))
        return found if arguments is None else self._invoke(found, name, arguments)

    def _invoke(self, method: Callable[..., Any], name: str, arguments: list[Any]) -> Any:
        try:
            return method(*arguments)
        except NetFault as fault:
            number = len(arguments)
            raise Thrown(
                f'Exception calling "{name}" with "{number}" argument(s): "{fault.message}"', fault.kind
            ) from None

    def _absent(self, name: str, scope: Scope) -> None:
        if scope.is_strict:
            raise Thrown(f"The property '{name}' cannot be found on this object. Verify that the property exists.")

    def _member_name(self, owner: NetObject, name: str) -> str:
        for known in dir(owner):
            if known.lower() == name.lower() and not known.startswith("_"):
                return known
        raise unknown(f"the member {name} of {type(owner).__name__}")

    def element(self, target: Any, index: Any, scope: Scope) -> Any:
        if isinstance(target, Hashtable):
            return target._get(index)
        if isinstance(target, list) and isinstance(index, int):
            return target[index] if -len(target) <= index < len(target) else None
        if plain(target) is None:
            raise Thrown("Cannot index into a null array.")
        raise unknown(f"an index of {target!r}")


def parse_file(text: str, path: str) -> Block:
    # 5.1 takes bytes of a script without a mark for those of its code page.
    if re.search(r"[^\x00-\x7f]", text):
        raise unknown("a script with other letters than ASCII's")
    return parse(text, path)
