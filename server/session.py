"""One episode in one process: its record as last seen, and the live object that is played, rebuilt by replay."""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from rolloutgym.models import TruncationReason
from rolloutgym.server.codec import Codec, write_json
from rolloutgym.server.deadlines import within
from rolloutgym.server.environments.base import Episode, Options, Outcome
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import EpisodeDone, EpisodeNotFound, Internal, StepConflict
from rolloutgym.server.faults import EpisodeFaults
from rolloutgym.server.metrics import EnvironmentMetrics
from rolloutgym.server.store import Key, Record, Taken

log = logging.getLogger(__name__)


class Session:
    """Whoever holds `lock` may play; the others may read the record."""

    __slots__ = (
        "attached", "close_soon", "codec", "environment", "episode", "expires_at", "key", "lock", "metrics", "played",
        "record", "step_timeout_s", "users",
    )  # fmt: skip

    def __init__(
        self,
        key: Key,
        environment: AnyEnvironment,
        codec: Codec,
        metrics: EnvironmentMetrics,
        step_timeout_s: float,
        close_soon: Callable[[Episode[Any]], None],
    ) -> None:
        self.key = key
        self.environment = environment
        self.codec = codec
        self.metrics = metrics
        self.step_timeout_s = step_timeout_s
        self.close_soon = close_soon
        """Closes a live object without waiting for it."""
        self.record: Record | None = None
        """As the store had it when it was last asked; None before, and where there is none."""
        self.episode: Episode[Any] | None = None
        """The live object; None where it has to be rebuilt, and after the last step."""
        self.played = 0
        """Steps of the record that the live object has taken."""
        self.lock = asyncio.Lock()
        self.users = 0
        """Requests that hold the session or wait for it."""
        self.attached = 0
        """Connections that play it."""
        self.expires_at = math.inf

    def begun(self) -> Record:
        return existing(self.record, self.key)

    async def new(self, task_id: str, seed: int, options: Options) -> tuple[Episode[Any], Record]:
        """Another live object for the episode, after its reset, and the record that begins with it."""
        with EpisodeFaults(self.key.episode_id):
            episode = _new_episode(self.environment, task_id, seed, options)
        try:
            with EpisodeFaults(self.key.episode_id):
                observation = await within(self.step_timeout_s, episode.reset())
                first = self.codec.write_first(observation, self.key.episode_id, seed, task_id)
                return episode, Record(self.key, task_id, seed, write_json(options), first, episode.state())
        except BaseException:
            self.close_soon(episode)
            raise

    def bring_to_life(self, episode: Episode[Any]) -> None:
        """Have a live object that has taken no step."""
        self.episode, self.played = episode, 0
        self.metrics.live += 1

    def drop(self) -> None:
        """Throw the live object away."""
        if self.episode is not None:
            episode, self.episode = self.episode, None
            self.metrics.live -= 1
            self.close_soon(episode)

    async def restore(self) -> Episode[Any]:
        """Bring the live object to where the record is: rebuild it if it is gone, and play the steps that it has not
        taken. The recorded answers stand, whatever the replay says."""
        record = self.begun()
        if record.done:
            raise over(record)
        try:
            with EpisodeFaults(self.key.episode_id):
                episode = self.episode or await self._rebuild(record)
                for number in range(self.played, record.step_count):
                    await self._replay(episode, record.actions[number], record.rewards[number])
                    self.played += 1
        except BaseException:
            self.drop()
            raise
        return episode

    async def _rebuild(self, record: Record) -> Episode[Any]:
        """The live object after its reset."""
        episode = unbegun(self.environment, record)
        self.bring_to_life(episode)
        self.metrics.replays += 1
        await within(self.step_timeout_s, episode.reset())
        return episode

    async def _replay(self, episode: Episode[Any], action: bytes | TruncationReason, reward: float) -> None:
        # A truncation is a last step, and an ended episode is not rebuilt.
        assert isinstance(action, bytes)
        outcome = await within(self.step_timeout_s, episode.step(self.codec.action.validate_json(action)))
        if outcome.done:
            raise Internal("the episode could not be rebuilt: its replay ended early")
        if outcome.reward != reward:
            self.metrics.divergences += 1
            log.warning("episode %s: the reward of a replayed step differs", self.key.episode_id)

    def taken(self, episode: Episode[Any], count: int, action: bytes | TruncationReason, outcome: Outcome) -> Taken:
        """What the live object has just done, after so many steps, as it is recorded."""
        # A number, whatever number type or truth the environment summed up.
        reward = float(outcome.reward)
        if not math.isfinite(reward):
            raise Internal("the environment gave no finite reward")
        done = outcome.done
        answer = self.codec.write_answer(
            outcome.observation, reward, done, episode_id=self.key.episode_id, step_count=count + 1
        )
        return Taken(action, answer, reward, done, episode.state())


def existing(record: Record | None, key: Key) -> Record:
    if record is None:
        raise EpisodeNotFound(f"no episode {key.episode_id!r}", episode_id=key.episode_id)
    return record


def over(record: Record) -> EpisodeDone:
    return EpisodeDone("the episode is over", episode_id=record.key.episode_id)


def earlier_answer(record: Record, step: int, action: bytes | TruncationReason) -> bytes:
    """The answer to a step that has been taken already. `StepConflict` where it has not, or was another action."""
    if step > record.step_count:
        message = f"this is step {step}, but step {record.step_count} comes next"
        raise StepConflict(message, episode_id=record.key.episode_id)
    if record.actions[step] != action:
        raise StepConflict(f"step {step} was taken with another action", episode_id=record.key.episode_id)
    return record.answers[step]


def unbegun(environment: AnyEnvironment, record: Record) -> Episode[Any]:
    """The recorded episode's live object before its reset."""
    options = environment.options_type.model_validate_json(record.options)
    return _new_episode(environment, record.task_id, record.seed, options)


def _new_episode(environment: AnyEnvironment, task_id: str, seed: int, options: Options) -> Episode[Any]:
    episode: Episode[Any] = environment.episode(environment.tasks.get(task_id), seed, options)
    return episode
