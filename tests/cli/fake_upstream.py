"""A llama-server that says the same ten words to everything, four times as fast with a head: `fake_upstream.py FLAGS`.

FAKE_UPSTREAM=ends: it ends at once; =refuses: it answers every prompt with an error; =dies: in the middle of an answer;
=other: it answers with another object.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

FLAGS = sys.argv[1:]
DRAFTS = "--spec-type" in FLAGS


class Handler(BaseHTTPRequestHandler):
    def reply(self, status: int, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.reply(200, {"status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if os.environ.get("FAKE_UPSTREAM") == "refuses":
            self.reply(400, {"error": {"message": "no such field"}})
            return
        if os.environ.get("FAKE_UPSTREAM") == "dies":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices"')
            return
        if os.environ.get("FAKE_UPSTREAM") == "other":
            self.reply(200, {"generated_text": "words"})
            return
        print(json.dumps({"path": self.path, "body": body, "flags": FLAGS}), flush=True)
        with open(os.environ["FAKE_UPSTREAM_SEEN"], "a", encoding="utf-8") as file:  # noqa: PTH123
            print(json.dumps({"path": self.path, "body": body, "flags": FLAGS}), file=file)
        timings = {"predicted_n": 21, "predicted_ms": 250.0 if DRAFTS else 1000.0, "prompt_ms": 50.0}
        if DRAFTS:
            timings |= {"draft_n": 30, "draft_n_accepted": 15}
        message = {"message": {"content": "words"}} if "messages" in body else {"text": "words"}
        self.reply(200, {"choices": [message], "timings": timings})

    def log_message(self, *args: object) -> None:
        pass


if os.environ.get("FAKE_UPSTREAM") == "ends":
    sys.exit("no such model")
HTTPServer((FLAGS[FLAGS.index("--host") + 1], int(FLAGS[FLAGS.index("--port") + 1])), Handler).serve_forever()
