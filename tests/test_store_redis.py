"""Records shared through a real Redis: no two writers go on from the same step, whatever becomes of Redis or them."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis

from rolloutgym.models import StopReason
from rolloutgym.server.errors import CapacityReached, StoreUnavailable
from rolloutgym.server.store import Key, Overtaken, Record, Taken
from rolloutgym.server.store_redis import RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

KEY = Key("sql", "e1")
OTHER = Key("sql", "e2")


MakeStore = Callable[..., RedisStore]


@pytest.fixture
async def make_store(redis_server: Any, anyio_backend: str) -> AsyncIterator[MakeStore]:
    stores: list[RedisStore] = []

    def make(*, idle_timeout_s: float = 60.0, ended: int = 10) -> RedisStore:
        store = RedisStore(redis_server.url, idle_timeout_s=idle_timeout_s, ended=ended)
        stores.append(store)
        return store

    yield make
    with redis.Redis.from_url(redis_server.url) as server:
        server.flushall()
    for store in stores:
        await store.close()


def record_of(key: Key = KEY) -> Record:
    return Record(key, "t1", 7, b'{"budget":3}', b'{"first":"\xc3\xa9\\n"}', {"left": 9})


def taken(number: int, *, done: bool = False) -> Taken:
    return Taken(b'{"text":"%d"}' % number, b'{"answer":%d}' % number, 0.1 * number, done, {"left": 8 - number})


async def begun(store: RedisStore, key: Key = KEY) -> Record:
    await store.reserve(key, 100)
    record = record_of(key)
    await store.save(record, await store.load(key, None))
    return record


async def loaded(store: RedisStore, known: Record | None = None) -> Record:
    record = await store.load(KEY, known)
    assert record is not None
    return record


# ---- what is written and read ----


async def test_another_worker_reads_what_one_wrote(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    written = await begun(one)
    assert await two.load(KEY, None) == written
    await one.append(written, taken(0))
    await one.append(written, taken(1))
    read = await loaded(two)
    assert read == written
    assert (read.state, read.answers, read.done) == ({"left": 7}, [b'{"answer":0}', b'{"answer":1}'], False)
    assert await two.load(OTHER, None) is None


async def test_a_known_record_comes_back_itself_or_with_the_steps_that_others_took(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    known = await begun(one)
    assert await one.load(KEY, known) is known
    theirs = await loaded(two)
    await two.append(theirs, taken(0))
    grown = await loaded(one, known)
    assert grown == theirs
    assert (known.step_count, known.generation) == (0, grown.generation)
    await two.append(theirs, taken(1))
    assert await loaded(one, grown) == theirs
    assert grown.step_count == 1


async def test_a_restart_of_the_episode_is_another_record(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    old = await begun(one)
    new = await begun(two)
    read = await loaded(one, old)
    assert read == new
    assert read.generation != old.generation


async def test_truncations_and_last_states_survive(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    record = await begun(one)
    await one.append(record, taken(0))
    await one.append(record, Taken(StopReason.MAX_TOKENS, b"{}", -1.0, True, {"turns_remaining": 2}))
    read = await loaded(two)
    assert read.actions[1] is StopReason.MAX_TOKENS
    assert (read.done, read.state, read.rewards) == (True, {"turns_remaining": 2}, [0.0, -1.0])


# ---- who may write ----


async def test_of_two_workers_at_the_same_step_one_is_refused(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    await begun(one)
    mine, theirs = await loaded(one), await loaded(two)
    await two.append(theirs, taken(1))
    with pytest.raises(Overtaken):
        await one.append(mine, taken(0))
    assert mine.step_count == 0
    assert (await loaded(one, mine)).answers == [b'{"answer":1}']


async def test_a_worker_that_slept_through_a_restart_changes_nothing(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    old = await begun(one)
    await one.append(old, taken(0))
    new = await begun(two)
    await two.append(new, taken(1))
    for write in (one.append(old, taken(2)), one.save(record_of(), old), one.save(record_of(), None)):
        with pytest.raises(Overtaken):
            await write
    assert await loaded(two, new) is new


async def test_a_write_after_the_episodes_end_is_refused(make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    await store.delete(KEY)
    for write in (store.append(record, taken(0)), store.save(record_of(), record)):
        with pytest.raises(Overtaken):
            await write
    assert await store.load(KEY, record) is None


async def test_of_many_writers_each_step_has_one(make_store: MakeStore) -> None:
    """Each writer goes on from what it knows, reads again where it is refused, and in the end all agree."""
    stores = [make_store() for _ in range(4)]
    await begun(stores[0])

    async def write(number: int) -> list[bytes]:
        store, record = stores[number], await loaded(stores[number])
        mine: list[bytes] = []
        while len(mine) < 20:
            step = taken(1000 * number + len(mine))
            try:
                await store.append(record, step)
                mine.append(step.answer)
            except Overtaken:
                record = await loaded(store, record)
        return mine

    written = await asyncio.gather(*(write(number) for number in range(4)))
    answers = (await loaded(stores[0])).answers
    assert sorted(answers) == sorted(answer for mine in written for answer in mine)
    for mine in written:
        assert [answer for answer in answers if answer in mine] == mine


# ---- places and time ----


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
    await store.append(record, taken(0, done=True))
    assert await store.count() == 1
    assert await store.delete(OTHER)
    assert not await store.delete(OTHER)
    assert await store.count() == 0


async def test_a_place_is_not_given_back_that_another_worker_plays_on(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    await one.reserve(KEY, 2)
    await begun(two)
    await one.unreserve(KEY)
    assert await one.count() == 1


async def test_unused_episodes_lapse_with_their_place(make_store: MakeStore) -> None:
    store = make_store(idle_timeout_s=0.2)
    await begun(store)
    with pytest.raises(CapacityReached):
        await store.reserve(OTHER, 1)
    await asyncio.sleep(0.3)
    await store.reserve(OTHER, 1)
    assert await store.load(KEY, None) is None
    await asyncio.sleep(0.3)
    assert await store.count() == 0


@pytest.mark.parametrize("use", ["load", "append", "keep"])
async def test_use_sets_the_time_anew(make_store: MakeStore, use: str) -> None:
    store = make_store(idle_timeout_s=60.0)
    record = await begun(store)
    await store.keep(KEY, 30.0)
    uses: dict[str, Callable[[], Any]] = {
        "load": lambda: store.load(KEY, record),
        "append": lambda: store.append(record, taken(0)),
        "keep": lambda: store.keep(KEY, 60.0),
    }
    await uses[use]()
    client: Any = store._redis
    now_s, now_us = await client.time()
    assert await client.zscore("rolloutgym:places", "sql:e1") / 1000 > now_s + now_us / 1e6 + 45
    assert await client.pttl("rolloutgym:record:sql:e1") > 45_000


async def test_an_episode_is_let_go_by_who_used_it_last(make_store: MakeStore) -> None:
    one, two = make_store(), make_store()
    record = await begun(one)
    await two.load(KEY, None)
    await one.let_go(KEY, 0.001)
    await asyncio.sleep(0.1)
    assert await one.count() == 1
    assert await one.load(KEY, record) is record
    await one.let_go(KEY, 0.001)
    await asyncio.sleep(0.1)
    assert await one.count() == 0
    assert await one.load(KEY, record) is None


async def test_only_so_many_ended_records_are_kept(make_store: MakeStore) -> None:
    store = make_store(ended=3)
    keys = [Key("sql", f"e{number}") for number in range(6)]
    for key in keys:
        await store.append(await begun(store, key), taken(0, done=True))
    # It began anew: it is not an ended one.
    await begun(store, keys[3])
    for number in range(2):
        await store.append(await begun(store, Key("code", f"e{number}")), taken(0, done=True))
    kept = [key.episode_id for key in keys if await store.load(key, None) is not None]
    assert kept == ["e3", "e5"]


# ---- when Redis fails ----


async def test_a_redis_that_is_down_is_an_error_that_may_be_retried(redis_server: Any, make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    redis_server.stop()
    for call in (store.load(OTHER, None), store.append(record, taken(0)), store.count(), store.delete(KEY)):
        with pytest.raises(StoreUnavailable) as failure:
            await call
        assert failure.value.retryable
    assert record.step_count == 0
    redis_server.start()
    assert await store.load(KEY, record) is None
    with pytest.raises(Overtaken):
        await store.append(record, taken(0))
    await begun(store, OTHER)
    assert await store.count() == 1


async def test_a_full_redis_refuses_writes_as_a_whole_and_says_so(
    make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    record = await begun(store)
    await store.append(record, taken(0))
    await store._redis.config_set("maxmemory", "1")
    try:
        for write in (store.append(record, taken(1)), store.save(record_of(OTHER), None)):
            with pytest.raises(StoreUnavailable):
                await write
        # What makes room is still possible.
        assert await store.delete(OTHER) is False
    finally:
        await store._redis.config_set("maxmemory", "0")
    assert await loaded(store, record) is record
    await store.append(record, taken(1))
    assert await loaded(make_store()) == record
    said = [one.getMessage() for one in caplog.records]
    assert [("maxmemory" in line, "again" in line) for line in said] == [(True, False), (False, True)]


async def test_a_record_that_redis_evicts_is_gone_as_a_whole(make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    await store.append(record, taken(0))
    client: Any = store._redis
    assert await client.keys("*e1*") == [b"rolloutgym:record:sql:e1"]
    await store._redis.delete("rolloutgym:record:sql:e1")
    assert await store.load(KEY, record) is None


@pytest.mark.parametrize("then", ["nothing", "another step"])
async def test_an_episode_whose_answered_steps_are_lost_ends(make_store: MakeStore, then: str) -> None:
    """Whoever knows of them must not play on from a state that its client has not seen."""
    one, two = make_store(), make_store()
    record = await begun(one)
    await one.append(record, taken(0))
    before: Any = await one._redis.dump("rolloutgym:record:sql:e1")
    await one.append(record, taken(1))
    # As with a replica that takes over without the last writes.
    await one._redis.restore("rolloutgym:record:sql:e1", 60_000, before, replace=True)
    if then == "another step":
        await two.append(await loaded(two), taken(5))
    with pytest.raises(Overtaken):
        await one.append(record, taken(2))
    assert await one.load(KEY, record) is None
    assert await two.load(KEY, None) is None
    assert await one.count() == 0


async def test_many_commands_at_once_take_one_connection(make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    before = await store._redis.info("stats")
    assert await asyncio.gather(*(store.load(KEY, record) for _ in range(500))) == [record] * 500
    after = await store._redis.info("stats")
    assert after["total_connections_received"] - before["total_connections_received"] <= 1


async def test_a_redis_that_has_forgotten_the_scripts_learns_them_again(make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    await store._redis.script_flush()
    await asyncio.gather(store.append(record, taken(0)), store.count(), store.load(OTHER, None))
    assert (await loaded(make_store())).step_count == 1


async def test_a_connection_that_redis_has_closed_is_opened_anew(redis_server: Any, make_store: MakeStore) -> None:
    """As some are set up to close those that are idle."""
    store = make_store()
    record = await begun(store)
    with redis.Redis.from_url(redis_server.url) as other:
        other.client_kill_filter(_type="normal", skipme=True)
        while len(other.client_list(_type="normal")) > 1:  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert await store.load(KEY, record) is record


async def test_one_refused_command_spoils_no_other(make_store: MakeStore) -> None:
    store = make_store()
    record = await begun(store)
    await store._redis.set("rolloutgym:record:sql:e2", "of another kind")
    odd, count, appended = await asyncio.gather(
        store.load(OTHER, None), store.count(), store.append(record, taken(0)), return_exceptions=True
    )
    assert (type(odd), count, appended) == (StoreUnavailable, 1, None)


async def test_cancelled_commands_leave_no_answers_to_others(redis_server: Any, make_store: MakeStore) -> None:
    """A client that goes cancels its request, wherever that is."""
    store = make_store()
    for number in range(8):
        await begun(store, Key("sql", f"e{number}"))
    drawn = random.Random(3)

    async def use(number: int) -> None:
        key = Key("sql", f"e{number}")
        record = await store.load(key, None)
        assert record is not None
        assert record.key == key
        assert record.first == record_of().first

    for _ in range(30):
        doing: list[asyncio.Task[Any]] = [asyncio.create_task(use(number)) for number in range(8)]
        doing += [asyncio.create_task(store.count()) for _ in range(8)]
        await asyncio.sleep(drawn.random() * 0.004)
        for task in drawn.sample(doing, 6):
            task.cancel()
        results = await asyncio.gather(*doing, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), int, asyncio.CancelledError}
        assert [result for result in results[8:] if isinstance(result, int) and result != 8] == []


async def test_whoever_waits_when_the_store_is_closed_is_told(redis_server: Any, make_store: MakeStore) -> None:
    store = make_store()
    await begun(store)
    os.kill(redis_server.process.pid, signal.SIGSTOP)
    try:
        sent = asyncio.create_task(store.count())
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(store.count())
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(4):  # before the socket's own time is over
            results = await asyncio.gather(sent, waiting, return_exceptions=True)
    finally:
        os.kill(redis_server.process.pid, signal.SIGCONT)
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]


async def test_a_redis_that_hangs_is_given_up(
    redis_server: Any, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does later with a write that was given up makes no second step."""
    store = make_store()
    record = await begun(store)
    monkeypatch.setattr("rolloutgym.server.store_redis._SOCKET_TIMEOUT_S", 1.0)
    impatient = make_store()
    assert await impatient.count() == 1
    os.kill(redis_server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            await impatient.append(record, taken(0))
    finally:
        os.kill(redis_server.process.pid, signal.SIGCONT)
    now = await loaded(store, record)
    if now.step_count == 0:
        await store.append(now, taken(0))
    else:
        with pytest.raises(Overtaken):
            await store.append(record, taken(0))
    assert (await loaded(store)).answers == [b'{"answer":0}']
