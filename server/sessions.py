"""Live episodes: begun, stepped in order, replayed when their live object is gone, reaped when nobody asks for them.

A step either happened, and then its record holds it and its answer, or it did not. After any fault the live object is
thrown away and rebuilt from the record at the next request, so a fault never leaves half a step behind. Calls on one
episode run one after another; episodes do not wait for each other.
"""

import asyncio
import logging
import math
import secrets
import uuid
from collections.abc import Coroutine, Iterable, Mapping
from time import monotonic, perf_counter
from typing import Any, NamedTuple

from pydantic import JsonValue, ValidationError

from rolloutgym.models import Action, ResetRequest, State, StopReason, ToolSpec, TruncationReason
from rolloutgym.server.codec import Codec, misfit, write_json
from rolloutgym.server.deadlines import within
from rolloutgym.server.environments.base import Episode, Options, Outcome
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import (
    EpisodeDone,
    EpisodeNotFound,
    Internal,
    ShuttingDown,
    StepConflict,
    StoreUnavailable,
)
from rolloutgym.server.faults import EpisodeFaults, as_service_error, log_fault
from rolloutgym.server.metrics import EnvironmentMetrics, Metrics
from rolloutgym.server.store import Key, Record, Store, Taken

log = logging.getLogger(__name__)

_CLOSE_S = 1.0
"""How long the end of all live objects may take, at shutdown."""


class Limits(NamedTuple):
    capacity: int
    """Unfinished episodes at once."""
    idle_timeout_s: float
    """Without a request for this long, an episode ends."""
    step_timeout_s: float


class Session:
    """What this process holds of one episode. `record` is None before the first reset."""

    __slots__ = (
        "attached", "codec", "environment", "episode", "expires_at", "key", "lock", "metrics", "record", "users"
    )  # fmt: skip

    def __init__(self, key: Key, environment: AnyEnvironment, codec: Codec, metrics: EnvironmentMetrics) -> None:
        self.key = key
        self.environment = environment
        self.codec = codec
        self.metrics = metrics
        self.record: Record | None = None
        self.episode: Episode[Any] | None = None
        """The live object; None where it has to be rebuilt, and after the last step."""
        self.lock = asyncio.Lock()
        self.users = 0
        """Requests that hold the session or wait for it."""
        self.attached = 0
        """Connections that play it."""
        self.expires_at = math.inf

    def begun(self) -> Record:
        if self.record is None:
            raise EpisodeNotFound(f"no episode {self.key.episode_id!r}", episode_id=self.key.episode_id)
        return self.record

    def new_episode(self, task_id: str, seed: int, options: Options) -> Episode[Any]:
        episode: Episode[Any] = self.environment.episode(self.environment.tasks.get(task_id), seed, options)
        return episode

    def unbegun(self) -> Episode[Any]:
        """The recorded episode's live object before its reset."""
        record = self.begun()
        options = self.environment.options_type.model_validate_json(record.options)
        return self.new_episode(record.task_id, record.seed, options)


class Sessions:
    """The live episodes of one process."""

    def __init__(self, environments: Iterable[AnyEnvironment], store: Store, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.draining = False
        self._codecs = {environment.name: Codec(environment) for environment in environments}
        self._store = store
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
            self._drop(session)
        self._sessions.clear()
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_S)
        await self._store.close()

    async def count(self) -> int:
        """Unfinished episodes."""
        return await self._store.count()

    # ---- requests ----

    async def reset(
        self, environment: AnyEnvironment, request: ResetRequest, *, instead_of: str | None = None
    ) -> Record:
        """Begin an episode, or begin it anew. The episode that it is played `instead_of` ends once the new one stands;
        where a reset fails, everything is as it was."""
        seed = secrets.randbelow(2**63) if request.seed is None else request.seed
        task = environment.tasks.choose(task_id=request.task_id, split=request.split, index=request.index, seed=seed)
        options = _read_options(environment, request.options)
        episode_id = request.episode_id or uuid.uuid4().hex
        replaced = None if instead_of in (None, episode_id) else Key(environment.name, str(instead_of))
        async with self._hold(environment, episode_id) as session:
            had_place = session.record is not None and not session.record.done
            await self._store.reserve(session.key, self.limits.capacity, instead_of=replaced)
            try:
                episode, record = await self._begin(session, task.id, seed, options)
            except BaseException:
                if not had_place:
                    await self._store.unreserve(session.key)
                raise
            self._drop(session)
            self._finished.pop(session.key, None)
            session.record, session.episode = record, episode
            session.metrics.resets += 1
            session.metrics.live += 1
        if replaced is not None:
            await self.delete(environment, replaced.episode_id)
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
        async with self._hold(environment, episode_id) as session:
            written = session.codec.write_action(action)
            repeated = _repeated(session.begun(), step, written)
            if repeated is not None:
                return repeated
            episode = session.episode or await self._restore(session)
            return await self._take(session, written, episode.step(action), timeout_s)

    async def truncate(
        self, environment: AnyEnvironment, episode_id: str, reason: TruncationReason, *, step: int | None = None
    ) -> bytes:
        """The trainer ends the episode at a limit of its own."""
        async with self._hold(environment, episode_id) as session:
            repeated = _repeated(session.begun(), step, reason)
            if repeated is not None:
                return repeated
            episode = session.episode or await self._restore(session)
            return await self._take(session, reason, episode.truncate(StopReason(reason)), None)

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
            with EpisodeFaults(episode_id):
                if step is not None and step < record.step_count:
                    # What has been taken is only to be recognised, perhaps after the end, when nothing is live.
                    episode = session.unbegun()
                    self._close_soon(episode)
                else:
                    episode = session.episode or await self._restore(session)
                action = _action_of_call(episode, name, arguments)
            written = session.codec.write_action(action)
            repeated = _repeated(record, step, written)
            if repeated is not None:
                return repeated
            return await self._take(session, written, episode.step(action), None)

    async def tools(self, environment: AnyEnvironment, episode_id: str) -> tuple[ToolSpec, ...]:
        """The tools that an agent may call in this episode; none after its end."""
        async with self._hold(environment, episode_id) as session:
            if session.begun().done:
                return ()
            episode = session.episode or await self._restore(session)
            with EpisodeFaults(episode_id):
                return tuple(episode.tools())

    async def state(self, environment: AnyEnvironment, episode_id: str) -> bytes:
        """The public state: a `State`, JSON."""
        async with self._hold(environment, episode_id) as session:
            record = session.begun()
            with EpisodeFaults(episode_id):
                own = record.state if record.done else (session.episode or await self._restore(session)).state()
                state = State(
                    episode_id=episode_id,
                    step_count=record.step_count,
                    done=record.done,
                    environment=environment.name,
                    task_id=record.task_id,
                    total_reward=math.fsum(record.rewards),
                    **(own or {}),
                )
                return write_json(state)

    async def record(self, environment: AnyEnvironment, episode_id: str) -> Record:
        """The record as it is now; not to be changed."""
        async with self._hold(environment, episode_id) as session:
            return session.begun()

    async def delete(self, environment: AnyEnvironment, episode_id: str) -> bool:
        """End an episode and forget it. False where there was none."""
        async with self._hold(environment, episode_id) as session:
            existed = await self._store.delete(session.key)
            self._drop(session)
            session.record = None
            return existed

    async def attach(self, environment: AnyEnvironment, episode_id: str) -> None:
        """A connection plays the episode: it is not reaped before `detach`."""
        async with self._hold(environment, episode_id) as session:
            session.begun()
            session.attached += 1

    async def detach(self, environment: AnyEnvironment, episode_id: str, stays_s: float) -> None:
        """A connection is gone. Without another request the episode goes too, after `stays_s`."""
        session = self._sessions.get(Key(environment.name, episode_id))
        if session is None:
            # The service has stopped meanwhile.
            return
        session.attached -= 1
        if not session.attached:
            session.expires_at = monotonic() + stays_s
            await self._store.keep(session.key, stays_s)
        self._tidy(session)

    # ---- one step ----

    async def _take(
        self,
        session: Session,
        action: bytes | TruncationReason,
        doing: Coroutine[Any, Any, Outcome],
        timeout_s: float | None,
    ) -> bytes:
        record = session.begun()
        limit = self.limits.step_timeout_s if timeout_s is None else min(timeout_s, self.limits.step_timeout_s)
        begun = perf_counter()
        try:
            outcome = await within(limit, doing)
            taken = _taken(session, record, action, outcome)
            await self._store.append(record, taken)
        except BaseException as fault:  # noqa: BLE001, recorded and raised again
            self._drop(session)
            raise as_service_error(fault, session.key.episode_id) from None
        session.metrics.step(perf_counter() - begun)
        if taken.done:
            session.metrics.finished[outcome.observation.info.stop_reason or "unknown"] += 1
            await self._finish(session)
        return taken.answer

    async def _begin(self, session: Session, task_id: str, seed: int, options: Options) -> tuple[Episode[Any], Record]:
        with EpisodeFaults(session.key.episode_id):
            episode = session.new_episode(task_id, seed, options)
        try:
            with EpisodeFaults(session.key.episode_id):
                observation = await within(self.limits.step_timeout_s, episode.reset())
                first = session.codec.write_first(observation, session.key.episode_id, seed, task_id)
            record = Record(session.key, task_id, seed, write_json(options), first)
            await self._store.save(record)
        except BaseException:
            self._close_soon(episode)
            raise
        return episode, record

    async def _restore(self, session: Session) -> Episode[Any]:
        """Rebuild the live object: play the record again. The recorded answers stand, whatever the replay says."""
        record = session.begun()
        if record.done:
            raise EpisodeDone("the episode is over", episode_id=session.key.episode_id)
        with EpisodeFaults(session.key.episode_id):
            episode = session.unbegun()
        session.metrics.replays += 1
        try:
            with EpisodeFaults(session.key.episode_id):
                await within(self.limits.step_timeout_s, episode.reset())
                for action, reward in zip(record.actions, record.rewards, strict=True):
                    await self._replay(session, episode, action, reward)
        except BaseException:
            self._close_soon(episode)
            raise
        session.episode = episode
        session.metrics.live += 1
        return episode

    async def _replay(
        self, session: Session, episode: Episode[Any], action: bytes | TruncationReason, reward: float
    ) -> None:
        # A truncation is a last step, and an ended episode is not rebuilt.
        assert isinstance(action, bytes)
        doing = episode.step(session.codec.action.validate_json(action))
        outcome = await within(self.limits.step_timeout_s, doing)
        if outcome.done:
            raise Internal("the episode could not be rebuilt: its replay ended early")
        if outcome.reward != reward:
            session.metrics.divergences += 1
            log.warning("episode %s: the reward of a replayed step differs", session.key.episode_id)

    def _drop(self, session: Session) -> None:
        """Throw the live object away."""
        if session.episode is not None:
            episode, session.episode = session.episode, None
            session.metrics.live -= 1
            self._close_soon(episode)

    def _close_soon(self, episode: Episode[Any]) -> None:
        """Close a live object without waiting for it."""
        task = asyncio.create_task(_close(episode))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # ---- the end of episodes ----

    async def _finish(self, session: Session) -> None:
        """The live object has done its work. The record stays for repeated requests until newer ones crowd it out."""
        self._drop(session)
        self._finished[session.key] = None
        if len(self._finished) > self.limits.capacity:
            ended = (self._sessions[key] for key in self._finished)
            oldest = next((one for one in ended if not one.users and not one.attached), None)
            if oldest is not None:
                await self._forget(oldest)

    async def _forget(self, session: Session) -> None:
        self._drop(session)
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
        """Forget the episodes whose time is over, and tell the store of those that a silent connection plays."""
        now, idle_timeout_s = monotonic(), self.limits.idle_timeout_s
        for session in list(self._sessions.values()):
            if session.users:
                continue
            if not session.attached:
                if session.expires_at <= now:
                    await self._forget(session)
            elif session.expires_at <= now + idle_timeout_s * 2 / 3:
                session.expires_at = now + idle_timeout_s
                await self._store.keep(session.key, idle_timeout_s)

    def _hold(self, environment: AnyEnvironment, episode_id: str) -> "_Hold":
        """Exclusive use of an episode, with its record as the store has it now."""
        if self.draining:
            raise ShuttingDown("the service is shutting down", episode_id=episode_id)
        return _Hold(self, self._session(environment, episode_id))

    def _session(self, environment: AnyEnvironment, episode_id: str) -> Session:
        name = environment.name
        session = self._sessions.get((name, episode_id))
        if session is None:
            key = Key(name, episode_id)
            session = Session(key, environment, self._codecs[name], self._metrics.environments[name])
            self._sessions[key] = session
        return session

    def _tidy(self, session: Session) -> None:
        """Forget a session that has no episode and nobody who asks for it."""
        if session.record is None and not session.users and not session.attached:
            self._finished.pop(session.key, None)
            self._sessions.pop(session.key, None)


class _Hold:
    """See `Sessions._hold`. A class, since it is on the way of every step and a generator would take its time twice."""

    __slots__ = ("_session", "_sessions")

    def __init__(self, sessions: Sessions, session: Session) -> None:
        self._sessions = sessions
        self._session = session

    async def __aenter__(self) -> Session:
        session = self._session
        session.users += 1
        self._sessions._users += 1
        try:
            await session.lock.acquire()
            try:
                record = await self._sessions._store.acquire(session.key)
            except BaseException:
                session.lock.release()
                raise
        except BaseException:
            self._leave()
            raise
        if record is not session.record:
            # Another process has played it on, or ended it.
            self._sessions._drop(session)
            session.record = record
        return session

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._sessions._store.release(self._session.key)
        finally:
            self._session.lock.release()
            self._leave()

    def _leave(self) -> None:
        sessions, session = self._sessions, self._session
        session.users -= 1
        session.expires_at = monotonic() + sessions.limits.idle_timeout_s
        if session.record is None:
            sessions._tidy(session)
        sessions._users -= 1
        if sessions.draining and not sessions._users:
            sessions._unused.set()


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


def _repeated(record: Record, step: int | None, action: bytes | TruncationReason) -> bytes | None:
    """The earlier answer, if this step has been taken already. `StepConflict`, `EpisodeDone`."""
    if step is None or step == record.step_count:
        return None
    if step > record.step_count:
        message = f"this is step {step}, but step {record.step_count} comes next"
        raise StepConflict(message, episode_id=record.key.episode_id)
    if record.actions[step] != action:
        raise StepConflict(f"step {step} was taken with another action", episode_id=record.key.episode_id)
    return record.answers[step]


def _taken(session: Session, record: Record, action: bytes | TruncationReason, outcome: Outcome) -> Taken:
    # A number, whatever number type or truth the environment summed up.
    reward = float(outcome.reward)
    if not math.isfinite(reward):
        raise Internal("the environment gave no finite reward")
    done = outcome.done
    answer = session.codec.write_answer(
        outcome.observation, reward, done, episode_id=record.key.episode_id, step_count=record.step_count + 1
    )
    assert session.episode is not None
    state = session.episode.state() if done else None
    return Taken(action, answer, reward, done, state)


async def _close(episode: Episode[Any]) -> None:
    try:
        await episode.close()
    except Exception as fault:  # noqa: BLE001, this is the one place that records it
        log_fault(fault, None)
