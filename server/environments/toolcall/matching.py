"""Whether the calls of a reply are the calls expected: equality, argument rules, similarity, assignment. Pure.

Equality is JSON's, by type: a bool is no number, `1` is `1.0`, `"1"` is not `1`, null is only null. Calls of one turn
are assigned to the expected ones so that the whole fits best; one call answers for at most one expected call.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from typing import Literal, NamedTuple

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.items import ArgumentRule, ExpectedCall
from rolloutgym.server.environments.toolcall.parsing import Call
from rolloutgym.server.environments.toolcall.patterns import matches_whole

Strings = Literal["exact", "nfc", "casefold", "bfcl"]
ExtraArguments = Literal["allow", "declared", "forbid"]

MAX_RULE_CHARS = 10_000
"""A longer text never satisfies a `regex` or `similarity` rule."""


@dataclass(frozen=True, slots=True)
class MatchOptions:
    strings: Strings = "exact"
    extra_arguments: ExtraArguments = "forbid"
    """Arguments beyond the expected that cost nothing: any, those that the tool declares, or none."""
    subset: bool = False
    """An expected object matches one that holds more."""
    defaults_equal: bool = False
    """An argument at its schema's default may be given or left out, on either side."""


class ArgumentStatus(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    WRONG_TYPE = "wrong_type"
    """Different, and of another JSON type."""
    MISSING = "missing"
    EXTRA = "extra"


class Comparison(NamedTuple):
    """A call beside an expected one."""

    similarity: float
    """In [0, 1]; 1 exactly where names, keys and values are equal."""
    matched: bool
    """Under the options' policies."""
    arguments: dict[str, ArgumentStatus]
    """Of the arguments that count."""


class Pair(NamedTuple):
    call: int | None
    """Position among the reply's calls; null for an expected call that nothing answers for."""
    expected: int | None
    """Position among the turn's expected calls; null for a call too many."""
    comparison: Comparison | None


# ---- equality -------------------------------------------------------------------------------------------------------

_BFCL_DROPPED = re.compile(r"[ ,./\-_*^]")


def normalize(text: str, strings: Strings) -> str:
    if strings == "exact":
        return text
    if strings == "nfc":
        return unicodedata.normalize("NFC", text)
    if strings == "casefold":
        return unicodedata.normalize("NFC", text).casefold()
    return _BFCL_DROPPED.sub("", text).lower().replace("'", '"')


def equal(a: JsonValue, b: JsonValue, strings: Strings = "exact") -> bool:
    """JSON equality by type; arrays in order, objects in any."""
    if isinstance(a, str):
        return isinstance(b, str) and (
            a == b or (strings != "exact" and normalize(a, strings) == normalize(b, strings))
        )
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, int | float):
        return isinstance(b, int | float) and a == b
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b, [strings] * len(a)))
    if not isinstance(b, dict) or a.keys() != b.keys():
        return False
    return all(equal(value, b[key], strings) for key, value in a.items())


def contains(given: JsonValue, expected: JsonValue, strings: Strings = "exact") -> bool:
    """Equality, but an object may hold more than the expected one, at every depth that objects reach."""
    if not isinstance(expected, dict):
        return equal(given, expected, strings)
    if not isinstance(given, dict):
        return False
    return all(key in given and contains(given[key], value, strings) for key, value in expected.items())


def equal_unordered(a: JsonValue, b: JsonValue, strings: Strings = "exact") -> bool:
    """Equality, but the elements of the two arrays may come in any order."""
    if not isinstance(a, list) or not isinstance(b, list):
        return equal(a, b, strings)
    return len(a) == len(b) and Counter(_key(x, strings) for x in a) == Counter(_key(x, strings) for x in b)


def _key(value: JsonValue, strings: Strings) -> Hashable:
    """Equal keys for equal values."""
    if isinstance(value, str):
        return normalize(value, strings)
    if isinstance(value, bool) or value is None:
        return (str(value),)
    if isinstance(value, int | float):
        return value
    if isinstance(value, list):
        return ("array", *(_key(item, strings) for item in value))
    return ("object", frozenset((key, _key(item, strings)) for key, item in value.items()))


# ---- rules ----------------------------------------------------------------------------------------------------------


def satisfies(given: JsonValue, expected: JsonValue, rule: ArgumentRule, strings: Strings = "exact") -> bool:
    """Whether `given` is right where `expected` stands under `rule`."""
    match rule.kind:
        case "ignore":
            return True
        case "any_of":
            return equal(given, expected, strings) or any(equal(given, value, strings) for value in rule.values)
        case "unordered":
            return equal_unordered(given, expected, strings)
        case "number":
            return _within(given, expected, rule.tolerance)
        case "regex":
            return isinstance(given, str) and len(given) <= MAX_RULE_CHARS and matches_whole(rule.pattern, given)
        case "similarity":
            return isinstance(given, str) and isinstance(expected, str) and _alike(given, expected, rule, strings)
        case _:
            return equal(given, expected, strings)


def _within(given: JsonValue, expected: JsonValue, tolerance: float) -> bool:
    if isinstance(given, bool) or isinstance(expected, bool):
        return False
    if not isinstance(given, int | float) or not isinstance(expected, int | float):
        return False
    whole = isinstance(given, int) and isinstance(expected, int)
    try:
        # 0.4 lies 0.1 from 0.3, whatever the last bits of the doubles say; whole numbers are exact.
        noise = 0.0 if whole else 4 * math.ulp(max(abs(given), abs(expected)))
        return abs(given - expected) - tolerance <= noise
    except OverflowError:  # an integer beyond every double is near none
        return False


def _alike(given: str, expected: str, rule: ArgumentRule, strings: Strings) -> bool:
    a, b = normalize(given, strings), normalize(expected, strings)
    if 2 * min(len(a), len(b)) < rule.threshold * (len(a) + len(b)):
        return False  # the lengths alone rule it out
    return text_similarity(a, b) >= rule.threshold


def text_similarity(a: str, b: str) -> float:
    """2·LCS/(|a| + |b|) in [0, 1]: the share of characters in the longest common subsequence.

    The subsequence's length by bit-parallel addition (Hyyrö 2004), so that a long text costs milliseconds.
    """
    if a == b:
        return 1.0
    if not a or not b or max(len(a), len(b)) > MAX_RULE_CHARS:
        return 0.0
    positions: dict[str, int] = {}
    for index, character in enumerate(a):
        positions[character] = positions.get(character, 0) | (1 << index)
    full = (1 << len(a)) - 1
    row = full
    for character in b:
        matches = row & positions.get(character, 0)
        row = ((row + matches) | (row - matches)) & full
    return 2 * (len(a) - row.bit_count()) / (len(a) + len(b))


# ---- one call -------------------------------------------------------------------------------------------------------


def compare(call: Call, expected: ExpectedCall, schema: Mapping[str, JsonValue], options: MatchOptions) -> Comparison:
    """A call beside an expected one; `schema` is the argument schema of the expected tool.

    similarity = 0 if the names differ, else (1 + Jaccard of the keys + number of equal values)/(2 + number of keys
    expected). What counts on neither side: an argument whose rule is `ignore`, one left out that may be, and one beyond
    the expected where the options allow it.
    """
    if call.name != expected.name:
        return Comparison(0.0, False, {})
    statuses: dict[str, ArgumentStatus] = {}
    for key, value in expected.arguments.items():
        rule = expected.rules.get(key)
        if rule is not None and rule.kind == "ignore":
            continue
        if key not in call.arguments:
            if not _may_be_left_out(expected, key, value, schema, options):
                statuses[key] = ArgumentStatus.MISSING
        elif _is_right(call.arguments[key], value, expected, key, rule, options):
            statuses[key] = ArgumentStatus.EQUAL
        else:
            statuses[key] = _difference(call.arguments[key], value)
    for key, argument in call.arguments.items():
        if key not in expected.arguments:
            if _is_possible(argument, expected, key, options.strings):
                statuses[key] = ArgumentStatus.EQUAL
            elif not _may_be_added(key, argument, schema, options):
                statuses[key] = ArgumentStatus.EXTRA
    matched = all(status is ArgumentStatus.EQUAL for status in statuses.values())
    return Comparison(_similarity(statuses), matched, statuses)


def _similarity(statuses: Mapping[str, ArgumentStatus]) -> float:
    if not statuses:
        return 1.0
    counts = Counter(statuses.values())
    extra = counts[ArgumentStatus.EXTRA]
    wanted = len(statuses) - extra
    shared = wanted - counts[ArgumentStatus.MISSING]
    return (1 + shared / (wanted + extra) + counts[ArgumentStatus.EQUAL]) / (2 + wanted)


def _is_right(
    given: JsonValue,
    wanted: JsonValue,
    expected: ExpectedCall,
    key: str,
    rule: ArgumentRule | None,
    options: MatchOptions,
) -> bool:
    if rule is not None:
        return satisfies(given, wanted, rule, options.strings)
    if contains(given, wanted, options.strings) if options.subset else equal(given, wanted, options.strings):
        return True
    return _is_possible(given, expected, key, options.strings)


def _is_possible(given: JsonValue, expected: ExpectedCall, key: str, strings: Strings) -> bool:
    """Whether the data set names this value as another right one."""
    if not expected.possible or key not in expected.possible:
        return False
    return any(value != "" and _is_among(given, value, strings) for value in expected.possible[key])


def _is_among(given: JsonValue, value: JsonValue, strings: Strings) -> bool:
    """Whether `given` is an acceptable value of BFCL's. In one that is an object, or an array of objects, each member
    is a list of acceptable values of its own, with an empty text where the member may be left out."""
    if isinstance(value, dict):
        if not isinstance(given, dict) or not given.keys() <= value.keys():
            return False
        options = {key: member if isinstance(member, list) else [member] for key, member in value.items()}
        return all(
            any(option != "" and _is_among(given[key], option, strings) for option in members)
            if key in given
            else "" in members
            for key, members in options.items()
        )
    if isinstance(value, list) and isinstance(given, list) and any(isinstance(item, dict) for item in value):
        return len(given) == len(value) and all(map(_is_among, given, value, [strings] * len(given)))
    return equal(given, value, strings)


def _may_be_left_out(
    expected: ExpectedCall, key: str, value: JsonValue, schema: Mapping[str, JsonValue], options: MatchOptions
) -> bool:
    if expected.possible and "" in expected.possible.get(key, ()):
        return True
    return options.defaults_equal and _is_default(key, value, schema, options)


def _may_be_added(key: str, given: JsonValue, schema: Mapping[str, JsonValue], options: MatchOptions) -> bool:
    """Whether a call may have an argument that the expected call does not give."""
    if options.extra_arguments == "allow":
        return True
    if options.extra_arguments == "declared" and _declared(key, schema) is not None:
        return True
    return options.defaults_equal and _is_default(key, given, schema, options)


def _is_default(key: str, value: JsonValue, schema: Mapping[str, JsonValue], options: MatchOptions) -> bool:
    declared = _declared(key, schema)
    return (
        isinstance(declared, Mapping) and "default" in declared and equal(value, declared["default"], options.strings)
    )


def _declared(key: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """What the tool's schema says of an argument; null where it does not know it."""
    properties = schema.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None


def _difference(given: JsonValue, wanted: JsonValue) -> ArgumentStatus:
    return ArgumentStatus.DIFFERENT if _json_type(given) == _json_type(wanted) else ArgumentStatus.WRONG_TYPE


def _json_type(value: JsonValue) -> type:
    return float if type(value) is int else type(value)


# ---- all calls of a turn --------------------------------------------------------------------------------------------

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
        if not (comparisons[pair].matched and comparisons[pair].similarity == 1.0):
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
