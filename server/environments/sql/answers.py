"""Whether an answer is right: text in any of four forms, or the result of a query, against a task's gold.

A text is read in every form that it can have (one value, JSON, `a | b` lines, CSV), and is right if one of the readings
is an accepted result. That is safe because a reading is compared cell by cell: a comma or a bar inside a cell can only
make some readings wrong. Nothing is ever evaluated. All functions are pure.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from rolloutgym.server.environments.sql.comparison import Quoted, Spelled, narrow, rows_among, rows_match
from rolloutgym.server.environments.sql.database import Cell, QueryResult, Row
from rolloutgym.server.environments.sql.gold import Gold, rounded

MAX_ANSWER_LENGTH = 1_000_000
"""Characters; a longer answer is wrong."""

_BAR = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"[\s|:+-]*-[\s|:+-]*")

Table: TypeAlias = list[Row]


@dataclass(frozen=True)
class AnswerOptions:
    fold_case: bool = False
    """Text is equal in any case."""
    any_columns: bool = False
    """Columns may come in any order."""
    accept_empty: bool = False
    """An empty result answers a question whose gold is empty. Else nothing does."""


DEFAULT_OPTIONS = AnswerOptions()


def grade(answer: str, gold: Gold, options: AnswerOptions = DEFAULT_OPTIONS) -> bool:
    """Whether the text gives an accepted result.

    An empty gold is answered by `[]` alone, and only if the options say so; an empty text answers nothing.
    """
    if len(answer) > MAX_ANSWER_LENGTH or not answer.strip():
        return False
    if gold.empty:
        return options.accept_empty and answer.strip() == "[]"
    return any(_accepts(table, gold, options) for table in _readings(answer, gold.columns))


def compare(result: QueryResult, gold: Gold, options: AnswerOptions = DEFAULT_OPTIONS) -> bool:
    """Whether a query's result is an accepted one. Column names do not matter, types do."""
    if result.truncated or len(result.columns) != len(gold.columns):
        return False
    if gold.empty:
        return options.accept_empty and not result.rows
    return _accepts(result.rows, gold, options)


def compare_on_copy(result: QueryResult, gold: Gold, options: AnswerOptions = DEFAULT_OPTIONS) -> bool:
    """Whether a query's result agrees with the gold's on a copy of the database that lost rows.

    There is no right answer to give there, only a difference to find, so what queries with one meaning leave to chance
    is no difference: how they say that there is nothing (`max(x)` gives NULL where `ORDER BY x LIMIT 1` gives no row),
    and how many of the rows that tie at a LIMIT they return.
    """
    if result.truncated or len(result.columns) != len(gold.columns):
        return False
    if _says_nothing(gold.rows):
        return _says_nothing(result.rows)
    if len(gold.accepted) > 1:
        return True  # rows tie in a sub-query, or their order decides: too much is left to chance
    if not any(narrow(gold.accepted[0])):
        return _accepts(result.rows, gold, options)
    if options.any_columns:
        return True
    return bool(result.rows) and rows_among(result.rows, gold.accepted[0], fold_case=options.fold_case)


def _says_nothing(rows: Sequence[Row]) -> bool:
    """No row, or one with nothing but NULL and 0."""
    return len(rows) <= 1 and all(cell is None or cell == 0 for row in rows for cell in row)


def multiset_f1(rows: Sequence[Row], gold: Gold) -> float:
    """2·overlap / (given + expected) over multisets of rows, in [0, 1]; the best over the accepted results.

    Reals are compared by nine significant digits. Duplicates count; the order of rows does not. 0 for an empty gold.
    """
    if gold.empty or not rows:
        return 0.0
    if rows == gold.rows:
        return 1.0
    best = 0
    given = Counter(map(rounded, rows) if gold.has_reals else rows)
    for groups in gold.counters:
        left = given if len(groups) == 1 else given.copy()
        overlap = 0
        for counter, take in groups:
            found = 0
            # Which rows a cut group takes decides what is left for others: not by the order of a set, which varies.
            for row in counter.keys() & left.keys() if left is given else [row for row in counter if row in left]:
                used = min(left[row], counter[row], take - found)
                found += used
                if left is not given:
                    left[row] -= used
                if found == take:
                    break
            overlap += found
        best = max(best, overlap)
    return 2 * best / (len(rows) + len(gold.rows))


def spell(rows: Sequence[Row]) -> str:
    """The rows as an answer in JSON that `grade` accepts: a value, a list of values, or a list of rows."""
    cells = [[f"X'{cell.hex()}'" if isinstance(cell, bytes) else cell for cell in row] for row in rows]
    if len(cells) == 1 and len(cells[0]) == 1:
        return json.dumps(cells[0][0], ensure_ascii=False)
    if all(len(row) == 1 for row in cells):
        return json.dumps([row[0] for row in cells], ensure_ascii=False)
    return json.dumps(cells, ensure_ascii=False)


def _accepts(rows: Sequence[Row], gold: Gold, options: AnswerOptions) -> bool:
    return any(
        rows_match(rows, expected, fold_case=options.fold_case, any_columns=options.any_columns)
        for expected in gold.accepted
    )


# ---- reading an answer ----------------------------------------------------------------------------------------------


def _readings(answer: str, columns: Sequence[str]) -> Iterator[Table]:
    """Every table of that width that the text may stand for, the most definite form first."""
    text = answer.strip()
    width = len(columns)
    if width == 1:
        yield [(Spelled(text),)]
    yield from _read_json(text, columns)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    for rows in (_bar_rows(lines, width), _boxed_cells(lines), _csv_rows(text)):
        if width == 1 and len(rows) == 1:
            yield [(cell,) for cell in rows[0]]
        for table in (rows, _without_header(rows, columns)):
            if table and all(len(row) == width for row in table):
                yield table


def _bar_rows(lines: list[str], width: int) -> Table:
    """`a | b` lines, with or without outer bars; a bar inside a cell is written `\\|`."""
    if width == 1 and len(lines) > 1:
        return [(Spelled(line),) for line in lines]
    rows: Table = []
    for line in lines:
        cells = _BAR.split(line)
        if len(cells) > 2 and not cells[0].strip() and not cells[-1].strip():
            cells = cells[1:-1]
        rows.append(tuple([Spelled(cell.strip().replace("\\|", "|")) for cell in cells]))
    return rows


def _boxed_cells(lines: list[str]) -> Table:
    """One cell a line between bars: the rows of a Markdown table with one column."""
    if not all(len(line) > 1 and line[0] == line[-1] == "|" for line in lines):
        return []
    return [(Spelled(line[1:-1].strip().replace("\\|", "|")),) for line in lines]


def _csv_rows(text: str) -> Table:
    try:
        return [
            tuple([Spelled(cell.strip()) for cell in row])
            for row in csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
            if row
        ]
    except csv.Error:
        return []


def _without_header(rows: Table, columns: Sequence[str]) -> Table:
    """The rows after a first line of column names, and after the rule that Markdown puts below it."""
    if not rows or [str(cell).casefold() for cell in rows[0]] != [name.strip().casefold() for name in columns]:
        return []
    body = rows[1:]
    return body[1:] if body and all(_RULE.fullmatch(str(cell)) for cell in body[0]) else body


def _read_json(text: str, columns: Sequence[str]) -> Iterator[Table]:
    if text[0] not in '[{"' and text != "null":
        return
    try:
        value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return
    yield from _json_tables(value, columns)


class _Number(Spelled):
    __slots__ = ()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _json_tables(value: object, columns: Sequence[str]) -> Iterator[Table]:
    """A value, one row (a list or an object), a column (a list of values), or a list of rows."""
    width = len(columns)
    if not isinstance(value, list | dict):
        if width == 1:
            yield [(_json_cell(value),)]
        return
    if isinstance(value, list) and value and not any(isinstance(item, list | dict) for item in value):
        cells = tuple([_json_cell(item) for item in value])
        if width == 1:
            yield [(cell,) for cell in cells]
        elif len(cells) == width:
            yield [cells]
        return
    rows = [_json_row(item, columns) for item in (value if isinstance(value, list) else [value])]
    if rows and all(row is not None and len(row) == width for row in rows):
        yield [row for row in rows if row is not None]


def _json_row(item: object, columns: Sequence[str]) -> Row | None:
    """A row; an object whose names are the gold's columns gives its values in their order."""
    if isinstance(item, dict):
        by_name = {str(name).casefold(): value for name, value in item.items()}
        names = [name.casefold() for name in columns]
        values = [by_name[name] for name in names] if by_name.keys() == set(names) else list(item.values())
    elif isinstance(item, list):
        values = item
    else:
        return None
    if any(isinstance(value, list | dict) for value in values):
        return None
    return tuple([_json_cell(value) for value in values])


def _json_cell(value: object) -> Cell:
    """Numbers keep their spelling; true and false are words, not 1 and 0."""
    if value is None or isinstance(value, _Number):
        return value
    if isinstance(value, bool):
        return Quoted("true" if value else "false")
    return Quoted(value)
