"""Episodes over WebSocket for asyncio: `rolloutgym.client.websocket` with `await`, and a task for its thread."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

import httpcore2
import httpx2
import stamina

from rolloutgym.client.frames import Ended, Frames, ProtocolError, handshake_headers
from rolloutgym.client.protocol import Call, encode, error_of, read_frame
from rolloutgym.client.rest import AsyncRestTransport, connection_failed
from rolloutgym.client.retries import RetryPolicy
from rolloutgym.client.websocket import CLOSE_FRAME, FAREWELL_S, FAULTS, PING_INTERVAL_S, READ_BYTES, one_answer

T = TypeVar("T")


class AsyncLink:
    """One open connection."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._stream = response.extensions["network_stream"]
        self._frames = Frames()
        # Held during an exchange, so that a ping never reads an answer away.
        self._lock = asyncio.Lock()
        self.closed = False

    @classmethod
    async def open(cls, http: httpx2.AsyncClient, path: str, params: dict[str, str], call: Call[Any]) -> Self:
        """Shake hands, for the sake of `call`. Raises the error of a service that refuses, and one of `FAULTS`."""
        request = http.build_request("GET", path, params=params, headers=handshake_headers())
        response = await http.send(request, stream=True)
        if response.status_code == 101:
            return cls(response)
        try:
            content = await response.aread()
        finally:
            await response.aclose()
        raise error_of(call, response.status_code, content, response.headers.get("retry-after"))

    async def exchange(self, message: str, timeout_s: float) -> str:
        """Send a message and wait for its answer. Raises one of `FAULTS`; the link is closed then."""
        deadline = time.monotonic() + timeout_s
        async with self._lock:
            try:
                await self._stream.write(self._frames.text(message), timeout_s)
                messages: list[str] = []
                while not messages:
                    messages = await self._read(max(deadline - time.monotonic(), 0.001))
                if self._frames.end is not None:
                    await self.close()
                return one_answer(messages)
            except BaseException:
                await self.close()
                raise

    async def ping(self) -> None:
        """Keep an idle link alive: ask for a sign of life, and answer the service's own pings."""
        if self._lock.locked():
            return
        async with self._lock:
            try:
                await self._stream.write(self._frames.ping(), PING_INTERVAL_S)
                while True:
                    await self._read(0.01)
            except httpcore2.ReadTimeout:
                pass  # all that had come is read
            except FAULTS:
                await self.close()

    async def close(self) -> None:
        self.closed = True
        try:
            with suppress(ProtocolError, httpcore2.NetworkError, httpcore2.TimeoutException):
                await self._stream.write(self._frames.close(), 1.0)
        finally:
            await self._response.aclose()

    async def _read(self, timeout_s: float) -> list[str]:
        messages, reply = self._frames.receive(await self._stream.read(READ_BYTES, timeout_s))
        await self._stream.write(reply, timeout_s)
        return messages


class AsyncLinks:
    """A client's open connections, and the task that keeps them alive."""

    def __init__(self, connect: Callable[[], httpx2.AsyncClient], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._connect = connect
        self._http = connect()
        self._links: set[AsyncLink] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def enter(self) -> None:
        """To be called in the event loop, before anything is done with a link: connections end with their loop."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None:
            for link in self._links:
                link.closed = True
            self._links = set()
            self._task = None
            self._http = self._connect()
        self._loop = loop

    async def open(self, path: str, params: dict[str, str], call: Call[Any]) -> AsyncLink:
        link = await AsyncLink.open(self._http, path, params, call)
        self._links.add(link)
        if self._task is None:
            self._task = asyncio.create_task(self._ping_all(), name="rolloutgym-pings")
        return link

    def remove(self, link: AsyncLink) -> None:
        self._links.discard(link)

    async def close(self) -> None:
        self.enter()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        links, self._links = self._links, set()
        for link in links:
            await link.close()
        await self._http.aclose()

    async def _ping_all(self) -> None:
        while True:
            await asyncio.sleep(PING_INTERVAL_S)
            for link in tuple(self._links):
                await link.ping()


class AsyncWebSocketChannel:
    """The way on which one episode is played. One task at a time."""

    def __init__(
        self,
        links: AsyncLinks,
        rest: AsyncRestTransport,
        retry: RetryPolicy,
        *,
        environment: str,
        episode_id: str,
        live: bool,
    ) -> None:
        """`live`: whether the episode exists already, and is to be resumed."""
        self._links = links
        self._rest = rest
        self._retry = retry
        self._path = f"/{environment}/ws"
        self._episode_id = episode_id
        self._live = live
        self._link: AsyncLink | None = None

    async def request(self, call: Call[T]) -> T:
        """The call's answer, after as many tries as the policy allows."""
        assert call.frame is not None
        message = encode(call.frame)
        async for attempt in stamina.retry_context(on=self._retry.backoff, **self._retry.arguments()):
            with attempt:
                answer = read_frame(call, await self._exchange(call, message))
                self._live = True
                return answer
        raise AssertionError("the last attempt returns or raises")

    async def end(self, call: Call[Any]) -> None:
        """End the episode: on its connection, or by REST where there is none or no clean farewell."""
        self._links.enter()
        link, self._link = self._link, None
        if link is not None and not link.closed:
            self._links.remove(link)
            try:
                await link.exchange(CLOSE_FRAME, FAREWELL_S)
            except Ended as end:
                if end.code == 1000:
                    return
            except FAULTS:
                pass
        await self._rest.request(call)

    async def _exchange(self, call: Call[Any], message: str) -> str:
        try:
            return await (await self._connected(call)).exchange(message, self._links.timeout_s)
        except FAULTS as error:
            raise connection_failed(call, error) from error

    async def _connected(self, call: Call[Any]) -> AsyncLink:
        self._links.enter()
        if self._link is None or self._link.closed:
            if self._link is not None:
                self._links.remove(self._link)
            params = {"episode_id": self._episode_id} if self._live else {}
            self._link = await self._links.open(self._path, params, call)
        return self._link
