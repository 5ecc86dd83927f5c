"""Peers that say too much, too slowly, or do not listen: the service lets go of them, and goes on."""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
import uvicorn

from rolloutgym.server import protocols, serving
from rolloutgym.server.routes import bodies
from rolloutgym.server.settings import Settings

UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def peer(shared_noop: tuple[Any, str]) -> Iterator[socket.socket]:
    url = httpx2.URL(shared_noop[1])
    with socket.create_connection((url.host, url.port or 0), timeout=60) as connection:
        yield connection
    assert httpx2.get(f"{shared_noop[1]}/ready").status_code == 200


def until_closed(peer: socket.socket) -> bytes:
    """What the service says before it lets go."""
    said = b""
    try:
        while part := peer.recv(65536):
            said += part
    except ConnectionError:
        pass
    return said


def answer(peer: socket.socket) -> bytes:
    """A whole response: its head and its body may come apart."""
    said = b""
    while not (found := re.search(rb"content-length: (\d+)\r\n.*?\r\n\r\n", said, re.DOTALL)) or len(
        said
    ) < found.end() + int(found[1]):
        part = peer.recv(65536)
        assert part, said
        said += part
    return said


def flood(peer: socket.socket, data: bytes) -> int:
    """Send until the service takes no more, or 100 MiB; how much was sent."""
    sent = 0
    with suppress(ConnectionError, TimeoutError):
        while sent < 100 * 2**20:
            sent += peer.send(data)
    return sent


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a" * 65536),
        (b"GET /health HTTP/1.1\r\nX: ", b"a" * 65536),
        (b"GET /health HTTP/1.1\r\n", b"X: " + b"a" * 4000 + b"\r\n"),
    ],
    ids=["address", "one header", "many headers"],
)
def test_a_head_without_end_is_not_kept(peer: socket.socket, begin: bytes, more: bytes) -> None:
    peer.sendall(begin)
    assert flood(peer, more) < 16 * 2**20


def test_a_long_head_and_a_body_at_once_are_fine(peer: socket.socket) -> None:
    body = b'{"seed": 1, "options": {}}' + b" " * 300_000
    head = b"POST /noop/reset HTTP/1.1\r\nHost: 127.0.0.1\r\nX: %s\r\nContent-Length: %d\r\n\r\n"
    for _ in range(2):
        peer.sendall(head % (b"a" * 50_000, len(body)) + body)
        assert b" 200 OK" in answer(peer)


def test_an_address_too_long_for_a_websocket_is_refused(peer: socket.socket) -> None:
    peer.sendall(b"GET /noop/ws?episode_id=" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADE)
    assert b" 414 " in until_closed(peer)


@pytest.mark.parametrize(
    "head", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"], ids=["nothing", "line", "header"]
)
def test_a_request_that_does_not_come_is_not_waited_for(
    start_service: Callable[..., str], noop: Any, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(protocols, "HEAD_S", 0.2)
    url = httpx2.URL(start_service({"noop": noop}))
    with socket.create_connection((url.host, url.port or 0), timeout=60) as peer:
        peer.sendall(head)
        assert until_closed(peer) == b""


def test_a_body_that_does_not_come_is_not_waited_for(peer: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.2)
    peer.sendall(b'POST /noop/reset HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"see')
    refusal = answer(peer)
    assert b" 422 " in refusal
    assert b"invalid_request" in refusal


def test_a_silent_websocket_outlives_what_a_request_may_take(
    start_service: Callable[..., str], noop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "HEAD_S", 1.0)
    url = httpx2.URL(start_service({"noop": noop}))
    with socket.create_connection((url.host, url.port or 0), timeout=60) as peer:
        peer.sendall(b"GET /noop/ws HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADE)
        assert b" 101 " in peer.recv(65536)
        time.sleep(1.5)
        peer.sendall(frame(b'{"type":"reset"}', 1))
        assert b'"observation"' in peer.recv(65536)


def frame(content: bytes, opcode: int) -> bytes:
    """A client's frame; the mask changes nothing."""
    length = bytes([128 + len(content)]) if len(content) < 126 else b"\xfe" + struct.pack(">H", len(content))
    return bytes([128 + opcode]) + length + bytes(4) + content


def test_a_peer_that_reads_no_pongs_is_not_read_without_end(peer: socket.socket) -> None:
    peer.sendall(b"GET /noop/ws HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADE)
    assert b" 101 " in peer.recv(65536)
    pings = frame(b"x" * 125, 9) * 8000
    peer.settimeout(2)
    sent = flood(peer, pings)
    assert sent < 64 * 2**20
    # As soon as it listens again, it is heard.
    received = 0
    peer.settimeout(60)
    while received < sent * 127 // 131 - 1000:
        part = peer.recv(2**20)
        assert part
        received += len(part)


@pytest.mark.parametrize(("level", "logged"), [("info", False), ("debug", True)])
def test_connections_are_logged_for_debugging_only(noop: Any, level: Any, logged: bool) -> None:
    config: uvicorn.Config = serving.uvicorn_config(None, Settings(log_level=level))  # type: ignore[arg-type]
    assert protocols.connection_log.isEnabledFor(20) is logged
    assert config.http is protocols.HttpProtocol
