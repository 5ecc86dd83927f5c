"""Where SQL runs: in a few processes of their own, so that a crash, a hang or a huge string costs one of them.

A pool hands one call at a time to an idle worker over a socket. A worker that dies, does not answer in time, or answers
what cannot be read is killed, its call raises `WorkerLost`, and the next call on its place starts another. One that was
ended because a model's SQL used up the processor's time is no fault of ours: its call raises `TooExpensive`. Workers
are started afresh (never forked from the service, which has threads) with an environment that holds no secret.
"""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from pydantic import ValidationError

from rolloutgym.server.environments.sql.database import DatabaseBroken, Limits
from rolloutgym.server.environments.sql.engine import Engine, GoldFailed
from rolloutgym.server.environments.sql.worker import FAULT, HEADER, OK, WATCH_SIGNAL, adapter, fault
from rolloutgym.server.errors import Internal, WorkerLost
from rolloutgym.server.sandbox.roots import Root, make_root, sweep

P = ParamSpec("P")
R = TypeVar("R")

_ROOT_PREFIX = "rolloutgym-sql-workers-"
_START_S = 30.0
_STOP_S = 2.0
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_MAX_MESSAGE = 64 * 2**20


class TooExpensive(Exception):
    """A model's SQL spent so much of the processor's time that its process was ended."""


class Executor(Protocol):
    """Runs engine methods somewhere."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def run(self, method: Callable[Concatenate[Engine, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The method's result. Raises `TooExpensive`, `WorkerLost` (nothing happened), `Internal` (the task's data are
        at fault)."""
        ...

    def health(self) -> Mapping[str, int]: ...


class InProcess:
    """An engine in the service's own process: quickest, and not proof against a fault in SQLite itself."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._engine = Engine(limits)

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        self._engine.close()

    async def run(self, method: Callable[Concatenate[Engine, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self._engine, *args, **kwargs)
        except (DatabaseBroken, GoldFailed) as error:
            raise Internal(fault(error)) from None

    def health(self) -> Mapping[str, int]:
        return {"workers": 0}


class WorkerPool:
    """Engines in processes. `call_s` is the longest that one call may take, seconds."""

    def __init__(self, size: int, limits: Limits, *, call_s: float) -> None:
        self._size = size
        self._limits = limits
        self._call_s = call_s
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        self._workers: list[_Worker] = []
        self._root: Root | None = None
        self._lost = 0

    async def start(self) -> None:
        """Raises `WorkerLost` where a process does not start; then none is left."""
        await asyncio.to_thread(sweep, _ROOT_PREFIX)
        self._root = make_root(_ROOT_PREFIX)
        self._workers = [_Worker(str(self._root.path)) for _ in range(self._size)]
        self._idle = asyncio.Queue()
        try:
            await asyncio.gather(*(worker.start(self._limits) for worker in self._workers))
        except BaseException:
            await self.stop()
            raise
        for worker in self._workers:
            self._idle.put_nowait(worker)

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._workers = []
        root, self._root = self._root, None
        if root is not None:
            await asyncio.to_thread(root.remove)

    async def run(self, method: Callable[Concatenate[Engine, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        message = pickle.dumps((method.__name__, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        worker = await self._idle.get()
        try:
            if not worker.alive:
                worker = await self._replace(worker)
            answer = await worker.call(message, self._call_s)
            if answer[:1] == FAULT:
                raise Internal(answer[1:].decode("utf-8", "replace"))
            result: R = adapter(method).validate_json(answer[1:])
            return result
        except (WorkerLost, ValidationError):
            self._lost += 1
            worker.kill()
            if worker.was_stopped_for_cost:
                raise TooExpensive from None
            raise WorkerLost("a process that runs SQL was lost") from None
        except asyncio.CancelledError:
            # The call may still run: its worker cannot be given to anybody else.
            worker.kill()
            raise
        finally:
            self._idle.put_nowait(worker)

    async def _replace(self, lost: "_Worker") -> "_Worker":
        if lost not in self._workers:
            raise WorkerLost("the processes that run SQL have been stopped")
        worker = _Worker(lost.folder)
        await worker.start(self._limits)
        if lost not in self._workers:  # stopped meanwhile
            worker.kill()
            raise WorkerLost("the processes that run SQL have been stopped")
        self._workers[self._workers.index(lost)] = worker
        return worker

    def health(self) -> Mapping[str, int]:
        alive = sum(worker.alive for worker in self._workers)
        return {"workers": self._size, "alive": alive, "lost": self._lost}


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | {"TZ": "UTC"}


class _Worker(asyncio.Protocol):
    """One process and the socket to it. Its temporary files go to `folder`, so that those of one that was killed are
    removed with the pool's."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def was_stopped_for_cost(self) -> bool:
        """Whether the process has ended for spending too much of the processor's time on a model's SQL."""
        return self._process is not None and self._process.returncode == -WATCH_SIGNAL

    async def start(self, limits: Limits) -> None:
        """Start the process and wait until it answers. Raises `WorkerLost`."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "rolloutgym.server.environments.sql.worker"]
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds, at start or after a loss
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_variables() | {"TMPDIR": self.folder},
                )
            except OSError as error:
                ours.close()
                raise WorkerLost(f"a process that runs SQL did not start: {error.strerror}") from None
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)
            answer = await self.call(pickle.dumps(limits), _START_S)
        except BaseException:
            self.kill()
            raise
        if answer[:1] != OK:
            self.kill()
            raise WorkerLost("a process that runs SQL did not start")

    async def call(self, message: bytes, timeout_s: float) -> bytes:
        """The answer to one message. Raises `WorkerLost`."""
        if not self.alive:
            raise WorkerLost("a process that runs SQL was lost")
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        deadline = loop.call_later(timeout_s, self.kill)
        assert self._transport is not None
        self._transport.write(len(message).to_bytes(HEADER, "big") + message)
        try:
            return await self._answer
        finally:
            deadline.cancel()
            self._answer = None

    def kill(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def stop(self) -> None:
        """Close the socket, at which the process ends; kill it if it does not."""
        if self._transport is not None:
            self._transport.close()
        if self._process is None:
            return
        for _ in range(int(_STOP_S / 0.01)):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.01)
        self.kill()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none, and does the same

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < HEADER:
            return
        size = int.from_bytes(self._buffer[:HEADER], "big")
        if size > _MAX_MESSAGE:
            self.kill()
        elif len(self._buffer) == HEADER + size:
            answer = bytes(self._buffer[HEADER:])
            self._buffer.clear()
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)
        elif len(self._buffer) > HEADER + size:  # more than one answer to one call
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WorkerLost("a process that runs SQL was lost"))
