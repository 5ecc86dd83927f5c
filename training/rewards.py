"""Reward functions for TRL's GRPOTrainer, over what `make_rollout_func` returns beside the tokens.

They read the episode's own numbers and never the decoded text (which holds the environment's words too). A faulted row
is None in all of them, so that TRL (1.8 to 1.16 and later) leaves it out of its group's mean and standard deviation and
gives it no advantage; a function of your own must do the same. Whatever the reward is, the share of solved tasks is
logged beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rolloutgym.models import StopReason

Rewards = list[float | None]
LogMetric = Callable[[str, float], None]


# What TRL takes: keyword arguments aligned with the rows, one reward per row. `__name__` names its metrics.
RewardFunction = Callable[..., Rewards]


def episode_return(
    *, episode_return: Sequence[float | None], log_metric: LogMetric | None = None, **fields: Any
) -> Rewards:
    """The sum of the episode's rewards."""
    log_episodes({"episode_return": episode_return, **fields}, log_metric)
    return list(episode_return)


def success(
    *,
    success: Sequence[bool | None],
    fault: Sequence[str | None],
    log_metric: LogMetric | None = None,
    **fields: Any,
) -> Rewards:
    """1 for a solved task, 0 for one that is not."""
    log_episodes({"success": success, "fault": fault, **fields}, log_metric)
    return [None if broken else float(bool(solved)) for solved, broken in zip(success, fault, strict=True)]


def component(name: str) -> RewardFunction:
    """One of the environment's reward components, summed over the episode; 0 where the episode had none of it."""

    def of_component(
        *,
        components: Sequence[Mapping[str, float]],
        fault: Sequence[str | None],
        log_metric: LogMetric | None = None,
        **fields: Any,
    ) -> Rewards:
        log_episodes({"components": components, "fault": fault, **fields}, log_metric)
        return [None if broken else row.get(name, 0.0) for row, broken in zip(components, fault, strict=True)]

    of_component.__name__ = name
    return of_component


def log_episodes(fields: Mapping[str, Any], log_metric: LogMetric | None) -> None:
    """Log what the rewards do not say: how often the task was solved, how episodes ended, what failed."""
    if log_metric is None:
        return
    faults: Sequence[str | None] = fields["fault"]
    log_metric("rollout/fault_rate", _mean([fault is not None for fault in faults]))
    played = [row for row, fault in enumerate(faults) if fault is None]
    if not played:
        return
    log_metric("rollout/solve_rate", _mean([bool(fields["success"][row]) for row in played]))
    log_metric("rollout/turns", _mean([fields["turns"][row] for row in played]))
    actions = sum(fields["turns"][row] for row in played)
    if actions:
        log_metric("rollout/invalid_action_rate", sum(fields["invalid_actions"][row] for row in played) / actions)
    for reason in StopReason:
        log_metric(f"rollout/stop/{reason}", _mean([fields["stop_reason"][row] == reason for row in played]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
