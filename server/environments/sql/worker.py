"""The inside of a worker process: reads calls from its socket, runs them on an engine of its own, answers.

Calls come pickled, from the service that started the process. Answers go back as JSON, which the service validates: SQL
that a model wrote runs here, so nothing from here is believed. The process ends when its socket does, and the kernel
ends it when the service dies.
"""

import ctypes
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from rolloutgym.server.environments.sql.database import DatabaseBroken, Limits
from rolloutgym.server.environments.sql.engine import Engine, GoldFailed

HEADER = 4
"""Bytes before every message: its length, big-endian."""
OK, FAULT = b"+", b"-"
"""First byte of an answer: a result as JSON, or a fault's text."""

_DATA_BYTES = 768 * 2**20
_FILE_BYTES = 256 * 2**20
_OPEN_FILES = 256
_PR_SET_PDEATHSIG = 1
WATCH_FACTOR = 2
"""How many times the processor time of a query the process may spend on one, until it is killed by `WATCH_SIGNAL`: one
call of a function on long texts can take minutes, during which nothing inside of SQLite looks at a limit."""
WATCH_SIGNAL = signal.SIGPROF


def main() -> None:
    """Entry point: `python -m rolloutgym.server.environments.sql.worker FD PARENT`."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    _confine(parent)
    with socket.socket(fileno=descriptor) as connection:
        serve(connection)


def serve(connection: socket.socket) -> None:
    """Answer calls until the other side closes. The first message is the `Limits` to run under."""
    first = _receive(connection)
    if first is None:
        return
    limits: Limits = pickle.loads(first)
    engine = Engine(limits, partial(_watched, WATCH_FACTOR * limits.cpu_s))
    _send(connection, OK + b"null")
    try:
        while (message := _receive(connection)) is not None:
            name, positional, named = pickle.loads(message)
            try:
                result = getattr(engine, name)(*positional, **named)
                answer = OK + adapter(getattr(Engine, name)).dump_json(result)
            except (DatabaseBroken, GoldFailed) as error:
                answer = FAULT + fault(error).encode()
            _send(connection, answer)
    finally:
        engine.close()


@contextmanager
def _watched(seconds: float) -> Iterator[None]:
    """Let the kernel kill this process if it spends more of the processor's time than that meanwhile."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@cache
def adapter(method: Callable[..., Any]) -> TypeAdapter[Any]:
    """Writes and checks what an engine's method returns."""
    return TypeAdapter(get_type_hints(method)["return"])


def fault(error: DatabaseBroken | GoldFailed) -> str:
    """What the caller is told of data that do not work: nothing of the gold query or its error."""
    if isinstance(error, GoldFailed):
        return f"the gold query of this task does not run ({error.kind}): see `rolloutgym audit sql`"
    return "the database of this task cannot be read"


def _confine(parent: int) -> None:
    """Limits of the whole process, behind those of each query; and no life after the service's."""
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, _DATA_BYTES),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
    ):
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    # An interrupt at the service's terminal is the service's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(WATCH_SIGNAL, signal.SIG_DFL)  # whatever the service does with it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            sys.exit(0)


def _receive(connection: socket.socket) -> bytes | None:
    header = _exactly(connection, HEADER)
    return None if header is None else _exactly(connection, int.from_bytes(header, "big"))


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    """That many bytes, or null at the end of the stream."""
    data = _some(connection, size)
    if len(data) == size:
        return data
    parts = [data]
    while data and (size := size - len(data)):
        data = _some(connection, size)
        parts.append(data)
    return b"".join(parts) if data else None


def _some(connection: socket.socket, size: int) -> bytes:
    try:
        return connection.recv(size)
    except ConnectionResetError:
        return b""  # the service was killed with an answer unread: that ends the stream too


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(len(message).to_bytes(HEADER, "big") + message)


if __name__ == "__main__":
    main()
