"""Everything that touches a database, as synchronous calls with plain results: what a worker process does.

An engine keeps databases open and golds computed, up to a number, and lets the oldest go. A gold never leaves it: what
goes out is text for the model, a verdict, and a query's potential.
"""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from rolloutgym.server.environments.sql.answers import (
    AnswerOptions,
    compare,
    compare_on_copy,
    grade,
    multiset_f1,
)
from rolloutgym.server.environments.sql.database import (
    Database,
    Limits,
    QueryFailed,
    QueryResult,
    quote_identifier,
)
from rolloutgym.server.environments.sql.formatting import (
    COUNT_CAP,
    Caps,
    list_tables,
    show_result,
    show_table,
    suggestion,
    unknown_table,
)
from rolloutgym.server.environments.sql.gold import MAX_BYTES, MAX_CELLS, Gold, GoldFailed, compute_gold
from rolloutgym.server.environments.sql.perturbation import Copies
from rolloutgym.server.environments.sql.prompts import Dialect
from rolloutgym.server.environments.sql.rewards import Target, potential

__all__ = ["Engine", "GoldFailed", "Opened", "Ran", "Shown", "Subject"]

MAX_DATABASES = 96
"""Open at once: those of eight or so tasks with their copies."""
MAX_GOLD_CELLS = 1_000_000
"""Of all golds that are kept; a small one counts as `_GOLD_CELLS`."""
_GOLD_CELLS = 250
_NO_TABLE = re.compile(r"no such table: (?:main\.)?(.+)")
_NO_COLUMN = re.compile(r"no such column: (?:.*\.)?(.+)")


class Subject(NamedTuple):
    """What of a task an engine needs: little, because it is sent with every call."""

    database: str
    """Path of the file."""
    gold_sql: str


class Opened(NamedTuple):
    """What a reset shows and needs to know."""

    tables: tuple[str, ...]
    empty: bool
    """Whether the gold result has no rows."""


class Shown(NamedTuple):
    """Text for the model: what an action showed, or why it failed."""

    text: str
    failed: bool
    seen: frozenset[str] = frozenset()
    """What of the database it showed, as `table` or `table.column`, lower-case."""


class Ran(NamedTuple):
    """A query that was run."""

    text: str
    failed: bool
    seen: frozenset[str]
    potential: float
    """How close it is to the gold query, 0 to 1; 0 where it failed."""


Watch: TypeAlias = Callable[[], AbstractContextManager[object]]
Comparison: TypeAlias = Callable[[QueryResult, Gold, AnswerOptions], bool]
Key = TypeVar("Key")
Value = TypeVar("Value")


class Engine:
    """Guarded databases and golds of one process. Not for several threads."""

    def __init__(self, limits: Limits, watch: Watch = nullcontext) -> None:
        """`watch` is entered around whatever runs SQL that a model wrote, and around nothing else."""
        self._watch = watch
        self._databases: _Kept[str, Database] = _Kept(MAX_DATABASES, discard=Database.close)
        self._golds: _Kept[Subject, _Goal] = _Kept(MAX_GOLD_CELLS, weigh=_Goal.weight)
        self._copies = Copies()
        self._limits = limits

    def close(self) -> None:
        self._databases.clear()
        self._copies.close()

    def open(self, subject: Subject) -> Opened:
        """Open the task's database and run its gold query. Raises `DatabaseBroken`, `GoldFailed`."""
        gold = self._goal(subject).gold
        return Opened(self._database(subject.database).schema().names, gold.empty)

    def describe(self, path: str, name: str) -> Shown:
        """A table's columns, types, keys and number of rows."""
        database = self._database(path)
        table = database.schema().find(name)
        if table is None:
            return Shown(unknown_table(name, database.schema().names), failed=True)
        try:
            count = database.query(f"SELECT count(*) FROM {quote_identifier(table.name)}").rows[0][0]
        except QueryFailed:
            count = None
        rows = count if isinstance(count, int) else None
        return Shown(show_table(table, rows), failed=False, seen=frozenset([table.name.lower()]))

    def sample(self, path: str, name: str, rows: int, caps: Caps) -> Shown:
        """The first rows of a table."""
        database = self._database(path)
        table = database.schema().find(name)
        if table is None:
            return Shown(unknown_table(name, database.schema().names), failed=True)
        try:
            result = database.query(f"SELECT * FROM {quote_identifier(table.name)} LIMIT {rows}")
        except QueryFailed as error:
            return Shown(error.message, failed=True)
        return Shown(show_result(result, caps), failed=False, seen=_seen(result))

    def query(self, subject: Subject, sql: str, dialect: Dialect, caps: Caps, seen: Collection[str]) -> Ran:
        """Run SQL and show its rows. `seen` is what was shown before: a hint may name columns of its tables."""
        goal = self._goal(subject)
        database = self._database(subject.database)
        # The count that is shown stops at COUNT_CAP, so that the cap says nothing of the gold's size.
        max_rows = max(COUNT_CAP, 2 * len(goal.gold.rows))
        try:
            with self._watch():
                result = database.query(_translated(sql, dialect), max_rows=max_rows)
        except QueryFailed as error:
            text = error.message + _hint(error.message, database, seen)
            return Ran(text, failed=True, seen=frozenset(), potential=0.0)
        return Ran(show_result(result, caps), failed=False, seen=_seen(result), potential=goal.potential(result))

    def grade(self, subject: Subject, answer: str, options: AnswerOptions) -> bool:
        """Whether the text answers the question."""
        return grade(answer, self._goal(subject).gold, options)

    def grade_sql(self, subject: Subject, sql: str, dialect: Dialect, options: AnswerOptions) -> bool:
        """Whether the query's result answers the question, and still does on perturbed copies of the database."""
        try:
            with self._watch():
                sql = _translated(sql, dialect)
        except QueryFailed:
            return False
        return self._agrees(subject, sql, options, compare) and all(
            self._agrees(copy, sql, options, compare_on_copy) for copy in self._perturbed(subject)
        )

    def _agrees(self, subject: Subject, sql: str, options: AnswerOptions, agree: Comparison) -> bool:
        goal = self._goal(subject)
        database = self._database(subject.database)
        try:
            with self._watch():
                result = database.query(
                    sql, max_rows=goal.gold.candidates + 1, max_cells=MAX_CELLS, max_bytes=MAX_BYTES
                )
        except QueryFailed:
            return False
        # Right rows that come from nowhere are a constant.
        return goal.reads_gold_table(result) and agree(result, goal.gold, options)

    def _perturbed(self, subject: Subject) -> Iterator[Subject]:
        """The subject on copies of its database where its gold query works."""
        for path in self._copies.of(Path(subject.database), self._database(subject.database).schema()):
            copy = subject._replace(database=str(path))
            try:
                self._goal(copy)
            except GoldFailed:
                continue
            yield copy

    def _database(self, path: str) -> Database:
        return self._databases.get(path, lambda: Database(Path(path), self._limits))

    def _goal(self, subject: Subject) -> "_Goal":
        def compute() -> _Goal:
            return _Goal(compute_gold(self._database(subject.database), subject.gold_sql))

        return self._golds.get(subject, compute)


class _Goal:
    """A gold and what of it the potential looks at."""

    def __init__(self, gold: Gold) -> None:
        self.gold = gold
        self._target = Target.of(gold.read, width=len(gold.columns), height=len(gold.rows))

    def weight(self) -> int:
        """About how many cells it holds in memory."""
        return max(_GOLD_CELLS, self.gold.cells)

    def reads_gold_table(self, result: QueryResult) -> bool:
        """Whether the query reads a table that the gold query reads, if that reads one at all."""
        return not self._target.tables or not self._target.tables.isdisjoint([table for table, _ in result.read])

    def potential(self, result: QueryResult) -> float:
        # A result that was cut is longer than twice the gold: a dump, of which the rows count for nothing.
        rows_f1 = 0.0 if result.truncated else multiset_f1(result.rows, self.gold)
        return potential(
            self._target,
            rows_f1=rows_f1,
            read=result.read,
            width=len(result.columns),
            height=len(result.rows),
        )


class _Kept(Generic[Key, Value]):
    """The values that were used last, as many as weigh no more than `size` together; one of them at least."""

    def __init__(
        self,
        size: int,
        *,
        weigh: Callable[[Value], int] = lambda value: 1,
        discard: Callable[[Value], None] | None = None,
    ) -> None:
        self._size = size
        self._weigh = weigh
        self._discard = discard
        self._weight = 0
        self._values: dict[Key, Value] = {}

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        value = self._values.pop(key, None)
        if value is None:
            value = make()
            self._weight += self._weigh(value)
            while self._values and self._weight > self._size:
                self._drop()
        self._values[key] = value
        return value

    def clear(self) -> None:
        while self._values:
            self._drop()

    def _drop(self) -> None:
        value = self._values.pop(next(iter(self._values)))
        self._weight -= self._weigh(value)
        if self._discard is not None:
            self._discard(value)


def _translated(sql: str, dialect: Dialect) -> str:
    if dialect == "sqlite":
        return sql
    from rolloutgym.server.environments.sql import dialects  # sqlglot takes a tenth of a second to import

    try:
        return dialects.translate(sql, dialect)
    except dialects.TranslationFailed as error:
        raise QueryFailed("syntax", error.message) from None


def _seen(result: QueryResult) -> frozenset[str]:
    return frozenset([f"{table}.{column}" for table, column in result.read if column])


def _hint(message: str, database: Database, seen: Collection[str]) -> str:
    """The nearest name where a name was not found; columns only of tables that the model has been shown."""
    schema = database.schema()
    if match := _NO_TABLE.fullmatch(message):
        return f".{suggestion(match[1], schema.names)} Tables: {list_tables(schema.names)}."
    if match := _NO_COLUMN.fullmatch(message):
        names = sorted({name.partition(".")[0] for name in seen})
        tables = [table for name in names if (table := schema.find(name)) is not None]
        near = suggestion(match[1], [column.name for table in tables for column in table.columns])
        return f".{near}" if near else ""
    return ""
