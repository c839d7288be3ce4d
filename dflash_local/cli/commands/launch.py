"""`dflash-local launch`: start a coding agent, or another client, on a local model."""

from __future__ import annotations

from contextlib import ExitStack

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.command_line import shown_words
from dflash_local.cli.flags.serve_flags import add_serve_flags
from dflash_local.cli.launch.launch_flags import LaunchFlags, refuse_for_running, refuse_without_model
from dflash_local.cli.launch.program import PROGRAMS
from dflash_local.cli.terminal.notes import aside

EPILOG = """\
examples:
  dflash-local launch claude -hf unsloth/Qwen3-8B-GGUF:Q4_K_M
  dflash-local launch codex -m Qwen3-8B-Q4_K_M.gguf -md Qwen3-8B-DFlash.gguf -- exec "Fix the failing test"
  dflash-local launch opencode                    uses the server that runs
  dflash-local launch qwen --print                what to paste into a shell instead

The server ends with the program, if it was started for it. docs/clients.md has a section for each program.
"""
_DESCRIPTION = (
    "Start a program with a local model: it is set up for the server at --url or --port, and if none runs there,\n"
    "one is started with the flags of 'serve' that are given."
)


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "launch",
        LaunchFlags,
        run,
        "start Claude Code, Codex or another program on a local model",
        _DESCRIPTION,
        epilog=EPILOG,
        usage="dflash-local launch PROGRAM [-m TARGET.gguf] [-md DRAFTER.gguf] [flags of serve] [-- arguments]\n       "
        "dflash-local launch PROGRAM --print\n       dflash-local launch --help",
    )
    add_serve_flags(parser)


def run(args: LaunchFlags) -> int:
    """Run the program, and return its exit status."""
    from dflash_local.cli.launch.launched_server import LaunchedServer
    from dflash_local.cli.launch.program_process import ended_by_signals, executable_of, run_program
    from dflash_local.cli.launch.running_server import place_at, running_server

    program, typed = PROGRAMS[args.program], args.typed_for_server()
    flags = [word for words in typed.values() for word in words]
    shown = " ".join(shown_words(flags))
    url, key = args.server_url(), args.server_key()
    found = running_server(url, key)
    if found is not None:
        refuse_for_running(args, typed, url)
    if args.print:
        if found is None:
            print(f"# first, in another terminal: dflash-local serve {shown or '-m TARGET.gguf'}")
        setup = program.setup_at(place_at(url, key, found, program, args))
        print(*setup.shell_lines(program.command, args.line.passed), sep="\n")
        return 0
    executable = executable_of(program)
    if found is None:
        refuse_without_model(args, url)
    with ended_by_signals(), ExitStack() as servers:
        if found is None:
            server = servers.enter_context(LaunchedServer(flags))
            aside(f"starting 'dflash-local serve {shown}'; its log is {server.log}")
            found = server.wait(url, key)
        return run_program(program, executable, place_at(url, key, found, program, args), args.line.passed)
