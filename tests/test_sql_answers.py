"""When an answer is right: cells, rows, order, ties, columns, and the forms that a text may have."""

import csv
import io
import itertools
import json
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rolloutgym.server.environments.sql.answers import (
    AnswerOptions,
    compare,
    compare_on_copy,
    grade,
    multiset_f1,
    spell,
)
from rolloutgym.server.environments.sql.comparison import (
    Expected,
    Group,
    Quoted,
    Spelled,
    cells_equal,
    rows_match,
)
from rolloutgym.server.environments.sql.database import Cell, QueryResult, Row
from rolloutgym.server.environments.sql.gold import Gold

UNORDERED_ROWS: tuple[Row, ...] = (("a", 1), ("b", 2), ("b", 2), ("c", None))


def expected_of(rows: Sequence[Row], *, ordered: bool = False) -> Expected:
    if ordered:
        return tuple(Group((row,), 1) for row in rows)
    return (Group(tuple(rows), len(rows)),)


def gold_of(rows: Sequence[Row], *, ordered: bool = False, columns: Sequence[str] = ()) -> Gold:
    width = len(rows[0]) if rows else 1
    return Gold(
        columns=tuple(columns) or tuple(f"c{number}" for number in range(width)),
        rows=tuple(rows),
        ordered=ordered,
        accepted=(expected_of(rows, ordered=ordered),),
        read=frozenset(),
    )


def result_of(rows: Sequence[Row], width: int | None = None, *, truncated: bool = False) -> QueryResult:
    columns = tuple(f"x{number}" for number in range(len(rows[0]) if width is None else width))
    return QueryResult(columns, tuple(rows), truncated, frozenset())


# ---- cells ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_cell", "expected", "right"),
    [
        # integers are exact, however they are written
        (Spelled("42"), 42, True),
        (Spelled("42.0"), 42, True),
        (Spelled("+42"), 42, True),
        (Spelled("4.2e1"), 42, True),
        (Spelled("42.0001"), 42, False),
        (Spelled("1000001"), 1000000, False),
        (Spelled("9223372036854775807"), 2**63 - 1, True),
        (Spelled("9223372036854775806"), 2**63 - 1, False),
        (Spelled("forty-two"), 42, False),
        (Spelled("1,234,567"), 1234567, True),
        (Spelled("-1,234.50"), -1234.5, True),
        (Spelled("12,34"), 1234, False),
        (Spelled("1,2345"), 12345, False),
        (Spelled("0,123.4"), 123.4, True),
        (Spelled("1,234"), "1234", False),
        (Spelled("４２"), 42, False),
        (Quoted("42"), 42, True),
        (42.0, 42, True),
        ("42", 42, False),
        # reals: to a millionth, or rounded to the digits shown
        (Spelled("3.14"), 3.14159, True),
        (Spelled("3.142"), 3.14159, True),
        (Spelled("3.15"), 3.14159, False),
        (Spelled("3.15"), 3.14, False),
        (Spelled("3.140"), 3.14159, False),
        (Spelled("3.1"), 3.14159, False),
        (Spelled("3"), 3.14159, False),
        (Spelled("33.3"), 33.33333, False),
        (Spelled("33.33"), 33.33333, True),
        (Spelled("3"), 3.0, True),
        (Spelled("3"), 2.9999999999999996, True),
        (Spelled("100"), 100.5, False),
        (Spelled("101"), 100.5, False),
        (Spelled("100.5"), 100.5, True),
        (Spelled("0.05"), 0.0512, False),
        (Spelled("0.0512"), 0.05123, True),
        (Spelled("0.00"), 0.0012, False),
        (Spelled("0.86"), 0.857142, False),
        (Spelled("0.857"), 0.857142, True),
        (Spelled("2.67"), 2.675, True),  # both neighbours of a half
        (Spelled("2.68"), 2.675, True),
        (Spelled("2.66"), 2.675, False),
        (Spelled("5e-324"), 5e-324, True),  # as the smallest real is written, which differs from it by a hundredth
        (Spelled("1e-323"), 5e-324, False),
        # zero, but for the order in which a sum was added up
        (5.7e-14, 0.0, True),
        (0.0, -5.7e-14, True),
        (0, 5.7e-14, True),
        (Spelled("0"), 5.7e-14, True),
        (Spelled("5.684341886080802e-14"), 0.0, True),
        (5.7e-14, 6.7e-14, False),
        (1e-9, 0.0, False),
        (5.7e-14, 0, False),
        (Spelled("1.23e5"), 123456.7, False),
        (Spelled("-3.14"), 3.14159, False),
        (Spelled("65.48270270270272"), 65.48270270270227, True),
        (Spelled("inf"), 1e308, False),
        (Spelled("nan"), 1.0, False),
        (33.333333333333336, 33.33333333333333, True),
        (33.4, 33.33333333333333, False),
        (33, 33.33333333333333, False),
        (float("inf"), float("inf"), True),
        (1.0, float("inf"), False),
        # text
        ("Zoe\u0308", "Zo\u00eb", True),
        (Spelled("Zo\u00eb"), "Zoe\u0308", True),
        (Spelled("Zoe"), "Zo\u00eb", False),
        (Spelled("  Paris "), "Paris", True),
        (Spelled("Paris"), " Paris ", True),
        (Spelled("paris"), "Paris", False),
        (Spelled("3"), "3", True),
        (Spelled("3"), "3.0", False),
        (Spelled("03"), "3", False),
        (3, "3", False),
        (Spelled("true"), "true", True),
        (Spelled("a\\nb"), "a\nb", True),
        (Spelled("a b"), "a\nb", False),
        # NULL is neither 0 nor ''
        (None, None, True),
        (Spelled("NULL"), None, True),
        (Spelled("null"), None, True),
        (Quoted("NULL"), None, False),
        (Spelled(""), None, False),
        (Spelled("0"), None, False),
        (0, None, False),
        ("", None, False),
        (None, 0, False),
        (None, "", False),
        (Spelled("NULL"), "null", False),
        (Spelled("null"), "null", True),
        # bytes
        (b"\x01\xff", b"\x01\xff", True),
        (Spelled("X'01FF'"), b"\x01\xff", True),
        (Spelled("x'01ff'"), b"\x01\xff", True),
        (Spelled("01ff"), b"\x01\xff", False),
    ],
)
def test_cell(given_cell: Cell, expected: Cell, right: bool) -> None:
    assert cells_equal(given_cell, expected) is right
    # In a column of a group, where keys stand in for the comparison, the verdict is the same.
    assert rows_match([(given_cell,), ("other",)], expected_of([(expected,), ("other",)])) is right
    other: Cell = 7 if isinstance(expected, int) else "other"
    assert rows_match([(given_cell, other), (None, other)], expected_of([(None, other), (expected, other)])) is right


def test_case_is_folded_on_request() -> None:
    assert cells_equal(Spelled("STRASSE"), "Straße", fold_case=True)
    assert not grade("paris", gold_of([("Paris",)]))
    assert grade("paris", gold_of([("Paris",)]), AnswerOptions(fold_case=True))
    assert grade("b\nA", gold_of([("a",), ("B",)]), AnswerOptions(fold_case=True))


# ---- forms of an answer ---------------------------------------------------------------------------------------------

ONE = [(42,)]
NAMES = [("Ann",), ("Bo",), ("Bo",)]
COMMAS = [("Smith, John",), ("Doe, Jane",)]
ROW = [("Ann", 3.5, None)]
TABLE = [("Ann", 1), ("Bo, Jr.", 2)]


@pytest.mark.parametrize(
    ("rows", "answer", "right"),
    [
        (ONE, "42", True),
        (ONE, " 42\n", True),
        (ONE, '"42"', True),
        (ONE, "[42]", True),
        (ONE, "[[42]]", True),
        (ONE, '{"c0": 42}', True),
        (ONE, '[{"c0": 42}]', True),
        (ONE, "c0\n42", True),
        (ONE, "42, 42", False),
        (ONE, "42\n42", False),
        (ONE, "[true]", False),
        (ONE, "about 42", False),
        (ONE, "", False),
        (ONE, "   ", False),
        (ONE, "[]", False),
        (ONE, "[[]]", False),
        (ONE, "[NaN]", False),
        ([("NaN",), ("x",)], '[NaN, "x"]', False),
        (ONE, "[[[42]]]", False),
        (ONE, "__import__('os').getpid()", False),
        ([(1,)], "true", False),
        ([(1,)], "[true]", False),
        ([(0,)], "null", False),
        ([("true",)], "true", True),
        (NAMES, "Bo\nAnn\nBo", True),
        (NAMES, "Ann, Bo, Bo", True),
        (NAMES, "Ann | Bo | Bo", True),
        (NAMES, '["Bo", "Bo", "Ann"]', True),
        (NAMES, '[["Bo"], ["Bo"], ["Ann"]]', True),
        (NAMES, '"Ann","Bo","Bo"', True),
        (NAMES, "c0\nAnn\nBo\nBo", True),
        (NAMES, "Ann, Bo", False),
        (NAMES, "Ann\nAnn\nBo", False),
        (COMMAS, "Smith, John\nDoe, Jane", True),
        (COMMAS, '"Doe, Jane", "Smith, John"', True),
        (COMMAS, '["Doe, Jane", "Smith, John"]', True),
        (COMMAS, "Smith, John, Doe, Jane", False),
        ([("Smith, John",)], "Smith, John", True),
        ([("a | b",)], "a | b", True),
        ([("a | b", 1)], "a \\| b | 1", True),
        ([("a | b", 1)], '"a | b",1', True),
        (ROW, "Ann | 3.5 | NULL", True),
        (ROW, "Ann, 3.5, NULL", True),
        (ROW, '["Ann", 3.5, null]', True),
        (ROW, '{"c1": 3.5, "c0": "Ann", "c2": null}', True),
        (ROW, '{"x": "Ann", "y": 3.5, "z": null}', True),
        (ROW, "Ann | 3.5 | ", False),
        (ROW, "Ann | 3.5", False),
        (ROW, "3.5 | Ann | NULL", False),
        (TABLE, "Bo, Jr. | 2\nAnn | 1", True),
        (TABLE, 'Ann,1\n"Bo, Jr.",2', True),
        (TABLE, '[["Ann", 1], ["Bo, Jr.", 2]]', True),
        (TABLE, '[{"c0": "Ann", "c1": 1}, {"c1": 2, "c0": "Bo, Jr."}]', True),
        (TABLE, "| c0 | c1 |\n|---|---|\n| Ann | 1 |\n| Bo, Jr. | 2 |", True),
        ([("-", 1)], "c0 | c1\n- | 1", True),  # no rule below the header
        (COMMAS, "| c0 |\n|---|\n| Smith, John |\n| Doe, Jane |", True),
        (NAMES, "| Bo |\n| Ann |\n| Bo |", True),
        (NAMES, "| Bo |\n| Ann |\nBo", False),
        ([("a|b",), ("|",)], "| a\\|b |\n| \\| |", True),
        (TABLE, "c0 | c1\nAnn | 1\nBo, Jr. | 2", True),
        (TABLE, "Ann,1\nBo, Jr.,2", False),
        (TABLE, "Ann | 2\nBo, Jr. | 1", False),
        (TABLE, '[["Ann", 1], "Bo, Jr."]', False),
        ([("a\nb", 1)], '"a\nb",1', True),
        ([("a\nb", 1)], "a\\nb | 1", True),
        ([("é",)], json.dumps("é"), True),
        ([("a",), ("b",)], "a\u2028b", False),
    ],
)
def test_form(rows: Sequence[Row], answer: str, right: bool) -> None:
    assert grade(answer, gold_of(rows)) is right


@pytest.mark.parametrize(
    "answer", ["[" * 100_000, "1" * 2_000_000, "a," * 300_000, '"' * 9, "\0", "\ud800", '["\\ud800"]']
)
def test_hostile_answers_are_wrong_and_nothing_else(answer: str) -> None:
    assert not grade(answer, gold_of(TABLE))
    assert not grade(answer, gold_of(NAMES))


def test_an_empty_gold_is_answered_only_on_request_and_only_by_an_empty_list() -> None:
    gold = gold_of([])
    allowed = AnswerOptions(accept_empty=True)
    assert not grade("[]", gold)
    assert grade("[]", gold, allowed)
    for answer in ("", " ", "NULL", "0", "none", "[[]]", "{}"):
        assert not grade(answer, gold, allowed), answer
    assert not compare(result_of([], 1), gold)
    assert compare(result_of([], 1), gold, allowed)
    assert multiset_f1([], gold) == 0.0


@pytest.mark.parametrize(
    ("rows", "gold_rows", "agrees"),
    [
        ([], [], True),
        ([(None,)], [], True),
        ([(0,)], [(None,)], True),
        ([], [(0,)], True),
        ([(0.0,)], [], True),
        ([(1,)], [], False),
        ([("",)], [], False),
        ([(0,), (0,)], [], False),
        ([], [(0,), (0,)], False),
        ([], [(1,)], False),
        ([(None,)], [("a",)], False),
        ([("a",)], [("a",)], True),
    ],
)
def test_on_a_copy_nothing_may_be_said_in_any_way(rows: list[Row], gold_rows: list[Row], agrees: bool) -> None:
    assert compare_on_copy(result_of(rows, 1), gold_of(gold_rows)) is agrees
    assert not compare_on_copy(result_of(rows, 2), gold_of(gold_rows))
    assert not compare_on_copy(result_of(rows, 1, truncated=True), gold_of(gold_rows))


def test_on_a_copy_any_of_tied_rows_will_do_and_no_other() -> None:
    first, cut = Group((("a", 9),), 1), Group((("b", 8), ("c", 8)), 1)
    gold = Gold(("name", "score"), (("a", 9), ("b", 8)), True, ((first, cut),), frozenset(), tie=True)
    for rows in ([("a", 9), ("c", 8)], [("a", 9), ("b", 8), ("c", 8)], [("a", 9)]):
        assert compare_on_copy(result_of(rows), gold)
    for rows in ([("a", 9), ("d", 8)], [("a", 8)], []):
        assert not compare_on_copy(result_of(rows, 2), gold)
    several = Gold(("name",), (("a",),), False, (expected_of([("a",)]), expected_of([("b",)])), frozenset())
    assert compare_on_copy(result_of([("c",)]), several)
    same = Gold(("name",), (("Ann",),), True, ((Group((("Ann",), ("Ann",)), 1),),), frozenset())
    assert compare_on_copy(result_of([("Ann",), ("Ann",)]), same)
    assert not compare_on_copy(result_of([("Bob",)]), same)


# ---- order, duplicates, ties ----------------------------------------------------------------------------------------


def test_order_counts_only_where_gold_orders() -> None:
    rows: list[Row] = [("b", 1), ("a", 2), ("c", 3)]
    assert grade("a | 2\nb | 1\nc | 3", gold_of(rows))
    assert not grade("a | 2\nb | 1\nc | 3", gold_of(rows, ordered=True))
    assert grade("b | 1\na | 2\nc | 3", gold_of(rows, ordered=True))


def test_tied_rows_may_change_places_and_a_cut_tie_may_keep_either() -> None:
    # ORDER BY score DESC LIMIT 3, where two rows share the first place and three compete for the last one.
    expected = (Group((("a", 9), ("b", 9)), 2), Group((("c", 8), ("d", 8), ("e", 8)), 1))
    gold = Gold(("name", "score"), (("a", 9), ("b", 9), ("c", 8)), True, (expected,), frozenset(), tie=True)
    for last in "cde":
        assert grade(f"a | 9\nb | 9\n{last} | 8", gold)
        assert grade(f"b | 9\na | 9\n{last} | 8", gold)
    for wrong in ("a | 9\nb | 9\nf | 8", "a | 9\nc | 8\nb | 9", "a | 9\nb | 9", "a | 9\na | 9\nc | 8"):
        assert not grade(wrong, gold)
    assert multiset_f1([("a", 9), ("b", 9), ("e", 8)], gold) == 1.0
    assert multiset_f1([("a", 9), ("d", 8), ("e", 8)], gold) == pytest.approx(2 / 3)


def test_f1_of_a_cut_tie_counts_no_more_rows_than_the_cut_leaves() -> None:
    expected = (Group((("x",), ("x",), ("y",)), 1),)
    gold = Gold(("c0",), (("x",),), True, (expected,), frozenset(), tie=True)
    assert multiset_f1([("y",)], gold) == 1.0
    assert multiset_f1([("x",), ("x",)], gold) == pytest.approx(2 / 3)
    assert multiset_f1([("x",), ("y",)], gold) == pytest.approx(2 / 3)


def test_a_row_of_a_tie_is_used_once() -> None:
    expected = (Group((("x",), ("x",), ("y",)), 2),)
    assert rows_match([("x",), ("x",)], expected)
    assert rows_match([("y",), ("x",)], expected)
    assert not rows_match([("y",), ("y",)], expected)


def test_rounded_reals_are_paired_even_where_the_first_choice_is_wrong() -> None:
    # 1.234 fits both expected values, 1.2345678 only one of them.
    expected = expected_of([(1.2341,), (1.2339,)])
    assert rows_match([(Spelled("1.234"),), (Spelled("1.2341"),)], expected)
    assert rows_match([(Spelled("1.2339"),), (Spelled("1.234"),)], expected)
    assert not rows_match([(Spelled("1.2339"),), (Spelled("1.2339"),)], expected)


# ---- SQL results and F1 ---------------------------------------------------------------------------------------------


def test_results_are_compared_with_their_types() -> None:
    gold = gold_of(UNORDERED_ROWS)
    assert compare(result_of(UNORDERED_ROWS[::-1]), gold)
    assert compare(result_of([("a", 1.0), *UNORDERED_ROWS[1:]]), gold)
    assert not compare(result_of([("a", "1"), *UNORDERED_ROWS[1:]]), gold)
    assert not compare(result_of(UNORDERED_ROWS[1:]), gold)
    assert not compare(result_of(UNORDERED_ROWS, truncated=True), gold)
    assert not compare(result_of([(*row, 1) for row in UNORDERED_ROWS]), gold)


@pytest.mark.parametrize(
    ("rows", "score"),
    [
        (UNORDERED_ROWS, 1.0),
        (UNORDERED_ROWS[::-1], 1.0),
        (UNORDERED_ROWS[:2], 2 * 2 / 6),
        ([("b", 2)] * 4, 2 * 2 / 8),
        ([("z", 9)], 0.0),
        ([], 0.0),
        ([("a", "1")], 0.0),
    ],
)
def test_f1_counts_rows_with_their_duplicates(rows: Sequence[Row], score: float) -> None:
    assert multiset_f1(rows, gold_of(UNORDERED_ROWS)) == pytest.approx(score)
    assert multiset_f1(rows, gold_of(UNORDERED_ROWS, ordered=True)) == pytest.approx(score)


def test_f1_does_not_see_the_order_in_which_reals_were_added() -> None:
    assert multiset_f1([(65.48270270270272,)], gold_of([(65.48270270270227,)])) == 1.0


# ---- columns --------------------------------------------------------------------------------------------------------


def test_columns_may_be_permuted_on_request() -> None:
    gold = gold_of([("alice", 100), ("bob", 250)])
    swapped: list[Row] = [(250, "bob"), (100, "alice")]
    scrambled: list[Row] = [(250, "alice"), (100, "bob")]
    assert not compare(result_of(swapped), gold)
    assert compare(result_of(swapped), gold, AnswerOptions(any_columns=True))
    assert not compare(result_of(scrambled), gold, AnswerOptions(any_columns=True))
    assert grade("250 | bob\n100 | alice", gold, AnswerOptions(any_columns=True))


def test_wide_binary_tables_are_searched_without_walking_all_permutations() -> None:
    rows: list[Row] = [(0, 1, 0, 1, 0, 1, 0, 1, 1), (1, 0, 1, 0, 1, 0, 1, 0, 1)]
    turned = [row[::-1] for row in rows]
    assert rows_match(turned, expected_of(rows), any_columns=True)
    other = [(0, 1, 0, 1, 0, 1, 0, 1, 1), (1, 0, 1, 0, 1, 0, 1, 1, 1)]
    assert not rows_match(other, expected_of(rows), any_columns=True)
    # 20 columns: 2.4 · 10^18 permutations
    wide: list[Row] = [tuple((row >> column % 7) & 1 for column in range(20)) for row in range(128)]
    assert rows_match([row[::-1] for row in wide], expected_of(wide), any_columns=True)


# ---- properties -----------------------------------------------------------------------------------------------------

unhurried = settings(deadline=None)

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=6).filter(
    lambda text: text.strip() != "" and text.strip().upper() != "NULL"
)
REALS = st.floats(allow_nan=False, allow_infinity=False, width=64)
CELLS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), REALS, TEXTS)


@st.composite
def tables(draw: st.DrawFn, cells: st.SearchStrategy[Cell] = CELLS, max_width: int = 4) -> list[Row]:
    width = draw(st.integers(1, max_width))
    return draw(st.lists(st.tuples(*[cells] * width), min_size=1, max_size=7))


@unhurried
@given(tables(), st.randoms(use_true_random=False), st.booleans())
def test_what_is_right_agrees_on_a_copy_too(rows: list[Row], random: Random, ordered: bool) -> None:
    gold = gold_of(rows, ordered=ordered)
    given_rows = rows if ordered else random.sample(rows, len(rows))
    assert compare(result_of(given_rows), gold)
    assert compare_on_copy(result_of(given_rows), gold)
    assert not compare_on_copy(result_of([*given_rows, *given_rows]), gold)


@unhurried
@given(tables(), st.booleans())
def test_gold_is_its_own_answer_in_each_form(rows: list[Row], ordered: bool) -> None:
    gold = gold_of(rows, ordered=ordered)
    assert compare(result_of(rows), gold)
    assert grade(spell(rows), gold)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["NULL" if cell is None else cell for cell in row] for row in rows])
    assert grade(out.getvalue(), gold)
    bars = [["NULL" if cell is None else str(cell).replace("|", "\\|") for cell in row] for row in rows]
    assume(not any(cell.endswith("\\") for row in bars for cell in row))
    assert grade("\n".join(" | ".join(row) for row in bars), gold) or len(rows[0]) == 1


@unhurried
@given(tables(), st.randoms(use_true_random=False))
def test_order_is_free_exactly_where_gold_leaves_it_open(rows: list[Row], random: Random) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert rows_match(shuffled, expected_of(rows))
    same = all(
        cells_equal(a, b) for row, other in zip(shuffled, rows, strict=True) for a, b in zip(row, other, strict=True)
    )
    assert rows_match(shuffled, expected_of(rows, ordered=True)) is same


@unhurried
@given(tables(), st.data())
def test_a_row_too_many_or_too_few_is_wrong(rows: list[Row], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(rows) - 1))
    fewer = rows[:position] + rows[position + 1 :]
    assert not rows_match([*rows, rows[position]], expected_of(rows))
    assert not rows_match(fewer, expected_of(rows))
    # One row doubled in place of another that differs from all: the number is right, the multiset is not.
    assert not rows_match([*fewer, ("\x01",) * len(rows[0])], expected_of(rows))


@unhurried
@given(st.floats(1, 100), st.integers(2, 3))
def test_a_real_may_be_rounded_to_the_digits_it_shows(value: float, decimals: int) -> None:
    shown = f"{value:.{decimals}f}"
    assert cells_equal(Spelled(shown), value)
    for steps in (-2, -1, 1, 2):
        neighbour = f"{float(shown) + steps * 10.0**-decimals:.{decimals}f}"
        is_half = abs(abs(float(neighbour) - value) - 0.5 * 10.0**-decimals) < 1e-9
        assert is_half or not cells_equal(Spelled(neighbour), value)


@unhurried
@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_integers_are_never_rounded(value: int, other: int) -> None:
    assert cells_equal(Spelled(str(other)), value) is (value == other)
    assert cells_equal(other, value) is (value == other)


FEW = st.sampled_from((0, 1, None, "a"))


@unhurried
@given(tables(FEW, max_width=4), tables(FEW, max_width=4))
def test_permutation_search_finds_what_trying_all_finds(rows: list[Row], other: list[Row]) -> None:
    expected = expected_of(rows)
    width = len(rows[0])
    for candidate in (other, [row[::-1] for row in rows]):
        if len(candidate[0]) != width:
            continue
        found = any(
            rows_match([tuple(row[i] for i in order) for row in candidate], expected)
            for order in itertools.permutations(range(width))
        )
        assert rows_match(candidate, expected, any_columns=True) is found


@unhurried
@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), st.integers(1, 3)), max_size=3),
    st.data(),
)
def test_groups_accept_exactly_the_results_that_they_stand_for(
    spec: list[tuple[list[str], int]], data: st.DataObject
) -> None:
    groups = tuple(Group(tuple((name,) for name in names), min(take, len(names))) for names, take in spec)
    parts = [set(itertools.permutations(group.rows, group.take)) for group in groups]
    allowed = {tuple(itertools.chain.from_iterable(choice)) for choice in itertools.product(*parts)}
    given_rows = data.draw(st.lists(st.tuples(st.sampled_from("abc")), max_size=6))
    assert rows_match(given_rows, groups) is (tuple(given_rows) in allowed)
    for right in itertools.islice(allowed, 5):
        assert rows_match(right, groups)
