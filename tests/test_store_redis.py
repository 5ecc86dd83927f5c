"""Records shared through a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rolloutgym.models import StopReason
from rolloutgym.server.errors import CapacityReached, EpisodeBusy, StoreUnavailable
from rolloutgym.server.store import Key, Record, Taken
from rolloutgym.server.store_redis import RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

KEY = Key("sql", "e1")
OTHER = Key("sql", "e2")


MakeStore = Callable[..., RedisStore]


@pytest.fixture
async def make_store(redis_server: Any, anyio_backend: str) -> AsyncIterator[MakeStore]:
    stores: list[RedisStore] = []

    def make(*, idle_timeout_s: float = 60.0, wait_s: float = 5.0, lease_s: float = 10.0) -> RedisStore:
        store = RedisStore(redis_server.url, idle_timeout_s=idle_timeout_s, wait_s=wait_s, lease_s=lease_s)
        stores.append(store)
        return store

    yield make
    await stores[0]._redis.flushall()
    for store in stores:
        await store.close()


def record_of(key: Key = KEY) -> Record:
    return Record(key, "t1", 7, b'{"budget":3}', b'{"first":"\xc3\xa9"}')


def taken(number: int, *, done: bool = False) -> Taken:
    state = {"left": 0} if done else None
    return Taken(b'{"text":"%d"}' % number, b'{"answer":%d}' % number, 0.1 * number, done, state)


async def begun(store: RedisStore, key: Key = KEY) -> Record:
    await store.acquire(key)
    await store.reserve(key, 10)
    record = record_of(key)
    await store.save(record)
    await store.release(key)
    return record


async def test_another_worker_reads_what_one_wrote(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    written = await begun(one)
    assert await one.acquire(KEY) is written
    await one.append(written, taken(0))
    await one.append(written, taken(1))
    await one.release(KEY)
    read = await two.acquire(KEY)
    assert read == written
    assert read is not written
    assert await two.acquire(OTHER) is None


async def test_the_same_object_comes_back_until_another_worker_changes_it(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    first = await begun(one)
    assert await one.acquire(KEY) is first
    await one.release(KEY)
    theirs = await two.acquire(KEY)
    assert theirs is not None
    await two.append(theirs, taken(0))
    await two.release(KEY)
    changed = await one.acquire(KEY)
    assert changed is not first
    assert changed is not None
    assert changed.answers == [b'{"answer":0}']


async def test_a_restart_of_the_episode_is_another_record(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    old = await begun(one)
    await begun(two)
    assert await one.acquire(KEY) is not old


async def test_one_worker_at_a_time_and_the_next_as_soon_as_it_is_free(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    await begun(one)
    await one.acquire(KEY)
    waiting = asyncio.create_task(two.acquire(KEY))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await one.release(KEY)
    assert await waiting is not None


async def test_waiting_ends_in_a_retryable_error(make_store: MakeStore) -> None:
    one, two = make_store(), make_store(wait_s=0.1)
    await begun(one)
    await one.acquire(KEY)
    with pytest.raises(EpisodeBusy):
        await two.acquire(KEY)


async def test_a_lease_is_renewed_while_its_worker_lives(make_store: MakeStore) -> None:
    one, two = make_store(lease_s=0.3), make_store(wait_s=0.8, lease_s=0.3)
    await begun(one)
    await one.acquire(KEY)
    with pytest.raises(EpisodeBusy):
        await two.acquire(KEY)


async def test_a_dead_workers_episode_is_free_soon_and_its_late_write_changes_nothing(make_store: MakeStore) -> None:
    one, two = make_store(lease_s=0.2), make_store(lease_s=0.2)
    await begun(one)
    mine = await one.acquire(KEY)
    assert mine is not None
    assert one._renewer is not None
    one._renewer.cancel()
    theirs = await two.acquire(KEY)
    assert theirs is not None
    with pytest.raises(EpisodeBusy, match="did not take effect"):
        await one.append(mine, taken(0))
    await two.append(theirs, taken(1))
    assert mine.step_count == 0
    assert theirs.answers == [b'{"answer":1}']


async def test_a_step_is_never_appended_twice(make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    await store.acquire(KEY)
    await store.append(record, taken(0))
    stale = record_of()
    with pytest.raises(EpisodeBusy):
        await store.append(stale, taken(0))
    assert (record.step_count, stale.step_count) == (1, 0)


async def test_truncations_and_last_states_survive(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    record = await begun(one)
    await one.acquire(KEY)
    await one.append(record, taken(0))
    await one.append(record, Taken(StopReason.MAX_TOKENS, b"{}", -1.0, True, {"turns_remaining": 2}))
    await one.release(KEY)
    read = await two.acquire(KEY)
    assert read is not None
    assert read.actions[1] is StopReason.MAX_TOKENS
    assert (read.done, read.state, read.rewards) == (True, {"turns_remaining": 2}, [0.0, -1.0])


async def test_places_are_counted_over_all_workers(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    await one.reserve(KEY, 2)
    await two.reserve(OTHER, 2)
    await one.reserve(KEY, 2)
    with pytest.raises(CapacityReached):
        await one.reserve(Key("code", "e1"), 2)
    await two.reserve(Key("code", "e1"), 2, instead_of=OTHER)
    await one.unreserve(Key("code", "e1"))
    assert await two.count() == 2


async def test_the_last_step_and_deletion_give_the_place_back(make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    await begun(store, OTHER)
    assert await store.count() == 2
    await store.acquire(KEY)
    await store.append(record, taken(0, done=True))
    assert await store.count() == 1
    assert await store.delete(OTHER)
    assert not await store.delete(OTHER)
    assert await store.count() == 0


async def test_unused_episodes_lapse_with_their_place(make_store: MakeStore) -> None:
    store = make_store(idle_timeout_s=0.2)
    await begun(store)
    await asyncio.sleep(0.3)
    assert await store.count() == 0
    assert await store.acquire(KEY) is None


async def test_use_and_keep_set_the_time_anew(make_store: MakeStore) -> None:
    store = make_store(idle_timeout_s=0.4)
    await begun(store)
    await store.keep(KEY, 30.0)
    await asyncio.sleep(0.5)
    assert await store.count() == 1
    assert await store.acquire(KEY) is not None


async def test_a_redis_that_is_down_is_an_error_that_may_be_retried(redis_server: Any, make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    await store.acquire(KEY)
    redis_server.stop()
    for call in (store.acquire(OTHER), store.append(record, taken(0)), store.count(), store.release(KEY)):
        with pytest.raises(StoreUnavailable) as failure:
            await call
        assert failure.value.retryable
    assert record.step_count == 0
    redis_server.start()
    assert await store.acquire(KEY) is None
    await begun(store, OTHER)
    assert await store.count() == 1
