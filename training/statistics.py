"""Figures over played episodes: pure functions, each with its source."""

import math
from collections.abc import Sequence
from typing import NamedTuple

_Z95 = 1.959963984540054


class Interval(NamedTuple):
    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """The chance that at least one of k attempts, drawn from these without replacement, is solved.

    1 − C(attempts − solved, k) / C(attempts, k), the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374).
    """
    if not 0 < k <= attempts or not 0 <= solved <= attempts:
        raise ValueError(f"pass@{k} is not defined for {solved} solved of {attempts} attempts")
    return 1.0 - math.comb(attempts - solved, k) / math.comb(attempts, k)


def wilson(rate: float, trials: float) -> Interval:
    """Wilson's 95 % score interval for a rate seen in so many independent trials."""
    if trials <= 0:
        return Interval(0.0, 1.0)
    z2 = _Z95**2 / trials
    centre = (rate + z2 / 2) / (1 + z2)
    half = _Z95 / (1 + z2) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials))
    return Interval(max(centre - half, 0.0), min(centre + half, 1.0))


def solve_interval(solved_by_task: Sequence[Sequence[bool]]) -> Interval:
    """95 % interval for the mean solve rate over tasks, each tried a few times.

    Attempts at one task are alike, so they are not independent trials: Wilson's interval is taken at the effective
    number of trials (Kish), p (1 − p) over the variance of the mean of task rates.
    """
    rates = [mean(attempts) for attempts in solved_by_task]
    tasks, rate = len(rates), mean(rates)
    if tasks < 2:
        return wilson(rate if rates else 0.0, tasks)
    variance = math.fsum((one - rate) ** 2 for one in rates) / (tasks - 1) / tasks
    attempts = sum(map(len, solved_by_task))
    effective = min(rate * (1 - rate) / variance, attempts) if variance > 0 else tasks
    return wilson(rate, effective)


class Difference(NamedTuple):
    """Of two runs over the same tasks, second minus first."""

    tasks: int
    mean: float
    interval: Interval
    better: int
    worse: int


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Mean difference of paired values with its normal 95 % interval; pairs that agree narrow it."""
    gaps = [b - a for a, b in zip(first, second, strict=True)]
    centre = mean(gaps)
    spread = math.sqrt(math.fsum((gap - centre) ** 2 for gap in gaps) / (len(gaps) - 1)) if len(gaps) > 1 else math.nan
    half = _Z95 * spread / math.sqrt(len(gaps)) if gaps else math.nan
    return Difference(
        tasks=len(gaps),
        mean=centre,
        interval=Interval(centre - half, centre + half),
        better=sum(gap > 0 for gap in gaps),
        worse=sum(gap < 0 for gap in gaps),
    )
