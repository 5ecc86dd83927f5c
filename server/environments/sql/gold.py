"""What a gold query accepts: its result, and every other result that is as right.

A gold query leaves open what it does not say: the order of rows with equal sort keys, which of them a LIMIT keeps, the
order in which floats are added, the row that a bare column comes from. All that is found out once per task, by asking
the same database further questions (see `ties`) and by asking everything once more while SQLite scans tables backwards.
"""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from rolloutgym.server.environments.sql.comparison import Expected, Group, rows_match
from rolloutgym.server.environments.sql.database import Database, FailureKind, QueryFailed, QueryResult, Row

MAX_ROWS = 100_000
MAX_CELLS = 1_000_000
MAX_BYTES = 16 * 2**20

_GROUP = re.compile(r"\bgroup\s+by\b", re.IGNORECASE)
_ORDER_OR_LIMIT = re.compile(r"\b(order|limit)\b", re.IGNORECASE)


class GoldFailed(Exception):
    """The gold query gives no result to grade by. The message is for whoever keeps the data, never for a model."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message


@dataclass(frozen=True)
class Gold:
    """The gold side of a task, ready to grade by. Picklable."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    """As the gold query returned them."""
    ordered: bool
    """Whether the query's top level orders, so that the order of an answer counts."""
    accepted: tuple[Expected, ...]
    """Every result that is right; the first holds `rows`."""
    read: frozenset[tuple[str, str]]
    """(table, column) pairs that the query reads, lower-case."""
    tie: bool = False
    """A LIMIT cuts through rows with equal keys, so that more than one answer is right."""
    row_dependent: bool = False
    """Values depend on the order in which rows are scanned, beyond ties and rounding (bare columns, group_concat)."""
    row_order: bool = False
    """The unordered result comes in another order when tables are scanned backwards."""
    float_order: bool = False
    """Floats differ in their last digits when tables are scanned backwards."""

    @property
    def empty(self) -> bool:
        return not self.rows

    @cached_property
    def candidates(self) -> int:
        """Rows of the result together with those that a LIMIT cuts off although they tie with the last of them."""
        return max(sum(len(group.rows) for group in expected) for expected in self.accepted)

    @property
    def cells(self) -> int:
        """Cells of all accepted results together."""
        return len(self.columns) * sum(len(group.rows) for expected in self.accepted for group in expected)

    @cached_property
    def has_reals(self) -> bool:
        return any(isinstance(cell, float) for row in self.rows for cell in row)

    @cached_property
    def counters(self) -> tuple[tuple[tuple["Counter[Row]", int], ...], ...]:
        """For each accepted result and each of its groups: rows, with reals rounded, and how many of them count."""
        return tuple(
            tuple((Counter(map(rounded, group.rows)), group.take) for group in expected) for expected in self.accepted
        )


def rounded(row: Row) -> Row:
    """The row with its reals cut to nine significant digits, so that the order of a sum does not show."""
    for cell in row:
        if isinstance(cell, float):
            return tuple([float(f"{cell:.9g}") if isinstance(cell, float) else cell for cell in row])
    return row


def compute_gold(database: Database, sql: str) -> Gold:
    """Run a gold query under the database's controls and find all that it accepts. Raises `GoldFailed`."""
    result = run_gold(database, sql)
    accepted, tie, ordered = _accepted(database, sql, result)
    with database.scanned_backwards():
        rewritten, reversed_result = _run_backwards(database, sql)
        row_dependent = not any(rows_match(reversed_result.rows, expected) for expected in accepted)
        if row_dependent:
            accepted += _accepted(database, rewritten, reversed_result)[0]
    same_values = Counter(result.rows) == Counter(reversed_result.rows)
    return Gold(
        columns=result.columns,
        rows=result.rows,
        ordered=ordered,
        accepted=tuple(dict.fromkeys(accepted)),
        read=result.read,
        tie=tie,
        row_dependent=row_dependent,
        row_order=not ordered and same_values and result.rows != reversed_result.rows,
        float_order=not tie and not row_dependent and not same_values,
    )


def _run_backwards(database: Database, sql: str) -> tuple[str, QueryResult]:
    """The query's result on a database that is scanned backwards, and the query that gives it.

    SQLite itself does not turn the scan of a query that groups; that is rewritten, where it can be.
    """
    if _GROUP.search(sql):
        from rolloutgym.server.environments.sql import ties  # sqlglot takes a tenth of a second to import

        rewritten = ties.scanned_backwards(sql)
        if rewritten is not None:
            with suppress(GoldFailed):
                return rewritten, run_gold(database, rewritten)
    return sql, run_gold(database, sql)


def fetch(database: Database, sql: str) -> QueryResult:
    """A result with the caps of a gold's, which are wider than those of what an agent is shown. Raises
    `QueryFailed`."""
    return database.query(sql, max_rows=MAX_ROWS, max_cells=MAX_CELLS, max_bytes=MAX_BYTES)


def run_gold(database: Database, sql: str) -> QueryResult:
    """The whole result of a gold query. Raises `GoldFailed`."""
    try:
        result = fetch(database, sql)
    except QueryFailed as error:
        raise GoldFailed(error.kind, error.message) from None
    if result.truncated:
        raise GoldFailed("limit", "the result is too large to grade by")
    return result


def _accepted(database: Database, sql: str, result: QueryResult) -> tuple[list[Expected], bool, bool]:
    """All results that are right, the given one's first; whether a cut tie makes them more than one; whether order
    counts."""
    if not _ORDER_OR_LIMIT.search(sql):
        return [(Group(result.rows, len(result.rows)),)], False, False
    from rolloutgym.server.environments.sql import ties  # sqlglot takes a tenth of a second to import

    return ties.accepted_results(database, sql, result)
