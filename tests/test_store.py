"""Records in memory: places, and steps that happen in the store and the record together."""

import pytest

from rolloutgym.models import StopReason
from rolloutgym.server.errors import CapacityReached
from rolloutgym.server.store import Key, MemoryStore, Overtaken, Record, Taken

pytestmark = pytest.mark.anyio

A, B, C = (Key("sql", name) for name in "abc")


def record(key: Key) -> Record:
    return Record(key, "task", 1, b"{}", b"first", {})


def taken(*, done: bool = False) -> Taken:
    return Taken(b"{}", b"answer", 0.5, done, {})


async def test_a_record_grows_by_what_was_taken() -> None:
    store = MemoryStore()
    await store.reserve(A, 1)
    one = record(A)
    await store.save(one, None)
    await store.append(one, Taken(b"{}", b"answer", 0.5, False, {"x": 0}))
    assert await store.load(A, None) is one
    assert (one.step_count, one.rewards, one.answers, one.done, one.state) == (1, [0.5], [b"answer"], False, {"x": 0})
    await store.append(one, Taken(StopReason.MAX_TOKENS, b"end", 1.0, True, {"x": 1}))
    assert (one.step_count, one.done, one.state) == (2, True, {"x": 1})


async def test_places_are_taken_kept_handed_on_and_given_back() -> None:
    store = MemoryStore()
    await store.reserve(A, 1)
    await store.reserve(A, 1)
    with pytest.raises(CapacityReached) as caught:
        await store.reserve(B, 1)
    assert caught.value.capacity == 1
    await store.reserve(B, 1, instead_of=A)
    with pytest.raises(CapacityReached):
        await store.reserve(C, 2, instead_of=Key("code", "a"))
    await store.delete(A)
    await store.reserve(C, 2)
    assert await store.count() == 2
    await store.unreserve(C)
    assert await store.count() == 1
    last = record(B)
    await store.save(last, None)
    await store.append(last, taken(done=True))
    assert await store.count() == 0


async def test_a_write_on_what_is_not_there_any_more_is_refused() -> None:
    store = MemoryStore()
    first, second = record(A), record(A)
    await store.save(first, None)
    with pytest.raises(Overtaken):
        await store.save(second, None)
    await store.save(second, first)
    with pytest.raises(Overtaken):
        await store.append(first, taken())
    await store.delete(A)
    with pytest.raises(Overtaken):
        await store.append(second, taken())
    assert first.step_count == second.step_count == 0


async def test_what_is_deleted_or_expired_is_gone() -> None:
    store = MemoryStore()
    for key in (A, B):
        await store.reserve(key, 2)
        await store.save(record(key), None)
    assert await store.delete(A)
    assert not await store.delete(A)
    await store.expire(B)
    assert await store.load(A, None) is None
    assert await store.load(B, None) is None
    assert await store.count() == 0
