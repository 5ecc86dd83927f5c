"""When two results are the same: typed cells, multisets of rows, tie groups, and permuted columns.

What is expected is a sequence of groups. Each gives `take` of its rows, in any order among themselves, and the groups
follow one another: an unordered result is one group that gives all; an ordered one has a group for each tie in its sort
key; a LIMIT that cuts through a tie leaves a group that gives fewer rows than it has. So no set of accepted answers is
ever spelled out.

The expected cell decides the type. A cell of an answer is a typed value (the result of SQL) or a spelling (text that an
answer shows, untyped). Everything here is pure.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal, TypeAlias

from rolloutgym.server.environments.sql.database import Cell, Row

REAL_TOLERANCE = 1e-6
"""Relative difference at which two reals are equal."""
NOISE = 1e-12
"""What is left of a sum that is zero but for the order of adding."""
MIN_DECIMALS = 2
MIN_DIGITS = 3
"""Least decimals and significant digits of a real that is given rounded."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
_BLOB = re.compile(r"[xX]'((?:[0-9A-Fa-f]{2})*)'")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_MANY = 16
"""Rows from which on counting them first is quicker."""
_MAX_PAIRS = 50_000
"""Most pairs of rows that are compared one by one."""
_MAX_CELLS = 1_000_000
"""Most cells that the search for a permutation of columns looks at."""

ColumnKind = Literal["text", "integer", "loose"]
Key = tuple[Cell, ...]


class Spelled(str):
    """A cell as an answer shows it: the expected cell says what type it has."""

    __slots__ = ()


class Quoted(Spelled):
    """A cell that an answer shows in quotes: text or a number, never NULL."""

    __slots__ = ()


_NO_VALUE = Spelled("\0")
"""The key of a cell that fits no expected cell of its column."""


# ---- cells ----------------------------------------------------------------------------------------------------------


def cells_equal(given: Cell, expected: Cell, *, fold_case: bool = False) -> bool:
    """Whether a cell of an answer is the expected one.

    Integers are equal exactly; reals within `REAL_TOLERANCE`, or rounded correctly to the digits shown, of which there
    must be `MIN_DECIMALS` decimals and `MIN_DIGITS` significant ones: for 3.14159, 3.14 and 3.142 are right, 3.1, 3 and
    3.15 are not. Text is equal in Unicode's NFC form without outer blanks. NULL equals only NULL.
    """
    if expected is None:
        return given is None or _is_null(given)
    if isinstance(expected, str):
        if not isinstance(given, str):
            return False
        if _text(given, fold_case) == _text(expected, fold_case):
            return True
        # A line of an answer cannot hold a line break: there it is spelled as results show it, as \n.
        return isinstance(given, Spelled) and _text(given, fold_case) == _text(escape_controls(expected), fold_case)
    if isinstance(expected, bytes):
        return given == expected or (isinstance(given, Spelled) and _blob(given) == expected)
    if isinstance(given, Spelled):
        number = _number(given)
        return number is not None and _shown_equal(number, expected)
    return isinstance(given, int | float) and not isinstance(given, bool) and _numbers_equal(given, expected)


def escape_controls(text: str) -> str:
    """The text with control characters and line separators written as escapes, as results are shown."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def _is_null(given: Cell) -> bool:
    return isinstance(given, Spelled) and not isinstance(given, Quoted) and given.strip().upper() == "NULL"


def _text(text: str, fold_case: bool) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    text = text.strip()
    return text.casefold() if fold_case else text


def _number(spelled: str) -> Decimal | None:
    text = spelled.strip()
    if len(text) > 400:
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _blob(spelled: str) -> bytes | None:
    match = _BLOB.fullmatch(spelled.strip())
    return bytes.fromhex(match[1]) if match else None


def _numbers_equal(given: int | float, expected: int | float) -> bool:
    if given == expected:
        return True
    if isinstance(expected, int):
        return False
    return _is_noise(given, expected) or abs(given - expected) <= REAL_TOLERANCE * abs(expected) < float("inf")


def _is_noise(given: float, expected: float) -> bool:
    """Whether one of two reals is zero, and the other all but that."""
    return 0.0 in (given, expected) and abs(given - expected) <= NOISE


def _shown_equal(given: Decimal, expected: int | float) -> bool:
    if given == expected:  # Python compares a Decimal with an int or a float exactly
        return True
    if isinstance(expected, int) or expected - expected != 0:
        return False
    # The smallest reals have fewer digits than the tolerance asks for.
    if float(given) == expected or _is_noise(float(given), expected):
        return True
    exact = Decimal(expected)
    difference = abs(given - exact)
    if difference <= Decimal(REAL_TOLERANCE) * abs(exact):
        return True
    exponent = given.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent < MIN_DECIMALS or len(given.as_tuple().digits) < MIN_DIGITS:
        return False
    # The last factor lets both neighbours of a half pass: 2.675 may be shown as 2.67 or 2.68.
    return difference <= Decimal(5).scaleb(exponent - 1) * (1 + Decimal("1e-9"))


# ---- groups of rows -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """`take` of these rows, in any order."""

    rows: tuple[Row, ...]
    take: int

    @cached_property
    def counter(self) -> Counter[Row]:
        return Counter(self.rows)

    @cached_property
    def exact(self) -> "_Index":
        return _Index(self.rows, fold_case=False)

    @cached_property
    def folded(self) -> "_Index":
        return _Index(self.rows, fold_case=True)


Expected: TypeAlias = tuple[Group, ...]


class _Index:
    """Rows by the key of those columns whose cells can be compared exactly; the others are compared cell by cell."""

    def __init__(self, rows: Sequence[Row], *, fold_case: bool) -> None:
        self.fold_case = fold_case
        self.kinds = tuple(_kind(column) for column in zip(*rows, strict=True))
        self.loose = tuple(position for position, kind in enumerate(self.kinds) if kind == "loose")
        self.buckets: dict[Key, list[Row]] = {}
        for row in rows:
            self.buckets.setdefault(self.key(row), []).append(row)

    def key(self, row: Row) -> Key:
        return tuple(
            [
                None if kind == "loose" else _key(cell, kind, self.fold_case)
                for cell, kind in zip(row, self.kinds, strict=True)
            ]
        )


def _kind(column: Sequence[Cell]) -> ColumnKind:
    """How to compare a column: by key where its expected cells are all text or all integers (or NULL)."""
    types = {type(cell) for cell in column if cell is not None}
    if types <= {int}:
        return "integer"
    if types == {str} and not any(isinstance(cell, str) and _has_two_spellings(cell) for cell in column):
        return "text"
    return "loose"


def _has_two_spellings(text: str) -> bool:
    return text.strip().upper() == "NULL" or _CONTROL.search(text) is not None


def _key(cell: Cell, kind: ColumnKind, fold_case: bool) -> Cell:
    """A value that is equal for two cells exactly when `cells_equal` holds, within a column of that kind."""
    if cell is None or _is_null(cell):
        return None
    if kind == "text":
        return _text(cell, fold_case) if isinstance(cell, str) else _NO_VALUE
    if isinstance(cell, Spelled):
        number = _number(cell)
        return int(number) if number is not None and number == number.to_integral_value() else _NO_VALUE
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return cell if isinstance(cell, int) else _NO_VALUE


def _group_matches(given: Sequence[Row], group: Group, *, fold_case: bool) -> bool:
    """Whether these `group.take` rows are among the group's, each used once. They are as wide as the group's."""
    if group.take == len(group.rows) == 1:
        return all(
            cells_equal(cell, expected, fold_case=fold_case)
            for cell, expected in zip(given[0], group.rows[0], strict=True)
        )
    if _MANY <= group.take == len(group.rows) and Counter(given) == group.counter:
        return True  # what Python holds equal is equal here too; the quick way for results of SQL
    index = group.folded if fold_case else group.exact
    buckets: dict[Key, list[Row]] = {}
    for row in given:
        buckets.setdefault(index.key(row), []).append(row)
    for key, rows in buckets.items():
        expected_rows = index.buckets.get(key, [])
        if len(rows) > len(expected_rows):
            return False
        if index.loose and not _can_pair(rows, expected_rows, index.loose, fold_case):
            return False
    return True


def _can_pair(given: list[Row], expected: list[Row], columns: tuple[int, ...], fold_case: bool) -> bool:
    """Whether each given row can have an expected row of its own that is equal in these columns."""

    def fits(row: Row, target: Row) -> bool:
        return all(cells_equal(row[i], target[i], fold_case=fold_case) for i in columns)

    if len(given) == len(expected):
        # Rounding keeps the order of numbers, so that sorted neighbours nearly always pair at once.
        pairs = zip(_sorted(given, columns), _sorted(expected, columns), strict=True)
        if all(fits(row, target) for row, target in pairs):
            return True
    if len(given) * len(expected) > _MAX_PAIRS:
        return False
    candidates = [[j for j, target in enumerate(expected) if fits(row, target)] for row in given]
    return _matching_exists(candidates, len(expected))


def _sorted(rows: list[Row], columns: tuple[int, ...]) -> list[Row]:
    return sorted(rows, key=lambda row: [_rank(row[i]) for i in columns])


def _rank(cell: Cell) -> tuple[int, float, str]:
    if cell is None or _is_null(cell):
        return (0, 0.0, "")
    if isinstance(cell, Spelled):
        number = _number(cell)
        return (2, 0.0, cell.strip()) if number is None else (1, float(number), "")
    if isinstance(cell, int | float):
        return (1, float(cell), "")
    return (2, 0.0, cell.strip() if isinstance(cell, str) else f"X'{cell.hex()}'")


def _matching_exists(candidates: list[list[int]], targets: int) -> bool:
    """Whether all rows can be matched to different targets (Kuhn's augmenting paths, without recursion)."""
    owner = [-1] * targets
    for start in range(len(candidates)):
        parent: dict[int, tuple[int, int]] = {}  # target → (row that asks for it, target that row holds now)
        queue = [(start, -1)]
        free = -1
        while queue and free < 0:
            row, held = queue.pop()
            for target in candidates[row]:
                if target in parent:
                    continue
                parent[target] = (row, held)
                if owner[target] < 0:
                    free = target
                    break
                queue.append((owner[target], target))
        if free < 0:
            return False
        while free >= 0:
            row, held = parent[free]
            owner[free] = row
            free = held
    return True


# ---- whole results --------------------------------------------------------------------------------------------------


def rows_match(given: Sequence[Row], expected: Expected, *, fold_case: bool = False, any_columns: bool = False) -> bool:
    """Whether the rows are an expected result; with `any_columns` under some permutation of their columns."""
    if len(given) != sum(group.take for group in expected):
        return False
    if not given:
        return True
    width = len(next(group.rows[0] for group in expected if group.rows))
    if any(len(row) != width for row in given):
        return False
    if _groups_match(given, expected, fold_case):
        return True
    return any_columns and width > 1 and _permutation_exists(given, expected, width, fold_case)


def rows_among(given: Sequence[Row], expected: Expected, *, fold_case: bool = False) -> bool:
    """Whether each row is one of the groups' rows, those that a LIMIT cuts off too; in any order, any number of
    times."""
    any_one = Group(tuple(itertools.chain.from_iterable(group.rows for group in expected)), take=1)
    return all(_group_matches([row], any_one, fold_case=fold_case) for row in given)


def _groups_match(given: Sequence[Row], expected: Expected, fold_case: bool) -> bool:
    start = 0
    for group in expected:
        if not _group_matches(given[start : start + group.take], group, fold_case=fold_case):
            return False
        start += group.take
    return True


def _permutation_exists(given: Sequence[Row], expected: Expected, width: int, fold_case: bool) -> bool:
    """Search, expected column by expected column, for a given column such that the part chosen so far already matches.

    That check prunes at once what a walk over all permutations would find out at its end, and columns with the same
    content are tried once. The search is bounded: one that is given up counts as no match.
    """
    columns = tuple(zip(*given, strict=True))
    parts = [_first_columns(expected, count) for count in range(1, width + 1)]
    looked_at = 0

    def extend(chosen: list[int]) -> bool:
        nonlocal looked_at
        if len(chosen) == width:
            return True
        tried: set[Row] = set()
        for candidate in range(width):
            if candidate in chosen or columns[candidate] in tried:
                continue
            tried.add(columns[candidate])
            looked_at += len(given) * (len(chosen) + 1)
            if looked_at > _MAX_CELLS:
                return False
            part = list(zip(*[columns[i] for i in (*chosen, candidate)], strict=True))
            if _groups_match(part, parts[len(chosen)], fold_case) and extend([*chosen, candidate]):
                return True
        return False

    return extend([])


def _first_columns(expected: Expected, count: int) -> Expected:
    return tuple(Group(tuple([row[:count] for row in group.rows]), group.take) for group in expected)


def narrow(expected: Expected) -> Iterator[Group]:
    """The groups that leave a choice: they give fewer rows than they have."""
    return (group for group in expected if group.take < len(group.rows))
