"""One child seen from the server: its channel, its output, its clocks. Knows neither the zygote's socket nor queues.

The child's messages are believed only about the code's own doings (value, traceback); what ended it, how long it ran
and what it printed is measured here or told by the zygote, which has it from `wait4`."""

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from rolloutgym.server.sandbox import accounting, scratch
from rolloutgym.server.sandbox.policy import Limits, RunResult, Status

TICK_S = 0.02
"""How often running children are looked at."""
_DISK_EVERY_S = 0.2
_GRACE_S = 0.5
"""Between the KeyboardInterrupt and the kill."""
_STOP_AFTER_S = 0.02
"""A session that is idle this long is stopped, so that its threads use no CPU between steps."""
_STARVED_TIMES = 6
"""A child that gets no CPU for others' sake may take this many times its wall clock, and its grace."""
_READY = b"R"
_MAX_REPLY = 1 << 20
_READ = 1 << 16
_READS_AT_ONCE = 16
"""Of the output: a thread that prints without end must not keep the event loop."""
_FRAME = struct.Struct("=I")
_REQUEST = struct.Struct("=QB")
_CREDENTIALS = struct.Struct("=3i")  # struct ucred: pid, uid, gid
_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,16}>")
_REPLY_STATUS = frozenset({"ok", "error", "interrupted", "memory_limit", "exited"})

LimitStatus = Literal["cpu_limit", "wall_limit", "output_limit", "disk_limit", "thread_limit"]
Signaller = Callable[[int, int, bool], None]
"""Signal a child: its id, the signal, whether to acknowledge."""


@dataclass(frozen=True)
class Exit:
    code: int
    """Exit status, or minus the signal."""
    cpu_s: float


def _has_taken(limit_s: float, took_s: float, starved_s: float) -> bool:
    """Whether a time is over. That in which the machine ran others does not count: how busy it is must not decide how
    code ends."""
    return took_s - starved_s >= limit_s or took_s >= _STARVED_TIMES * limit_s


class ChildFailed(Exception):
    """The child could not be set up, or its zygote died: a fault of ours."""


@dataclass
class _Step:
    """What is going on between a request and its end."""

    token: int
    """Comes with the code and must come back: a thread of an earlier step cannot answer for this one."""
    limits: Limits
    began: float
    cpu_before: float
    done: asyncio.Future[None]
    output: bytearray = field(default_factory=bytearray)
    printed: int = 0
    over: LimitStatus | None = None
    interrupted_at: float | None = None
    starved_before_s: float = 0.0
    """How long it had had no CPU when it was interrupted."""
    run_delay_before: float | None = None
    """As found at the first look."""
    starved_s: float = 0.0
    """How long it had no CPU, as found at the last look."""
    next_disk_check: float = 0.0
    reply: dict[str, Any] | None = None


def _text(raw: str) -> str:
    return raw.encode("utf-8", "backslashreplace").decode()


def without_addresses(text: str) -> str:
    """The same text in every replay: `<function f at 0x7f…>` names no place in memory."""
    return _ADDRESS.sub(" at 0x7f0000000000>", text) if " at 0x" in text else text


class Child:
    """Handle of one child, stateless or a session's."""

    def __init__(
        self,
        id_: int,
        slot: int,
        scratch_dir: Path | None,
        cpu_allowance: int,
        signaller: Signaller,
        *,
        pid: int | None = None,
        max_threads: int | None = None,
    ) -> None:
        """Without a `pid` the child's first message tells it. `max_threads` where the kernel does not count them."""
        self.id = id_
        self.slot = slot
        self.cpu_allowance = cpu_allowance
        """CPU seconds after which the kernel ends the child itself."""
        self.scratch = scratch_dir
        self._signaller = signaller
        self._loop = asyncio.get_running_loop()
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._channel.setblocking(False)
        if pid is None:
            self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._output, self._their_output = os.pipe()
        os.set_blocking(self._output, False)
        self._inbox = bytearray()
        self._pid = pid
        self._max_threads = max_threads
        self._step: _Step | None = None
        self._stopped = False
        self._signalled = asyncio.Event()
        self.idle_since = 0.0
        self.exit: Exit | None = None
        self.lost = False
        self.killed_for: str | None = None
        self._closed = False
        self._is_last = False
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._channel.fileno(), self._on_channel)
        self._loop.add_reader(self._output, self._on_output)

    # -- life

    @property
    def alive(self) -> bool:
        return self.exit is None and not self.lost

    @property
    def _goes_on(self) -> bool:
        """Whether it can take another step."""
        return self.exit is None and self.killed_for is None

    @property
    def running(self) -> bool:
        return self._step is not None

    def take_descriptors(self) -> tuple[int, int]:
        """The child's ends of channel and output, for whoever hands them over and closes them."""
        return self._theirs.detach(), self._their_output

    def signal(self, number: int, *, acknowledge: bool = False) -> None:
        if self.alive:
            self._signaller(self.id, number, acknowledge)

    def kill(self, reason: str) -> None:
        self.killed_for = self.killed_for or reason
        self.signal(signal.SIGKILL)

    def on_exit(self, exit_: Exit) -> None:
        """The zygote has reaped it."""
        while self._on_channel():  # a long reply may lie there in parts
            pass
        self._on_output()
        self.exit = exit_
        self._finish()

    def on_lost(self) -> None:
        """The zygote died, and this child with it."""
        self.lost = True
        self._finish()

    def on_signalled(self) -> None:
        self._signalled.set()

    def _finish(self) -> None:
        self._close()
        self._signalled.set()  # nobody else will
        if not self.ready.done():
            self.ready.set_exception(ChildFailed("the child died before it was ready"))
            self.ready.exception()
        if self._step is not None and not self._step.done.done():
            self._step.done.set_result(None)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_reader(self._output)
            self._channel.close()
            os.close(self._output)

    # -- reading

    def _on_channel(self) -> bool:
        """Read once; whether there was anything."""
        if self._closed:
            return False
        try:
            data, ancillary, _, _ = self._channel.recvmsg(_READ, socket.CMSG_SPACE(_CREDENTIALS.size))
        except (BlockingIOError, ConnectionResetError):
            return False
        if not data:
            self._loop.remove_reader(self._channel.fileno())  # its exit follows
        elif not self.ready.done():
            self._on_first_message(data, ancillary)
        else:
            self._on_message(data)
        return bool(data)

    def _on_message(self, data: bytes) -> None:
        self._inbox += data
        if len(self._inbox) >= _FRAME.size:
            (length,) = _FRAME.unpack_from(self._inbox)
            if length > _MAX_REPLY or len(self._inbox) > _FRAME.size + length:
                self.kill("protocol")
            elif len(self._inbox) == _FRAME.size + length:
                body = bytes(self._inbox[_FRAME.size :])
                self._inbox.clear()
                self._on_reply(body)

    def _on_first_message(self, data: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        if data != _READY:
            self.ready.set_exception(ChildFailed(data[1:].decode(errors="replace")))
            self.ready.exception()
            return
        for _, _, payload in ancillary:
            self._pid, _, _ = _CREDENTIALS.unpack(payload)
        self.ready.set_result(None)

    def _on_reply(self, body: bytes) -> None:
        """Kill a child whose message is not what our runner sends: the code has written to the channel."""
        step = self._step
        try:
            reply = json.loads(body)
            valid = (
                step is not None
                and step.reply is None
                and reply.keys() == {"token", "status", "value", "traceback"}
                and reply["token"] == step.token
                and reply["status"] in _REPLY_STATUS
                and all(isinstance(reply[name], str | None) for name in ("value", "traceback"))
            )
        except (ValueError, AttributeError, RecursionError):
            valid = False
        if not valid:
            self.kill("protocol")
            return
        assert step is not None
        self._on_output()
        step.reply = reply
        if not step.done.done() and not self._is_last:
            step.done.set_result(None)

    def _on_output(self) -> None:
        for _ in range(_READS_AT_ONCE):
            if self._closed:
                return
            try:
                data = os.read(self._output, _READ)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._output)
                return
            step = self._step
            if step is None:
                continue  # printed between steps, by a thread
            step.printed += len(data)
            room = step.limits.output - len(step.output)
            if room > 0:
                step.output += data[:room]
            if step.printed > step.limits.output_kill:
                if step.over is None:
                    self._end(step, "output_limit")
                return
            if len(data) < _READ:
                return

    # -- running

    def cpu_s(self) -> float:
        if self.exit is not None:
            return self.exit.cpu_s
        return 0.0 if self._pid is None else accounting.cpu_s(self._pid)

    async def run(self, code: bytes, limits: Limits, *, last: bool) -> RunResult:
        """One step, to its end. The caller has seen `ready`."""
        if self._step is not None:
            raise RuntimeError("a step is running already")
        self._on_output()
        if self._stopped:
            self._stopped = False
            self.signal(signal.SIGCONT)
        self._is_last = last
        now = time.monotonic()
        step = self._step = _Step(
            secrets.randbits(64),
            limits,
            now,
            self.cpu_s(),
            self._loop.create_future(),
            next_disk_check=now + _DISK_EVERY_S,
        )
        try:
            if not self.alive:
                step.done.set_result(None)
            body = _REQUEST.pack(step.token, last) + code
            await self._write(_FRAME.pack(len(body)) + body)
            await step.done
            wall_s = max(0.0, time.monotonic() - step.began - step.starved_s)
            cpu_s = self.cpu_s()
            if step.interrupted_at is not None and self.alive:
                await self._signalled.wait()  # else a late interrupt could hit the next step
        except asyncio.CancelledError:
            self.kill("cancelled")
            raise
        finally:
            self._step = None
            self.idle_since = time.monotonic()
        if self.lost:
            raise ChildFailed("the sandbox's fork server died")
        return self._result(step, wall_s, max(0.0, cpu_s - step.cpu_before))

    async def _write(self, data: bytes) -> None:
        try:
            sent = self._channel.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it is dead; its exit follows
        if sent < len(data):
            writing = asyncio.ensure_future(self._loop.sock_sendall(self._channel, memoryview(data)[sent:]))
            assert self._step is not None
            await asyncio.wait([writing, self._step.done], return_when=asyncio.FIRST_COMPLETED)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def check(self, now: float) -> bool:
        """Hold the child to its limits; false when nothing is left to watch."""
        if not self.alive:
            return False
        step = self._step
        if step is None:
            if self._stopped or not self.ready.done():
                return not self._stopped
            if now - self.idle_since >= _STOP_AFTER_S:
                self._stopped = True
                self.signal(signal.SIGSTOP)
            return not self._stopped
        if step.done.done():  # whoever waits for it comes next
            return True
        self._look_at_delay(step)
        if step.interrupted_at is not None:
            if _has_taken(_GRACE_S, now - step.interrupted_at, step.starved_s - step.starved_before_s):
                assert step.over is not None
                self.kill(step.over)
        elif _has_taken(step.limits.wall_s, now - step.began, step.starved_s):
            self._interrupt(step, "wall_limit", now)
        elif self.cpu_s() - step.cpu_before >= step.limits.cpu_s:
            self._interrupt(step, "cpu_limit", now)
        if now >= step.next_disk_check and self.scratch is not None and step.over != "disk_limit":
            step.next_disk_check = now + _DISK_EVERY_S
            if scratch.exceeds(self.scratch, step.limits.disk, step.limits.files):
                self._end(step, "disk_limit")
        if (
            self._max_threads is not None
            and self._pid is not None
            and accounting.threads(self._pid) > self._max_threads
        ):
            self._end(step, "thread_limit")
        return True

    def _look_at_delay(self, step: _Step) -> None:
        assert self._pid is not None  # told with `ready`
        delay = accounting.run_delay_s(self._pid)
        if step.run_delay_before is None:
            step.run_delay_before = delay
        step.starved_s = max(step.starved_s, delay - step.run_delay_before)

    def _end(self, step: _Step, over: LimitStatus) -> None:
        step.over = over
        self.kill(over)

    def _interrupt(self, step: _Step, over: LimitStatus, now: float) -> None:
        step.over, step.interrupted_at, step.starved_before_s = over, now, step.starved_s
        self._signalled.clear()
        self.signal(signal.SIGINT, acknowledge=True)

    # -- the outcome

    def _result(self, step: _Step, wall_s: float, cpu_s: float) -> RunResult:
        status, exit_signal = self._status(step)
        reply = step.reply or {}
        value, traceback = reply.get("value"), reply.get("traceback")
        output = step.output.decode("utf-8", "backslashreplace")
        return RunResult(
            status=status,
            output=without_addresses(output),
            value=None if value is None else without_addresses(_text(value)),
            traceback=None if traceback is None else without_addresses(_text(traceback)),
            state_kept=not self._is_last and self._goes_on,
            cpu_s=cpu_s,
            wall_s=wall_s,
            truncated_output=step.printed > len(step.output),
            exit_signal=exit_signal,
        )

    def _status(self, step: _Step) -> tuple[Status, str | None]:
        code = self.exit.code if self.exit is not None else 0
        name = signal.Signals(-code).name if code < 0 else None
        if step.over is not None:
            return step.over, name
        ended_well = self._is_last and code == 0 and self.exit is not None
        if step.reply is not None and (ended_well or self._goes_on):
            status: Status = step.reply["status"]
            return status, None
        if self.killed_for == "protocol":
            return "crashed", name
        if code == -signal.SIGXCPU:
            return "cpu_limit", name
        if code == -signal.SIGKILL:  # none of ours: the kernel's hard CPU limit, or its out-of-memory killer
            assert self.exit is not None
            return ("cpu_limit" if self.exit.cpu_s >= self.cpu_allowance else "memory_limit"), name
        return ("crashed" if code < 0 else "exited"), name


assert set(get_args(LimitStatus)) <= set(get_args(Status))
