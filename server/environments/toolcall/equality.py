"""Whether a value is the one expected: equality and argument rules. Pure.

Equality is JSON's, by type: a bool is no number, `1` is `1.0`, `"1"` is not `1`, null is only null.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable
from typing import Literal

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.items import ArgumentRule
from rolloutgym.server.environments.toolcall.patterns import matches_whole

Strings = Literal["exact", "nfc", "casefold", "bfcl"]

MAX_RULE_CHARS = 10_000
"""A longer text never satisfies a `regex` or `similarity` rule."""


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
