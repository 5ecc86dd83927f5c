"""A sandbox that nobody uses costs nothing."""

import asyncio
import os

import psutil
import pytest

from rolloutgym.server.sandbox.client import Sandbox
from rolloutgym.server.sandbox.policy import SandboxConfig

pytestmark = pytest.mark.anyio


async def test_an_idle_sandbox_uses_no_processor_time() -> None:
    sandbox = Sandbox(SandboxConfig())
    await sandbox.start()
    try:
        session = await sandbox.open_session()
        await session.step("1")
        before = _processor_time()
        await asyncio.sleep(1.0)
        assert _processor_time() - before < 0.1
    finally:
        await sandbox.stop()


def _processor_time() -> float:
    times = [process.cpu_times() for process in psutil.Process(os.getpid()).children(recursive=True)]
    return float(sum(time.user + time.system for time in times))
