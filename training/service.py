"""One environment of a remote service, driven from synchronous code, many episodes at once.

Training code is synchronous, the service is best asked asynchronously: an event loop in a thread of its own makes all
calls of a turn at the same time, so that a slow tool costs its time once and not once per row. What goes wrong on our
side of the wire is returned as a `Fault` in the row's place; a mistake of the caller (a wrong key, an unknown task) is
raised, since every other row would fail of it too.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from rolloutgym.client import AsyncClient, AsyncEnvironmentHandle, RolloutGymError
from rolloutgym.client.protocol import TIMEOUT_S
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
        timeout_s: float = TIMEOUT_S,
        retries: int = 3,
    ) -> None:
        """`service`: its base URL, or an unused client, which is then used and closed here.

        By URL, every episode has a WebSocket of its own, which takes a fraction of the time of REST calls.
        """

        def connect() -> AsyncClient:
            if isinstance(service, AsyncClient):
                return service
            return AsyncClient(service, "websocket", api_key=api_key, timeout_s=timeout_s, retries=retries)

        self.name = name
        self.waited_s = 0.0
        """Time spent waiting for the service so far, seconds."""
        self._connect = connect
        self._client: AsyncClient
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start the event loop's thread; nothing happens if it runs. A daemon: it keeps no process from ending."""
        if self._loop is None:
            self._client = self._connect()
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name=f"rolloutgym-{self.name}", daemon=True).start()

    def close(self) -> None:
        """Close the client and stop the thread; nothing happens if none runs. By URL, `open` starts anew."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            asyncio.run_coroutine_threadsafe(self._client.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            while loop.is_running():
                time.sleep(0.001)
            loop.close()

    def ask(self, call: Callable[[Handle], Awaitable[T]]) -> T:
        """One call of the environment's handle. Whatever goes wrong is raised."""

        async def one() -> T:
            return await call(self._client.environment(self.name))

        return self._run(one())

    def gather(self, calls: Sequence[Callable[[Handle], Awaitable[T]]]) -> list[T | Fault]:
        """All calls at once; the answers in the same order."""

        async def all_of_them() -> list[T | Fault]:
            handle = self._client.environment(self.name)
            return await asyncio.gather(*(_fault_as_answer(call(handle)) for call in calls))

        return self._run(all_of_them())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the environment is not open; use it as a context manager")
        started = time.perf_counter()
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        finally:
            self.waited_s += time.perf_counter() - started


async def _fault_as_answer(call: Awaitable[T]) -> T | Fault:
    try:
        return await call
    except RolloutGymError as error:
        if error.boundary == "request" or error.code == ErrorCode.TASK_NOT_FOUND:
            raise
        return Fault(str(error.code), error.boundary, error.message)
