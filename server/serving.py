"""Serving on a socket: uvicorn, and an end that comes soon after SIGTERM even if a step hangs.

A live client is never dropped for being silent: WebSocket pings keep proxies from closing the connection, but no pong
is waited for, since a client that generates for minutes answers none. A peer that has vanished is found by TCP itself.
"""

import gc
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from rolloutgym.server.protocols import HttpProtocol, WebSocketProtocol, connection_log
from rolloutgym.server.service import Service
from rolloutgym.server.settings import Settings

_PING_INTERVAL_S = 20.0
_KEEP_ALIVE_S = 75
"""How long a connection may wait for its next request: longer than proxies keep theirs, most of them for 60 s. Who
closes first must not be the one to whom a request may be on its way."""
_CLOSE_S = 1
"""What connections have to close, once requests have drained, seconds."""
_LAST_RESORT_S = 4.5
"""How long after draining the process is ended from a thread, if the event loop does not come to it."""


class Server(uvicorn.Server):
    """uvicorn's server, which lets requests in flight finish, WebSocket messages too, before it closes connections."""

    def __init__(self, config: uvicorn.Config, service: Service, on_listening: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._service = service
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Before the application's lifespan does it: what fails then is for the caller to tell, and not for uvicorn.
        await self._service.start()
        await super().startup(sockets)
        if self._on_listening is not None:
            self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.drain()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        last_resort = threading.Timer(self._service.settings.drain_s + _LAST_RESORT_S, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()


def server_of(app: FastAPI, settings: Settings, on_listening: Callable[[], None] | None = None) -> Server:
    """A server for what `create_app` made."""
    return Server(uvicorn_config(app, settings), app.state.service, on_listening)


def uvicorn_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_max_size=settings.max_body_bytes,
        ws_ping_interval=_PING_INTERVAL_S,
        ws_ping_timeout=None,
        # Messages are short and many: compressing them costs more than a step does.
        ws_per_message_deflate=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CLOSE_S,
    )
    connection_log.setLevel(logging.DEBUG if settings.log_level == "debug" else logging.WARNING)
    return config


def serve(app: FastAPI, settings: Settings, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM, and exit with status 0 then, or until SIGINT.

    `on_listening` is told the address once requests are taken. `OSError` where the address cannot be had, and what an
    environment raises that cannot start.
    """
    with listen(settings.host, settings.port) as listener:
        serve_on([listener], app, settings, on_listening)


def serve_on(
    listeners: list[socket.socket],
    app: FastAPI,
    settings: Settings,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """As `serve`, on sockets that are there; the address is the first one's."""
    address = address_of(listeners[0])
    server = server_of(app, settings, None if on_listening is None else lambda: on_listening(address))
    _allow_descriptors()
    # uvicorn raises the signal again when it has stopped.
    signal.signal(signal.SIGTERM, _exit)
    # What is loaded by now stays: the collector need not look through it at every round.
    gc.collect()
    gc.freeze()
    with suppress(KeyboardInterrupt):
        server.run(sockets=listeners)


def _allow_descriptors() -> None:
    """As many as the system permits: each WebSocket takes one, and shells commonly start with less than `capacity`."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket. A `shared` port can be bound several times, by processes of one user."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
