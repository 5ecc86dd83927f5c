"""Episodes whose store fails, or is shared: what happened is what the store has, whoever asks and wherever."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rolloutgym.server import errors
from rolloutgym.server.store import Key, MemoryStore, Record, Taken
from rolloutgym.server.store_redis import RedisStore

pytestmark = pytest.mark.anyio


# ---- a store that fails ----


class FailingStore(MemoryStore):
    """Does not answer some calls; what it was to append it may have appended."""

    def __init__(self) -> None:
        super().__init__()
        self.away: set[str] = set()
        self.appends = False

    def _answer(self, call: str) -> None:
        if call in self.away:
            raise errors.StoreUnavailable("the store is away")

    async def append(self, record: Record, taken: Taken) -> None:
        if self.appends:
            record = replace(record, actions=[*record.actions], answers=[*record.answers], rewards=[*record.rewards])
            self._records[record.key] = record
            await super().append(record, taken)
        self._answer("append")
        await super().append(record, taken)

    async def unreserve(self, key: Key) -> None:
        self._answer("unreserve")
        await super().unreserve(key)

    async def let_go(self, key: Key, seconds: float) -> None:
        self._answer("let_go")

    async def delete(self, key: Key) -> bool:
        self._answer("delete")
        return await super().delete(key)


@pytest.fixture
def failing(make_table: Callable[..., Any]) -> tuple[Any, FailingStore]:
    store = FailingStore()
    return make_table(store=store), store


async def test_a_store_that_fails_leaves_the_episode_as_before_the_step(failing: tuple[Any, FailingStore]) -> None:
    process, store = failing
    await process.reset()
    store.away.add("append")
    with pytest.raises(errors.StoreUnavailable):
        await process.step(at=0, add=5)
    store.away.clear()
    assert (await process.step(at=0, add=1))["observation"]["total"] == 1.0


@pytest.mark.parametrize("finish", [None, True])
async def test_a_step_that_was_recorded_though_the_store_gave_no_answer_is_not_taken_again(
    failing: tuple[Any, FailingStore], finish: bool | None
) -> None:
    process, store = failing
    await process.reset()
    await process.step(at=0, add=1)
    store.away.add("append")
    store.appends = True
    with pytest.raises(errors.StoreUnavailable):
        await process.step(at=1, add=5, finish=finish)
    store.away.clear()
    store.appends = False
    ran = process.environment.steps
    answer = await process.step(at=1, add=5, finish=finish)
    assert (answer["observation"]["total"], answer["step_count"]) == (6.0, 2)
    assert process.environment.steps == ran
    assert (await process.state())["total_reward"] == 6.0
    with pytest.raises(errors.StepConflict):
        await process.step(at=1, add=6, finish=finish)


async def test_a_store_that_fails_to_clear_away_does_not_spoil_what_has_happened(
    failing: tuple[Any, FailingStore],
) -> None:
    process, store = failing
    await process.reset("old")
    await process.sessions.attach(process.environment, "old")
    store.away |= {"delete", "let_go", "unreserve"}
    assert (await process.reset("new", instead_of="old")).key.episode_id == "new"
    await process.sessions.detach(process.environment, "old", 0.0)
    with pytest.raises(errors.InvalidRequest):
        await process.reset("third", options={"budget": 0})
    process.environment.faults["x"] = lambda: 1 / 0
    with pytest.raises(errors.Internal):
        await process.reset("third", options={"reset_fault": "x"})
    store.away.clear()
    await process.sessions.reap()
    with pytest.raises(errors.EpisodeNotFound):
        await process.state("old")


# ---- a store that several processes share ----


@pytest.mark.redis
async def test_of_three_processes_each_step_is_taken_once(
    redis_server: Any, make_noop: Callable[[], Any], make_table: Callable[..., Any]
) -> None:
    """Each step is sent to up to three of them at once, some give up meanwhile, episodes end and begin anew: every
    answer is that of one episode, played once."""
    drawn = random.Random(4)
    stores = [RedisStore(redis_server.url, idle_timeout_s=60.0, ended=50) for _ in range(3)]
    processes = [make_table(make_noop(), store, capacity=64) for store in stores]

    async def send(name: str, at: int, action: dict[str, Any]) -> Any:
        sent = [
            asyncio.create_task(drawn.choice(processes).step(name, at=at, **action))
            for _ in range(drawn.choice((1, 1, 2, 3)))
        ]
        if drawn.random() < 0.3:
            await asyncio.sleep(drawn.random() * 0.003)
            drawn.choice(sent).cancel()
        results = await asyncio.gather(*sent, return_exceptions=True)
        answers = [result for result in results if not isinstance(result, asyncio.CancelledError)]
        answers = answers or [await drawn.choice(processes).step(name, at=at, **action)]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    async def play(name: str) -> None:
        for _ in range(10):
            await drawn.choice(processes).reset(name)
            total, last = 0.0, drawn.randrange(8)
            for at in range(last + 1):
                add = float(drawn.randrange(10))
                answer = await send(name, at, {"add": add, "finish": True if at == last else None})
                total += add
                assert (answer["step_count"], answer["observation"]["info"]["turn"]) == (at + 1, at + 1)
                assert (answer["reward"], answer["observation"]["total"]) == (add, total)
                state = await drawn.choice(processes).state(name)
                assert (state["step_count"], state["total_reward"], state["done"]) == (at + 1, total, at == last)
            if drawn.random() < 0.3:
                process = drawn.choice(processes)
                assert await process.sessions.delete(process.environment, name)

    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(play(f"e{number}"))
    assert await processes[0].sessions.count() == 0
    await stores[0]._redis.flushall()
