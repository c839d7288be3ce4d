"""The pictures that the tests would download: made here, and served at an address of this machine."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from tests.media.samples import saved

# Where the tests' own pictures are, of 32 x 32 pixels each.
FOLDER = "https://huggingface.co/ggml-org/tinygemma3-GGUF/resolve/main/test/"
NAMES = ("11_truck.png", "91_cat.png")
SIDE = 32


def picture(name: str) -> bytes:
    """A PNG file of noise, of each name another."""
    rng = np.random.default_rng(NAMES.index(name))
    return saved(Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)))


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        found = picture(name) if name in NAMES else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve() -> str:
    """Serve them for as long as this process lives. `HOST:PORT`, which servers find in UPSTREAM_PICTURES."""
    site = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    os.environ["UPSTREAM_PICTURES"] = address = f"127.0.0.1:{site.server_address[1]}"
    return address


def moved(value: Any, address: str) -> Any:
    """A request's body, or an address, with the pictures at `address`."""
    if isinstance(value, dict):
        return {name: moved(item, address) for name, item in value.items()}
    if isinstance(value, list):
        return [moved(item, address) for item in value]
    return value.replace(FOLDER, f"http://{address}/") if isinstance(value, str) else value
