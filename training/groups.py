"""What trainers do with a group: rollouts of one task under one prompt. Pure functions of rewards and lengths.

Symbols: G rollouts of a group, T turns of a rollout.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Generic, NamedTuple, TypeVar

GroupT = TypeVar("GroupT")

_SAME = 1e-9


def with_length_penalty(
    rewards_G: Sequence[float], generated_tokens_G: Sequence[int], perfect_G: Sequence[bool], max_tokens: int
) -> list[float]:
    """Rewards of a group, less a length penalty where all its rollouts are perfect, so that it still teaches something.

    penalty = clamp((length − L/2)/(L/2), 0, 1) with L = `max_tokens`, both in tokens that the model generated (a
    prompt is not its doing); no reward falls below 0 by it.
    """
    if not rewards_G or not all(perfect_G):
        return list(rewards_G)
    half = max_tokens / 2
    penalties = (min(max((tokens - half) / half, 0.0), 1.0) for tokens in generated_tokens_G)
    return [max(reward - penalty, min(reward, 0.0)) for reward, penalty in zip(rewards_G, penalties, strict=True)]


class Kept(NamedTuple, Generic[GroupT]):
    groups: list[GroupT]
    dropped: int


def drop_equal(groups: Iterable[tuple[GroupT, Sequence[float]]]) -> Kept[GroupT]:
    """The groups whose rewards differ, and how many do not: those have no advantage to learn from."""
    kept: list[GroupT] = []
    dropped = 0
    for group, rewards_G in groups:
        if rewards_G and max(rewards_G) - min(rewards_G) > _SAME:
            kept.append(group)
        else:
            dropped += 1
    return Kept(kept, dropped)


def turn_advantages(
    turn_rewards_GT: Sequence[Sequence[float]], outcome_rewards_G: Sequence[float], outcome_weight: float = 1.0
) -> list[list[float]]:
    """Advantages per rollout and turn, as in MT-GRPO (arXiv 2505.11821): Â[g][t] = z(R^T[·][t])[g] + λ·z(R^O)[g].

    z standardises over the rollouts that reached turn t; where they are one, or all equal, it is 0.
    """
    outcome_G = _standardized(outcome_rewards_G)
    turns = max((len(rewards_T) for rewards_T in turn_rewards_GT), default=0)
    advantages_GT: list[list[float]] = [[] for _ in turn_rewards_GT]
    for turn in range(turns):
        reached = [g for g, rewards_T in enumerate(turn_rewards_GT) if turn < len(rewards_T)]
        standardized = _standardized([turn_rewards_GT[g][turn] for g in reached])
        for g, value in zip(reached, standardized, strict=True):
            advantages_GT[g].append(value + outcome_weight * outcome_G[g])
    return advantages_GT


def _standardized(values: Sequence[float]) -> list[float]:
    """Less the mean, over the population's standard deviation; zeros where nothing differs."""
    if not values:
        return []
    mean = fsum(values) / len(values)
    deviation = sqrt(fsum((value - mean) ** 2 for value in values) / len(values))
    return [0.0 if deviation <= _SAME else (value - mean) / deviation for value in values]


@dataclass(frozen=True)
class Success:
    """A reply that got all of a turn right, as sampled."""

    task_id: str
    group: str
    reply: str


def latest_success(successes: Sequence[Success], *, task_id: str, group: str = "") -> Success | None:
    """The example for a new group of `task_id`: the latest success on another item, and of another item group.

    Choose it once, when the group starts, and give it to every reset of the group (option `few_shot`): then all
    rollouts see one prompt, and the episodes' records hold it.
    """
    for success in reversed(successes):
        if success.task_id != task_id and (not group or success.group != group):
            return success
    return None
