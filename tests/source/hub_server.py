"""A small Hub on loopback: the endpoints that the real client uses, and every way in which they can misbehave."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """files: name → content; behaviour: what its files' ranges do; needs_token: answers 401 or 403 without it."""

    files: dict[str, bytes]
    behaviour: str = "ok"
    gated: bool = False
    private: bool = False
    needs_token: str = ""
    sizes: dict[str, int | None] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})

    def size(self, name: str) -> int | None:
        return self.sizes.get(name, len(self.files[name]))


class _Server(ThreadingHTTPServer):
    """Keeps its connections, so that closing it also ends those that clients hold open."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.connections: list[socket.socket] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)


class HubServer:
    """requests: every path with its Range; tokens: the Authorization headers seen; instead: answers everything."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.attempts: Counter[str] = Counter()
        self.instead = b""
        self._server = _Server(self._handler())
        self.stop = threading.Event()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.02), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in self._server.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def ranges(self, file: str) -> list[str]:
        """The ranges asked of a file, in order."""
        return [range_ for path, range_ in self.requests if path.endswith(f"/{file}") and range_]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                hub.requests.append((urlsplit(self.path).path, self.headers.get("Range", "")))
                hub.tokens.append(self.headers.get("Authorization", ""))
                try:
                    _answer(hub, self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        return Handler


@contextmanager
def running() -> Iterator[HubServer]:
    server = HubServer()
    server.start()
    try:
        yield server
    finally:
        server.close()


def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def _json(handler: BaseHTTPRequestHandler, value: Any, status: int = 200, **headers: str) -> None:
    _send(handler, status, json.dumps(value).encode(), Content_Type="application/json", **headers)


def _error(handler: BaseHTTPRequestHandler, status: int, code: str, message: str) -> None:
    headers = {"X-Error-Code": code} if code else {}
    _json(handler, {"error": message}, status, X_Error_Message=message, **headers)


def _answer(hub: HubServer, handler: BaseHTTPRequestHandler) -> None:
    url = urlsplit(handler.path)
    parts = [part for part in url.path.split("/") if part]
    if hub.instead:
        _send(handler, 200, hub.instead)
    elif parts[:2] == ["api", "models"]:
        if len(parts) == 2:
            _search(hub, handler, parse_qs(url.query))
        else:
            _info(hub, handler, "/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
    elif len(parts) >= 5 and parts[2] == "resolve":
        _resolve(hub, handler, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))
    elif parts[:1] == ["cdn"]:
        _ranged(hub, handler, hub.repositories["/".join(parts[1:3])], "/".join(parts[3:]), "ok")
    else:
        _error(handler, 404, "", "Not found")


def _allowed(handler: BaseHTTPRequestHandler, hub: HubServer, id_: str) -> Repository | None:
    repository = hub.repositories.get(id_)
    token = handler.headers.get("Authorization", "")
    if token == "Bearer invalid":
        _error(handler, 401, "", "Invalid credentials in Authorization header")
    elif repository is None:
        # The Hub hides what exists from those who are not logged in.
        _error(handler, 404 if token else 401, "RepoNotFound", "Repository not found")
    elif repository.needs_token and token != f"Bearer {repository.needs_token}":
        if repository.gated:
            _error(handler, 403 if token else 401, "GatedRepo", f"Access to model {id_} is restricted")
        else:
            _error(handler, 401, "RepoNotFound", "Repository not found")
    else:
        return repository
    return None


def _info(hub: HubServer, handler: BaseHTTPRequestHandler, id_: str, revision: str) -> None:
    repository = hub.repositories.get(id_)
    if repository is not None and repository.behaviour == "info 429":
        _send(handler, 429, b"", Retry_After="1")
        return
    # A gated repository's listing is public; only its files are not.
    if repository is None or not repository.gated:
        repository = _allowed(handler, hub, id_)
        if repository is None:
            return
    commit = repository.revisions.get(revision, revision if revision in repository.revisions.values() else "")
    if not commit:
        _error(handler, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return
    siblings = [
        {"rfilename": name, "blobId": hashlib.sha1(name.encode()).hexdigest(), "size": repository.size(name)}
        for name in repository.files
    ]
    _json(handler, {
        "_id": "1", "id": id_, "modelId": id_, "sha": commit, "private": repository.private,
        "gated": "manual" if repository.gated else False, "tags": [], "downloads": 7, "siblings": siblings,
    })  # fmt: skip


def _search(hub: HubServer, handler: BaseHTTPRequestHandler, query: dict[str, list[str]]) -> None:
    words = query.get("search", [""])[0].lower()
    _json(handler, [
        {"_id": str(number), "id": id_, "downloads": 100 - number, "gated": "manual" if repository.gated else False,
         "private": repository.private, "safetensors": {"parameters": {"BF16": 1000}, "total": 1000}}
        for number, (id_, repository) in enumerate(hub.repositories.items()) if words in id_.lower()
    ])  # fmt: skip


def _resolve(hub: HubServer, handler: BaseHTTPRequestHandler, id_: str, revision: str, file: str) -> None:
    repository = _allowed(handler, hub, id_)
    if repository is None:
        return
    if file not in repository.files or revision not in {*repository.revisions, *repository.revisions.values()}:
        _error(handler, 404, "EntryNotFound", "Entry not found")
        return
    hub.attempts[f"{id_}/{file}"] += 1
    small = file.endswith(".json")
    if repository.behaviour == "redirect" and not small:
        _send(handler, 302, b"", Location=f"{hub.url}/cdn/{id_}/{file}")
        return
    _ranged(hub, handler, repository, file, "ok" if small else repository.behaviour)


def _ranged(hub: HubServer, handler: BaseHTTPRequestHandler, repository: Repository, file: str, how: str) -> None:
    content = repository.files[file]
    asked = handler.headers.get("Range", "")
    first, _, last = asked.removeprefix("bytes=").partition("-")
    start, end = (int(first), min(int(last), len(content) - 1)) if asked else (0, len(content) - 1)
    if _refused(hub, handler, content, how):
        return
    if how == "cut off":
        _cut_off(handler, content[start : end + 1], f"bytes {start}-{end}/{len(content)}")
        return
    said, body = _lie(how, start, end, content)
    _send(handler, 206, body, **({"Content-Range": said} if said else {}))


def _lie(how: str, start: int, end: int, content: bytes) -> tuple[str, bytes]:
    """Content-Range and body of an answer, wrong in the way that is asked for."""
    body = content[start : end + 1]
    said = f"bytes {start}-{end}/{len(content)}"
    return {
        "other range": (f"bytes {start + 8}-{end}/{len(content)}", body[8:]),
        "shorter than said": (said, body[:100]),
        "longer than said": (said, body + b"x" * 1000),
        "other size": (f"bytes {start}-{end}/{len(content) + 4096}", body),
        "no content range": ("", body),
        "other bytes": (said, bytes(255 - byte for byte in body)),
    }.get(how, (said, body))


def _refused(hub: HubServer, handler: BaseHTTPRequestHandler, content: bytes, how: str) -> bool:
    """Answers without a range."""
    again = any(count > 1 for count in hub.attempts.values())
    if how == "429" or (how == "429 once" and not again):
        _send(handler, 429, b"", Retry_After="0")
    elif how == "500":
        _send(handler, 503, b"overloaded")
    elif how == "no ranges":
        _send(handler, 200, content)
    elif how == "endless":
        _endless(hub, handler)
    else:
        if how == "slow":
            hub.stop.wait(20)
        return False
    return True


def _cut_off(handler: BaseHTTPRequestHandler, body: bytes, said: str) -> None:
    handler.send_response(206)
    handler.send_header("Content-Length", str(len(body)))
    handler.send_header("Content-Range", said)
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    handler.close_connection = True


def _endless(hub: HubServer, handler: BaseHTTPRequestHandler) -> None:
    """A body without an end, under status 200."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    started = time.monotonic()
    while not hub.stop.is_set() and time.monotonic() - started < 30:
        handler.wfile.write(b"x" * 65536)
