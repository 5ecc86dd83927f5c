"""Calls over HTTP, one class for each kind of caller. All episodes of a client share its pool of connections."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import stamina

from rolloutgym.client.errors import ConnectionFailed
from rolloutgym.client.forks import renew_in_children
from rolloutgym.client.protocol import Call, encode, read_answer
from rolloutgym.client.retries import RetryPolicy

T = TypeVar("T")


class RestTransport:
    """Safe to share between threads."""

    def __init__(self, connect: Callable[[], httpx2.Client], retry: RetryPolicy) -> None:
        self._connect = connect
        self._http = connect()
        self._retry = retry
        renew_in_children(self)

    def forked(self) -> None:
        self._http = self._connect()

    def close(self) -> None:
        self._http.close()

    def request(self, call: Call[T]) -> T:
        """The call's answer, after as many tries as the policy allows."""
        content = None if call.body is None else encode(call.body)
        for attempt in stamina.retry_context(on=self._retry.backoff, **self._retry.arguments()):
            with attempt:
                return self.once(call, content)
        raise AssertionError("the last attempt returns or raises")

    def send(self, call: Call[Any], content: str | None = None) -> httpx2.Response:
        """One try, whatever it is answered with. Raises `ConnectionFailed`."""
        try:
            return self._http.request(
                call.method, call.path, params=call.params, content=content, headers=_headers(call, content)
            )
        except httpx2.RequestError as error:
            raise connection_failed(call, error) from error

    def end(self, call: Call[Any]) -> None:
        self.request(call)

    def once(self, call: Call[T], content: str | None = None) -> T:
        """The call's answer at the first try."""
        response = self.send(call, content)
        return read_answer(call, response.status_code, response.content, response.headers.get("retry-after"))


class AsyncRestTransport:
    """Safe to share between tasks of one event loop; when that has ended, another may take over."""

    def __init__(self, connect: Callable[[], httpx2.AsyncClient], retry: RetryPolicy) -> None:
        self._connect = connect
        self._http = connect()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retry = retry

    async def close(self) -> None:
        self._enter()
        await self._http.aclose()

    async def request(self, call: Call[T]) -> T:
        """The call's answer, after as many tries as the policy allows."""
        content = None if call.body is None else encode(call.body)
        async for attempt in stamina.retry_context(on=self._retry.backoff, **self._retry.arguments()):
            with attempt:
                return await self.once(call, content)
        raise AssertionError("the last attempt returns or raises")

    async def send(self, call: Call[Any], content: str | None = None) -> httpx2.Response:
        """One try, whatever it is answered with. Raises `ConnectionFailed`."""
        self._enter()
        try:
            return await self._http.request(
                call.method, call.path, params=call.params, content=content, headers=_headers(call, content)
            )
        except httpx2.RequestError as error:
            raise connection_failed(call, error) from error

    async def end(self, call: Call[Any]) -> None:
        await self.request(call)

    def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                # Connections end with their loop; a forked child has a loop of its own.
                self._http = self._connect()
            self._loop = loop

    async def once(self, call: Call[T], content: str | None = None) -> T:
        """The call's answer at the first try."""
        response = await self.send(call, content)
        return read_answer(call, response.status_code, response.content, response.headers.get("retry-after"))


def _headers(call: Call[Any], content: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json"} if content else {}
    if call.episode_id is not None:
        # For balancers: a worker that has an episode live need not rebuild it.
        headers["x-episode-id"] = quote(call.episode_id)
    return headers


def connection_failed(call: Call[Any], error: Exception) -> ConnectionFailed:
    what = str(error) or type(error).__name__
    return ConnectionFailed(f"{call.method} {call.path} failed: {what}", episode_id=call.episode_id)
