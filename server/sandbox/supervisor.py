"""Keeps a zygote running: starts it, speaks to it over its socket, replaces it when it dies."""

import array
import asyncio
import itertools
import json
import logging
import os
import socket
import subprocess
from collections import deque
from typing import Any, Protocol

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox.execution import Exit
from rolloutgym.server.sandbox.launch import Layout, start_process
from rolloutgym.server.sandbox.plan import ZygotePlan, ZygoteReport

logger = logging.getLogger(__name__)

_START_S = 60.0
_STOP_S = 5.0
_MESSAGE = 1 << 16
_BETWEEN_RESTARTS_S = (0.0, 0.5, 2.0, 5.0)
"""Pause before the first, second, … attempt in a row."""


class Owner(Protocol):
    """Who hears what the zygote says."""

    def on_exit(self, id_: int, exit_: Exit, clean: bool) -> None: ...

    def on_spawn_failed(self, id_: int, error: str) -> None: ...

    def on_signalled(self, id_: int) -> None: ...

    def on_zygote_lost(self) -> None: ...


def own_namespaces(report: ZygoteReport) -> frozenset[str]:
    """Kinds of namespace that the zygote does not share with the server."""
    return frozenset(
        name for name, inode in report.namespaces.items() if os.stat(f"/proc/self/ns/{name}").st_ino != inode
    )


def _protection(report: ZygoteReport) -> tuple[int, bool, frozenset[str]]:
    return report.landlock_abi, report.private_uid, own_namespaces(report)


class Supervisor:
    """One zygote at a time."""

    def __init__(self, layout: Layout, plan: ZygotePlan, owner: Owner) -> None:
        self._layout = layout
        self._plan = plan
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._ready = asyncio.Event()
        self._restarting: asyncio.Task[None] | None = None
        self._first_report: ZygoteReport | None = None
        self.restarts = 0

    @property
    def pid(self) -> int:
        """The zygote's process, or its keeper's where it has a process table of its own."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> ZygoteReport:
        """`SandboxUnavailable` if it does not come up."""
        starting = asyncio.create_task(asyncio.to_thread(start_process, self._layout, self._plan))
        try:
            await asyncio.shield(starting)
        finally:  # whoever breaks this off ends the process too: the thread starts it all the same
            self._process, self._control = await starting
        control = self._control
        control.setblocking(False)
        try:
            data = await asyncio.wait_for(self._loop.sock_recv(control, _MESSAGE), _START_S)
        except (TimeoutError, ConnectionError):
            data = b""
        message: dict[str, Any] = (
            json.loads(data) if data else {"op": "error", "error": "its interpreter ended or hangs"}
        )
        if message["op"] == "error":
            await self._end_process()
            raise SandboxUnavailable(f"the sandbox could not be set up: {message['error']}")
        report = ZygoteReport(**message["report"])
        if self._first_report is None:
            self._first_report = report
        elif _protection(report) != _protection(self._first_report):
            await self._end_process()
            raise SandboxUnavailable("the sandbox came up with other protection than the self-test saw")
        self._loop.add_reader(control.fileno(), self._on_message)
        self._ready.set()
        return report

    async def stop(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        await self._end_process()

    async def wait_ready(self, timeout_s: float) -> None:
        """Until there is a zygote. `SandboxUnavailable` after the time."""
        if not self._ready.is_set():
            try:
                await asyncio.wait_for(self._ready.wait(), timeout_s)
            except TimeoutError:
                raise SandboxUnavailable("the sandbox is not running") from None

    async def _end_process(self) -> None:
        """Close the socket, which ends the zygote and its children, and wait for it."""
        self._ready.clear()
        for _, descriptors in self._unsent:
            for fd in descriptors:
                os.close(fd)
        self._unsent.clear()
        if self._control is not None:
            self._loop.remove_reader(self._control.fileno())
            self._loop.remove_writer(self._control.fileno())
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        if process.stdin is not None:
            process.stdin.close()

    # -- messages

    def spawn(self, request: dict[str, Any], descriptors: tuple[int, int]) -> None:
        """Ask for a child. The descriptors are sent and closed here."""
        self._send({"op": "spawn", **request}, descriptors)

    def signal(self, id_: int, number: int, acknowledge: bool) -> None:
        self._send({"op": "signal", "id": id_, "signal": number, "acknowledge": acknowledge}, ())

    def _send(self, message: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        if self._control is None:  # between two zygotes: it is about a child that went with the first
            for fd in descriptors:
                os.close(fd)
            return
        self._unsent.append((json.dumps(message).encode(), descriptors))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        assert self._control is not None
        while self._unsent:
            data, descriptors = self._unsent[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                self._control.sendmsg([data], rights)
            except BlockingIOError:
                self._loop.add_writer(self._control.fileno(), self._flush)
                return
            except OSError:
                pass  # it died; the reader sees the end
            self._unsent.popleft()
            for fd in descriptors:
                os.close(fd)
        self._loop.remove_writer(self._control.fileno())

    def _on_message(self) -> None:
        while self._control is not None:
            try:
                data = self._control.recv(_MESSAGE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._on_end()
                return
            message = json.loads(data)
            match message["op"]:
                case "exit":
                    self._owner.on_exit(message["id"], Exit(message["code"], message["cpu"]), message["clean"])
                case "failed":
                    self._owner.on_spawn_failed(message["id"], message["error"])
                case "signalled":
                    self._owner.on_signalled(message["id"])

    def _on_end(self) -> None:
        logger.error("the sandbox's fork server died; starting another")
        assert self._control is not None
        self._loop.remove_reader(self._control.fileno())
        self._ready.clear()
        self._restarting = self._loop.create_task(self._restart())

    async def _restart(self) -> None:
        """Children die with their zygote; only when all of it is gone do their slots and scratch come free."""
        await self._end_process()
        self._owner.on_zygote_lost()
        for pause in itertools.chain(_BETWEEN_RESTARTS_S, itertools.repeat(_BETWEEN_RESTARTS_S[-1])):
            await asyncio.sleep(pause)
            self.restarts += 1
            try:
                await self.start()
            except SandboxUnavailable as error:
                logger.error("the sandbox did not come back: %s", error.message)
            else:
                return
