"""The service as a process: it starts, keeps silent clients, drains, and ends when it is told to."""

import asyncio
import json
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from rolloutgym.server import serving
from rolloutgym.server.app import create_app
from rolloutgym.server.protocols import WebSocketProtocol
from rolloutgym.server.settings import Settings


def websocket_url(url: str) -> str:
    return f"{url.replace('http', 'ws', 1)}/noop/ws"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_service_ends_with_status_0(noop_process: Callable[..., Any], how: signal.Signals) -> None:
    service = noop_process()
    with connect(websocket_url(service.url), proxy=None) as connection:
        connection.send('{"type":"reset"}')
        connection.recv()
        service.process.send_signal(how)
        assert service.process.wait(timeout=60) == 0
        with pytest.raises(Exception, match="1012"):
            connection.recv(timeout=60)


def test_a_hung_step_does_not_keep_the_service(noop_process: Callable[..., Any]) -> None:
    service = noop_process(drain_s="0.2")
    with connect(websocket_url(service.url), proxy=None) as connection, httpx2.Client(base_url=service.url) as http:
        connection.send('{"type":"reset"}')
        connection.recv()
        connection.send('{"type":"step","data":{"wait":"never"}}')
        http.post("/noop/reset", json={"episode_id": "rest"})
        hung = threading.Thread(target=hang, args=(service.url, "rest", {"wait": "never"}))
        hung.start()
        for _ in range(2):
            assert service.process.stdout.readline() == "a step waits for never\n"
        assert service.stop() == 0
        hung.join(60)
        assert not hung.is_alive()


def test_even_a_step_that_blocks_the_loop_does_not_keep_the_service(noop_process: Callable[..., Any]) -> None:
    service = noop_process(drain_s="0.2")
    httpx2.post(f"{service.url}/noop/reset", json={"episode_id": "e"})
    hung = threading.Thread(target=hang, args=(service.url, "e", {"fault": "block"}))
    hung.start()
    assert service.process.stdout.readline() == "a step blocks\n"
    assert service.stop() == 1
    hung.join(60)
    assert not hung.is_alive()


def hang(url: str, episode_id: str, action: dict[str, str]) -> None:
    with suppress(httpx2.RequestError):
        httpx2.post(f"{url}/noop/step", json={"episode_id": episode_id, "action": action}, timeout=60)


def test_shutdown_lets_steps_in_flight_finish(start_service: Callable[..., str], noop: Any) -> None:
    """Both on REST and on WebSocket; what is asked meanwhile is refused as retryable."""
    url = start_service({"noop": noop}, drain_s=120.0)
    noop.gates["gate"] = asyncio.Event()
    answers: dict[str, Any] = {}
    with connect(websocket_url(url), proxy=None) as connection, httpx2.Client(base_url=url) as http:
        connection.send('{"type":"reset"}')
        connection.recv()
        http.post("/noop/reset", json={"episode_id": "rest"})

        def step() -> None:
            body = {"episode_id": "rest", "action": {"add": 1, "wait": "gate"}}
            answers["rest"] = httpx2.post(f"{url}/noop/step", json=body, timeout=60).json()

        rest = threading.Thread(target=step)
        rest.start()
        connection.send('{"type":"step","data":{"add":2,"wait":"gate"}}')
        while len(noop.waiting) < 2:
            time.sleep(0.01)
        noop.server.should_exit = True
        while http.get("/ready").status_code == 200:
            time.sleep(0.01)
        refused = http.post("/noop/reset")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.json()["error"]["retryable"]
        assert "retry-after" in refused.headers
        noop.loop.call_soon_threadsafe(noop.gates["gate"].set)
        assert json.loads(connection.recv(timeout=60))["data"]["reward"] == 2
        rest.join(60)
        assert answers["rest"]["reward"] == 1


def test_a_connection_that_is_closing_does_not_break_off_the_shutdown(
    start_service: Callable[..., str], noop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutdown = WebSocketProtocol.shutdown

    def close_first(protocol: WebSocketProtocol) -> None:
        # As if the peer's farewell had just been read.
        protocol.conn.send_close(1000)
        shutdown(protocol)

    monkeypatch.setattr(WebSocketProtocol, "shutdown", close_first)
    url = start_service({"noop": noop})
    with connect(websocket_url(url), proxy=None) as connection:
        connection.send('{"type":"reset"}')
        connection.recv()
        noop.server.should_exit = True
        for _ in range(6000):
            if not noop.running:
                break
            time.sleep(0.01)
    assert not noop.running
    assert noop.open == 0


def test_a_client_that_answers_no_ping_is_kept(
    start_service: Callable[..., str], noop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop may be blocked by a generation of many minutes."""
    monkeypatch.setattr(serving, "_PING_INTERVAL_S", 0.05)
    url = start_service({"noop": noop})
    port = int(url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as mute:
        mute.sendall(
            b"GET /noop/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        said = mute.recv(4096)
        assert b" 101 " in said
        while said.count(b"\x89\x04") < 3:  # pings keep proxies from closing the connection
            said += received(mute)
        message = b'{"type":"reset"}'
        mute.sendall(bytes([0x81, 0x80 | len(message)]) + bytes(4) + message)
        while b'"observation"' not in said:
            said += received(mute)


def received(peer: socket.socket) -> bytes:
    part = peer.recv(65536)
    assert part, "the service has let go"
    return part


def test_an_idle_connection_is_left_to_a_proxy_to_close(noop: Any) -> None:
    """One that closes it while a request is on its way to it makes the proxy answer 502."""
    settings = Settings()
    nginx_s = 60
    assert serving.uvicorn_config(create_app(settings, {"noop": noop}), settings).timeout_keep_alive > nginx_s


def test_a_shells_small_limit_of_open_files_is_raised(noop_process: Callable[..., Any]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        service = noop_process()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (limit,) = re.findall(r"Max open files +(\d+)", Path(f"/proc/{service.pid}/limits").read_text())
    assert int(limit) == hard


def test_an_address_that_is_taken_is_told(noop: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            serving.serve(create_app(settings, {"noop": noop}), settings)
