"""What is logged, under TRL's names: means weighted by what they are means of, minima and maxima over all processes.

Every process counts for itself; `summary` gathers. A mean over tokens is the sum over all tokens through their number,
so that it does not depend on how rollouts were cut into micro-batches.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

Gather = Callable[[list[Any]], list[Any]]
"""The lists of all processes as one, as `accelerate.utils.gather_object` makes it."""


class Metrics:
    def __init__(self) -> None:
        self._sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._least: dict[str, float] = {}
        self._most: dict[str, float] = {}

    def mean(self, name: str, value: float, weight: float = 1.0) -> None:
        """Add a value that stands for `weight` things. NaN is left out."""
        if weight > 0 and not math.isnan(value):
            total = self._sums[name]
            total[0] += value * weight
            total[1] += weight

    def least(self, name: str, value: float) -> None:
        self._least[name] = min(value, self._least.get(name, math.inf))

    def most(self, name: str, value: float) -> None:
        self._most[name] = max(value, self._most.get(name, -math.inf))

    def summary(self, gather: Gather) -> dict[str, float]:
        """All metrics of all processes, and begin anew. Every process must call it at the same time."""
        parts = gather([(dict(self._sums), self._least, self._most)])
        result: dict[str, float] = {}
        for name in {name for sums, _, _ in parts for name in sums}:
            totals = [sums[name] for sums, _, _ in parts if name in sums]
            result[name] = sum(total for total, _ in totals) / sum(weight for _, weight in totals)
        for place, pick in ((1, min), (2, max)):
            for name in {name for part in parts for name in part[place]}:
                result[name] = pick(part[place][name] for part in parts if name in part[place])
        self._sums.clear()
        self._least, self._most = {}, {}
        return dict(sorted(result.items()))
