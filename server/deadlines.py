"""Deadlines that cost a quick coroutine nothing: one that never suspends runs to its end without a timer."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """The coroutine was cancelled at its deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no result within {seconds:g} s")
        self.seconds = seconds


async def within(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """Await `coroutine` in the present task, for `seconds` at most; `DeadlineExceeded` then."""
    try:
        pending = coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    try:
        async with asyncio.timeout(seconds) as limit:
            return await _rest(coroutine, pending)
    except TimeoutError:
        if limit.expired():
            raise DeadlineExceeded(seconds) from None
        raise


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, T], pending: Any) -> Generator[Any, Any, T]:
    """What is left of a coroutine that has been run up to its first suspension, where it yielded `pending`."""
    while True:
        try:
            try:
                sent = yield pending
            except BaseException as thrown:  # noqa: BLE001, as `await` does: the coroutine decides what becomes of it
                pending = coroutine.throw(thrown)
            else:
                pending = coroutine.send(sent)
        except StopIteration as finished:
            result: T = finished.value
            return result
