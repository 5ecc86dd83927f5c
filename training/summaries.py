"""What a set of played episodes says: solve rate first, reward apart from it, and why episodes ended.

Pure functions over records. A faulted episode is counted and left out of everything else; a task solved is a task
solved, never partial credit.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rolloutgym.training.evaluation import EpisodeRecord
from rolloutgym.training.statistics import Difference, Interval, mean, paired_difference, pass_at_k, solve_interval


@dataclass(frozen=True)
class Summary:
    """All rates are fractions; means are per episode."""

    tasks: int
    episodes: int
    faults: int
    solve_rate: float
    interval: Interval
    """Of the solve rate, 95 %."""
    pass_at_k: dict[int, float]
    """For k = 1, 2, 4, … up to the samples that every task has."""
    mean_return: float
    components: dict[str, float]
    invalid_action_rate: float
    """Of all actions sent."""
    stop_reasons: dict[str, float]
    turns: float
    sampled_tokens: float


def summarise(records: Sequence[EpisodeRecord]) -> Summary:
    played = [record for record in records if record.fault is None]
    by_task: defaultdict[str, list[bool]] = defaultdict(list)
    for record in played:
        by_task[record.task_id].append(bool(record.success))
    attempts = list(by_task.values())
    components = {name for record in played for name in record.components}
    stops = Counter(str(record.stop_reason) for record in played)
    actions = sum(record.turns for record in played)
    return Summary(
        tasks=len(by_task),
        episodes=len(played),
        faults=len(records) - len(played),
        solve_rate=mean([mean(tries) for tries in attempts]),
        interval=solve_interval(attempts),
        pass_at_k=_pass_at_k(attempts),
        mean_return=mean([record.episode_return or 0.0 for record in played]),
        components={name: mean([record.components.get(name, 0.0) for record in played]) for name in sorted(components)},
        invalid_action_rate=sum(record.invalid_actions for record in played) / actions if actions else 0.0,
        stop_reasons={reason: count / len(played) for reason, count in stops.most_common()},
        turns=mean([record.turns for record in played]),
        sampled_tokens=mean([record.sampled_tokens for record in played]),
    )


def summarise_groups(records: Sequence[EpisodeRecord], tag: str) -> dict[str, Summary]:
    """One summary for each value of a tag, in the tag's order; episodes without the tag under `-`."""
    groups: defaultdict[str, list[EpisodeRecord]] = defaultdict(list)
    for record in records:
        groups[str(record.tags.get(tag, "-"))].append(record)
    return {name: summarise(groups[name]) for name in sorted(groups)}


def compare(first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord]) -> Difference:
    """The second run's solve rate minus the first's, task by task, over the tasks that both played."""
    before, after = _rates(first), _rates(second)
    shared = sorted(before.keys() & after.keys())
    return paired_difference([before[task] for task in shared], [after[task] for task in shared])


def _rates(records: Sequence[EpisodeRecord]) -> Mapping[str, float]:
    tries: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.fault is None:
            tries[record.task_id].append(float(bool(record.success)))
    return {task: mean(solved) for task, solved in tries.items()}


def _pass_at_k(attempts: Sequence[Sequence[bool]]) -> dict[int, float]:
    fewest = min(map(len, attempts), default=0)
    powers = {2**power for power in range(fewest.bit_length())} | {fewest}
    return {
        k: mean([pass_at_k(len(tries), sum(tries), k) for tries in attempts]) for k in sorted(powers) if 0 < k <= fewest
    }
