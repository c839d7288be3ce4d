"""tests/release/powershell itself: what it says of single lines is what PowerShell's documentation and sources say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release.powershell import command_line
from tests.release.powershell.faults import NotInSubset
from tests.release.powershell.programs import write_program
from tests.release.powershell.session import Session
from tests.release.powershell.version import POWERSHELL_7, WINDOWS_POWERSHELL, PowerShell
from tests.release.powershell.windows import Machine

SHOUT = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"


@pytest.fixture(params=[WINDOWS_POWERSHELL, POWERSHELL_7], ids=lambda powershell: powershell.name)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    machine = Machine(tmp_path)
    write_program(machine, "C:\\tools\\python.exe", "python", version=(3, 12, 4), bits=64, venv=True)
    return Session(machine, request.param)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        # Arrays: of one element they are none when they come out of a pipeline; @() keeps them.
        ("function f { return @('a') }; (f).Length", "1"),
        ("function f { return @('abc') }; (f).Length; @(f).Count", "3 1"),
        ("function f { return @() }; $x = f; $x | ForEach-Object { 'never' }", ""),
        ("$null | ForEach-Object { 'once' }", "once"),
        ("function f { 'a'; return 'b'; 'c' }; \"$(f)\"", "a b"),
        ("$x = @('a') + 'b' + @('c', 'd'); $x.Count", "4"),
        ("$x = @(); $x += 'a'; $x += @('b', 'c'); $x -join '-'", "a-b-c"),
        ("'a', 'b', 'c' | Select-Object -Last 1", "c"),
        ("'a', 'b' | Where-Object { $_ -eq 'B' }", "b"),
        ("'10.0', '9.1' | Sort-Object { [version]$_ }", "9.1 10.0"),
        # Strings.
        ("$a = 'x'; \"$a.y `$a $($a.Length) \"\"q\"\" `\"\"", 'x.y $a 1 "q" "'),
        ("'it''s $a'", "it's $a"),
        ("\"a`tb\"", "a\tb"),
        ("\"end$\"", "end$"),
        # Operators.
        ("'ABC' -eq 'abc'; 'a' -ne 'B'; 'a', 'B' -contains 'b'; 'x' -notin 'X', 'y'", "True True True False"),
        ("-not '' -and 'a'; -not 'a' -or ''", "True False"),
        ("'Ab-12' -match '^([a-z]+)-(\\d+)$'; $Matches[2]; $Matches[0]", "True 12 Ab-12"),
        ("$null = 'ab' -match 'a'; 'ab' -match 'x'; $Matches[0]", "False a"),
        ("$null = 'ab' -notmatch 'b'; $Matches[0]", "b"),
        ("'a', 'b', 'ab' -match 'a'", "a ab"),
        ("'a;b' -split ';' -join '+'", "a+b"),
        ("'C:\\a b\\\\' -replace '(?<=[^:\\\\])\\\\+$', ''; 'C:\\' -replace '(?<=[^:\\\\])\\\\+$', ''", "C:\\a b C:\\"),
        ("'x.dist-info/METADATA' -like '*.DIST-info/metadata'", "True"),
        ("'1' + 2; 1 + 2", "12 3"),
        # Scopes: what a function sets is gone afterwards, what its caller has set can be read.
        ("$x = 1; function f { $x = 2; g }; function g { $x }; f; $x", "2 1"),
        ("$x = 1; & { $x = 2 }; $x; 1 | ForEach-Object { $x = 3 }; $x", "1 3"),
        ("& { function f { 1 } }; try { f } catch { 'gone' }", "gone"),
        ("$X = 'a'; $x", "a"),
        ("function f([string]$A, [string[]]$B) { \"$A.$($B.Count)\" }; f 1 'x'; f -B a, b", "1.1 .2"),
        ("function f([switch]$A, [string]$B) { \"$A.$B\" }; f 'x'; f -A 'x'; f -B 'x' -A", "False.x True.x True.x"),
        ("function f([string]$A) { $A }; f 0.20", "0.20"),
        ("function f([string]$A, [string]$B = \"$A!\") { $B }; f x", "x!"),
        # Statements.
        ("if ('') { 1 } elseif (0) { 2 } else { 3 }", "3"),
        ("$x = if (@('')) { 1 } else { 2 }; $x", "2"),
        ("foreach ($i in 'a', 'b') { $i }; foreach ($i in $null) { 'never' }", "a b"),
        ("try { throw 'no' } catch { $_.Exception.Message } finally { $x = 1 }; $x", "no 1"),
        ("try { try { throw 'no' } finally { Write-Host 'last' } } catch { 'caught' }", "last caught"),
        ("try { $null.Foo() } catch { 'null' }", "null"),
        ("$h = @{ A = 1 }; $h.b = 2; $h['B']; $h.Count; $h.c; $h.ContainsKey('a')", "2 2  True"),
    ],
)  # fmt: skip
def test_lines(session: Session, line: str, shown: str) -> None:
    assert " ".join(session.type(line).splitlines()) == shown


@pytest.mark.parametrize(
    "line",
    ["$x", '"$x"', "@{}.x", "$h = @{}; $h.x", "'a'.Count", "$null.x", "$global:x", "if ($x) { }", "& { $x += 1 }"],
)
def test_strict_mode(session: Session, line: str) -> None:
    """What is not there is nothing, or an error under the strict mode, also in functions that are called."""
    assert not session.fails(line)
    assert session.fails(f"function f {{ {line} }}; & {{ Set-StrictMode -Version 2.0; f }}")
    assert "cannot be" in session.interpreter.console[-1]
    assert not session.fails(line), "the strict mode has left its scope"


def test_programs_that_write_to_stderr(session: Session) -> None:
    session.type(f'$code = "{SHOUT}"')
    assert session.type("& python -c $code; $LASTEXITCODE") == "err\nout\n3\n"
    assert session.type("$x = & python -c $code; $x") == "err\nout\n"
    seen = '& python -c $code 2>&1 | ForEach-Object { "$_ $($_ -is [string])" }'
    assert session.type(seen) == "err False\nout True\n"
    assert session.type("& python -c $code *> $null") == ""
    for line in (seen, "& python -c $code *> $null", "& python -c $code 2> $null"):
        said = session.type(f"& {{ $ErrorActionPreference = 'Stop'; {line} }}")
        assert (said == "err\n") == session.powershell.stderr_stops, said
        assert session.failed == session.powershell.stderr_stops
    session.type("$PSNativeCommandUseErrorActionPreference = $true; $ErrorActionPreference = 'Stop'")
    session.type("& python -c $code")
    assert session.failed == (session.powershell is POWERSHELL_7)


def test_errors_that_need_not_end_a_script(session: Session) -> None:
    line = "Remove-Item -LiteralPath C:\\nowhere"
    assert not session.fails(f"{line}; 'on'")
    assert "does not exist" in session.interpreter.console[0]
    assert session.type(f"{line} -ErrorAction SilentlyContinue; 'on'") == "on\n"
    assert session.fails(f"$ErrorActionPreference = 'Stop'; {line}; 'on'")
    assert session.type(f"{line} -ErrorAction SilentlyContinue; 'on'") == "on\n"


def test_exit(session: Session) -> None:
    """Of a script, it ends that; of a line, the window."""
    session.machine.here("C:\\tools\\it.ps1").write_text("& { if ($PSCommandPath) { exit 5 } }\n'never'\n")
    assert session.type("& C:\\tools\\it.ps1; $LASTEXITCODE") == "5\n"
    assert not session.closed
    session.type("& { exit 1 }")
    assert session.closed


def test_classes_that_wait_for_their_assembly(session: Session) -> None:
    session.machine.here("C:\\tools\\x.zip").write_bytes(b"PK\5\6" + bytes(18))
    line = "$archive = [System.IO.Compression.ZipFile]::OpenRead('C:\\tools\\x.zip')"
    session.type(line)
    assert session.failed == (session.powershell is WINDOWS_POWERSHELL)
    session.type("Add-Type -AssemblyName System.IO.Compression.FileSystem")
    session.type(line)
    assert not session.failed


@pytest.mark.parametrize(
    ("arguments", "old", "new"),
    [
        (["a", "b c"], ["a", "b c"], ["a", "b c"]),
        (["a b\\", "c"], ['a b" c'], ["a b\\", "c"]),
        (["a\\", "c"], ["a\\", "c"], ["a\\", "c"]),
        (['say "it"'], ["say it"], ['say "it"']),
        (["print(['x'])", ""], ["print(['x'])"], ["print(['x'])", ""]),
        (["sys.exit(1 < 2)"], ["sys.exit(1 < 2)"], ["sys.exit(1 < 2)"]),
    ],
)
def test_arguments_of_programs(arguments: list[str], old: list[str], new: list[str]) -> None:
    def seen(powershell: PowerShell, program: str) -> list[str]:
        return command_line.split(command_line.write(arguments, powershell, program))

    assert seen(WINDOWS_POWERSHELL, "x.exe") == old
    assert seen(POWERSHELL_7, "x.exe") == new
    assert seen(POWERSHELL_7, "x.cmd") == (old if not arguments[0].endswith(" b\\") else new)


@pytest.mark.parametrize(
    "line",
    [
        "while (1) { }", "$x = 1 -shl 2", "Get-Process", "Get-ChildItem -LiteralPath C:\\ -Depth 1", "'a'.Normalize()",
        "[System.Guid]::NewGuid()", "'a' > C:\\x", "switch ('a') { }", "try { } catch [System.Exception] { }",
        "$script:x = 1", "@'\na\n'@", "1 -f 2", "$a ?? 1", "Test-Path -LiteralPath C:\\ | Get-Date", "f(1)",
        "function f([string]$A) { }; f 1 2", "[string]@(1, 2)", "'a' -match '(?<name>a)'", "Get-Command 'x'",
        "$ErrorActionPreference = 'Inquire'; Remove-Item -LiteralPath C:\\nowhere", "& { begin { } }", "-'1'", "1..2",
    ],
)  # fmt: skip
def test_what_it_does_not_know_it_says(tmp_path: Path, line: str) -> None:
    """It's no error that a script could catch."""
    session = Session(Machine(tmp_path), POWERSHELL_7)
    with pytest.raises(NotInSubset):
        session.type(f"try {{ {line} }} catch {{ }}")


@pytest.mark.parametrize("line", ["'a", "if (1) {", "1 +", '"$x: a"', "(1", "try { }", "'a' 'b'"])
def test_what_powershell_cannot_parse(tmp_path: Path, line: str) -> None:
    session = Session(Machine(tmp_path), POWERSHELL_7)
    assert session.type(line).startswith("line 1: expected ")
    assert session.failed
