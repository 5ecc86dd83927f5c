"""Runs code in children of a zygote on this machine: slots, scratch directories, and what the zygote reports."""

import asyncio
import heapq
import itertools
import logging
import subprocess
import sys

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox import landlock, roots, scratch, selftest
from rolloutgym.server.sandbox.backend import Found
from rolloutgym.server.sandbox.execution import Child, Exit
from rolloutgym.server.sandbox.launch import make_plan, read_layout, rlimits_of
from rolloutgym.server.sandbox.plan import ZygoteReport
from rolloutgym.server.sandbox.policy import Level, Limits, SandboxConfig
from rolloutgym.server.sandbox.supervisor import Supervisor, own_namespaces

logger = logging.getLogger(__name__)

_READY_S = 20.0
_ROOT_PREFIX = "rolloutgym-sandbox-"


class ProcessBackend:
    """Owns the zygote, its children and the scratch root."""

    def __init__(self, config: SandboxConfig) -> None:
        self._config = config
        self.children: dict[int, Child] = {}
        self.cleaning: set[asyncio.Task[None]] = set()
        self.slots = 0
        """Slots ever handed out; each has its uid."""
        self.free_slots: list[int] = []
        self._ids = itertools.count(1)
        self._sealed = False
        self._private_uid = False
        self.root: roots.Root | None = None
        self.supervisor: Supervisor | None = None

    @property
    def restarts(self) -> int:
        return self.supervisor.restarts if self.supervisor is not None else 0

    # -- start and stop

    async def start(self) -> Found:
        if sys.platform != "linux":
            raise SandboxUnavailable(f"no process sandbox on {sys.platform}; use the docker backend")
        config = self._config
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(roots.sweep, _ROOT_PREFIX, config.scratch)
            self.root = self._make_root()
            layout = await asyncio.to_thread(read_layout, config.python)
            self._sealed = config.use_sealed and not (config.use_landlock and landlock.abi() > 0)
            plan = make_plan(config, layout, self.root.path, sealed=self._sealed)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise SandboxUnavailable(f"the sandbox cannot be prepared: {error}") from error
        self.supervisor = Supervisor(layout, plan, self)
        report = await self.supervisor.start()
        self._private_uid = report.private_uid
        return self._found(report)

    def _make_root(self) -> roots.Root:
        """Searchable but not listable for others, as private uids must pass through it."""
        root = roots.make_root(_ROOT_PREFIX, self._config.scratch)
        (root.path / ".tree").mkdir()
        root.path.chmod(0o711)
        return root

    def _found(self, report: ZygoteReport) -> Found:
        own = own_namespaces(report)
        if not self._config.use_seccomp or not (self._sealed or report.landlock_abi):
            level = Level.UNSAFE
        elif self._sealed:
            level = Level.SEALED
        else:
            level = Level.NAMESPACES if {"mnt", "net", "pid", "ipc"} <= own else Level.LANDLOCK
        return Found(
            level=level,
            attacks=selftest.ATTACKS | (selftest.ATTACKS_ON_OWN_TREE if "mnt" in own else {}),
            landlock_abi=report.landlock_abi,
            seccomp=self._config.use_seccomp,
            private_uid=report.private_uid,
            namespaces=tuple(sorted(own)),
            warnings=tuple(report.warnings),
            python=report.python,
        )

    async def stop(self) -> None:
        supervisor, self.supervisor = self.supervisor, None
        if supervisor is not None:
            await supervisor.stop()
        for child in self.children.values():
            child.on_lost()
        self.children.clear()
        await asyncio.gather(*self.cleaning, return_exceptions=True)
        root, self.root = self.root, None
        if root is not None:
            await asyncio.to_thread(root.remove)

    # -- children

    async def spawn(self, seed: int, limits: Limits, cpu_allowance: int) -> Child:
        if self.supervisor is None:
            raise SandboxUnavailable("the sandbox is not running")
        await self.supervisor.wait_ready(_READY_S)
        assert self.root is not None
        id_ = next(self._ids)
        slot = heapq.heappop(self.free_slots) if self.free_slots else self.slots
        self.slots = max(self.slots, slot + 1)
        place = None if self._sealed else self.root.path / str(id_)
        max_threads = None if self._private_uid else limits.threads
        child = Child(id_, slot, place, cpu_allowance, self.supervisor.signal, max_threads=max_threads)
        self.children[id_] = child
        request = {"id": id_, "slot": slot, "seed": seed, "cpu": cpu_allowance, "rlimits": rlimits_of(limits)}
        self.supervisor.spawn(request, child.take_descriptors())
        return child

    # -- what the zygote says

    def on_exit(self, id_: int, exit_: Exit, clean: bool) -> None:
        child = self.children.pop(id_, None)
        if child is None:
            return
        child.on_exit(exit_)
        if clean:
            heapq.heappush(self.free_slots, child.slot)
        else:
            self._clean_up(child)

    def on_spawn_failed(self, id_: int, error: str) -> None:
        child = self.children.pop(id_)
        logger.error("the sandbox could not fork: %s", error)
        child.on_lost()
        heapq.heappush(self.free_slots, child.slot)

    def on_signalled(self, id_: int) -> None:
        child = self.children.get(id_)
        if child is not None:
            child.on_signalled()

    def on_zygote_lost(self) -> None:
        lost, self.children = list(self.children.values()), {}
        for child in lost:
            child.on_lost()
            self._clean_up(child)

    def _clean_up(self, child: Child) -> None:
        """Remove a scratch directory that is not empty; only then can another take the slot."""
        task = self._loop.create_task(self._remove_scratch(child))
        self.cleaning.add(task)
        task.add_done_callback(self.cleaning.discard)

    async def _remove_scratch(self, child: Child) -> None:
        if child.scratch is not None:
            try:
                await asyncio.to_thread(scratch.remove_tree, child.scratch)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.error("a scratch directory could not be removed: %s", error.strerror)
                return  # the slot is not used again
        heapq.heappush(self.free_slots, child.slot)
