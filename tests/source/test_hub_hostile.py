"""A Hub that answers to do harm: too much, too slowly, packed, in circles, or to get the token sent elsewhere."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvplanner import __version__
from kvplanner.errors import PlannerError
from kvplanner.source.hub import client as hub_client
from kvplanner.source.hub import open as hub
from kvplanner.source.hub.errors import HubError
from tests.patience import LONG_S
from tests.source.hub_server import COMMIT

Answer = Callable[[BaseHTTPRequestHandler], None]
BOMB = gzip.compress(b" " * (64 << 20))


class Hostile:
    """A server of one answer; seen: each request's path and headers."""

    def __init__(self, answer: Answer, host: str = "127.0.0.1") -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.stop = threading.Event()
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                hostile.seen.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
                try:
                    answer(self)
                except OSError:
                    self.close_connection = True

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self._server.hostile = self  # type: ignore[attr-defined]  # the test's own server
        self.url = f"http://{host}:{self._server.server_address[1]}"
        threading.Thread(target=lambda: self._server.serve_forever(0.02), daemon=True).start()

    def close(self) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, text in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), text)
    handler.end_headers()
    handler.wfile.write(body)


def endless(handler: BaseHTTPRequestHandler, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    while True:
        handler.wfile.write(b'{"id":"a/b","siblings":[' + b'{"rfilename":"x"},' * 3000)


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    while not handler.server.hostile.stop.wait(0.1):  # type: ignore[attr-defined]  # the test's own server
        handler.wfile.write(b" ")
        handler.wfile.flush()


def dripping_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not handler.server.hostile.stop.wait(0.1):  # type: ignore[attr-defined]  # the test's own server
        handler.wfile.write(b"X: y\r\n")
        handler.wfile.flush()


ANSWERS: dict[str, tuple[Answer, str, str]] = {
    "endless JSON": (endless, "bad_answer", "larger than"),
    "an endless error": (lambda h: endless(h, 404), "refused", "status 404"),
    "a dripping body": (drip, "slow", "did not answer within"),
    "dripping headers": (dripping_headers, "slow", "did not answer within"),
    "a compressed bomb": (lambda h: send(h, 200, BOMB, Content_Encoding="gzip"), "bad_answer", "larger than"),
    "another packing": (lambda h: send(h, 200, b"x", Content_Encoding="br"), "bad_answer", "packed as 'br'"),
    "broken packing": (lambda h: send(h, 200, b"xxxx", Content_Encoding="gzip"), "bad_answer", "cannot be unpacked"),
    "a circle": (lambda h: send(h, 302, Location=h.path), "bad_answer", "round in circles"),
    "deep JSON": (lambda h: send(h, 200, b"[" * 100_000), "bad_answer", "not what the Hub sends"),
    "huge numbers": (lambda h: send(h, 200, b'{"id":' + b"9" * 10_000 + b"}"), "bad_answer", "not what the Hub sends"),
    "a log-in page": (lambda h: send(h, 200, b"<html>log in</html>"), "bad_answer", "not what the Hub sends"),
}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Answer], Hostile]]:
    made: list[Hostile] = []

    def start(answer: Answer) -> Hostile:
        server = Hostile(answer)
        made.append(server)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        return server

    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(hub_client, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(hub_client, "LISTING_DEADLINE_S", 1.5)
    yield start
    for server in made:
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("ask", ["open", "search"])
def test_no_answer_costs_more_than_its_limits(
    serve: Callable[[Answer], Hostile], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, ask: str
) -> None:
    answer, trouble, words = ANSWERS[kind]
    serve(answer)
    if trouble != "slow":  # a slow machine may take longer to be sent too much than the others are waited for
        monkeypatch.setattr(hub_client, "TIMEOUT_S", LONG_S)
        monkeypatch.setattr(hub_client, "LISTING_DEADLINE_S", LONG_S)
    started = time.monotonic()
    with pytest.raises(HubError, match=words) as caught:
        hub.search("x") if ask == "search" else hub.open_model("a/b", allow_network=True, store=tmp_path / "store")
    if trouble == "slow":
        assert time.monotonic() - started < 8
    assert caught.value.trouble == trouble
    assert caught.value.remedy


def test_the_token_goes_to_the_hub_alone(serve: Callable[[Answer], Hostile], tmp_path: Path) -> None:
    elsewhere = Hostile(lambda h: send(h, 200, b"{}"), host="127.0.0.2")
    files = [{"rfilename": "config.json", "size": 2}]
    listing = json.dumps({"id": "a/b", "sha": COMMIT, "siblings": files}).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "/api/" in handler.path:
            send(handler, 200, listing)
        else:
            send(handler, 302, Location=f"{elsewhere.url}{handler.path}")

    server = serve(answer)
    try:
        with pytest.raises(PlannerError):
            hub.open_model("a/b", allow_network=True, store=tmp_path / "store")
        assert all(headers.get("authorization") == "Bearer hf_secret" for _, headers in server.seen)
        assert elsewhere.seen, "the file was fetched from where it lies"
        assert not [headers for _, headers in elsewhere.seen if "authorization" in headers]
    finally:
        elsewhere.close()


def test_requests_say_which_program_asks(serve: Callable[[Answer], Hostile]) -> None:
    server = serve(lambda h: send(h, 200, b"[]"))
    assert hub.search("x") == ()
    (_, headers), *_ = server.seen
    assert headers["user-agent"].startswith(f"kvplanner/{__version__};")


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "\x1b[2J\u202e.safetensors", "a/../../x.gguf", "x" * 5000])
def test_no_file_name_of_a_listing_leaves_the_cache(
    serve: Callable[[Answer], Hostile], tmp_path: Path, name: str
) -> None:
    siblings: list[Any] = [{"rfilename": name, "size": 10**30}, {"rfilename": "config.json", "size": 2}]
    listing = json.dumps({"id": "a/b", "sha": COMMIT, "siblings": siblings}).encode()
    serve(lambda h: send(h, 200, listing))
    with pytest.raises(PlannerError) as caught:
        hub.open_model("a/b", allow_network=True, store=tmp_path / "store")
    assert "\x1b" not in str(caught.value)
    assert {path.parts[-1] for path in tmp_path.iterdir()} <= {"store", "hf"}
