"""Deadlines: none for what never suspends, and `await`'s behaviour for the rest."""

import asyncio
from typing import Any

import pytest

from rolloutgym.server.deadlines import DeadlineExceeded, within

pytestmark = pytest.mark.anyio


async def quick() -> str:
    return "result"


async def test_what_never_suspends_has_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_timer(_: float) -> Any:
        raise AssertionError("a timer")

    monkeypatch.setattr(asyncio, "timeout", no_timer)
    assert await within(0.0, quick()) == "result"


async def test_what_suspends_is_awaited_in_the_same_task() -> None:
    task = asyncio.current_task()

    async def slow() -> list[object]:
        seen: list[object] = [asyncio.current_task()]
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        seen.append(asyncio.current_task())
        async with asyncio.timeout(5):
            seen.append(await asyncio.create_task(quick()))
        return seen

    assert await within(5, slow()) == [task, task, "result"]


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_fault_comes_through(suspends: bool) -> None:
    async def fails() -> None:
        if suspends:
            await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError):
        await within(5, fails())


async def test_at_the_deadline_it_is_cancelled_and_may_clean_up() -> None:
    cleaned = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(DeadlineExceeded) as caught:
        await within(0.01, hangs())
    assert caught.value.seconds == 0.01
    assert cleaned == [True]


async def test_a_timeout_of_its_own_is_its_own_fault() -> None:
    async def times_out() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 0.001)

    with pytest.raises(TimeoutError):
        await within(5, times_out())


async def test_a_cancellation_goes_in_and_out() -> None:
    seen = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(within(5, waits()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
