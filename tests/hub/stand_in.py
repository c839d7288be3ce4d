"""A stand-in for the Hub on the loopback: its API, and a second server, as its CDN, to which it sends large files.

What it answers follows huggingface.co: listings with git and LFS object ids, refs, commits, ranges, ETags, redirects,
error codes in headers. Faults are told to it beforehand.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40
TOKEN = "hf_" + "x" * 34
Headers = dict[str, str]


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Repository:
    """Files by path, at one commit. Files that end like weights are LFS files."""

    files: dict[str, bytes]
    commit: str = COMMIT
    branches: dict[str, str] | None = None  # None: main is the commit
    older: tuple[str, ...] = ()  # commits before it
    proposed: dict[str, str] = field(default_factory=dict)  # commits of pull requests
    gated: bool = False
    announced: dict[str, str] = field(default_factory=dict)  # object ids that the listing has instead of the true ones

    def is_lfs(self, path: str) -> bool:
        return path.endswith((".gguf", ".safetensors", ".bin", ".pt"))

    def oid(self, path: str) -> str:
        content = self.files[path]
        return self.announced.get(path) or (sha256(content) if self.is_lfs(path) else git_oid(content))


@dataclass
class Request:
    """A request that came in."""

    host: str  # "hub" or "cdn"
    path: str
    authorization: str | None
    range: str | None


@dataclass
class StandIn:
    """`faults` are asked for each request, in order; the first that returns True has answered it."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    faults: list[Callable[[BaseHTTPRequestHandler, Request], bool]] = field(default_factory=list)
    ranges: bool = True
    page_length: int = 1000
    endpoint: str = ""
    cdn: str = ""

    def add(self, repo: str, files: dict[str, bytes], **facts: Any) -> Repository:
        self.repositories[repo] = Repository(files, **facts)
        return self.repositories[repo]

    def fault(self, path: str, answer: Callable[[BaseHTTPRequestHandler], None], times: int = 1) -> None:
        """Answer the next `times` requests whose path matches with `answer`."""
        left = [times]

        def once(handler: BaseHTTPRequestHandler, request: Request) -> bool:
            if left[0] > 0 and re.search(path, request.path):
                left[0] -= 1
                answer(handler)
                return True
            return False

        self.faults.append(once)

    def cut(self, path: str, after: int, times: int = 1, reset: bool = False) -> None:
        """Break the connection `after` bytes of a file."""
        left = [times]

        def once(handler: BaseHTTPRequestHandler, request: Request) -> bool:
            if left[0] > 0 and request.host == "cdn" and re.search(path, request.path):
                left[0] -= 1
                send_file(handler, self, cut=after, reset=reset)
                return True
            return False

        self.faults.append(once)

    def paths(self, host: str = "hub") -> list[str]:
        return [request.path for request in self.requests if request.host == host]

    def fetched(self, host: str = "cdn") -> int:
        return len(self.paths(host))


@contextmanager
def stand_in(tls: ssl.SSLContext | None = None) -> Iterator[StandIn]:
    """A running stand-in, of which both servers have TLS if there is a context for it."""
    hub = StandIn()
    servers = []
    for host in ("hub", "cdn"):
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, host))
        server.daemon_threads = True
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        scheme = "https" if tls else "http"
        setattr(hub, "endpoint" if host == "hub" else "cdn", f"{scheme}://127.0.0.1:{server.server_address[1]}")
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(hub: StandIn, host: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            request = Request(host, self.path, self.headers.get("Authorization"), self.headers.get("Range"))
            hub.requests.append(request)
            if any(fault(self, request) for fault in hub.faults):
                return
            if host == "cdn":
                send_file(self, hub)
            else:
                answer_request(self, hub, request)

        def do_HEAD(self) -> None:  # llama.cpp asks so first
            self.do_GET()

    return Handler


def send(handler: BaseHTTPRequestHandler, status: int, body: Any = b"", headers: Headers | None = None) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(data)


def refuse(status: int, code: str = "", message: str = "", headers: Headers | None = None) -> Callable[..., None]:
    """An answer in the Hub's words."""
    words = {"X-Error-Code": code, "X-Error-Message": message}
    return lambda handler: send(
        handler, status, {"error": message}, {**{k: v for k, v in words.items() if v}, **(headers or {})}
    )


def answer_request(handler: BaseHTTPRequestHandler, hub: StandIn, request: Request) -> None:
    """What the Hub itself answers."""
    url = urlsplit(request.path)
    api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(refs|tree|commits)(?:/(.+))?", url.path)
    file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", unquote(url.path))
    repo = str((api or file or [None, ""])[1])
    known = hub.repositories.get(repo)
    if known is None:
        return refuse(401 if request.authorization is None else 404, "RepoNotFound", "Repository not found")(handler)
    if file and known.gated and request.authorization != f"Bearer {TOKEN}":
        status = 401 if request.authorization is None else 403
        return refuse(status, "GatedRepo", f"Access to model {repo} is restricted")(handler)
    if file:
        return _resolve(handler, hub, known, repo, str(file[2]), str(file[3]))
    assert api
    if api[2] == "refs":
        branches = {"main": known.commit} if known.branches is None else known.branches
        refs = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in branches.items()]
        found = {"branches": refs, "tags": [], "converts": []}
        if "include_prs=1" in url.query:
            found["pullRequests"] = [{"name": n, "ref": n, "targetCommit": c} for n, c in known.proposed.items()]
        return send(handler, 200, found)
    if api[2] == "commits":
        return send(handler, 200, [{"id": c, "title": "", "date": ""} for c in (known.commit, *known.older)])
    if api[3] not in (known.commit, *known.older):
        return refuse(404, "RevisionNotFound", "Invalid rev id")(handler)
    return _tree(handler, hub, known, url.path, url.query)


def _tree(handler: BaseHTTPRequestHandler, hub: StandIn, repo: Repository, path: str, query: str) -> None:
    entries: list[dict[str, Any]] = [
        {"type": "directory", "path": folder, "oid": "f" * 40, "size": 0}
        for folder in sorted({path.rsplit("/", 1)[0] for path in repo.files if "/" in path})
    ]
    for name, content in repo.files.items():
        entry = {"type": "file", "path": name, "size": len(content), "oid": git_oid(content)}
        if repo.is_lfs(name):
            entry["lfs"] = {"oid": repo.oid(name), "size": len(content), "pointerSize": 134}
        elif name in repo.announced:
            entry["oid"] = repo.announced[name]
        entries.append(entry)
    start = int(match[1]) if (match := re.search(r"cursor=(\d+)", query)) else 0
    end = start + hub.page_length
    link = {"Link": f'<{hub.endpoint}{path}?recursive=true&cursor={end}>; rel="next"'} if end < len(entries) else {}
    send(handler, 200, entries[start:end], link)


def _resolve(
    handler: BaseHTTPRequestHandler, hub: StandIn, known: Repository, repo: str, revision: str, path: str
) -> None:
    if path not in known.files:
        return refuse(404, "EntryNotFound", "Entry not found")(handler)
    headers = {"X-Repo-Commit": revision, "ETag": f'"{known.oid(path)}"'}
    if known.is_lfs(path):
        headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(known.files[path]))}
        headers["Location"] = f"{hub.cdn}/{repo}/{path}"
        return send(handler, 302, b"", headers)
    return send_file(handler, hub, content=known.files[path], headers=headers)


def send_file(
    handler: BaseHTTPRequestHandler,
    hub: StandIn,
    *,
    content: bytes | None = None,
    headers: Headers | None = None,
    cut: int | None = None,
    reset: bool = False,
) -> None:
    """A file, or the range of it that was asked for; broken off after `cut` bytes of it."""
    if content is None:
        user, name, path = unquote(handler.path).removeprefix("/").split("/", 2)
        content = hub.repositories[f"{user}/{name}"].files[path]
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range") or "")
    status, sent = 200, content
    more = {"Accept-Ranges": "bytes" if hub.ranges else "none", **(headers or {})}
    if wanted and hub.ranges:
        start, stop = int(wanted[1]), int(wanted[2] or len(content) - 1) + 1
        if start >= len(content):
            return send(handler, 416, b"", {"Content-Range": f"bytes */{len(content)}"})
        status, sent = 206, content[start:stop]
        more["Content-Range"] = f"bytes {start}-{start + len(sent) - 1}/{len(content)}"
    if cut is None:
        return send(handler, status, sent, more)
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(sent)), **more}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(sent[:cut])
    handler.wfile.flush()
    handler.close_connection = True
    if reset:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close() if reset else handler.connection.shutdown(socket.SHUT_RDWR)
    return None
