"""Scripts that run on a Redis. Those asked for at the same time go there and back together, on one connection.

That costs a fraction of a connection for each, and a request that is cancelled breaks off no one else's answer.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from rolloutgym.server.errors import StoreUnavailable

log = logging.getLogger(__name__)


class _Call(NamedTuple):
    command: tuple[str | bytes | int, ...]
    answer: "asyncio.Future[Any]"


class Scripts:
    """`sources` are all scripts that will be run."""

    def __init__(self, redis: Redis, sources: Iterable[str]) -> None:
        self._redis = redis
        self._hashes = {source: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest() for source in sources}
        self._waiting: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None
        self._failing = False

    async def run(self, source: str, keys: Sequence[str], *arguments: str | bytes | int) -> Any:
        """What the script returns. `StoreUnavailable` where Redis refuses it, or gives no answer: it may have run."""
        command = ("EVALSHA", self._hashes[source], len(keys), *keys, *arguments)
        call = _Call(command, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send(), name="redis")
        return await call.answer

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _send(self) -> None:
        try:
            while self._waiting:
                calls, self._waiting = self._waiting, []
                await self._answer(calls)
        finally:
            self._sender = None
            # Of one that is cancelled.
            left, self._waiting = self._waiting, []
            for call in left:
                _tell(call, RedisError("closed"))

    async def _answer(self, calls: Sequence[_Call]) -> None:
        results: list[Any] = [RedisError("closed")] * len(calls)
        try:
            results = await self._execute([call.command for call in calls])
            unknown = [number for number, result in enumerate(results) if isinstance(result, NoScriptError)]
            if unknown:
                # A Redis that has just been started. What it does not know it has not run.
                await self._execute([("SCRIPT LOAD", source) for source in self._hashes])
                for number, result in zip(
                    unknown, await self._execute([calls[n].command for n in unknown]), strict=True
                ):
                    results[number] = result
        except (RedisError, OSError) as error:
            results = [error] * len(calls)
        finally:
            for call, result in zip(calls, results, strict=True):
                _tell(call, result)
        self._log(next((result for result in results if isinstance(result, Exception)), None))
        if any(isinstance(result, ReadOnlyError) for result in results):
            # Another Redis is the master now. Its address is the same, but what is connected stays with the old one.
            with suppress(RedisError, OSError):
                await self._redis.connection_pool.disconnect()

    def _log(self, failure: Exception | None) -> None:
        """Callers are told only that there is a fault; the log has the first one's reason, and its end."""
        if failure is not None and not self._failing:
            log.error("Redis fails: %s", failure)
        elif failure is None and self._failing:
            log.warning("Redis answers again")
        self._failing = failure is not None

    async def _execute(self, commands: Sequence[tuple[str | bytes | int, ...]]) -> list[Any]:
        """The results; exceptions where single commands failed."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            results: list[Any] = await pipeline.execute(raise_on_error=False)
        return results


def _tell(call: _Call, result: Any) -> None:
    if call.answer.done():
        # Cancelled: nobody waits for it.
        return
    if isinstance(result, Exception):
        unavailable = StoreUnavailable("the episode store does not answer")
        unavailable.__cause__ = result
        call.answer.set_exception(unavailable)
    else:
        call.answer.set_result(result)
