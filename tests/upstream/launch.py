"""The flags with which the tests start llama-server, with what is missing on this machine replaced; and ours, forked
from a process that has imported it.

The tests start some 300 servers, and importing takes longer than all else that most of them do. So the program that
they start is a client, `CLIENT`, of a process that forks one server for each of its connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.upstream.names import DRAFTER, POCKET, SEEING

# Here a conversation should come to its end: the pocket target stands in for the one that tells stories.
_CONVERSATIONS = ("test_compat_anthropic", "test_compat_oai_responses", "test_tool_call")
# Becomes llama-server, or asks for one of ours, hands on its signals, and ends as it ends.
CLIENT = """\
import json, os, signal, socket, sys
sys.path.insert(0, {root!r})
from tests.upstream.launch import replaced
flags = replaced(sys.argv[1:])
if "UPSTREAM_PEER" in os.environ:
    os.execv(os.environ["UPSTREAM_PEER"], [os.environ["UPSTREAM_PEER"], *flags])
server = socket.socket(socket.AF_UNIX)
server.connect(os.environ["UPSTREAM_FORK"])
order = json.dumps([flags, dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [len(order).to_bytes(8, "little")], [1, 2])
server.sendall(order)
pid = int.from_bytes(server.recv(8), "little")
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
sys.exit(int.from_bytes(server.recv(8), "little"))
"""


def replaced(flags: list[str]) -> list[str]:
    """With models that are here in place of those that are not."""
    ends = any(name in os.environ.get("PYTEST_CURRENT_TEST", "") for name in _CONVERSATIONS)
    hub = Path(os.environ["LLAMA_CACHE"])
    kept: list[str] = []
    foreign = False
    for flag in flags:
        if kept and kept[-1] == "--hf-repo":
            foreign = not (hub / f"models--{flag.split(':')[0].replace('/', '--')}").is_dir()
            kept.append(POCKET if foreign or (ends and SEEING not in flag) else flag)
        elif kept and kept[-1] == "--model-draft" and not Path(flag).is_file():
            kept.append(str(DRAFTER))
        else:
            kept.append(flag)
    if foreign and "--hf-file" in kept:
        position = kept.index("--hf-file")
        del kept[position : position + 2]
    return kept


def main() -> None:
    """Fork servers for those who connect to the socket that the first argument names, for as long as the second one,
    a process, is there."""
    path, parent = sys.argv[1], int(sys.argv[2])
    import dflash_local.cli
    import dflash_local.engine
    import dflash_local.server.app
    import dflash_local.server.process  # noqa: F401

    running: dict[int, socket.socket] = {}  # by the server's pid
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as waiting:
        listener.bind(path)
        listener.listen(64)
        waiting.register(listener, selectors.EVENT_READ)
        while os.getppid() == parent:
            for key, _ in waiting.select(0.05):
                if key.fileobj is listener:
                    client, _ = listener.accept()
                    running[_fork(client)] = client
                    waiting.register(client, selectors.EVENT_READ)
                else:  # it can only end
                    _kill(running, key.fileobj)
                    waiting.unregister(key.fileobj)
            while (ended := _ended()) is not None:
                pid, status = ended
                client = running.pop(pid)
                with suppress(OSError):
                    client.sendall(status.to_bytes(8, "little"))
                with suppress(KeyError):
                    waiting.unregister(client)
                client.close()
        for pid in running:
            os.kill(pid, signal.SIGKILL)


def _ended() -> tuple[int, int] | None:
    """A server that has ended, and its exit status."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status) & 255) if pid else None


def _kill(running: dict[int, socket.socket], client: Any) -> None:
    for pid, other in running.items():
        if other is client:
            os.kill(pid, signal.SIGKILL)


def _fork(client: socket.socket) -> int:
    """Start a server as the client says. Its pid, which the client is told."""
    size, outputs, _, _ = socket.recv_fds(client, 8, 2)
    order = bytearray()
    while len(order) < int.from_bytes(size, "little"):
        order += client.recv(65536)
    flags, environment, folder = json.loads(order)
    pid = os.fork()
    if pid:
        client.sendall(pid.to_bytes(8, "little"))
        for descriptor in outputs:
            os.close(descriptor)
        return pid
    try:
        for number, descriptor in enumerate(outputs, 1):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        status = _serve(flags)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _serve(flags: list[str]) -> int:
    from dflash_local.cli import main as ours

    if "LLAMA_SERVER_DEBUG_FAKE_TIMING" in os.environ:
        _slow_router()
    return ours(["serve", *_drafting(_known(flags)), *_fetching()])


def _fetching() -> list[str]:
    """Pictures that the tests name by their addresses are of this machine, whose address ours would not fetch from."""
    from dflash_local.media import remote_file

    reader = partial(remote_file.RemoteFiles, is_allowed=lambda _: True)
    remote_file.RemoteFiles = reader  # type: ignore[misc, assignment]
    return ["--media-hosts", os.environ["UPSTREAM_PICTURES"]]


def _slow_router() -> None:
    """As llama-server's router is with that variable: each request keeps its model busy for two seconds before it is
    forwarded. The tests of its queue rely on that."""
    from dflash_local.server.router.instance import Instance
    from dflash_local.server.router.pool import Pool

    use = Pool.use

    @asynccontextmanager
    async def slow(self: Pool, instance: Instance, **more: Any) -> AsyncIterator[None]:
        async with use(self, instance, **more):
            await asyncio.sleep(2)
            yield

    Pool.use = slow  # type: ignore[method-assign]


def _drafting(flags: list[str]) -> list[str]:
    """With the pocket drafter, unless the run is the undrafted one. A router's models have drafters of their own."""
    # The drafter that a test names is another model than ours, and drafts otherwise.
    flags = ["draft-dflash" if flag == "draft-simple" else flag for flag in flags]
    if os.environ.get("UPSTREAM_DRAFT") == "off":
        return [*flags, "--draft", "off"]
    has_model = {"--model", "--hf-repo"} & set(flags)
    no_drafter = {"--model-draft", "--embedding", "--reranking"} & set(flags)
    return [*flags, "-md", str(DRAFTER)] if has_model and not no_drafter else flags


def _known(flags: list[str]) -> list[str]:
    """Without what `serve` does not know, which is told to the run's report; a stage on the way to none."""
    import argparse

    from dflash_local.cli.commands import serve
    from dflash_local.cli.parser_actions import actions_by_name

    if os.environ.get("UPSTREAM_ALL_FLAGS"):
        return flags
    commands = argparse.ArgumentParser(allow_abbrev=False).add_subparsers()
    serve.add_parser(commands)
    parser = commands.choices["serve"]
    known = actions_by_name(parser)
    kept: list[str] = []
    dropped: list[str] = []
    for flag in flags:
        if flag.startswith("-") and len(flag) > 1 and not flag[1].isdigit():
            chosen = kept if flag in known else dropped
        chosen.append(flag)
    if dropped:
        with Path(os.environ["UPSTREAM_DROPPED"]).open("a") as file:
            file.write(" ".join(dropped) + "\n")
    return kept


if __name__ == "__main__":
    main()
