"""A child seen from the server, with the test in the child's place: what it says, and when, is up to the test."""

import asyncio
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

import pytest

from rolloutgym.server.sandbox import accounting, execution
from rolloutgym.server.sandbox.execution import Child, Exit
from rolloutgym.server.sandbox.policy import Limits, RunResult

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")


class _Puppet:
    """The child's ends of channel and output."""

    def __init__(self, *, max_threads: int | None = None) -> None:
        self.signals: list[int] = []
        self.child = Child(
            1, 0, None, 10, lambda _, number, __: self.signals.append(number), pid=os.getpid(), max_threads=max_threads
        )
        channel, self.output = self.child.take_descriptors()
        self.channel = socket.socket(fileno=channel)
        self.channel.send(b"R")

    def token(self) -> int:
        self.channel.setblocking(False)
        (token,) = struct.unpack_from("=Q", self.channel.recv(1 << 16), 4)
        return int(token)

    def send(self, token: int, status: str = "ok", value: str | None = None) -> None:
        body = json.dumps({"token": token, "status": status, "value": value, "traceback": None}).encode()
        self.channel.sendall(struct.pack("=I", len(body)) + body)

    def reply(self, token: int, status: str = "ok") -> None:
        self.send(token, status)
        self.child._on_channel()

    def close(self) -> None:
        self.child.on_lost()
        self.channel.close()
        os.close(self.output)


def _play(
    act: Callable[[_Puppet, int], None],
    *,
    last: bool = False,
    limits: Limits | None = None,
    max_threads: int | None = None,
) -> RunResult:
    async def main() -> RunResult:
        puppet = _Puppet(max_threads=max_threads)
        try:
            await puppet.child.ready
            step = asyncio.ensure_future(puppet.child.run(b"1", limits or Limits(), last=last))
            await asyncio.sleep(0)
            act(puppet, puppet.token())
            return await step
        finally:
            puppet.close()

    return asyncio.run(main())


def test_a_reply_is_the_result_of_a_child_that_goes_on() -> None:
    result = _play(lambda puppet, token: puppet.reply(token, "error"))
    assert (result.status, result.state_kept) == ("error", True)


@pytest.mark.parametrize(
    ("code", "status"), [(0, "exited"), (3, "exited"), (-11, "crashed"), (-9, "memory_limit"), (-24, "cpu_limit")]
)
def test_a_session_that_replies_and_ends_at_once_has_lost_its_state_and_says_so(code: int, status: str) -> None:
    def act(puppet: _Puppet, token: int) -> None:
        puppet.reply(token)
        puppet.child.on_exit(Exit(code, 0.0))

    result = _play(act)
    assert (result.status, result.state_kept) == (status, False)


@pytest.mark.parametrize(("code", "status"), [(0, "ok"), (3, "exited"), (-11, "crashed")])
def test_a_stateless_run_ends_with_its_reply(code: int, status: str) -> None:
    def act(puppet: _Puppet, token: int) -> None:
        puppet.reply(token)
        puppet.child.on_exit(Exit(code, 0.0))

    assert _play(act, last=True).status == status


def test_a_long_reply_that_is_first_read_at_the_childs_end_is_whole() -> None:
    value = "v" * 150_000

    def act(puppet: _Puppet, token: int) -> None:
        puppet.send(token, value=value)
        puppet.child.on_exit(Exit(0, 0.0))

    result = _play(act, last=True)
    assert (result.status, result.value) == ("ok", value)


def test_a_child_that_speaks_after_its_reply_is_killed_and_has_lost_its_state() -> None:
    def act(puppet: _Puppet, token: int) -> None:
        puppet.reply(token)
        puppet.reply(token + 1)
        assert puppet.signals == [9]

    result = _play(act)
    assert (result.status, result.state_kept) == ("crashed", False)


def test_a_second_reply_to_one_step_is_not_taken() -> None:
    def act(puppet: _Puppet, token: int) -> None:
        puppet.reply(token)
        puppet.reply(token, "error")
        assert puppet.signals == [9]
        puppet.child.on_exit(Exit(-9, 0.0))

    assert _play(act, last=True).status == "crashed"


@pytest.mark.parametrize(
    ("took", "starved", "late"),
    [(0.9, 0.0, False), (1.1, 0.0, True), (1.9, 1.0, False), (2.1, 1.0, True), (7, 9, True)],
)
def test_time_without_a_cpu_is_no_wall_clock(
    took: float, starved: float, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = iter((5.0, 5.0 + starved))
    monkeypatch.setattr(accounting, "run_delay_s", lambda _: next(delays))

    def act(puppet: _Puppet, token: int) -> None:
        assert puppet.child._step is not None
        began = puppet.child._step.began
        puppet.child.check(began)
        puppet.child.check(began + took)
        puppet.reply(token)
        puppet.child.on_signalled()

    result = _play(act, limits=Limits(wall_s=1.0))
    assert result.wall_s == 0.0 or starved == 0.0
    assert result.status == ("wall_limit" if late else "ok")


def test_a_reply_that_was_read_is_in_time_however_late_the_next_look_is() -> None:
    def act(puppet: _Puppet, token: int) -> None:
        puppet.reply(token)
        assert puppet.child.check(time.monotonic() + 1000.0)

    result = _play(act, limits=Limits(wall_s=1.0))
    assert (result.status, result.state_kept) == ("ok", True)


@pytest.mark.parametrize(("took", "starved", "killed"), [(0.4, 0.0, False), (0.6, 0.0, True), (1.4, 1.0, False),
                                                         (1.6, 1.0, True), (3.1, 9.0, True)])  # fmt: skip
def test_time_without_a_cpu_is_no_grace(
    took: float, starved: float, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was interrupted has half a second of its own to end."""
    delays = iter((5.0, 5.0, 5.0 + starved))
    monkeypatch.setattr(accounting, "run_delay_s", lambda _: next(delays))

    def act(puppet: _Puppet, token: int) -> None:
        assert puppet.child._step is not None
        began = puppet.child._step.began
        for moment in (began, began + 1.1, began + 1.1 + took):
            puppet.child.check(moment)
        assert puppet.signals == [signal.SIGINT] + [signal.SIGKILL] * killed
        puppet.reply(token)
        puppet.child.on_signalled()

    result = _play(act, limits=Limits(wall_s=1.0))
    assert (result.status, result.state_kept) == ("wall_limit", not killed)


def test_what_a_process_has_used_is_read_from_the_kernel() -> None:
    assert accounting.cpu_s(os.getpid()) > 0.0
    assert accounting.cpu_s(2**22 + 1) == 0.0
    assert accounting.run_delay_s(os.getpid()) >= 0.0
    assert accounting.run_delay_s(2**22 + 1) == 0.0


def test_threads_are_counted_where_the_kernel_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(puppet: _Puppet, _: int) -> None:
        monkeypatch.setattr(accounting, "threads", lambda pid: 1 + (pid == os.getpid()))
        assert puppet.child.check(0.0)
        puppet.child.on_exit(Exit(-9, 0.0))

    assert accounting.threads(os.getpid()) >= 1
    assert accounting.threads(2**22 + 1) == 0
    result = _play(act, max_threads=1)
    assert (result.status, result.exit_signal) == ("thread_limit", "SIGKILL")


@pytest.mark.parametrize("between", [True, False])
def test_output_without_end_does_not_hold_the_event_loop(between: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read finds more, as from a thread that writes faster than it is read."""
    reads = 0

    def read(_: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        assert reads < 1000
        return bytes(100 if between else size)

    async def main() -> None:
        puppet = _Puppet()
        try:
            await puppet.child.ready
            monkeypatch.setattr(os, "read", read)
            puppet.child._on_output()
        finally:
            monkeypatch.undo()
            puppet.close()

    asyncio.run(main())
    assert reads <= execution._READS_AT_ONCE
