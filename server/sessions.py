"""Live episodes: begun, stepped in order, replayed when their live object is gone, reaped when nobody asks for them.

A step either happened, and then its record holds it and its answer, or it did not. After any fault the live object is
thrown away and rebuilt from the record at the next request, so a fault never leaves half a step behind. What changes an
episode runs one after another, also where other processes share the store; what only reads its record, or ends it, does
not wait for a step. Episodes do not wait for each other.
"""

import asyncio
import logging
import math
import secrets
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from time import monotonic, perf_counter
from typing import Any, NamedTuple

from pydantic import JsonValue, ValidationError

from rolloutgym.models import Action, ResetRequest, State, StopReason, ToolSpec, TruncationReason
from rolloutgym.server.codec import Codec, misfit, write_json
from rolloutgym.server.deadlines import within
from rolloutgym.server.environments.base import Episode, Options, Outcome
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import (
    ShuttingDown,
    StoreUnavailable,
)
from rolloutgym.server.faults import EpisodeFaults, as_service_error, log_fault
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.session import Session, earlier_answer, existing, over, unbegun
from rolloutgym.server.store import Key, Overtaken, Record, Store

log = logging.getLogger(__name__)

_CLOSE_S = 1.0
"""How long the end of all live objects may take, at shutdown."""
_NEW = -1
"""The number of steps of an episode that cannot be there yet."""
_SEEDS = 2**53
"""How many seeds are drawn from: readers of JSON that know only floating-point numbers keep these exactly."""


class Limits(NamedTuple):
    capacity: int
    """Unfinished episodes at once."""
    idle_timeout_s: float
    """Without a request for this long, an episode ends."""
    step_timeout_s: float


class Sessions:
    """The live episodes of one process."""

    def __init__(self, environments: Iterable[AnyEnvironment], store: Store, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.draining = False
        self._codecs = {environment.name: Codec(environment) for environment in environments}
        self._store = store
        self._shared = store.shared
        self._metrics = metrics
        # By `Key`; a plain pair, which is quicker to make, finds it too.
        self._sessions: dict[tuple[str, str], Session] = {}
        self._finished: dict[Key, None] = {}
        """Ended episodes, the longest ended first."""
        self._closing: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.Task[None] | None = None
        self._users = 0
        self._unused = asyncio.Event()

    # ---- the service's life ----

    async def start(self) -> None:
        self.draining = False
        self._reaper = asyncio.create_task(self._reap_forever(), name="reaper")

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, and wait for those in flight."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                while self._users:
                    self._unused.clear()
                    await self._unused.wait()
        except TimeoutError:
            log.warning("%d requests were still running after %g s", self._users, seconds)

    async def stop(self) -> None:
        """End every live object."""
        self.draining = True
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.wait([self._reaper])
        for session in self._sessions.values():
            session.drop()
        self._sessions.clear()
        self._finished.clear()
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_S)
        await self._store.close()

    async def count(self) -> int:
        """Unfinished episodes."""
        return await self._store.count()

    # ---- requests that change an episode ----

    async def reset(
        self, environment: AnyEnvironment, request: ResetRequest, *, instead_of: str | None = None
    ) -> Record:
        """Begin an episode, or begin it anew. The episode that it is played `instead_of` ends once the new one stands;
        where a reset fails, everything is as it was."""
        seed = secrets.randbelow(_SEEDS) if request.seed is None else request.seed
        task = environment.tasks.choose(task_id=request.task_id, split=request.split, index=request.index, seed=seed)
        options = _read_options(environment, request.options)
        episode_id = request.episode_id or uuid.uuid4().hex
        replaced = None if instead_of in (None, episode_id) else Key(environment.name, str(instead_of))
        async with self._hold(environment, episode_id, _NEW if request.episode_id is None else None) as session:
            had_place = session.record is not None and not session.record.done
            await self._store.reserve(session.key, self.limits.capacity, instead_of=replaced)
            try:
                episode, record = await self._begin(session, task.id, seed, options)
            except BaseException:
                if not had_place:
                    # A place that cannot be given back lapses by itself.
                    with suppress(StoreUnavailable):
                        await self._store.unreserve(session.key)
                raise
            session.drop()
            self._finished.pop(session.key, None)
            session.record = record
            session.bring_to_life(episode)
            session.metrics.resets += 1
        if replaced is not None:
            # An episode that cannot be ended lapses by itself.
            with suppress(StoreUnavailable):
                await self._end(replaced)
        return record

    async def step(
        self,
        environment: AnyEnvironment,
        episode_id: str,
        action: Action,
        *,
        step: int | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """Take an action. `step`, the number of steps before it, makes a repetition safe: it gets the first answer.

        Returns the step result, JSON."""
        async with self._hold(environment, episode_id, step) as session:
            written = session.codec.write_action(action)
            return await self._play(session, step, written, lambda episode: episode.step(action), timeout_s)

    async def truncate(
        self, environment: AnyEnvironment, episode_id: str, reason: TruncationReason, *, step: int | None = None
    ) -> bytes:
        """The trainer ends the episode at a limit of its own."""
        async with self._hold(environment, episode_id, step) as session:
            return await self._play(session, step, reason, lambda episode: episode.truncate(StopReason(reason)))

    async def call_tool(
        self,
        environment: AnyEnvironment,
        episode_id: str,
        name: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: int | None = None,
    ) -> bytes:
        """Take the action that a tool call stands for; `step` as in `step`."""
        async with self._hold(environment, episode_id) as session:
            record = session.begun()
            if record.done and (step is None or step >= record.step_count):
                raise over(record)
            with EpisodeFaults(episode_id):
                # Before its reset an episode has all that it takes to understand a call, also after its end.
                episode = session.episode or self._glimpse(environment, record)
                action = _action_of_call(episode, name, arguments)
            written = session.codec.write_action(action)
            return await self._play(session, step, written, lambda episode: episode.step(action))

    async def settled(self, environment: AnyEnvironment, episode_id: str) -> Record:
        """The record, once the steps that are under way in this process have been taken; not to be changed."""
        async with self._hold(environment, episode_id) as session:
            return session.begun()

    # ---- requests that wait for no step ----

    async def record(self, environment: AnyEnvironment, episode_id: str) -> Record:
        """The record as it is now; not to be changed."""
        key = Key(environment.name, episode_id)
        with self._use(episode_id):
            session = self._sessions.get(key)
            record = await self._store.load(key, None if session is None else session.record)
            if session is not None:
                session.expires_at = monotonic() + self.limits.idle_timeout_s
            return existing(record, key)

    async def state(self, environment: AnyEnvironment, episode_id: str) -> bytes:
        """The public state after the last step so far: a `State`, JSON."""
        record = await self.record(environment, episode_id)
        with EpisodeFaults(episode_id):
            state = State(
                episode_id=episode_id,
                step_count=record.step_count,
                done=record.done,
                environment=environment.name,
                task_id=record.task_id,
                total_reward=math.fsum(record.rewards),
                **record.state,
            )
            return write_json(state)

    async def tools(self, environment: AnyEnvironment, episode_id: str) -> tuple[ToolSpec, ...]:
        """The tools that an agent may call in this episode; none after its end."""
        record = await self.record(environment, episode_id)
        if record.done:
            return ()
        with EpisodeFaults(episode_id):
            return tuple(self._glimpse(environment, record).tools())

    async def delete(self, environment: AnyEnvironment, episode_id: str) -> bool:
        """End an episode and forget it. False where there was none. A step under way then finds no episode."""
        with self._use(episode_id):
            return await self._end(Key(environment.name, episode_id))

    async def attach(self, environment: AnyEnvironment, episode_id: str) -> None:
        """A connection plays the episode: it is not reaped before `detach`."""
        session = self._session(environment, episode_id)
        session.attached += 1
        try:
            await self.record(environment, episode_id)
        except BaseException:
            session.attached -= 1
            self._tidy(session)
            raise

    async def detach(self, environment: AnyEnvironment, episode_id: str, stays_s: float) -> None:
        """A connection is gone. Without another request the episode goes too, after `stays_s`."""
        session = self._sessions.get(Key(environment.name, episode_id))
        if session is None:
            # The service has stopped meanwhile.
            return
        session.attached -= 1
        if not session.attached:
            session.expires_at = monotonic() + stays_s
            # An episode whose store is away lapses all the same, if later.
            with suppress(StoreUnavailable):
                await self._store.let_go(session.key, stays_s)
        self._tidy(session)

    # ---- one step ----

    async def _play(
        self,
        session: Session,
        step: int | None,
        written: bytes | TruncationReason,
        act: Callable[[Episode[Any]], Coroutine[Any, Any, Outcome]],
        timeout_s: float | None = None,
    ) -> bytes:
        """Take a step, or recognise it. One that another process takes first comes before it."""
        limit = self.limits.step_timeout_s if timeout_s is None else min(timeout_s, self.limits.step_timeout_s)
        while True:
            record = session.begun()
            count = record.step_count
            if step is not None and step != count:
                return earlier_answer(record, step, written)
            episode = session.episode
            if episode is None or session.played != count:
                episode = await session.restore()
            begun = perf_counter()
            try:
                outcome = await within(limit, act(episode))
                taken = session.taken(episode, count, written, outcome)
                await self._store.append(record, taken)
                break
            except Overtaken:
                session.drop()
                await self._refresh(session)
            except BaseException as fault:  # noqa: BLE001, recorded and raised again
                session.drop()
                if isinstance(fault, StoreUnavailable):
                    # The step may have been recorded.
                    session.record = None
                raise as_service_error(fault, session.key.episode_id) from None
        session.played = count + 1
        session.metrics.step(perf_counter() - begun)
        if taken.done:
            session.metrics.finished[outcome.observation.info.stop_reason or "unknown"] += 1
            await self._finish(session)
        return taken.answer

    async def _begin(self, session: Session, task_id: str, seed: int, options: Options) -> tuple[Episode[Any], Record]:
        episode, record = await session.new(task_id, seed, options)
        try:
            await self._store.save(record, session.record)
        except BaseException:
            self._close_soon(episode)
            raise
        return episode, record

    def _glimpse(self, environment: AnyEnvironment, record: Record) -> Episode[Any]:
        """The recorded episode before its reset, for the moment: to be asked what never changes."""
        episode = unbegun(environment, record)
        self._close_soon(episode)
        return episode

    async def _refresh(self, session: Session) -> None:
        """Learn what the store has. A record that has only grown leaves the live object some steps behind it."""
        record = await self._store.load(session.key, session.record)
        if record is session.record:
            return
        known = session.record
        if record is None or record.done or known is None or record.generation != known.generation:
            session.drop()
        session.record = record

    def _close_soon(self, episode: Episode[Any]) -> None:
        """Close a live object without waiting for it."""
        task = asyncio.create_task(_close(episode))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # ---- the end of episodes ----

    async def _end(self, key: Key) -> bool:
        existed = await self._store.delete(key)
        session = self._sessions.get(key)
        if session is not None:
            session.record = None
            if not session.users:
                session.drop()
                self._tidy(session)
        return existed

    async def _finish(self, session: Session) -> None:
        """The live object has done its work. The record stays for repeated requests until newer ones crowd it out."""
        session.drop()
        self._finished[session.key] = None
        if len(self._finished) > self.limits.capacity:
            ended = (self._sessions[key] for key in self._finished)
            oldest = next((one for one in ended if not one.users and not one.attached), None)
            if oldest is not None:
                await self._forget(oldest)

    async def _forget(self, session: Session) -> None:
        session.drop()
        self._finished.pop(session.key, None)
        self._sessions.pop(session.key, None)
        await self._store.expire(session.key)

    async def _reap_forever(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.limits.idle_timeout_s / 4))
            try:
                await self.reap()
            except StoreUnavailable as error:
                log.warning("the reaper has to wait: %s", error.message)

    async def reap(self) -> None:
        """Forget the episodes whose time is over, and tell the store of those that a silent connection plays or a long
        step keeps. Where the store is shared, other processes may have ended many: only so many as can be live, and as
        many ended ones, are held here."""
        now, idle_timeout_s = monotonic(), self.limits.idle_timeout_s
        sessions = list(self._sessions.values())
        surplus = len(sessions) - 2 * self.limits.capacity if self._shared else 0
        if surplus > 0:
            sessions.sort(key=attrgetter("expires_at"))
        for session in sessions:
            if self._sessions.get(session.key) is not session:
                # Ended while the store was told of others, and perhaps begun anew.
                continue
            if session.users or session.attached:
                if session.expires_at <= now + idle_timeout_s * 2 / 3:
                    await self._store.keep(session.key, idle_timeout_s)
                    session.expires_at = now + idle_timeout_s
            elif session.expires_at <= now or surplus > 0:
                surplus -= 1
                await self._forget(session)

    # ---- holding one ----

    @contextmanager
    def _use(self, episode_id: str) -> Iterator[None]:
        """A request that shutdown waits for, or refuses."""
        if self.draining:
            raise _shutting_down(episode_id)
        self._users += 1
        try:
            yield
        finally:
            self._left()

    def _left(self) -> None:
        self._users -= 1
        if self.draining and not self._users:
            self._unused.set()

    def _hold(self, environment: AnyEnvironment, episode_id: str, step: int | None = None) -> "_Hold":
        """Exclusive use of an episode within this process, with its record as the store has it now. A shared store is
        not asked where the caller knows of as many steps as this process does, and of no end: then all that comes of it
        is a step, and its write is checked."""
        if self.draining:
            raise _shutting_down(episode_id)
        return _Hold(self, self._session(environment, episode_id), step)

    def _session(self, environment: AnyEnvironment, episode_id: str) -> Session:
        name = environment.name
        session = self._sessions.get((name, episode_id))
        if session is None:
            key = Key(name, episode_id)
            codec, metrics = self._codecs[name], self._metrics.environments[name]
            session = Session(key, environment, codec, metrics, self.limits.step_timeout_s, self._close_soon)
            session.expires_at = monotonic() + self.limits.idle_timeout_s
            self._sessions[key] = session
        return session

    def _tidy(self, session: Session) -> None:
        """Forget a session that has no episode and nobody who asks for it."""
        if session.record is None and not session.users and not session.attached:
            self._finished.pop(session.key, None)
            self._sessions.pop(session.key, None)


class _Hold:
    """See `Sessions._hold`. A class, since it is on the way of every step and a generator would take its time twice."""

    __slots__ = ("_session", "_sessions", "_step")

    def __init__(self, sessions: Sessions, session: Session, step: int | None) -> None:
        self._sessions = sessions
        self._session = session
        self._step = step

    async def __aenter__(self) -> Session:
        session, sessions = self._session, self._sessions
        session.users += 1
        sessions._users += 1
        try:
            await session.lock.acquire()
            try:
                record = session.record
                if record is None:
                    if self._step != _NEW:
                        await sessions._refresh(session)
                elif sessions._shared and (record.done or self._step != record.step_count):
                    await sessions._refresh(session)
            except BaseException:
                session.lock.release()
                raise
        except BaseException:
            self._leave()
            raise
        return session

    async def __aexit__(self, *exc: object) -> None:
        self._session.lock.release()
        self._leave()

    def _leave(self) -> None:
        sessions, session = self._sessions, self._session
        session.users -= 1
        session.expires_at = monotonic() + sessions.limits.idle_timeout_s
        if session.record is None:
            sessions._tidy(session)
        sessions._left()


def _shutting_down(episode_id: str) -> ShuttingDown:
    return ShuttingDown("the service is shutting down", episode_id=episode_id)


def _read_options(environment: AnyEnvironment, options: Mapping[str, JsonValue]) -> Options:
    try:
        read: Options = environment.options_type.model_validate(options)
    except ValidationError as error:
        raise misfit(error, "options") from None
    return read


def _action_of_call(episode: Episode[Any], name: str, arguments: Mapping[str, JsonValue]) -> Action:
    try:
        action: Action = episode.action_of_call(name, arguments)
    except ValidationError as error:
        raise misfit(error, "arguments") from None
    return action


async def _close(episode: Episode[Any]) -> None:
    try:
        await episode.close()
    except Exception as fault:  # noqa: BLE001, this is the one place that records it
        log_fault(fault, None)
