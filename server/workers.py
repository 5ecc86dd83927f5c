"""Several processes that serve one address, and the supervisor that replaces those that die.

Each worker has a listening socket of its own on the same port; the kernel spreads connections over them. The supervisor
holds all sockets, so that what reaches a dead worker's waits for its successor instead of failing. A worker ends when
its supervisor does, however that comes about.
"""

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from time import monotonic, sleep
from types import FrameType

from rolloutgym.server.serving import address_of, listen
from rolloutgym.server.settings import Settings

log = logging.getLogger(__name__)

Serve = Callable[[Settings, list[socket.socket], Callable[[str], None]], None]
"""Serves on sockets until SIGTERM, and calls back with the address once requests are taken."""

_POLL_S = 0.2
_RETRY_S = 1.0
"""Before a worker that did not start is started again."""
_STOP_S = 8.0
"""How long after draining a worker is killed. It ends itself before."""

_spawn = multiprocessing.get_context("spawn")


class _Worker:
    """One place: its sockets, and the process that serves them now."""

    def __init__(self, number: int, settings: Settings, serve: Serve, listeners: list[socket.socket]) -> None:
        self._number = number
        self._arguments = (settings, serve, listeners)
        self.process: SpawnProcess
        self._started: Connection
        self.ready = False

    def start(self) -> None:
        self.ready = False
        self._started, started = _spawn.Pipe(duplex=False)
        self.process = _spawn.Process(
            target=_work, args=(*self._arguments, started), name=f"rolloutgym-worker-{self._number}"
        )
        self.process.start()
        started.close()

    def look(self, *, serving: bool) -> None:
        """Replace a dead process. One that ended by itself before it took requests has said why: unless the service is
        `serving` already, exit too."""
        if not self.ready and self._started.poll():
            try:
                self._started.recv_bytes()
                self.ready = True
            except EOFError:
                self.process.join()
        code = self.process.exitcode
        if code is None:
            return
        self._started.close()
        if not self.ready and code > 0 and not serving:
            raise SystemExit(code)
        log.warning("worker %d (process %d) ended with status %d", self._number, self.process.pid, code)
        if not self.ready:
            sleep(_RETRY_S)
        self.start()

    def stop(self, deadline: float) -> None:
        self.process.join(max(0.0, deadline - monotonic()))
        if self.process.exitcode is None:
            log.error("worker %d (process %d) did not stop", self._number, self.process.pid)
            self.process.kill()
            self.process.join()
        self._started.close()


def supervise(settings: Settings, serve: Serve, on_listening: Callable[[str], None] | None = None) -> None:
    """Keep `settings.workers` processes running until SIGTERM or SIGINT; then drain them all.

    `on_listening` is told the address once every worker takes requests. `OSError` where it cannot be had; exits with
    a worker's status if it cannot start.
    """
    stop = threading.Event()

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    with ExitStack() as stack:
        for each in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, each, signal.signal(each, on_signal))
        places = _listeners(settings, stack)
        workers = [_Worker(i, settings, serve, sockets) for i, sockets in enumerate(places)]
        started: list[_Worker] = []
        try:
            # One first: what every worker would stumble over is said once.
            for group in (workers[:1], workers[1:]):
                for worker in group:
                    worker.start()
                    started.append(worker)
                _until_ready(started, stop)
            if on_listening is not None and not stop.is_set():
                on_listening(address_of(places[0][0]))
            while not stop.is_set():
                _look(started, serving=True)
        finally:
            _stop(started, settings.drain_s + _STOP_S)


def _until_ready(workers: list[_Worker], stop: threading.Event) -> None:
    while not stop.is_set() and not all(worker.ready for worker in workers):
        _look(workers, serving=False)


def _look(workers: list[_Worker], *, serving: bool) -> None:
    wait([worker.process.sentinel for worker in workers], _POLL_S)
    for worker in workers:
        worker.look(serving=serving)


def _stop(workers: list[_Worker], seconds: float) -> None:
    for worker in workers:
        worker.process.terminate()
    deadline = monotonic() + seconds
    for worker in workers:
        worker.stop(deadline)


def _listeners(settings: Settings, stack: ExitStack) -> list[list[socket.socket]]:
    """Each worker's sockets: its share of the service's port, and its own port if it has one."""
    port = settings.port
    places = []
    for number in range(settings.workers):
        shared = stack.enter_context(listen(settings.host, port, shared=True))
        port = shared.getsockname()[1]
        places.append([shared])
        if settings.worker_port:
            places[-1].append(stack.enter_context(listen(settings.host, settings.worker_port + number)))
    return places


def _work(settings: Settings, serve: Serve, listeners: list[socket.socket], started: Connection) -> None:
    """The life of a worker process."""
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None

    def end_with_the_supervisor() -> None:
        wait([supervisor.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_the_supervisor, daemon=True).start()
    serve(settings, listeners, lambda _: started.send_bytes(b"ready"))
