"""One environment of a remote service, driven from synchronous code, many episodes at once.

Training code is synchronous, the service is best asked asynchronously: an event loop in a thread of its own makes all
calls of a turn at the same time, so that a slow tool costs its time once and not once per row. What goes wrong on our
side of the wire is returned as a `Fault` in the row's place; a mistake of the caller (a wrong key, an unknown task) is
raised, since every other row would fail of it too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from rolloutgym.client import AsyncClient, AsyncEnvironmentHandle, RolloutGymError
from rolloutgym.models import ErrorCode

T = TypeVar("T")

Handle = AsyncEnvironmentHandle[Any, Any]


@dataclass(frozen=True)
class Fault:
    """An infrastructure fault: the row has no reward and takes no part in training."""

    code: str
    boundary: str
    message: str


class RemoteEnvironment:
    """The environment `name` of the service at `url`. Use it as a context manager; several threads may share it."""

    def __init__(
        self,
        service: str | AsyncClient,
        name: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        retries: int = 3,
    ) -> None:
        """`service`: its base URL, or an unused client, which is then used and closed here.

        By URL, every episode has a WebSocket of its own, which takes a fraction of the time of REST calls.
        """
        if isinstance(service, str):
            service = AsyncClient(service, "websocket", api_key=api_key, timeout_s=timeout_s, retries=retries)
        self.name = name
        self.waited_s = 0.0
        """Time spent waiting for the service so far, seconds."""
        self._client = service
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start the event loop's thread; nothing happens if it runs."""
        if self._portal is None:
            self._portal = self._stack.enter_context(start_blocking_portal(name=f"rolloutgym-{self.name}"))
            self._stack.enter_context(self._portal.wrap_async_context_manager(self._client))

    def close(self) -> None:
        self._stack.close()
        self._portal = None

    def ask(self, call: Callable[[Handle], Awaitable[T]]) -> T:
        """One call of the environment's handle. Whatever goes wrong is raised."""
        return self._run(lambda: call(self._client.environment(self.name)))

    def gather(self, calls: Sequence[Callable[[Handle], Awaitable[T]]]) -> list[T | Fault]:
        """All calls at once; the answers in the same order."""
        handle = self._client.environment(self.name)

        async def all_of_them() -> list[T | Fault]:
            return await asyncio.gather(*(_fault_as_answer(call(handle)) for call in calls))

        return self._run(all_of_them)

    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        if self._portal is None:
            raise RuntimeError("the environment is not open; use it as a context manager")
        started = time.perf_counter()
        try:
            return self._portal.call(call)
        finally:
            self.waited_s += time.perf_counter() - started


async def _fault_as_answer(call: Awaitable[T]) -> T | Fault:
    try:
        return await call
    except RolloutGymError as error:
        if error.boundary == "request" or error.code == ErrorCode.TASK_NOT_FOUND:
            raise
        return Fault(str(error.code), error.boundary, error.message)
