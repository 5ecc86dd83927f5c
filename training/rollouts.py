"""Many episodes at once against a remote service: one loop for every environment and every model.

All rows take their turn together: one batched generation, then all the environment's answers at the same time. Three
ends are kept apart. The environment ends an episode: its reward stands. A limit of ours (turns, tokens, context, time)
ends it: the service grades what there is, under that stop reason. An infrastructure fault ends it: no reward, every
token masked, counted. Invariant: the tokens of a rollout are the ones that were sampled and the ones that were shown.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import JsonValue

from rolloutgym.client import AsyncEpisode
from rolloutgym.models import Info, Message, StepResult, StopReason, TruncationReason
from rolloutgym.training.generators.base import Batch, Conversation, Generator
from rolloutgym.training.service import Fault, Handle, RemoteEnvironment

RemoteEpisode = AsyncEpisode[Any, Any]


@dataclass(frozen=True)
class Task:
    """Which episode to play: by task id, or by position in a split, or drawn from a split by the seed."""

    task_id: str | None = None
    split: str | None = None
    index: int | None = None
    seed: int | None = None
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    """The environment's reset options."""


@dataclass(frozen=True)
class Limits:
    """The trainer's own limits. A turn only begins where it and the answer to it have room."""

    turn_tokens: int = 256
    """Most tokens sampled in one turn."""
    episode_tokens: int = 1024
    """Most completion tokens of an episode, the environment's among them."""
    reply_tokens: int = 128
    """Room kept free for what the environment says to an action. An episode without that room ends before its next
    action, so that nothing runs whose result the model cannot read. Not kept before the last action that the
    environment's own budget allows."""
    max_turns: int | None = None
    context_tokens: int | None = None
    """Longest prompt and completion together; None takes the model's own."""
    max_seconds: float | None = None
    """Longest time for the batch; checked between turns."""
    max_fault_share: float = 0.25
    """A batch with a larger share of faulted rows raises `TooManyFaults`."""

    def __post_init__(self) -> None:
        if min(self.turn_tokens, self.episode_tokens) < 1 or self.reply_tokens < 0:
            raise ValueError("turn_tokens and episode_tokens must be at least 1, reply_tokens at least 0")


class TooManyFaults(RuntimeError):
    """So many rows failed that the rest is no fair sample: the service needs attention."""


@dataclass(frozen=True)
class Rollout:
    """One played episode. All token lists are empty for models that show no tokens; else see `Trace`."""

    task_id: str | None
    seed: int | None
    episode_id: str | None
    prompt_ids: list[int]
    completion_ids: list[int]
    env_mask: list[int]
    """1 where the model sampled the token and it may be trained on; all 0 for a faulted row."""
    logprobs: list[float]
    episode_return: float | None
    """Sum of rewards; None for a faulted row."""
    components: dict[str, float]
    """Sums of the reward components; together the return."""
    stop_reason: StopReason | None
    """None for a faulted row."""
    success: bool | None
    """Whether the task was solved; None where a fault or the environment left it open."""
    turns: int
    """Actions that reached the environment."""
    invalid_actions: int
    sampled_tokens: int
    transcript: tuple[Message, ...]
    """The conversation as text, for logs; the ids are the truth."""
    info: Info | None = None
    """The environment's last numbers, its own fields among them; None for a faulted row."""
    turn_rewards: tuple[float, ...] = ()
    """The reward of every action, and of a limit's ending after them; together the return. Empty for a faulted row."""
    fault: Fault | None = None


def play_episode(
    environment: RemoteEnvironment, task: Task, generator: Generator, limits: Limits | None = None
) -> Rollout:
    """A batch of one."""
    return play_batch(environment, [task], generator, limits)[0]


def play_batch(
    environment: RemoteEnvironment, tasks: Sequence[Task], generator: Generator, limits: Limits | None = None
) -> list[Rollout]:
    """Play one episode for every task, all in lockstep; one rollout for every task, in order.

    Raises `TooManyFaults`, and `RolloutGymError` for the caller's own mistakes (wrong key, unknown task).
    """
    limits = limits or Limits()
    started = time.monotonic()
    rows = [_Row(episode) for episode in environment.gather([partial(_reset, task=task) for task in tasks])]
    try:
        batch = generator.begin([row.conversation() for row in rows])
        table = _Table(environment, rows, batch, limits, limits.context_tokens or generator.context_tokens)
        while live := [index for index, row in enumerate(rows) if row.live]:
            late = limits.max_seconds is not None and time.monotonic() - started > limits.max_seconds
            table.play_turn(live, late=late)
        batch.close()
    finally:
        environment.gather([partial(_close, episode=row.episode) for row in rows if row.episode])
    faults = [row.fault for row in rows if row.fault]
    if len(faults) > limits.max_fault_share * len(rows):
        raise TooManyFaults(f"{len(faults)} of {len(rows)} episodes failed; the first: {faults[0]}")
    return [row.rollout(task, batch, index) for index, (task, row) in enumerate(zip(tasks, rows, strict=True))]


# ---- calls ----------------------------------------------------------------------------------------------------------


async def _reset(handle: Handle, task: Task) -> RemoteEpisode:
    return await handle.reset(
        task_id=task.task_id, split=task.split, index=task.index, seed=task.seed, options=task.options
    )


async def _step(_: Handle, episode: RemoteEpisode, action: str | dict[str, JsonValue]) -> StepResult[Any]:
    return await episode.step(action)


async def _truncate(_: Handle, episode: RemoteEpisode, reason: TruncationReason) -> StepResult[Any]:
    return await episode.truncate(reason)


async def _close(_: Handle, episode: RemoteEpisode) -> None:
    await episode.close()


# ---- one batch ------------------------------------------------------------------------------------------------------


class _Row:
    """One episode while it is played, and what it has earned so far."""

    def __init__(self, episode: RemoteEpisode | Fault) -> None:
        self.episode = None if isinstance(episode, Fault) else episode
        self.fault = episode if isinstance(episode, Fault) else None
        self.transcript: list[Message] = list(self.episode.messages) if self.episode else []
        self.info: Info = self.episode.observation.info if self.episode else Info()
        self.components: dict[str, float] = {}
        self.rewards: list[float] = []
        self.turns = self.invalid_actions = self.sampled_tokens = 0
        self.done = False

    @property
    def live(self) -> bool:
        return not self.done and self.fault is None

    def conversation(self) -> Conversation | None:
        return Conversation(tuple(self.transcript), self.episode.tools) if self.episode else None

    def take(self, result: StepResult[Any] | Fault) -> None:
        """What the environment answered to an action or to a truncation."""
        if isinstance(result, Fault):
            self.fault = result
            return
        self.info = result.observation.info
        self.done = result.done
        self.rewards.append(result.reward or 0.0)
        self.transcript += result.observation.messages
        for name, value in self.info.reward_components.items():
            self.components[name] = self.components.get(name, 0.0) + value

    def rollout(self, task: Task, batch: Batch, index: int) -> Rollout:
        trace = batch.trace(index)
        if trace and self.fault:
            trace.mask_all()
        return Rollout(
            task_id=self.episode.task_id if self.episode else task.task_id,
            seed=self.episode.seed if self.episode else task.seed,
            episode_id=self.episode.id if self.episode else None,
            prompt_ids=trace.prompt_ids if trace else [],
            completion_ids=trace.completion_ids_T if trace else [],
            env_mask=trace.env_mask_T if trace else [],
            logprobs=trace.logprobs_T if trace else [],
            episode_return=self.episode.total_reward if self.episode and not self.fault else None,
            components=self.components if not self.fault else {},
            stop_reason=self.info.stop_reason if not self.fault else None,
            success=self.info.success if not self.fault else None,
            turns=self.turns,
            invalid_actions=self.invalid_actions,
            sampled_tokens=self.sampled_tokens,
            transcript=tuple(self.transcript),
            info=self.info if not self.fault else None,
            turn_rewards=tuple(self.rewards) if not self.fault else (),
            fault=self.fault,
        )


class _Table:
    """All rows of a batch, and the rules by which a turn begins and ends."""

    def __init__(
        self,
        environment: RemoteEnvironment,
        rows: Sequence[_Row],
        batch: Batch,
        limits: Limits,
        context_tokens: int | None,
    ) -> None:
        self._environment = environment
        self._rows = rows
        self._batch = batch
        self._limits = limits
        self._context_tokens = context_tokens

    def play_turn(self, live: Sequence[int], *, late: bool) -> None:
        """One turn of every live row: generate together, act together, hear the answers."""
        budgets: dict[int, int] = {}
        limits: dict[int, TruncationReason] = {}
        ended: dict[int, TruncationReason] = {}
        for index in live:
            room, reason = self._room(index)
            if late:
                ended[index] = StopReason.TIME_LIMIT
            elif self._limits.max_turns is not None and self._rows[index].turns >= self._limits.max_turns:
                ended[index] = StopReason.MAX_TURNS
            elif room < 1:
                ended[index] = reason
            else:
                budgets[index], limits[index] = room, reason
        actions: dict[int, str | dict[str, JsonValue]] = {}
        for index, turn in self._batch.generate(budgets).items() if budgets else ():
            row = self._rows[index]
            row.sampled_tokens += turn.tokens
            row.transcript.append(turn.message)
            if turn.complete:
                actions[index] = turn.action
            else:  # cut in the middle of an action: never sent, since half an action may mean something else
                ended[index] = StopReason.CONTEXT_LENGTH if turn.context_full else limits[index]
        self._act(actions, ended)

    def _act(self, actions: Mapping[int, str | dict[str, JsonValue]], ended: Mapping[int, TruncationReason]) -> None:
        """Send every action, and end the rows that a limit ended, all at once; then let each row read its answer."""
        episodes = {index: row.episode for index, row in enumerate(self._rows) if row.episode}
        steps = [partial(_step, episode=episodes[index], action=action) for index, action in actions.items()]
        cuts = [partial(_truncate, episode=episodes[index], reason=reason) for index, reason in ended.items()]
        overflown: dict[int, TruncationReason] = {}
        for index, result in zip([*actions, *ended], self._environment.gather([*steps, *cuts]), strict=True):
            row = self._rows[index]
            row.take(result)
            if index in actions and not isinstance(result, Fault):
                row.turns += 1
                row.invalid_actions += row.info.invalid_action
                room, reason = self._room(index, turn_and_reply=False)
                if row.live and not self._batch.reply(index, result.observation.messages, room - 1):
                    overflown[index] = reason
        if overflown:
            self._act({}, overflown)

    def _room(self, index: int, *, turn_and_reply: bool = True) -> tuple[int, TruncationReason]:
        """How many tokens the row may take, and which limit it would meet first."""
        used = self._batch.used(index)
        in_episode = self._limits.episode_tokens - used.completion
        in_context = in_episode
        if self._context_tokens is not None:
            in_context = self._context_tokens - used.prompt - used.completion
        room = min(in_episode, in_context)
        reason: TruncationReason = StopReason.CONTEXT_LENGTH if in_context < in_episode else StopReason.MAX_TOKENS
        if not turn_and_reply:
            return room, reason
        if self._rows[index].info.budget_remaining != 1:
            room -= self._limits.reply_tokens
        if self._limits.turn_tokens <= room:
            return self._limits.turn_tokens, StopReason.MAX_TOKENS
        return room, reason
