"""Killable helper processes: one question of JSON in, one answer out, under a limit of processor time.

For libraries that can hang, crash or fill the memory on what a model writes. What a question does is told from a fault
of ours: only a process that was fresh, or that used up its processor time, has failed on its question; one that had
answered others before may have died of them, so another one is asked. A process that cannot be started or is starved is
a fault of ours (`WorkerLost`).
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from rolloutgym.server.errors import WorkerLost

_ENVIRONMENT_KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH")
_STARVED_S = 120.0
"""Wall clock for what takes seconds of processor time."""

_Process = asyncio.subprocess.Process


class QuestionFailed(Exception):
    """The process hung, died or gave up on this question."""


class _Died(Exception):
    """The process gave no answer, and what it did before may be the reason."""


class WorkerPool:
    """Up to `processes` of `python -m module`, started when needed and kept. The module calls `worker.serve`."""

    def __init__(self, module: str, *, processes: int, cpu_s: float) -> None:
        self._module = module
        self._cpu_s = cpu_s
        self._free = asyncio.Semaphore(processes)
        self._idle: list[_Process] = []

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The process's answer. `QuestionFailed` where the question is more than it can do."""
        async with self._free:
            if self._idle:
                try:
                    return await self._answer_of(self._idle.pop(), question)
                except _Died:
                    pass
            try:
                return await self._answer_of(await self._start(), question)
            except _Died as error:
                raise QuestionFailed(str(error)) from error

    async def stop(self) -> None:
        while self._idle:
            await _kill(self._idle.pop())

    async def _answer_of(self, process: _Process, question: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await _exchange(process, question)
        except BaseException as error:
            await _kill(process)
            if isinstance(error, _Died) and process.returncode == -signal.SIGPROF:
                raise QuestionFailed("processor time") from error
            raise
        if answer.pop("reusable"):
            self._idle.append(process)
        else:
            await _kill(process)
        match answer.get("failed"):
            case None:
                return answer
            case "MemoryError":
                raise _Died("memory")
            case failure:
                raise QuestionFailed(failure)

    async def _start(self) -> _Process:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                str(self._cpu_s),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment_of_workers(),
            )
        except OSError as error:
            raise WorkerLost("a helper process could not be started") from error
        try:
            await _receive(process)
        except _Died as error:
            await _kill(process)
            raise WorkerLost("a helper process ended at its start") from error
        except BaseException:
            await _kill(process)
            raise
        return process


def environment_of_workers() -> dict[str, str]:
    """With one order of sets, so that computer algebra takes the same way in every process, and no threads that a
    filter would miss."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT_KEPT if name in os.environ}
    return {**kept, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


async def _exchange(process: _Process, question: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(question).encode() + b"\n")
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError) as error:
        raise _Died("died") from error
    return await _receive(process)


async def _receive(process: _Process) -> dict[str, Any]:
    """The next line that the process writes. `WorkerLost` where none comes although it has processor time left."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_STARVED_S):
            line = await process.stdout.readline()
    except TimeoutError as error:
        raise WorkerLost("a helper process was starved") from error
    if not line.endswith(b"\n"):
        raise _Died("died")
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _kill(process: _Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
    assert process.stdin is not None
    process.stdin.close()
