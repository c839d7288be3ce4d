"""An instance of a router without a model, which starts at once: it speaks as `serve --parent-pipes` does, and does
what its requests say.

    python scripted_instance.py --model=NAME --host SOCKET --alias=NAME ...

The model's name says how it loads: `broken` ends with an error, `slow` waits for the file `go` beside the socket.
Bodies may say: `wait` (for this file, before the answer or after the first event), `events` (a stream of so many, one
each 20 ms, with what was `ignored`), `die` (end at once). Every answer tells what was asked.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

from dflash_local.server.children.parent import Parent

FLAGS = {flag.partition("=")[0]: flag.partition("=")[2] for flag in sys.argv[1:] if "=" in flag}
HOST = Path(sys.argv[sys.argv.index("--host") + 1])
NAME = FLAGS["--alias"]


class Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/metrics"):
            self._answer(b'# HELP x:n Text\n# TYPE x:n counter\nx:n 3\nx:m{a="b"} 4\n')
        elif self.path == "/v1/models":
            reads = {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
            self._json({"data": [{"id": NAME, "meta": {"n_params": 7}, "architecture": reads}]})
        else:
            self._json(self._asked({}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if "events" not in body:
            wait_for(body.get("wait"))
        if body.get("die"):
            os._exit(9)
        if "events" not in body:
            self._json(self._asked(body), body.get("status", 200))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        if "ignored" in body:
            self.send_header("X-DFlash-Ignored", body["ignored"])
        self.end_headers()
        try:
            for number in range(body["events"]):
                self._chunk(f"data: {number}\n\n")
                if number == body.get("die_at"):
                    os._exit(9)
                wait_for(body.get("wait"))
                time.sleep(0.02)
            self._chunk("")
        except OSError:
            HOST.with_suffix(".left").touch()
        self.close_connection = True

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()

    def _asked(self, body: Any) -> dict[str, Any]:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return {"by": NAME, "pid": os.getpid(), "path": self.path, "body": body, "headers": headers}

    def _json(self, body: Any, status: int = 200) -> None:
        self._answer(json.dumps(body).encode(), status)

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "router"

    def log_message(self, format: str, *args: Any) -> None:
        pass


def wait_for(name: str | None) -> None:
    """Until a file of this name is beside the socket."""
    while name and not HOST.with_name(name).exists():
        time.sleep(0.01)


def main() -> None:
    parent = Parent()
    parent.obey()
    if "broken" in NAME:
        print("INFO reading it\nerror: the file is damaged\n  fix: download it again", file=sys.stderr)
        sys.exit(3)
    HOST.unlink(missing_ok=True)
    server = Server(str(HOST), Handler)
    parent.on_stop = parent.on_hurry = lambda: os._exit(0)
    if "slow" in NAME:
        parent.say({"state": "loading", "progress": 0.25})
        wait_for("go")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("INFO ready\nWARNING it is only a script", file=sys.stderr, flush=True)
    parent.say({"state": "loaded"})
    threading.Event().wait()


if __name__ == "__main__":
    main()
