"""Runs code in Docker containers, one per run or session: the alternative where the process sandbox cannot be had.

Slower by far (a container's start for each run) and as isolated as the engine makes it: no network, read-only, no
capabilities, a user that owns nothing, limits of memory, processes and scratch by the engine. Inside runs the same
runner; its channel goes over the container's standard input and output, what the code prints over standard error.
"""

import asyncio
import itertools
import json
import logging
import os
import secrets
import signal
import socket
import struct
import threading
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox import selftest
from rolloutgym.server.sandbox.backend import Found
from rolloutgym.server.sandbox.execution import Child, Exit
from rolloutgym.server.sandbox.policy import Level, Limits, SandboxConfig

logger = logging.getLogger(__name__)

_LABEL: Final = "rolloutgym.sandbox"
_USER = "65534:65534"
_INTERPRETER_BYTES = 256 << 20
"""What Python and the packages take, beside the limit for the code."""
_STREAM = struct.Struct(">BxxxI")
"""Before each piece of an attached container's output: 1 for standard output or 2 for error, and the length."""
_STDOUT = 1

_BOOTSTRAP = """
import json, os, struct, sys, types
def receive(size):
    data = b""
    while len(data) < size:
        chunk = os.read(3, size - len(data))
        if not chunk: return b""
        data += chunk
    return data
def write(fd, data):
    while data: data = data[os.write(fd, data):]
def send(data):
    write(1, payload["marker"].encode())
    write(4, data)
os.dup2(0, 3); os.dup2(1, 4); os.dup2(2, 1); os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
payload = json.loads(receive(struct.unpack("=I", receive(4))[0]))
for name in payload["preload"]:
    try: __import__(name)
    except ImportError: pass
runner = types.ModuleType("runner")
exec(compile(payload["runner"], "<sandbox runner>", "exec"), runner.__dict__)
interpreter = runner.Interpreter(seed=payload["seed"], scratch="/scratch", library_roots=())
send(b"R")
runner.serve(interpreter, receive, send)
os._exit(0)
"""


class ContainerBackend:
    """Owns the connection to the engine and every container that it starts."""

    restarts = 0

    def __init__(self, config: SandboxConfig) -> None:
        self._config = config
        self._ids = itertools.count(1)
        self._containers: dict[int, tuple[Any, Child]] = {}
        self._threads: set[threading.Thread] = set()
        self._engine: Any = None

    async def start(self) -> Found:
        self._loop = asyncio.get_running_loop()
        try:
            version = await asyncio.to_thread(self._connect)
        except Exception as error:  # the SDK raises its own, requests' and the socket's
            raise SandboxUnavailable(f"no Docker engine with the image {self._config.image}: {error}") from error
        return Found(level=Level.NAMESPACES, attacks=selftest.ATTACKS_ON_CONTAINER, python=f"Docker {version}")

    def _connect(self) -> str:
        import docker

        self._engine = docker.from_env()
        self._engine.images.get(self._config.image)
        for container in self._engine.containers.list(all=True, filters={"label": _LABEL}):
            host, _, pid = container.labels[_LABEL].partition(":")
            if host == socket.gethostname() and not Path(f"/proc/{pid}").exists():
                container.remove(force=True)  # of a server that was killed
        return str(self._engine.version()["Version"])

    async def stop(self) -> None:
        for _, child in list(self._containers.values()):
            child.kill("stop")
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in list(self._threads)))
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.close)

    async def spawn(self, seed: int, limits: Limits, cpu_allowance: int) -> Child:
        if self._engine is None:
            raise SandboxUnavailable("the sandbox is not running")
        try:
            container, stream, pid = await asyncio.to_thread(self._run_container, limits, cpu_allowance)
        except Exception as error:  # as above
            raise SandboxUnavailable(f"no container could be started: {error}") from error
        id_ = next(self._ids)
        child = Child(id_, 0, None, cpu_allowance, self._signal, pid=pid)
        self._containers[id_] = container, child
        marker = secrets.token_hex(16)
        payload = {
            "marker": marker,
            "runner": files(__package__).joinpath("runner.py").read_text(),
            "seed": seed,
            "preload": ["numpy", "numpy.random"],  # what must be there to be seeded
        }
        thread = threading.Thread(
            target=self._attend,
            args=(id_, container, stream, json.dumps(payload).encode(), marker.encode(), child.take_descriptors()),
        )
        self._threads.add(thread)
        thread.start()
        return child

    def _run_container(self, limits: Limits, cpu_allowance: int) -> tuple[Any, Any, int]:
        """A started container, the socket attached to it, and its process as this machine sees it."""
        from docker.types import Ulimit

        memory = limits.memory + _INTERPRETER_BYTES
        container = self._engine.containers.create(
            self._config.image,
            ["python3", "-I", "-B", "-c", _BOOTSTRAP],
            stdin_open=True,
            network_mode="none",
            ipc_mode="none",
            read_only=True,
            tmpfs={"/scratch": f"size={limits.disk},nr_inodes={limits.files},mode=0700,uid=65534,gid=65534"},
            working_dir="/scratch",
            user=_USER,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=limits.threads,
            ulimits=[
                Ulimit(name="cpu", soft=cpu_allowance, hard=cpu_allowance + 1),
                Ulimit(name="fsize", soft=limits.file_size, hard=limits.file_size),
                Ulimit(name="nofile", soft=limits.descriptors, hard=limits.descriptors),
                Ulimit(name="core", soft=0, hard=0),
            ],
            environment={"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "HOME": "/scratch", "TMPDIR": "/scratch"},
            labels={_LABEL: f"{socket.gethostname()}:{os.getpid()}"},
        )
        try:
            attached = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            container.start()
            container.reload()
        except BaseException:
            container.remove(force=True)
            raise
        return container, attached, int(container.attrs["State"]["Pid"])

    def _signal(self, id_: int, number: int, acknowledge: bool) -> None:
        """Only interrupts and kills: an idle container is not stopped, its process limits hold it."""
        if number not in (signal.SIGINT, signal.SIGKILL) or id_ not in self._containers:
            return
        container, child = self._containers[id_]

        def send() -> None:
            try:
                container.kill(signal=number)
            except Exception as error:  # noqa: BLE001  # it has ended
                logger.debug("a container could not be signalled: %s", error)
            if acknowledge:
                self._loop.call_soon_threadsafe(child.on_signalled)

        self._loop.run_in_executor(None, send)

    # -- one thread per container

    def _attend(
        self, id_: int, container: Any, attached: Any, payload: bytes, marker: bytes, ends: tuple[int, int]
    ) -> None:
        """Carry between the child's ends and the container's streams until it has ended."""
        stream: socket.socket = attached._sock
        channel, output = socket.socket(fileno=ends[0]), ends[1]
        stream.sendall(struct.pack("=I", len(payload)) + payload)
        feeder = threading.Thread(target=self._feed, args=(channel, stream))
        feeder.start()
        in_order = _InOrder(marker)
        try:
            while header := _receive(stream, _STREAM.size):
                kind, length = _STREAM.unpack(header)
                printed, replies = in_order.take(_receive(stream, length), is_reply=kind == _STDOUT)
                _write_all(output, printed)
                channel.sendall(replies)
        except OSError as error:
            logger.debug("a container's streams ended: %s", error)
        _write_all(output, in_order.rest())
        code = self._end(container)
        self._loop.call_soon_threadsafe(self._on_end, id_, code)
        channel.shutdown(socket.SHUT_RDWR)
        feeder.join()
        channel.close()
        os.close(output)
        attached.close()
        stream.close()

    @staticmethod
    def _feed(channel: socket.socket, stream: socket.socket) -> None:
        try:
            while data := channel.recv(1 << 16):
                stream.sendall(data)
        except OSError:
            return  # either end is closed

    def _end(self, container: Any) -> int:
        """Kill and remove the container; its exit status, or minus the signal."""
        try:
            status = int(container.wait(timeout=10)["StatusCode"])
        except Exception as error:  # noqa: BLE001  # as above; what does not end is removed by force
            logger.debug("a container did not end: %s", error)
            status = 128 + signal.SIGKILL
        container.remove(force=True)
        return 128 - status if status > 128 else status

    def _on_end(self, id_: int, code: int) -> None:
        _, child = self._containers.pop(id_)
        child.on_exit(Exit(code, child.cpu_s()))
        self._threads = {thread for thread in self._threads if thread.is_alive()}


class _InOrder:
    """Puts replies behind what was printed before them: the engine keeps no order between a container's two streams, so
    the container prints a marker before each reply."""

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self._printed = bytearray()
        self._replies = bytearray()

    def take(self, data: bytes, *, is_reply: bool) -> tuple[bytes, bytes]:
        """What can go on to the output and to the channel."""
        if is_reply:
            self._replies += data
        else:
            self._printed += data
        printed, found, rest = bytes(self._printed).partition(self._marker)
        if found and self._replies:
            replies, self._replies, self._printed = bytes(self._replies), bytearray(), bytearray(rest)
            return printed, replies
        if found:
            return b"", b""
        keep = len(self._marker) - 1  # may be the beginning of a marker
        ready, self._printed = bytes(self._printed[:-keep]), self._printed[-keep:]
        return ready, b""

    def rest(self) -> bytes:
        return bytes(self._printed).replace(self._marker, b"")


def _receive(stream: socket.socket, size: int) -> bytes:
    """`size` bytes; empty at the end."""
    data = bytearray()
    while len(data) < size:
        chunk = stream.recv(size - len(data))
        if not chunk:
            return b""
        data += chunk
    return bytes(data)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
