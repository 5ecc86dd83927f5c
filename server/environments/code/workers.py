"""Killable helper processes: one question of JSON in, one answer out, under a deadline.

For libraries that can hang, crash or fill the memory on what a model writes. A process that fails on a question is
killed and replaced. Only a process that cannot be started is a fault of ours (`WorkerLost`).
"""

import asyncio
import json
import os
import sys
from typing import Any

from rolloutgym.server.errors import WorkerLost

_ENVIRONMENT_KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHASHSEED")


class QuestionFailed(Exception):
    """The process hung or died on this question."""


class WorkerPool:
    """Up to `processes` of `python -m module`, started when needed and kept."""

    def __init__(self, module: str, *, processes: int, deadline_s: float) -> None:
        self._module = module
        self._deadline_s = deadline_s
        self._free = asyncio.Semaphore(processes)
        self._idle: list[asyncio.subprocess.Process] = []

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The process's answer. `QuestionFailed` where it did not give one in time."""
        async with self._free:
            process = await self._take()
            try:
                async with asyncio.timeout(self._deadline_s):
                    answer = await _exchange(process, question)
            except TimeoutError as error:
                await _kill(process)
                raise QuestionFailed("deadline") from error
            except BaseException:
                await _kill(process)
                raise
            self._idle.append(process)
            return answer

    async def stop(self) -> None:
        while self._idle:
            await _kill(self._idle.pop())

    async def _take(self) -> asyncio.subprocess.Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
            await _kill(process)
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT_KEPT if name in os.environ},
            )
        except OSError as error:
            raise WorkerLost("a helper process could not be started") from error


async def _exchange(process: asyncio.subprocess.Process, question: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(question).encode() + b"\n")
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError) as error:
        raise QuestionFailed("died") from error
    line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        raise QuestionFailed("died")
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
    assert process.stdin is not None
    process.stdin.close()
