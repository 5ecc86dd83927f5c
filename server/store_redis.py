"""Records in Redis, shared by any number of workers and machines: whichever gets a request plays its episode on.

An episode is held by a lease, a key with a token that expires unless it is renewed: a killed worker's episodes are
free again after that. Every write is one script that checks the token first, so a worker that lost its lease changes
nothing.
Records and places expire on their own; nothing has to be swept.
"""

import asyncio
import json
import uuid
from collections.abc import Awaitable
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from rolloutgym.models import StopReason, TruncationReason
from rolloutgym.server.errors import CapacityReached, EpisodeBusy, StoreUnavailable
from rolloutgym.server.store import Key, Record, Taken

_PREFIX = "rolloutgym"
_PLACES = f"{_PREFIX}:places"
_SOCKET_TIMEOUT_S = 5.0
_POLL_S = (0.002, 0.1)
"""How often a held episode is asked for, at first and at most seldom."""

T = TypeVar("T")

# Times are the server's own, in milliseconds. Places are a sorted set by the time when they lapse.
_NOW = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000) "
_OWN = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
_ACQUIRE = (
    _NOW
    + """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local generation = redis.call('HGET', KEYS[2], 'generation')
if generation then
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
    redis.call('PEXPIRE', KEYS[3], ARGV[3])
    redis.call('ZADD', KEYS[4], 'XX', now + ARGV[3], ARGV[4])
end
return {1, generation or '', redis.call('LLEN', KEYS[3])}
"""
)
_RELEASE = _OWN + "return redis.call('DEL', KEYS[1])"
_RENEW = _OWN + "return redis.call('PEXPIRE', KEYS[1], ARGV[2])"
_SAVE = (
    _OWN
    + """
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('HSET', KEYS[2], 'generation', ARGV[3], 'head', ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
"""
)
_APPEND = (
    _OWN
    + """
if redis.call('HGET', KEYS[2], 'generation') ~= ARGV[3] or redis.call('LLEN', KEYS[3]) ~= tonumber(ARGV[4]) then
    return 0
end
redis.call('RPUSH', KEYS[3], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[2])
if ARGV[6] ~= '' then redis.call('ZREM', KEYS[4], ARGV[6]) end
return 1
"""
)
_RESERVE = (
    _NOW
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local taken = redis.call('ZCARD', KEYS[1])
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
    if ARGV[4] ~= '' and redis.call('ZSCORE', KEYS[1], ARGV[4]) then taken = taken - 1 end
    if taken >= tonumber(ARGV[2]) then return 0 end
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
return 1
"""
)
_COUNT = _NOW + "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) return redis.call('ZCARD', KEYS[1])"
_KEEP = (
    _NOW
    + """
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], 'XX', now + ARGV[1], ARGV[2])
"""
)


class _Known(NamedTuple):
    """A record as this process last had it."""

    record: Record
    generation: str


def _lease(key: Key) -> str:
    return f"{_PREFIX}:lease:{key.environment}:{key.episode_id}"


def _head(key: Key) -> str:
    return f"{_PREFIX}:episode:{key.environment}:{key.episode_id}"


def _steps(key: Key) -> str:
    return f"{_PREFIX}:steps:{key.environment}:{key.episode_id}"


def _member(key: Key) -> str:
    return f"{key.environment}:{key.episode_id}"


class RedisStore:
    """See `store.Store`. `wait_s` is how long `acquire` waits for another process, seconds."""

    def __init__(self, url: str, *, idle_timeout_s: float, wait_s: float, lease_s: float = 5.0) -> None:
        # No retries underneath: a write that timed out may have landed, and only the caller can tell.
        self._redis = Redis.from_url(
            url,
            socket_timeout=_SOCKET_TIMEOUT_S,
            socket_connect_timeout=_SOCKET_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        self._idle_ms = _milliseconds(idle_timeout_s)
        self._wait_s = wait_s
        self._lease_s = lease_s
        self._known: dict[Key, _Known] = {}
        self._held: dict[Key, str] = {}
        """Tokens of the leases that this process holds."""
        self._renewer: asyncio.Task[None] | None = None
        scripts = (_ACQUIRE, _RELEASE, _RENEW, _SAVE, _APPEND, _RESERVE, _COUNT, _KEEP)
        self._scripts = {script: self._redis.register_script(script) for script in scripts}

    async def _run(self, script: str, keys: list[str], *args: str | int) -> Any:
        return await _answered(self._scripts[script](keys=keys, args=args))

    # ---- places ----

    async def reserve(self, key: Key, capacity: int, *, instead_of: Key | None = None) -> None:
        instead = _member(instead_of) if instead_of else ""
        if not await self._run(_RESERVE, [_PLACES], _member(key), capacity, self._idle_ms, instead):
            raise CapacityReached(capacity)

    async def unreserve(self, key: Key) -> None:
        await _answered(self._redis.zrem(_PLACES, _member(key)))

    async def count(self) -> int:
        return int(await self._run(_COUNT, [_PLACES]))

    # ---- leases ----

    async def acquire(self, key: Key) -> Record | None:
        token = uuid.uuid4().hex
        deadline = monotonic() + self._wait_s
        pause = _POLL_S[0]
        keys = [_lease(key), _head(key), _steps(key), _PLACES]
        while True:
            answer = await self._run(_ACQUIRE, keys, token, _milliseconds(self._lease_s), self._idle_ms, _member(key))
            if answer[0]:
                break
            if monotonic() >= deadline:
                raise EpisodeBusy("another worker holds the episode", episode_id=key.episode_id)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _POLL_S[1])
        self._held[key] = token
        if self._renewer is None:
            self._renewer = asyncio.create_task(self._renew_forever(), name="leases")
        try:
            return await self._read(key, generation=answer[1], step_count=answer[2])
        except BaseException:
            await self.release(key)
            raise

    async def release(self, key: Key) -> None:
        token = self._held.pop(key, None)
        if token is not None:
            await self._run(_RELEASE, [_lease(key)], token)

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            for key, token in list(self._held.items()):
                # A lease that cannot be renewed is lost, and the next write will say so.
                with suppress(StoreUnavailable):
                    await self._run(_RENEW, [_lease(key)], token, _milliseconds(self._lease_s))
                    await self.keep(key, self._idle_ms / 1000)

    # ---- records ----

    async def _read(self, key: Key, generation: str, step_count: int) -> Record | None:
        known = self._known.get(key)
        if not generation:
            self._known.pop(key, None)
            return None
        if known is not None and (known.generation, known.record.step_count) == (generation, step_count):
            return known.record
        head: Any = await _answered(self._redis.hget(_head(key), "head"))
        steps: Any = await _answered(self._redis.lrange(_steps(key), 0, -1))
        if head is None:
            return None
        record = _record(key, head, steps)
        self._known[key] = _Known(record, generation)
        return record

    async def save(self, record: Record) -> None:
        key = record.key
        generation = uuid.uuid4().hex
        keys = [_lease(key), _head(key), _steps(key)]
        head = {
            "task_id": record.task_id,
            "seed": record.seed,
            "options": record.options.decode(),
            "first": record.first.decode(),
        }
        if not await self._run(_SAVE, keys, self._token(key), self._idle_ms, generation, json.dumps(head)):
            raise _taken_over(key)
        self._known[key] = _Known(record, generation)

    async def append(self, record: Record, taken: Taken) -> None:
        key = record.key
        known = self._known[key]
        keys = [_lease(key), _head(key), _steps(key), _PLACES]
        place = _member(key) if taken.done else ""
        arguments = (self._token(key), self._idle_ms, known.generation, record.step_count, _step(taken), place)
        if not await self._run(_APPEND, keys, *arguments):
            raise _taken_over(key)
        record.add(taken)

    def _token(self, key: Key) -> str:
        return self._held.get(key, "")

    async def keep(self, key: Key, seconds: float) -> None:
        await self._run(_KEEP, [_head(key), _steps(key), _PLACES], _milliseconds(seconds), _member(key))

    async def expire(self, key: Key) -> None:
        """Redis forgets by itself, when no process has used the episode for its time."""
        self._known.pop(key, None)

    async def delete(self, key: Key) -> bool:
        self._known.pop(key, None)
        await self.unreserve(key)
        return bool(await _answered(self._redis.delete(_head(key), _steps(key))))

    async def close(self) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.wait([self._renewer])
        with suppress(RedisError, OSError):
            await self._redis.aclose()


async def _answered(call: Awaitable[T]) -> T:
    try:
        return await call
    except (RedisError, OSError) as error:
        raise StoreUnavailable("the episode store does not answer") from error


def _taken_over(key: Key) -> EpisodeBusy:
    return EpisodeBusy(
        "another worker has taken the episode over; the step did not take effect", episode_id=key.episode_id
    )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _step(taken: Taken) -> str:
    structured = isinstance(taken.action, bytes)
    return json.dumps(
        {
            "action": taken.action.decode() if isinstance(taken.action, bytes) else str(taken.action),
            "structured": structured,
            "answer": taken.answer.decode(),
            "reward": taken.reward,
            "done": taken.done,
            "state": None if taken.state is None else dict(taken.state),
        }
    )


def _record(key: Key, head: str, steps: list[str]) -> Record:
    parts = json.loads(head)
    record = Record(key, parts["task_id"], parts["seed"], parts["options"].encode(), parts["first"].encode())
    for line in steps:
        step = json.loads(line)
        reason: TruncationReason | bytes = (
            step["action"].encode() if step["structured"] else StopReason(step["action"])  # type: ignore[assignment]
        )
        record.add(Taken(reason, step["answer"].encode(), step["reward"], step["done"], step["state"]))
    return record
