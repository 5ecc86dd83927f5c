"""Each limit: what the result says, and whether a session survives it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import pytest

from rolloutgym.server.sandbox.client import Limits, Sandbox, SandboxConfig, SessionLost

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")
Play = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]

QUICK = Limits(cpu_s=0.3, wall_s=30, disk=2 << 20, files=50)
BRIEF = Limits(cpu_s=5, wall_s=0.5)
STUBBORN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""


@pytest.fixture(scope="module")
def sandbox_config() -> SandboxConfig:
    return SandboxConfig(limits=Limits(memory=256 << 20))


@pytest.mark.parametrize(
    ("code", "status", "kept"),
    [
        ("while True: pass", "cpu_limit", True),
        ("import time\ntime.sleep(60)", "wall_limit", True),
        (STUBBORN + "while True: pass", "cpu_limit", False),
        (STUBBORN + "import time\nwhile True: time.sleep(60)", "wall_limit", False),
        ("sum(range(10 ** 12))", "cpu_limit", False),  # inside one C call: no interrupt gets through
        ("bytearray(1 << 30)", "memory_limit", True),
        ("data = []\nwhile True: data.append(bytearray(1 << 20))", "memory_limit", True),
        ("while True: print('x' * 1000)", "output_limit", False),
        ("import os\nwhile True: os.write(2, bytes(1 << 16))", "output_limit", False),
        ("i = 0\nwhile True:\n    open(f'{i}', 'wb').close()\n    i += 1", "disk_limit", False),
        (
            "i = 0\nwhile True:\n    open(f'{i}', 'wb').write(bytes(1 << 20))\n    i += 1",
            "disk_limit",
            False,
        ),
        ("import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')", "disk_limit", False),
    ],
)
def test_limit_in_a_session(play: Play, code: str, status: str, kept: bool) -> None:
    async def steps(sandbox: Sandbox) -> Any:
        session = await sandbox.open_session(limits=BRIEF if status == "wall_limit" else QUICK)
        await session.step("kept = 42\nprint('before')")
        first = await session.step("print('shown')\n" + code)
        if not first.state_kept:
            with pytest.raises(SessionLost):
                await session.step("kept")
            return first, None
        after = await session.step("data = None\nkept")
        await session.close()
        return first, after

    first, after = play(steps)
    assert (first.status, first.state_kept) == (status, kept)
    assert first.output.startswith("shown\n")
    if kept:
        assert after.value == "42"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("while True: pass", "cpu_limit"),
        (STUBBORN + "while True: pass", "cpu_limit"),
        ("import time\ntime.sleep(60)", "wall_limit"),
        ("bytearray(1 << 30)", "memory_limit"),
    ],
)
def test_limit_in_a_run(play: Play, code: str, status: str) -> None:
    limits = BRIEF if status == "wall_limit" else QUICK
    result = play(lambda sandbox: sandbox.run("print('shown')\n" + code, limits=limits))
    assert (result.status, result.state_kept, result.output) == (status, False, "shown\n")


def test_interrupt_shows_where(play: Play) -> None:
    result = play(lambda sandbox: sandbox.run("def f():\n    while True:\n        x = 1\nf()", limits=QUICK))
    assert "in f" in result.traceback
    assert result.traceback.endswith("KeyboardInterrupt\n")


def test_cpu_counts_all_threads(play: Play) -> None:
    code = """
import hashlib, threading
def work():
    while True: hashlib.sha256(bytes(1 << 20)).digest()
for _ in range(4): threading.Thread(target=work, daemon=True).start()
import time
time.sleep(60)"""
    result = play(lambda sandbox: sandbox.run(code, limits=Limits(cpu_s=0.3, wall_s=30)))
    assert result.status == "cpu_limit"


def test_sleeping_costs_no_cpu_and_waiting_in_the_queue_no_wall(play: Play) -> None:
    async def crowd(sandbox: Sandbox) -> Any:
        limits = Limits(cpu_s=1, wall_s=1.5)
        return await asyncio.gather(*(sandbox.run("import time\ntime.sleep(.4)", limits=limits) for _ in range(24)))

    assert {result.status for result in play(crowd)} == {"ok"}


def test_output_is_cut(play: Play) -> None:
    result = play(lambda sandbox: sandbox.run("print('x' * 100_000)"))
    assert (result.status, len(result.output), result.truncated_output) == ("ok", 64 << 10, True)
    whole = play(lambda sandbox: sandbox.run("print('x' * 1000)"))
    assert not whole.truncated_output


def test_huge_values_and_tracebacks_are_cut(play: Play) -> None:
    result = play(lambda sandbox: sandbox.run("'v' * (10 << 20)"))
    assert len(result.value) < 70_000
    result = play(lambda sandbox: sandbox.run("raise ValueError('e' * (10 << 20))"))
    assert len(result.traceback) < 20_000


def test_file_size_and_descriptors_are_the_kernels(play: Play) -> None:
    result = play(lambda sandbox: sandbox.run("open('f', 'wb').truncate(1 << 30)"))
    assert "File too large" in result.traceback
    result = play(lambda sandbox: sandbox.run("import os\nfds = []\nwhile True: fds.append(os.dup(1))"))
    assert "Too many open files" in result.traceback


@pytest.mark.parametrize(("megabytes", "status"), [(64, "memory_limit"), (400, "ok")])
def test_memory_is_each_runs_own(play: Play, megabytes: int, status: str) -> None:
    async def both(sandbox: Sandbox) -> set[str]:
        limits = Limits(memory=megabytes << 20)
        code = "len(bytearray(200 << 20))"
        session = await sandbox.open_session(limits=limits)
        statuses: set[str] = {(await session.step(code)).status, (await sandbox.run(code, limits=limits)).status}
        await session.close()
        return statuses

    assert play(both) == {status}


def test_session_has_a_cpu_budget_over_all_steps() -> None:
    async def main() -> Any:
        sandbox = Sandbox(SandboxConfig(session_cpu_s=1))
        await sandbox.start()
        try:
            session = await sandbox.open_session()
            code = "import time\nend = time.process_time() + .25\nwhile time.process_time() < end: pass"
            return [await session.step(each) for each in (code, code, "while True: pass")]
        finally:
            await sandbox.stop()

    first, second, third = asyncio.run(main())
    assert (first.status, second.status) == ("ok", "ok")
    assert (third.status, third.state_kept) == ("cpu_limit", False)


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match="positive"):
        Limits(**{name: 0})


@pytest.mark.parametrize("private_uid", [True, False])
def test_threads_are_limited_by_the_kernel_or_by_the_server(private_uid: bool) -> None:
    """Without a uid of its own nothing in the kernel counts a child's threads, and 30,000 would stop the machine."""
    code = """
import threading
threading.stack_size(32768)
stop = threading.Event()
started = 0
try:
    while started < 20_000:
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except RuntimeError:
    pass
stop.wait(5)
started
"""

    async def main() -> None:
        sandbox = Sandbox(SandboxConfig(use_private_uid=private_uid, limits=Limits(cpu_s=10, wall_s=2)))
        await sandbox.start()
        try:
            if private_uid and not sandbox.report.private_uid:
                pytest.skip("no private uid here")
            result = await sandbox.run(code)
            assert result.status == ("wall_limit" if private_uid else "thread_limit")
            few = await sandbox.run(
                "from concurrent.futures import ThreadPoolExecutor as T\nsum(T(20).map(abs, [-1] * 99))"
            )
            assert (few.status, few.value) == ("ok", "99")
        finally:
            await sandbox.stop()

    asyncio.run(main())
