"""Interpreters that keep their variables: steps, eviction, loss, cancellation, and a zygote that dies."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox.client import Limits, RunResult, Sandbox, SandboxConfig, SessionLost
from rolloutgym.server.sandbox.processes import ProcessBackend

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")
T = TypeVar("T")


Play = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]


def _with_sandbox(what: Callable[[Sandbox], Awaitable[T]], config: SandboxConfig) -> T:
    async def main() -> T:
        sandbox = Sandbox(config)
        await sandbox.start()
        try:
            return await what(sandbox)
        finally:
            await sandbox.stop()

    return asyncio.run(main())


def test_variables_imports_files_and_numbering_are_kept(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> list[RunResult]:
        session = await sandbox.open_session()
        cells = [
            "import math\nx = 5",
            "def f(): return math.factorial(x)\nopen('note', 'w').write('n')",
            "f()",
            "x += 1\n1 / 0",
            "(x, open('note').read())",
        ]
        results = [await session.step(cell) for cell in cells]
        await session.close()
        return results

    results = play(steps)
    assert [result.value for result in results] == [None, "1", "120", None, "(6, 'n')"]
    assert all(result.state_kept for result in results)
    assert 'File "<cell 4>", line 2' in (results[3].traceback or "")


def test_sessions_are_apart(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> list[str | None]:
        one, two = await sandbox.open_session(), await sandbox.open_session()
        await one.step("x = 1\nimport json\njson.dumps = None\nopen('f', 'w').write('1')")
        await two.step("x = 2")
        code = "import json, os\n(x, json.dumps is None, os.listdir('.'))"
        return [(await session.step(code)).value for session in (one, two)]

    assert play(steps) == ["(1, True, ['f'])", "(2, False, [])"]


def test_same_seed_and_steps_give_the_same_results(play: Play) -> None:
    async def one(sandbox: Sandbox, seed: int) -> list[tuple[str, str | None, str | None]]:
        session = await sandbox.open_session(seed=seed)
        cells = [
            "import random, numpy as np\nrandom.random(), np.random.rand(3)",
            "print({str(i) for i in range(20)}, random.sample(range(100), 5))",
            "lambda: 0",
            "class A: pass\n[A(), np.random.default_rng().integers(100)]",
            "A().b",
        ]
        results = [await session.step(cell) for cell in cells]
        await session.close()
        return [(result.output, result.value, result.traceback) for result in results]

    async def plays(sandbox: Sandbox) -> tuple[object, object, object]:
        return await one(sandbox, 1), await one(sandbox, 1), await one(sandbox, 2)

    first, again, other = play(plays)
    assert first == again != other
    assert _with_sandbox(plays, SandboxConfig())[0] == first  # another zygote too


def test_exit_in_a_cell_keeps_the_session(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> tuple[RunResult, RunResult]:
        session = await sandbox.open_session()
        return await session.step("x = 1\nexit()"), await session.step("x")

    left, after = play(steps)
    assert (left.status, left.state_kept) == ("exited", True)
    assert after.value == "1"


@pytest.mark.parametrize(
    ("code", "status"),
    [("import os\nos._exit(0)", "exited"), ("import ctypes\nctypes.string_at(0)", "crashed")],
)
def test_dead_session_says_so_and_is_lost(play: Play, code: str, status: str) -> None:
    async def steps(sandbox: Sandbox) -> RunResult:
        session = await sandbox.open_session()
        result = await session.step(code)
        with pytest.raises(SessionLost):
            await session.step("1")
        return result

    result = play(steps)
    assert (result.status, result.state_kept) == (status, False)


def test_closing_twice_is_fine_and_a_closed_session_is_lost(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> None:
        session = await sandbox.open_session()
        await session.close()
        await session.close()
        with pytest.raises(SessionLost):
            await session.step("1")

    play(steps)


def test_longest_idle_session_makes_room() -> None:
    async def steps(sandbox: Sandbox) -> list[bool]:
        sessions = []
        for i in range(3):
            sessions.append(await sandbox.open_session())
            await sessions[-1].step(f"x = {i}")
        await sessions[0].step("x")  # now the second is idle longest
        sessions.append(await sandbox.open_session())
        kept = []
        for session in sessions:
            try:
                kept.append((await session.step("1")).state_kept)
            except SessionLost:
                kept.append(False)
        return kept

    assert _with_sandbox(steps, SandboxConfig(sessions=3)) == [True, False, True, True]


def test_old_sessions_are_evicted() -> None:
    async def steps(sandbox: Sandbox) -> None:
        session = await sandbox.open_session()
        await session.step("1")
        await asyncio.sleep(1.2)
        with pytest.raises(SessionLost):
            await session.step("1")

    _with_sandbox(steps, SandboxConfig(idle_s=0.5))


def test_no_session_is_evicted_while_it_runs() -> None:
    async def steps(sandbox: Sandbox) -> RunResult:
        session = await sandbox.open_session()
        running = asyncio.create_task(session.step("import time\ntime.sleep(.5)\n7"))
        while not session.running:  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0)
        with pytest.raises(SandboxUnavailable):
            await sandbox.open_session()
        return await running

    assert _with_sandbox(steps, SandboxConfig(sessions=1)).value == "7"


def test_idle_sessions_take_no_place_in_the_queue() -> None:
    async def steps(sandbox: Sandbox) -> str | None:
        for _ in range(8):
            await (await sandbox.open_session()).step("1")
        return (await asyncio.wait_for(sandbox.run("1 + 1"), 20)).value

    assert _with_sandbox(steps, SandboxConfig(running=1)) == "2"


def test_threads_rest_between_steps(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> str | None:
        session = await sandbox.open_session()
        await session.step(
            "import threading, time\nlongest = 0\ndef tick():\n    global longest\n    last = time.monotonic()\n"
            "    while True:\n        time.sleep(.002)\n        now = time.monotonic()\n"
            "        longest, last = max(longest, now - last), now\nthreading.Thread(target=tick, daemon=True).start()"
        )
        assert session._child._pid is not None
        while _state(session._child._pid) != "T":  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        # It ticks again now. Had it run on, no two ticks would be so far apart.
        return (await session.step("while longest < .5: time.sleep(.002)\n'it rested'")).value

    assert play(steps) == "'it rested'"


def _state(pid: int) -> str:
    """As in proc_pid_stat(5): T for a process that is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_cancelled_step_ends_its_session_and_frees_its_place() -> None:
    async def steps(sandbox: Sandbox) -> str | None:
        session = await sandbox.open_session()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.step("import time\ntime.sleep(60)"), 0.3)
        with pytest.raises(SessionLost):
            await session.step("1")
        return (await sandbox.run("2")).value

    assert _with_sandbox(steps, SandboxConfig(running=1)) == "2"


def test_interrupt_does_not_leak_into_the_next_step(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> set[str]:
        session = await sandbox.open_session()
        statuses: set[str] = set()
        for i in range(12):  # ends about when its limit does
            await session.step(f"import time\ntime.sleep({0.02 * (i % 5)})", limits=Limits(wall_s=0.04))
            statuses.add((await session.step("sum(range(1000))")).status)
        return statuses

    assert play(steps) == {"ok"}


def _zygote(sandbox: Sandbox) -> int:
    """The process that forks: below its keeper where it has a process table of its own."""
    backend = sandbox._backend
    assert isinstance(backend, ProcessBackend)
    assert backend.supervisor is not None
    pid = backend.supervisor.pid
    if "pid" in sandbox.report.namespaces:
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


@pytest.mark.parametrize("namespaces", [True, False])
def test_dead_zygote_is_replaced_and_what_ran_is_no_result(namespaces: bool) -> None:
    async def steps(sandbox: Sandbox) -> RunResult:
        session = await sandbox.open_session()
        await session.step("x = 1")
        running = asyncio.create_task(sandbox.run("import time\ntime.sleep(30)"))
        stepping = asyncio.create_task((await sandbox.open_session()).step("import time\ntime.sleep(30)"))
        await asyncio.sleep(0.3)
        os.kill(_zygote(sandbox), signal.SIGKILL)
        for task in (running, stepping):
            with pytest.raises(SandboxUnavailable):
                await task
        with pytest.raises(SessionLost):
            await session.step("x")
        result = await sandbox.run("1 + 1")
        assert sandbox.report.restarts == 1
        return result

    result = _with_sandbox(steps, SandboxConfig(use_namespaces=namespaces))
    assert (result.status, result.value) == ("ok", "2")


def test_what_is_said_between_two_zygotes_holds_up_nothing() -> None:
    async def steps(sandbox: Sandbox) -> RunResult:
        session = await sandbox.open_session()
        await session.step("x = 1")
        backend = sandbox._backend
        assert isinstance(backend, ProcessBackend)
        supervisor = backend.supervisor
        assert supervisor is not None
        os.kill(_zygote(sandbox), signal.SIGKILL)
        while supervisor._control is not None:  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0)
        supervisor.signal(1, signal.SIGKILL, False)
        return await sandbox.run("1 + 1")

    assert _with_sandbox(steps, SandboxConfig()).value == "2"


def test_faults_are_retryable() -> None:
    assert SandboxUnavailable("x").retryable
    assert SessionLost("x").body().error.code == "sandbox_unavailable"


def test_many_sessions_at_once(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> list[str | None]:
        async def one(i: int) -> str | None:
            session = await sandbox.open_session(seed=i)
            await session.step(f"x = {i}")
            await asyncio.sleep(0.05)
            return (await session.step("x")).value

        return await asyncio.gather(*(one(i) for i in range(100)))

    assert play(steps) == [str(i) for i in range(100)]


def test_steps_do_not_overlap(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> None:
        session = await sandbox.open_session()
        first = asyncio.create_task(session.step("import time\ntime.sleep(.3)"))
        while not session.running:  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            await session.step("1")
        assert (await first).status == "ok"

    play(steps)


def test_nothing_runs_after_stop() -> None:
    async def main() -> None:
        sandbox = Sandbox(SandboxConfig())
        await sandbox.start()
        session = await sandbox.open_session()
        await sandbox.stop()
        with pytest.raises(SandboxUnavailable):
            await sandbox.run("1")
        with pytest.raises(SessionLost):
            await session.step("1")

    asyncio.run(main())
