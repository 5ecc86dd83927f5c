"""A sandbox that nobody uses costs nothing."""

import asyncio

import psutil
import pytest

from rolloutgym.server.sandbox.client import Sandbox
from rolloutgym.server.sandbox.policy import SandboxConfig
from rolloutgym.server.sandbox.processes import ProcessBackend

pytestmark = pytest.mark.anyio


async def test_an_idle_sandbox_uses_no_processor_time() -> None:
    sandbox = Sandbox(SandboxConfig())
    await sandbox.start()
    try:
        session = await sandbox.open_session()
        await session.step("1")
        backend = sandbox._backend
        assert isinstance(backend, ProcessBackend)
        assert backend.supervisor is not None
        zygote = psutil.Process(backend.supervisor.pid)
        before = _processor_time(zygote)
        await asyncio.sleep(1.0)
        assert _processor_time(zygote) - before < 0.1
    finally:
        await sandbox.stop()


def _processor_time(zygote: psutil.Process) -> float:
    times = [process.cpu_times() for process in [zygote, *zygote.children(recursive=True)]]
    return float(sum(time.user + time.system for time in times))
