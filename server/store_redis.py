"""Records in Redis, shared by any number of workers and machines: whichever gets a request plays its episode on.

A record is one hash, so that it is there as a whole or not at all: what it began with, and each step under its number,
marked with the revision that it made. Nothing is locked and no clock is trusted: each write is one script that first
checks the revision which it goes on from. A worker that was slow, paused or wrong thus changes nothing; one that is
killed leaves nothing to wait for. Records and places expire on their own, and only so many ended records are kept.
"""

import json
import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, cast

from pydantic import JsonValue
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from rolloutgym.models import StopReason, TruncationReason
from rolloutgym.server.errors import CapacityReached
from rolloutgym.server.redis_scripts import Scripts
from rolloutgym.server.store import Key, Overtaken, Record, Taken

log = logging.getLogger(__name__)

_PREFIX = "rolloutgym"
_RECORD = f"{_PREFIX}:record:"
_PLACES = f"{_PREFIX}:places"
_ENDED = f"{_PREFIX}:ended"
_SOCKET_TIMEOUT_S = 5.0
_REVISION_CHARS = 32

# Times are the server's own, in milliseconds. Places are a sorted set by the time when they lapse, ended records one by
# the time when they ended. `is_at` says whether a record is of this generation, with so many steps and this revision.
_COMMON = f"""
local function now()
    local t = redis.call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function step_count() return redis.call('HLEN', KEYS[1]) - 3 end
local function has_step(count, revision)
    return count == 0 or string.sub(redis.call('HGET', KEYS[1], count - 1) or '', 1, {_REVISION_CHARS}) == revision
end
local function is_at(generation, count, revision)
    return (redis.call('HGET', KEYS[1], 'generation') or '') == generation
        and (generation == '' or (step_count() == count and has_step(count, revision)))
end
"""
_LOAD = (
    _COMMON
    + """
local generation = redis.call('HGET', KEYS[1], 'generation')
if not generation then return {} end
local count, from, head = step_count(), 0, ''
if generation == ARGV[4] then
    from = tonumber(ARGV[5])
    if count < from or not has_step(from, ARGV[6]) then return {generation} end
else
    head = redis.call('HGET', KEYS[1], 'head')
end
redis.call('HSET', KEYS[1], 'user', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], 'XX', now() + ARGV[2], ARGV[3])
local steps = {}
for i = from, count - 1 do steps[#steps + 1] = redis.call('HGET', KEYS[1], i) end
return {generation, head, steps}
"""
)
_SAVE = (
    _COMMON
    + """
if not is_at(ARGV[4], tonumber(ARGV[5]), ARGV[6]) then return 0 end
if ARGV[4] ~= '' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'user', ARGV[1], 'generation', ARGV[7], 'head', ARGV[8])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], now() + ARGV[2], ARGV[3])
redis.call('ZREM', KEYS[3], ARGV[3])
return 1
"""
)
_APPEND = (
    _COMMON
    + f"""
if not is_at(ARGV[4], tonumber(ARGV[5]), ARGV[6]) then return 0 end
redis.call('HSET', KEYS[1], 'user', ARGV[1], ARGV[5], ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[8] == '0' then
    redis.call('ZADD', KEYS[2], 'XX', now() + ARGV[2], ARGV[3])
    return 1
end
redis.call('ZREM', KEYS[2], ARGV[3])
redis.call('ZADD', KEYS[3], now(), ARGV[3])
for _, longest in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1 - ARGV[8])) do
    redis.call('DEL', '{_RECORD}' .. longest)
    redis.call('ZREM', KEYS[3], longest)
end
return 1
"""
)
_RESERVE = (
    _COMMON
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now())
local taken = redis.call('ZCARD', KEYS[1])
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
    if ARGV[4] ~= '' and redis.call('ZSCORE', KEYS[1], ARGV[4]) then taken = taken - 1 end
    if taken >= tonumber(ARGV[2]) then return 0 end
end
redis.call('ZADD', KEYS[1], now() + ARGV[3], ARGV[1])
return 1
"""
)
# Another process may have begun the episode meanwhile: then the place is that one's.
_UNRESERVE = "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[1]) end"
_COUNT = _COMMON + "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now()) return redis.call('ZCARD', KEYS[1])"
_KEEP = (
    _COMMON
    + """
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'user') ~= ARGV[1] then return end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], 'XX', now() + ARGV[2], ARGV[3])
"""
)
_DELETE = """
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return redis.call('DEL', KEYS[1])
"""


class RedisStore:
    """See `store.Store`. `ended` is how many ended records are kept for repeated requests, the last ones.

    `ValueError` where the address is none; whether something answers there is seen when it is asked."""

    shared: ClassVar[bool] = True

    def __init__(self, url: str, *, idle_timeout_s: float, ended: int) -> None:
        # No retries underneath: a write that timed out may have landed, and only the caller can tell.
        self._redis = Redis.from_url(
            url,
            socket_timeout=_SOCKET_TIMEOUT_S,
            socket_connect_timeout=_SOCKET_TIMEOUT_S,
            # The newer protocol brings notifications, for which the library no longer looks whether Redis has closed an
            # idle connection before it is used again.
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            self._redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        except TypeError as error:
            raise ValueError(f"the store's address has an option that is none: {error}") from None
        self._idle_ms = _milliseconds(idle_timeout_s)
        self._ended = ended
        self._name = uuid.uuid4().hex
        """Of this process, as a record's user."""
        sources = (_LOAD, _SAVE, _APPEND, _RESERVE, _UNRESERVE, _COUNT, _KEEP, _DELETE)
        self._scripts = Scripts(self._redis, sources)

    # ---- places ----

    async def reserve(self, key: Key, capacity: int, *, instead_of: Key | None = None) -> None:
        instead = _member(instead_of) if instead_of else ""
        if not await self._scripts.run(_RESERVE, [_PLACES], _member(key), capacity, self._idle_ms, instead):
            raise CapacityReached(capacity)

    async def unreserve(self, key: Key) -> None:
        await self._scripts.run(_UNRESERVE, [_name(key), _PLACES], _member(key))

    async def count(self) -> int:
        return int(await self._scripts.run(_COUNT, [_PLACES]))

    # ---- records ----

    async def load(self, key: Key, known: Record | None) -> Record | None:
        count = 0 if known is None else known.step_count
        found = await self._scripts.run(
            _LOAD, [_name(key), _PLACES], self._name, self._idle_ms, _member(key), *_at(known)
        )
        if not found:
            return None
        if len(found) == 1:
            log.error("Redis has lost steps of episode %s that were answered: it ends", key.episode_id)
            await self.delete(key)
            return None
        generation, head, steps = found
        if known is not None and generation.decode() == known.generation:
            # The known record itself may have grown since it was asked for.
            return _grown(known, count, steps) if steps else known
        return _grown(_begun(key, generation.decode(), head), 0, steps)

    async def save(self, record: Record, instead_of: Record | None) -> None:
        key, generation = record.key, uuid.uuid4().hex
        arguments = (self._name, self._idle_ms, _member(key), *_at(instead_of), generation, _head(record))
        if not await self._scripts.run(_SAVE, [_name(key), _PLACES, _ENDED], *arguments):
            raise Overtaken(key)
        record.generation = record.revision = generation

    async def append(self, record: Record, taken: Taken) -> None:
        key, revision = record.key, uuid.uuid4().hex
        step = revision.encode() + _step(taken)
        arguments = (self._name, self._idle_ms, _member(key), *_at(record), step, self._ended if taken.done else 0)
        if not await self._scripts.run(_APPEND, [_name(key), _PLACES, _ENDED], *arguments):
            raise Overtaken(key)
        record.add(taken)
        record.revision = revision

    async def keep(self, key: Key, seconds: float) -> None:
        await self._scripts.run(_KEEP, [_name(key), _PLACES], "", _milliseconds(seconds), _member(key))

    async def let_go(self, key: Key, seconds: float) -> None:
        await self._scripts.run(_KEEP, [_name(key), _PLACES], self._name, _milliseconds(seconds), _member(key))

    async def expire(self, key: Key) -> None:
        """Redis forgets by itself, when no process has used the episode for its time."""

    async def delete(self, key: Key) -> bool:
        return bool(await self._scripts.run(_DELETE, [_name(key), _PLACES, _ENDED], _member(key)))

    async def close(self) -> None:
        await self._scripts.close()
        with suppress(RedisError, OSError):
            await self._redis.aclose()


def _member(key: Key) -> str:
    return f"{key.environment}:{key.episode_id}"


def _name(key: Key) -> str:
    return _RECORD + _member(key)


def _at(record: Record | None) -> tuple[str, int, str]:
    """What the scripts know a record's present state by."""
    return ("", 0, "") if record is None else (record.generation, record.step_count, record.revision)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


# ---- what is written: JSON without line breaks in it, line by line ----


def _head(record: Record) -> bytes:
    fields = json.dumps([record.task_id, record.seed, dict(record.state)])
    return b"\n".join((fields.encode(), record.options, record.first))


def _begun(key: Key, generation: str, head: bytes) -> Record:
    fields, options, first = head.split(b"\n")
    task_id, seed, state = json.loads(fields)
    return Record(key, task_id, seed, options, first, state, generation=generation, revision=generation)


def _step(taken: Taken) -> bytes:
    reason = None if isinstance(taken.action, bytes) else taken.action
    fields = json.dumps([taken.reward, taken.done, dict(taken.state), reason])
    return b"\n".join((fields.encode(), b"" if reason else cast(bytes, taken.action), taken.answer))


def _grown(record: Record, count: int, steps: list[bytes]) -> Record:
    """The record's first steps, and these after them."""
    grown = replace(
        record, actions=record.actions[:count], answers=record.answers[:count], rewards=record.rewards[:count]
    )
    for step in steps:
        grown.revision = step[:_REVISION_CHARS].decode()
        grown.add(_taken(step[_REVISION_CHARS:]))
    return grown


def _taken(step: bytes) -> Taken:
    fields, action, answer = step.split(b"\n")
    reward, done, state, reason = json.loads(fields)
    ending = None if reason is None else cast(TruncationReason, StopReason(reason))
    return Taken(action if ending is None else ending, answer, reward, done, cast(Mapping[str, JsonValue], state))
