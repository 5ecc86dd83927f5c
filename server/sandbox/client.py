"""The sandbox as the code environment sees it: `run` for one stateless execution, `open_session` for an interpreter
that keeps its variables.

Open sessions and running executions are counted apart: a session costs memory, an execution costs CPU, and a session
that waits for its next step holds no place in the queue. A dead zygote is replaced; what it was running ends in
`SandboxUnavailable`, which is never a result.
"""

import asyncio
import heapq
import itertools
import logging
import math
import os
import subprocess
import sys
import time
from dataclasses import replace

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox import landlock, scratch, selftest
from rolloutgym.server.sandbox.execution import TICK_S, Child, ChildFailed, Exit
from rolloutgym.server.sandbox.launch import make_plan, read_layout
from rolloutgym.server.sandbox.plan import ZygoteReport
from rolloutgym.server.sandbox.policy import MAX_CODE_BYTES, Level, Limits, RunResult, SandboxConfig, SandboxReport
from rolloutgym.server.sandbox.supervisor import Supervisor

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
    """Owns the zygote, the children, the scratch root and the queue. One per server process."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._report = SandboxReport(level=Level.UNSAFE, required=config.required, limits=config.limits)
        self._running = asyncio.Semaphore(config.running)
        self._sessions: set[SandboxSession] = set()
        self._children: dict[int, Child] = {}
        self._watched: set[Child] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._ids = itertools.count(1)
        self._free_slots: list[int] = []
        self._slots = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervisor: Supervisor | None = None
        self._reaper: asyncio.Task[None] | None = None

    @property
    def report(self) -> SandboxReport:
        return replace(self._report, restarts=self._supervisor.restarts if self._supervisor else 0)

    # -- start and stop

    async def start(self) -> None:
        """Start the zygote and run the self-test. `SandboxUnavailable` below the required level, unless unsafe running
        is allowed."""
        if sys.platform != "linux":
            raise SandboxUnavailable(f"no process sandbox on {sys.platform}; use the docker backend")
        self._loop = asyncio.get_running_loop()
        config = self.config
        await asyncio.to_thread(scratch.sweep, config.scratch)
        self._root = scratch.make_root(config.scratch)
        try:
            layout = await asyncio.to_thread(read_layout, config.python)
            sealed = config.use_sealed and not (config.use_landlock and landlock.abi() > 0)
            plan = make_plan(config, layout, self._root.path, sealed=sealed)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self._remove_root()
            raise SandboxUnavailable(f"the sandbox cannot be prepared: {error}") from error
        self._sealed = sealed
        self._supervisor = Supervisor(layout, plan, self)
        try:
            report = await self._supervisor.start()
            await self._judge(report)
        except BaseException:
            await self.stop()
            raise
        self._reaper = self._loop.create_task(self._reap_idle())

    async def stop(self) -> None:
        """End every child and the zygote, and remove what they left."""
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.gather(self._reaper, return_exceptions=True)
        if self._watch is not None:
            self._watch.cancel()
        if self._supervisor is not None:
            await self._supervisor.stop()
            self._supervisor = None
        for child in list(self._children.values()):
            child.on_lost()
        self._children.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._remove_root)

    def _remove_root(self) -> None:
        scratch.remove_tree(self._root.path)
        os.close(self._root.lock)

    async def _judge(self, found: ZygoteReport) -> None:
        """Take the level from what the self-test proves."""
        own = tuple(
            name for name, inode in found.namespaces.items() if os.stat(f"/proc/self/ns/{name}").st_ino != inode
        )
        outcome = await selftest.run(self, in_own_tree="mnt" in own)
        if outcome.failed or not self.config.use_seccomp or not (self._sealed or found.landlock_abi):
            level = Level.UNSAFE
        elif self._sealed:
            level = Level.SEALED
        else:
            level = Level.NAMESPACES if set(own) >= {"mnt", "net", "pid", "ipc"} else Level.LANDLOCK
        self._report = replace(
            self._report,
            level=level,
            landlock_abi=found.landlock_abi,
            seccomp=self.config.use_seccomp,
            private_uid=found.private_uid,
            namespaces=own,
            passed=outcome.passed,
            failed=outcome.failed,
            warnings=tuple(found.warnings),
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
            child = await self._spawn(seed, math.ceil(limits.cpu_s) + 2)
            try:
                return await self._step(child, code, limits, last=True)
            finally:
                child.kill("over")

    async def open_session(self, *, seed: int = 0, limits: Limits | None = None) -> SandboxSession:
        """A fresh interpreter; `limits` are the default of its steps. May evict the session that is idle longest."""
        if len(self._sessions) >= self.config.sessions:
            idle = min((s for s in self._sessions if not s.running), key=lambda s: s.idle_since, default=None)
            if idle is None:
                raise SandboxUnavailable("every sandbox session is busy")
            idle.evict()
        async with self._running:
            child = await self._spawn(seed, self.config.session_cpu_s)
        session = SandboxSession(self, child, limits or self.config.limits)
        self._sessions.add(session)
        self._keep_watching(child)
        return session

    async def execute(self, child: Child, code: str, limits: Limits, *, last: bool) -> RunResult:
        """A step, in its turn."""
        async with self._running:
            return await self._step(child, code, limits, last=last)

    def forget(self, session: SandboxSession) -> None:
        self._sessions.discard(session)

    async def _spawn(self, seed: int, cpu_allowance: int) -> Child:
        supervisor = self._supervisor
        if supervisor is None:
            raise SandboxUnavailable("the sandbox is not running")
        await supervisor.wait_ready(_READY_S)
        id_ = next(self._ids)
        slot = heapq.heappop(self._free_slots) if self._free_slots else self._slots
        self._slots = max(self._slots, slot + 1)
        place = None if self._sealed else self._root.path / str(id_)
        child = Child(id_, slot, place, cpu_allowance, supervisor.signal)
        self._children[id_] = child
        request = {"id": id_, "slot": slot, "seed": seed, "cpu": cpu_allowance}
        supervisor.spawn(request, child.take_descriptors())
        try:
            await asyncio.wait_for(asyncio.shield(child.ready), _READY_S)
        except (ChildFailed, TimeoutError) as error:
            child.kill("start")
            raise SandboxUnavailable(f"no sandbox process could be started: {error or 'it hangs'}") from error
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
            return await child.run(encoded, limits, last=last)
        except ChildFailed as error:
            raise SandboxUnavailable(str(error)) from error

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

    # -- what the zygote says

    def on_exit(self, id_: int, exit_: Exit, clean: bool) -> None:
        child = self._children.pop(id_, None)
        if child is None:
            return
        child.on_exit(exit_)
        self._watched.discard(child)
        if clean:
            heapq.heappush(self._free_slots, child.slot)
        else:
            self._clean_up(child)

    def on_spawn_failed(self, id_: int, error: str) -> None:
        child = self._children.pop(id_)
        logger.error("the sandbox could not fork: %s", error)
        child.on_lost()
        heapq.heappush(self._free_slots, child.slot)

    def on_signalled(self, id_: int) -> None:
        child = self._children.get(id_)
        if child is not None:
            child.on_signalled()

    def on_zygote_lost(self) -> None:
        lost, self._children = list(self._children.values()), {}
        for child in lost:
            child.on_lost()
            self._clean_up(child)
        self._watched.clear()

    def _clean_up(self, child: Child) -> None:
        """Remove a scratch directory that is not empty; only then can another take the slot."""
        task = self._loop.create_task(self._remove_scratch(child))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remove_scratch(self, child: Child) -> None:
        if child.scratch is not None:
            try:
                await asyncio.to_thread(scratch.remove_tree, child.scratch)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.error("a scratch directory could not be removed: %s", error.strerror)
                return  # the slot is not used again
        heapq.heappush(self._free_slots, child.slot)
