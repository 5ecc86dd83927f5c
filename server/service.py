"""One running service: its environments, sessions and counts, started and stopped together."""

import asyncio
import logging
from collections.abc import Mapping

from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import StoreUnavailable
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.sessions import Limits, Sessions
from rolloutgym.server.settings import Settings
from rolloutgym.server.store import MemoryStore, Store

log = logging.getLogger(__name__)

_STOP_S = 2.0
"""How long the environments' pools may take to stop."""


class Service:
    def __init__(self, settings: Settings, environments: Mapping[str, AnyEnvironment]) -> None:
        self.settings = settings
        self.environments = dict(environments)
        self.metrics = Metrics(self.environments)
        self.sessions = Sessions(
            self.environments.values(),
            _store_of(settings),
            Limits(settings.capacity, settings.idle_timeout_s, settings.step_timeout_s),
            self.metrics,
        )
        self.started = False

    @property
    def default(self) -> AnyEnvironment:
        """The environment at the root: the one that the settings name, or the first where that is not served."""
        return self.environments.get(self.settings.default_env) or next(iter(self.environments.values()))

    async def ready(self) -> bool:
        """Whether episodes can be played now: the store has to answer too."""
        if not self.started or self.sessions.draining:
            return False
        try:
            await self.sessions.count()
        except StoreUnavailable:
            return False
        return True

    async def start(self) -> None:
        """Start every environment, once. If one fails, all are stopped again."""
        if self.started:
            return
        starts = (environment.start() for environment in self.environments.values())
        failed = [fault for fault in await asyncio.gather(*starts, return_exceptions=True) if fault is not None]
        if failed:
            await self._stop_environments()
            raise failed[0]
        await self.sessions.start()
        self.started = True

    async def drain(self) -> None:
        """Refuse new requests and wait for those in flight, once."""
        if not self.sessions.draining:
            await self.sessions.drain(self.settings.drain_s)

    async def stop(self) -> None:
        self.started = False
        await self.sessions.stop()
        await self._stop_environments()

    async def _stop_environments(self) -> None:
        stopping = [asyncio.create_task(environment.stop()) for environment in self.environments.values()]
        done, late = await asyncio.wait(stopping, timeout=_STOP_S)
        for task in late:
            task.cancel()
            log.error("an environment did not stop within %g s", _STOP_S)
        for task in done:
            if task.exception() is not None:
                log.error("an environment failed to stop", exc_info=task.exception())


def _store_of(settings: Settings) -> Store:
    if settings.store == "memory":
        return MemoryStore()
    try:
        from rolloutgym.server.store_redis import RedisStore
    except ModuleNotFoundError as error:
        raise ValueError(f"a Redis store needs the package {error.name}: pip install 'rolloutgym[redis]'") from None
    return RedisStore(settings.store, idle_timeout_s=settings.idle_timeout_s, ended=settings.capacity)
