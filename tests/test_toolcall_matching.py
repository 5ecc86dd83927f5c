"""Equality by JSON's types, argument rules, similarity, and the assignment of calls to expected calls."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutgym.server.environments.toolcall.assignment import assign, by_match, by_similarity, pair_up
from rolloutgym.server.environments.toolcall.bfcl import accepts
from rolloutgym.server.environments.toolcall.equality import (
    MAX_RULE_CHARS,
    contains,
    equal,
    equal_unordered,
    satisfies,
    text_similarity,
)
from rolloutgym.server.environments.toolcall.items import ArgumentRule, ExpectedCall
from rolloutgym.server.environments.toolcall.matching import ArgumentStatus, Comparison, MatchOptions, compare
from rolloutgym.server.environments.toolcall.parsing import Call

# Each value equals itself and no other one.
DISTINCT: list[Any] = [
    None, True, False, 0, 1, 2.5, "", "0", "1", "true", "null", "None", "[]", [], [[]], {}, [0], [False], [None], ["a"],
    {"a": None}, {"a": []}, {"a": 0}, {"a": False}, {"b": 0}, {"a": 0, "b": 0}, [1, 2], [2, 1], "A", "a", "e\u0301",
    "\u00e9",
]  # fmt: skip


@pytest.mark.parametrize("a", DISTINCT, ids=repr)
def test_values_equal_themselves_alone(a: Any) -> None:
    assert [b for b in DISTINCT if equal(a, b)] == [a]
    assert [b for b in DISTINCT if equal_unordered(a, b)] == ([a] if a not in ([1, 2], [2, 1]) else [[1, 2], [2, 1]])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (0.0, -0.0),
        ([12.0, 15.0], [12, 15]),
        ({"a": 1, "b": [100]}, {"b": [100.0], "a": 1.0}),
        (10**20, 1e20),
        ("http:\\/\\/x", "http:\\/\\/x"),
    ],
)
def test_equal_values_that_are_written_differently(a: Any, b: Any) -> None:
    assert equal(a, b)
    assert equal_unordered(a, b)


def test_nan_equals_nothing() -> None:
    assert not equal(float("nan"), float("nan"))


@pytest.mark.parametrize(
    ("strings", "a", "b", "same"),
    [
        ("exact", "é", "e\u0301", False),
        ("nfc", "é", "e\u0301", True),
        ("nfc", "é", "É", False),
        ("casefold", "STRASSE", "straße", True),
        ("casefold", "É", "e\u0301", True),
        ("casefold", "a b", "ab", False),
        ("bfcl", "April 1, 2024", "april1 2024", True),
        ("bfcl", "it's", 'it"s', True),
        ("bfcl", "a+b", "ab", False),
    ],
)
def test_text_options_reach_into_arrays_and_objects(strings: Any, a: str, b: str, same: bool) -> None:
    assert equal(a, b, strings) == same
    assert equal([{"k": a}], [{"k": b}], strings) == same
    assert contains({"k": a, "more": 1}, {"k": b}, strings) == same
    assert equal_unordered([1, a], [b, 1], strings) == same


@pytest.mark.parametrize(
    ("given_", "expected", "inside"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, False),
        ({"a": True}, {"a": 1}, False),
        ({}, {}, True),
        ([], {}, False),
        ({"a": {}}, {"a": {}}, True),
        ({"a": None}, {"a": {}}, False),
    ],
)
def test_contains(given_: Any, expected: Any, inside: bool) -> None:
    assert contains(given_, expected) == inside


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab1", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_equality_is_symmetric_and_agrees_with_its_relatives(a: Any, b: Any) -> None:
    assert equal(a, a)
    assert equal(a, b) == equal(b, a)
    assert not equal(a, b) or (contains(a, b) and equal_unordered(a, b))
    if isinstance(a, list) and isinstance(b, list):
        some_order = any(equal(list(order), b) for order in itertools.permutations(a))
        assert equal_unordered(a, b) == some_order


# ---- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected", "right", "wrong"),
    [
        ({"kind": "exact"}, 1, [1, 1.0], [True, "1", 2]),
        ({"kind": "any_of", "values": [2, "two"]}, 1, [1, 2.0, "two"], [3, "Two", True]),
        ({"kind": "regex", "pattern": r"\d{4}-\d\d"}, "", ["2026-01"], ["2026-01-01", " 2026-01", 2026]),
        ({"kind": "number", "tolerance": 0.5}, 10, [10, 9.5, 10.5], [9.4, "10", True, None]),
        ({"kind": "number", "tolerance": 0.1}, 0.3, [0.4, 0.2, 0.39999], [0.4001, 0.1999]),
        ({"kind": "number"}, 0.3, [0.1 + 0.2, 0.3], [0.3000001]),
        ({"kind": "number"}, 10**17, [10**17], [10**17 + 1]),
        ({"kind": "number", "tolerance": 1}, 1, [1, 0.5], [True, False]),
        ({"kind": "number", "tolerance": 1}, True, [], [True, 1]),
        ({"kind": "similarity", "threshold": 0.8}, "the red car", ["the red car", "the red cat"], ["blue", "", 5]),
        ({"kind": "ignore"}, 1, [1, None, {}], []),
        ({"kind": "unordered"}, ["a", "b", "b"], [["b", "a", "b"]], [["a", "b"], ["a", "a", "b"], "abb"]),
    ],
)
def test_rules(rule: dict[str, Any], expected: Any, right: list[Any], wrong: list[Any]) -> None:
    checked = ArgumentRule.model_validate(rule)
    assert [satisfies(value, expected, checked) for value in right] == [True] * len(right)
    assert [satisfies(value, expected, checked) for value in wrong] == [False] * len(wrong)


def test_no_pattern_is_slow_on_any_text() -> None:
    """A backtracking engine would need longer than the universe has."""
    for pattern in (r"(a+)+", r"(a|aa)+", r"(\w+\s?)*", r"(.*a){12}", r"(?:a?){60}a{60}"):
        assert not satisfies("a" * 5000 + "!", "a", ArgumentRule(kind="regex", pattern=pattern))


def test_text_similarity_is_the_share_of_the_longest_common_subsequence() -> None:
    assert text_similarity("", "") == 1.0
    assert text_similarity("abc", "") == 0.0
    assert text_similarity("abcd", "abd") == 2 * 3 / 7
    assert text_similarity("x" * (MAX_RULE_CHARS + 1), "x") == 0.0
    assert not satisfies("x" * (MAX_RULE_CHARS + 1), "", ArgumentRule(kind="regex", pattern="x*"))


@given(st.text("ab", max_size=7), st.text("ab", max_size=7))
def test_text_similarity_against_the_textbook(a: str, b: str) -> None:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    expected = 2 * table[-1][-1] / (len(a) + len(b)) if a or b else 1.0
    assert text_similarity(a, b) == pytest.approx(expected)


WILD = st.recursive(
    st.none() | st.booleans() | st.sampled_from([10**400, -(10**400), 1e308, 0.1, 1]) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
RULES = [
    ArgumentRule(kind="exact"),
    ArgumentRule(kind="any_of", values=(1, "a", [None])),
    ArgumentRule(kind="regex", pattern="a*"),
    ArgumentRule(kind="number", tolerance=0.5),
    ArgumentRule(kind="similarity", threshold=0.5),
    ArgumentRule(kind="unordered"),
    ArgumentRule(kind="ignore"),
]
TYPES: list[Any] = [
    {},
    *({"type": name} for name in ("string", "integer", "number", "boolean", "object")),
    {"type": "array", "items": {}},
]


@settings(max_examples=300, deadline=None)
@given(WILD, WILD, st.sampled_from(["exact", "nfc", "casefold", "bfcl"]))
def test_nothing_that_a_model_can_write_makes_matching_raise(a: Any, b: Any, strings: Any) -> None:
    for rule in RULES:
        assert satisfies(a, b, rule, strings) in (True, False)
    for schema in TYPES:
        expected = ExpectedCall(name="f", arguments={}, possible={"a": (b,)})
        assert accepts(Call("f", {"a": a}), expected, {"properties": {"a": schema}}) in (True, False)


# ---- one call -------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {"properties": {"a": {}, "b": {"default": 5}, "c": {}}}


def expect(name: str = "f", possible: Any = None, rules: Any = None, **arguments: Any) -> ExpectedCall:
    return ExpectedCall(name=name, arguments=arguments, possible=possible, rules=rules or {})


def compared(call: dict[str, Any], expected: ExpectedCall, **options: Any) -> Comparison:
    return compare(Call("f", call), expected, SCHEMA, MatchOptions(**options))


@pytest.mark.parametrize(
    ("call", "expected", "similarity"),
    [
        ({"a": 1}, {"a": 1}, 1.0),
        ({}, {}, 1.0),
        ({"a": 2}, {"a": 1}, 2 / 3),
        ({}, {"a": 1}, 1 / 3),
        ({"a": 1, "x": 1}, {"a": 1}, (1 + 1 / 2 + 1) / 3),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, 3 / 4),
        ({"x": 1}, {"a": 1}, 1 / 3),
        ({"x": 1}, {}, 1 / 2),
    ],
)
def test_similarity_formula(call: dict[str, Any], expected: dict[str, Any], similarity: float) -> None:
    """(1 + Jaccard of the keys + equal values)/(2 + keys expected), by hand."""
    assert compared(call, expect(**expected)).similarity == pytest.approx(similarity)


def test_another_name_is_not_similar_at_all() -> None:
    assert compare(Call("g", {"a": 1}), expect(a=1), SCHEMA, MatchOptions()) == (0.0, False, {})


def test_statuses_say_what_is_wrong_and_not_what_is_right() -> None:
    comparison = compared({"a": 1, "b": "2", "x": 9}, expect(a=1, b=2, c=3))
    assert comparison.arguments == {"a": "equal", "b": "wrong_type", "c": "missing", "x": "extra"}
    assert compared({"a": 2.5}, expect(a=1)).arguments == {"a": ArgumentStatus.DIFFERENT}
    assert not comparison.matched


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"extra_arguments": "forbid"}, []),
        ({"extra_arguments": "declared"}, ["c"]),
        ({"extra_arguments": "allow"}, ["c", "x"]),
        ({"extra_arguments": "allow", "subset": True}, ["c", "x"]),
    ],
)
def test_extra_arguments(options: dict[str, Any], allowed: list[str]) -> None:
    for extra in ("c", "x"):
        similarity, matched, _ = compared({"a": 1, extra: 0}, expect(a=1), **options)
        assert matched == (similarity == 1.0) == (extra in allowed)


def test_defaults_may_count_as_left_out() -> None:
    for call, expected in (({"a": 1, "b": 5}, expect(a=1)), ({"a": 1}, expect(a=1, b=5))):
        assert compared(call, expected, defaults_equal=True) == (1.0, True, {"a": "equal"})
        assert not compared(call, expected).matched
    assert not compared({"a": 1}, expect(a=1, b=6), defaults_equal=True).matched
    assert not compared({"a": 1, "b": 6}, expect(a=1, b=5), defaults_equal=True).matched
    assert not compared({"a": 1, "b": True}, expect(a=1, b=5), defaults_equal=True).matched


def test_an_expected_default_keeps_its_rule_and_its_alternatives() -> None:
    close = ArgumentRule(kind="number", tolerance=1)
    for expected in (expect(b=5, rules={"b": close}), expect(b=5, possible={"b": [5, 6]})):
        for call in ({}, {"b": 5}, {"b": 6}):
            assert compared(call, expected, defaults_equal=True)[:2] == (1.0, True)
        assert compared({"b": 7}, expected, defaults_equal=True).arguments == {"b": "different"}


@pytest.mark.parametrize(
    ("given_value", "right"),
    [
        ({"size": "large", "milk": "oat"}, True),
        ({"size": "large"}, True),
        ({"size": "L"}, True),
        ({"milk": "oat"}, False),
        ({"size": "large", "sugar": 1}, False),
        ({"size": "large", "milk": ""}, False),
        ({"size": ["large", "L"]}, False),  # the alternatives are no value themselves
        ("large", False),
    ],
)
def test_alternatives_inside_objects(given_value: Any, right: bool) -> None:
    order = {"size": ["large", "L"], "milk": ["", "oat"]}
    one = expect(x={"size": "large"}, possible={"x": [order]})
    several = expect(x=[{"size": "large"}, {"size": "large"}], possible={"x": [[order, order]]})
    assert compared({"x": given_value}, one)[1] == right
    assert compared({"x": [{"size": "L"}, given_value]}, several)[1] == right
    assert not compared({"x": [given_value]}, several)[1]


def test_possible_values_are_right_and_optional_arguments_may_be_left_out() -> None:
    expected = expect(a="NYC", possible={"a": ["NYC", "New York"], "b": ["", 5], "c": [{"k": [1]}]})
    assert compared({"a": "New York"}, expected).matched
    assert compared({"a": "NYC", "b": 5}, expected) == (1.0, True, {"a": "equal", "b": "equal"})
    assert not compared({"a": "NYC", "b": 6}, expected).matched
    assert not compared({"a": ""}, expected).matched
    assert not compared({"a": "NYC", "b": ""}, expected).matched  # it stands for leaving the argument out
    assert compared({}, expect(b=5, possible={"b": ["", 5]})) == (1.0, True, {})


def test_rules_take_the_place_of_equality() -> None:
    ignore, close = ArgumentRule(kind="ignore"), ArgumentRule(kind="number", tolerance=1)
    expected = expect(a="any", b=10, rules={"a": ignore, "b": close})
    for call in ({"a": "x", "b": 11}, {"b": 9}):
        assert compared(call, expected).matched
    assert not compared({"a": "any", "b": 12}, expected).matched


def test_subset_reaches_nested_objects_only_if_asked() -> None:
    expected, call = expect(a={"k": 1}), {"a": {"k": 1, "more": 2}}
    assert compared(call, expected, subset=True, extra_arguments="allow").matched
    assert not compared(call, expected, extra_arguments="allow").matched


# ---- assignment -----------------------------------------------------------------------------------------------------

WEIGHTS = st.integers(1, 6).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=columns, max_size=columns), min_size=1, max_size=6
    )
)


@settings(max_examples=300, deadline=None)
@given(WEIGHTS)
def test_assignment_is_the_best_there_is(weights: list[list[float]]) -> None:
    pairs = assign(weights)
    rows, columns = zip(*pairs, strict=True)
    assert len(set(rows)) == len(set(columns)) == min(len(weights), len(weights[0]))
    short, long = sorted((weights, [list(column) for column in zip(*weights, strict=True)]), key=len)
    best = max(
        sum(short[i][j] for i, j in enumerate(way)) for way in itertools.permutations(range(len(long)), len(short))
    )
    assert sum(weights[i][j] for i, j in pairs) == pytest.approx(best)


def pairs_of(table: list[list[float]], order: Any, weight: Any = by_similarity) -> list[tuple[int | None, int | None]]:
    def look_up(i: int, j: int) -> Comparison:
        return Comparison(table[i][j], table[i][j] == 1.0, {})

    return [
        pair[:2] for pair in pair_up(look_up, len(table), len(table[0]) if table else 0, order=order, weight=weight)
    ]


def test_orders() -> None:
    crossed = [[0.5, 1.0], [1.0, 0.5]]
    assert pairs_of(crossed, "any") == [(0, 1), (1, 0)]
    assert pairs_of(crossed, "ordered") == [(0, 0), (1, 1)]
    assert pairs_of([[0.0, 1.0], [1.0, 0.0]], "ordered") in (
        [(0, 1), (1, None), (None, 0)],
        [(1, 0), (0, None), (None, 1)],
    )
    assert pairs_of([[0.0, 1.0], [1.0, 0.0]], "by_position") == [(0, None), (1, None), (None, 0), (None, 1)]
    # a missing first call shifts nothing
    assert pairs_of([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "ordered") == [(0, 1), (1, 2), (None, 0)]


def test_greedy_would_be_wrong() -> None:
    """The first call fits both expected calls, the second only the first one."""
    table = [[1.0, 0.9], [0.9, 0.0]]
    assert pairs_of(table, "any") == [(0, 1), (1, 0)]
    assert pairs_of([[1.0, 1.0], [1.0, 0.0]], "any", by_match) == [(0, 1), (1, 0)]


@settings(max_examples=200, deadline=None)
@given(WEIGHTS)
def test_ordered_pairs_are_the_best_that_keep_the_order(table: list[list[float]]) -> None:
    pairs = [(i, j) for i, j in pairs_of(table, "ordered") if i is not None and j is not None]
    assert pairs == sorted(pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    assert [j for _, j in pairs] == sorted(j for _, j in pairs)

    def best(i: int, j: int) -> float:
        if i == len(table) or j == len(table[0]):
            return 0.0
        return max(best(i + 1, j), best(i, j + 1), table[i][j] + best(i + 1, j + 1))

    if len(table) * len(table[0]) <= 12:
        assert sum(table[i][j] for i, j in pairs) == pytest.approx(best(0, 0))


def test_nothing_to_pair() -> None:
    assert pairs_of([], "any") == []
    assert assign([]) == []
    assert [pair[:2] for pair in pair_up(lambda i, j: pytest.fail("nothing to compare"), 2, 0)] == [
        (0, None),
        (1, None),
    ]
