"""The sandbox as the code environment sees it: `run` for one stateless execution, `open_session` for an interpreter
that keeps its variables.

Open sessions and running executions are counted apart: a session costs memory, an execution costs CPU, and a session
that waits for its next step holds no place in the queue. A fault of what runs the code ends in `SandboxUnavailable`,
which is never a result.
"""

import asyncio
import logging
import math
import time
from dataclasses import replace

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox import selftest
from rolloutgym.server.sandbox.backend import Backend, Found
from rolloutgym.server.sandbox.containers import ContainerBackend
from rolloutgym.server.sandbox.execution import TICK_S, Child, ChildFailed
from rolloutgym.server.sandbox.policy import MAX_CODE_BYTES, Level, Limits, RunResult, SandboxConfig, SandboxReport
from rolloutgym.server.sandbox.processes import ProcessBackend

__all__ = ["Limits", "RunResult", "Sandbox", "SandboxConfig", "SandboxReport", "SandboxSession", "SessionLost"]

logger = logging.getLogger(__name__)

_READY_S = 20.0
_REAP_EVERY_S = 5.0


class SessionLost(SandboxUnavailable):
    """The session's variables are gone: evicted, ended in an earlier step, or its zygote died."""


class SandboxSession:
    """One interpreter. Steps never overlap."""

    def __init__(self, sandbox: "Sandbox", child: Child, limits: Limits) -> None:
        self._sandbox = sandbox
        self._child = child
        self._limits = limits
        self._over = ""  # why there is no next step

    @property
    def idle_since(self) -> float:
        return self._child.idle_since

    @property
    def running(self) -> bool:
        return self._child.running

    async def step(self, code: str, *, limits: Limits | None = None) -> RunResult:
        """Run one cell. `SessionLost` if the variables of the earlier ones are gone."""
        if self._over or self._child.lost:
            raise SessionLost(f"the interpreter session is gone: {self._over or 'the sandbox restarted'}")
        try:
            result = await self._sandbox.execute(self._child, code, limits or self._limits, last=False)
        except (asyncio.CancelledError, SandboxUnavailable):
            self._end("a step was broken off")
            raise
        if not result.state_kept:
            self._end(f"it ended with {result.status}")
        return result

    async def close(self) -> None:
        self._end("it was closed")

    def evict(self) -> None:
        self._end("it was idle and made room")

    def _end(self, why: str) -> None:
        if not self._over:
            self._over = why
            self._child.kill("closed")
            self._sandbox.forget(self)


class Sandbox:
    """Owns what runs the code, the queue and the sessions. One per server process."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._backend: Backend = ContainerBackend(config) if config.backend == "docker" else ProcessBackend(config)
        self._report = SandboxReport(
            level=Level.UNSAFE, required=config.required, backend=config.backend, limits=config.limits
        )
        self._running = asyncio.Semaphore(config.running)
        self._sessions: set[SandboxSession] = set()
        self._opening = 0
        self._watched: set[Child] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._reaper: asyncio.Task[None] | None = None

    @property
    def report(self) -> SandboxReport:
        return replace(self._report, restarts=self._backend.restarts)

    # -- start and stop

    async def start(self) -> None:
        """Start, and run the self-test. `SandboxUnavailable` below the required level, unless unsafe running is
        allowed."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._judge(await self._backend.start())
        except BaseException:
            await self.stop()
            raise
        self._reaper = self._loop.create_task(self._reap_idle())

    async def stop(self) -> None:
        """End every child and remove what it left. Idempotent."""
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.gather(self._reaper, return_exceptions=True)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        await self._backend.stop()

    async def _judge(self, found: Found) -> None:
        """Take the level from what the self-test proves."""
        outcome = await selftest.run(self, attacks=found.attacks)
        level = Level.UNSAFE if outcome.failed else found.level
        self._report = replace(
            self._report,
            level=level,
            landlock_abi=found.landlock_abi,
            seccomp=found.seccomp,
            private_uid=found.private_uid,
            namespaces=found.namespaces,
            passed=outcome.passed,
            failed=outcome.failed,
            warnings=found.warnings,
            python=found.python,
        )
        if level < self.config.required:
            problem = f"the sandbox reaches level {level.name.lower()}, not {self.config.required.name.lower()}"
            if outcome.failed:
                problem += f"; attacks that were not held: {', '.join(outcome.failed)}"
            if not self.config.allow_unsafe:
                raise SandboxUnavailable(problem)
            logger.warning("%s; started all the same, as ROLLOUTGYM_ALLOW_UNSAFE_SANDBOX is set", problem)
            self._report = replace(self._report, warnings=(*self._report.warnings, problem))

    # -- running code

    async def run(self, code: str, *, limits: Limits | None = None, seed: int = 0) -> RunResult:
        """Run a program in a fresh child. `SandboxUnavailable` for a fault that is not the code's."""
        limits = limits or self.config.limits
        async with self._running:
            child = await self._spawn(seed, limits, math.ceil(limits.cpu_s) + 2)
            try:
                return await self._step(child, code, limits, last=True)
            finally:
                child.kill("over")

    async def open_session(self, *, seed: int = 0, limits: Limits | None = None) -> SandboxSession:
        """A fresh interpreter; `limits` hold for each step, those of memory, files and threads for
        all of it. May evict the session that is idle longest."""
        if len(self._sessions) + self._opening >= self.config.sessions:
            idle = min((s for s in self._sessions if not s.running), key=lambda s: s.idle_since, default=None)
            if idle is None:
                raise SandboxUnavailable("every sandbox session is busy")
            idle.evict()
        limits = limits or self.config.limits
        self._opening += 1
        try:
            async with self._running:
                child = await self._spawn(seed, limits, self.config.session_cpu_s)
        finally:
            self._opening -= 1
        session = SandboxSession(self, child, limits)
        self._sessions.add(session)
        self._keep_watching(child)
        return session

    async def execute(self, child: Child, code: str, limits: Limits, *, last: bool) -> RunResult:
        """A step, in its turn."""
        async with self._running:
            return await self._step(child, code, limits, last=last)

    def forget(self, session: SandboxSession) -> None:
        self._sessions.discard(session)

    async def _spawn(self, seed: int, limits: Limits, cpu_allowance: int) -> Child:
        child = await self._backend.spawn(seed, limits, cpu_allowance)
        try:
            await asyncio.wait_for(asyncio.shield(child.ready), _READY_S)
        except (ChildFailed, TimeoutError) as error:
            child.kill("start")
            raise SandboxUnavailable(f"no sandbox process could be started: {str(error) or 'it hangs'}") from error
        except asyncio.CancelledError:
            child.kill("cancelled")
            raise
        child.idle_since = time.monotonic()
        return child

    async def _step(self, child: Child, code: str, limits: Limits, *, last: bool) -> RunResult:
        encoded = code.encode("utf-8", "surrogatepass")
        if len(encoded) > MAX_CODE_BYTES:
            note = f"the code is longer than {MAX_CODE_BYTES} bytes"
            return RunResult(status="error", traceback=note, state_kept=not last)
        self._keep_watching(child)
        try:
            result = await child.run(encoded, limits, last=last)
        except ChildFailed as error:
            raise SandboxUnavailable(str(error)) from error
        return result if self._report.level >= self.config.required else replace(result, unsafe=True)

    # -- watching

    def _keep_watching(self, child: Child) -> None:
        self._watched.add(child)
        if self._watch is None:
            self._watch = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        self._watched = {child for child in self._watched if child.check(now)}
        self._watch = self._loop.call_later(TICK_S, self._tick) if self._watched else None

    async def _reap_idle(self) -> None:
        while True:
            await asyncio.sleep(min(_REAP_EVERY_S, self.config.idle_s / 2))
            limit = time.monotonic() - self.config.idle_s
            for session in [s for s in self._sessions if not s.running and s.idle_since < limit]:
                session.evict()
