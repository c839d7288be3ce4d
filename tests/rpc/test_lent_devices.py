"""Devices that RPC servers lend: who may use them, for what, and what if there are fewer than before."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import RPCError
from tests.media.samples import png
from tests.patience import PATIENCE
from tests.projector_files import projector_file
from tests.rpc.rpc_servers import RPCServer, rpc_servers

SMALL: dict[str, Any] = {"n_ctx": 1024, "n_threads": 1, "cost_cache": False, "warmup": False}


def holders(engine: Engine, part: str) -> set[str]:
    """The devices that hold some of a part."""
    return {name for name, parts in engine.info["placement"].items() if parts.get(part)}


def test_the_projector_stays_on_this_machine(pocket: dict[str, Path], tmp_path: Path) -> None:
    projector = projector_file(tmp_path / "mmproj.gguf")
    content = [{"type": "image", "image": png()}, {"type": "text", "text": "what?"}]
    with (
        rpc_servers(1) as (server,),
        Engine(pocket["target"], mmproj=projector, rpc=server.address, **SMALL) as engine,
    ):
        assert any(name.startswith("RPC") for name in holders(engine, "target"))
        assert not any(name.startswith("RPC") for name in holders(engine, "projector"))
        assert engine.chat([{"role": "user", "content": content}], max_tokens=2).completion.image_tokens


def test_a_server_that_comes_back_with_fewer_devices(pocket: dict[str, Path]) -> None:
    server = RPCServer(devices="CPU,CPU")
    try:
        with Engine(pocket["target"], rpc=server.address, **SMALL) as engine:
            assert len([name for name in holders(engine, "target") if name.startswith("RPC")]) == 2
        server.kill()
        server.devices = "CPU"
        server.start()
        with pytest.raises(RPCError, match=f"^the RPC server {server.address} lends fewer devices than before: "):
            Engine(pocket["target"], rpc=server.address, **SMALL)
    finally:
        server.kill()


@pytest.mark.slow
def test_a_peer_that_says_nothing_is_dropped(pocket: dict[str, Path]) -> None:
    """Whoever waits behind it is served in time; who has greeted may say nothing for as long."""
    with (
        rpc_servers(2) as (asked, used),
        Engine(pocket["target"], rpc=used.address, **SMALL) as idle,
        socket.create_connection(("127.0.0.1", asked.port), PATIENCE) as silent,
    ):
        with Engine(pocket["target"], rpc=asked.address, **SMALL):
            assert silent.recv(1) == b""
        assert idle.generate("The quick brown fox", max_tokens=2, temperature=0).tokens
