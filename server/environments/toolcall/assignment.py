"""Which of a reply's calls answers for which expected call of the turn. Pure.

Calls are assigned so that the whole fits best; one call answers for at most one expected call.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Literal, NamedTuple

from rolloutgym.server.environments.toolcall.matching import Comparison


class Pair(NamedTuple):
    call: int | None
    """Position among the reply's calls; null for an expected call that nothing answers for."""
    expected: int | None
    """Position among the turn's expected calls; null for a call too many."""
    comparison: Comparison | None


Weight = Callable[[Comparison], float]
"""What a pair is worth to the assignment."""

_TINY = 4


def by_match(comparison: Comparison) -> float:
    """As many matches as possible, and among those the likest pairs."""
    return comparison.similarity + (1000.0 if comparison.matched else 0.0)


def by_similarity(comparison: Comparison) -> float:
    return comparison.similarity


def pair_up(
    compared: Callable[[int, int], Comparison],
    calls: int,
    expected: int,
    *,
    order: Literal["ordered", "any", "by_position"] = "any",
    weight: Weight = by_match,
) -> tuple[Pair, ...]:
    """Pairs of calls and expected calls, then what is left over on either side.

    `any`: the assignment of greatest total weight. `ordered`: the greatest among those that keep the order.
    `by_position`: first with first. Pairs of different tools are left over.
    """
    if order == "by_position":
        chosen = [(i, i) for i in range(min(calls, expected))]
        comparisons = {pair: compared(*pair) for pair in chosen}
    else:
        chosen, comparisons = _best(compared, calls, expected, order, weight)
    pairs = [Pair(i, j, comparisons[i, j]) for i, j in chosen if comparisons[i, j].similarity > 0]
    paired_calls = {pair.call for pair in pairs}
    paired_expected = {pair.expected for pair in pairs}
    pairs += [Pair(i, None, None) for i in range(calls) if i not in paired_calls]
    pairs += [Pair(None, j, None) for j in range(expected) if j not in paired_expected]
    return tuple(pairs)


_Chosen = list[tuple[int, int]]
_Comparisons = dict[tuple[int, int], Comparison]


def _best(
    compared: Callable[[int, int], Comparison], calls: int, expected: int, order: str, weight: Weight
) -> tuple[_Chosen, _Comparisons]:
    diagonal = [(i, i) for i in range(min(calls, expected))]
    comparisons: _Comparisons = {}
    for pair in diagonal:
        comparisons[pair] = compared(*pair)
        if not comparisons[pair].matched:
            break
    else:
        return diagonal, comparisons  # nothing can be better
    for i in range(calls):
        for j in range(expected):
            if (i, j) not in comparisons:
                comparisons[i, j] = compared(i, j)
    weights = [[weight(comparisons[i, j]) for j in range(expected)] for i in range(calls)]
    chosen = _keeping_order(weights) if order == "ordered" else assign(weights)
    return chosen, comparisons


def assign(weights: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """The one-to-one pairs (row, column) of greatest total weight, rows ascending."""
    rows, columns = len(weights), len(weights[0]) if weights else 0
    if not rows or not columns:
        return []
    if rows > _TINY or columns > _TINY:
        # Imported when needed: most turns have a call or two, and the import costs more than a thousand of them.
        import numpy as np
        from lap import lapjvx

        found = lapjvx(-np.array(weights, dtype=np.float64), extend_cost=True, return_cost=False)
        return sorted((int(i), int(j)) for i, j in zip(*found, strict=True))
    if rows <= columns:
        best = max(permutations(range(columns), rows), key=lambda p: sum(weights[i][j] for i, j in enumerate(p)))
        return list(enumerate(best))
    best = max(permutations(range(rows), columns), key=lambda p: sum(weights[i][j] for j, i in enumerate(p)))
    return sorted((i, j) for j, i in enumerate(best))


def _keeping_order(weights: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """The pairs of greatest total weight among those whose rows and columns both ascend."""
    rows, columns = len(weights), len(weights[0]) if weights else 0
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], weights[i][j] + best[i + 1][j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < rows and j < columns:
        if weights[i][j] > 0 and best[i][j] == weights[i][j] + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs
