"""The self-test finds each way out: run against executors that have no walls, or some."""

import asyncio
import contextlib
import io
import os
import sys

import pytest

from rolloutgym.server.sandbox import selftest
from rolloutgym.server.sandbox.client import Limits, RunResult, Sandbox, SandboxConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")


class Idle:
    """Runs nothing: holds every attack, and is no use."""

    async def run(self, code: str, *, limits: Limits | None = None, seed: int = 0) -> RunResult:
        return RunResult(status="error")


class Open:
    """Runs the code that is harmless to run, right here."""

    async def run(self, code: str, *, limits: Limits | None = None, seed: int = 0) -> RunResult:
        if any(word in code for word in ("fork", "ptrace", "spawn")):
            return RunResult(status="error")
        output = io.StringIO()
        value = None
        with contextlib.redirect_stdout(output), contextlib.suppress(OSError, ImportError):
            exec(code, {})
            value = "2" if "median" in code else None
        return RunResult(status="ok", output=output.getvalue(), value=value)


def test_running_nothing_is_no_pass() -> None:
    outcome = asyncio.run(selftest.run(Idle(), attacks=selftest.ATTACKS))
    assert outcome.failed == ("run plain code",)
    assert len(outcome.passed) >= 12


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_open_executor_fails() -> None:
    before = set(os.listdir("/proc/self/fd"))
    outcome = asyncio.run(selftest.run(Open(), attacks=selftest.ATTACKS | selftest.ATTACKS_ON_OWN_TREE))
    for fd in set(os.listdir("/proc/self/fd")) - before:
        with contextlib.suppress(OSError):
            os.close(int(fd))  # memfd and the cut file
    assert set(outcome.failed) >= {
        "read a file outside",
        "cut a file outside",
        "change the times of a file outside",
        "change the mode of a file outside",
        "signal the parent",
        "take memory that no limit counts",
        "find an inherited descriptor",
        "find the server's environment",
        "import the server",
        "see that a file outside exists",
        "be in the server's process table",
    }
    assert "run plain code" in outcome.passed


def test_environment_is_left_clean() -> None:
    before = dict(os.environ)
    asyncio.run(selftest.run(Idle(), attacks=selftest.ATTACKS))
    assert dict(os.environ) == before


def test_sandbox_passes() -> None:
    async def main() -> tuple[str, ...]:
        sandbox = Sandbox(SandboxConfig())
        await sandbox.start()
        try:
            return (await selftest.run(sandbox, attacks=selftest.ATTACKS)).failed
        finally:
            await sandbox.stop()

    assert asyncio.run(main()) == ()
