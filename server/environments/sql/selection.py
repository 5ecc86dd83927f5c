"""Which of the loaded questions are served: filters, splits, and the order of a curriculum.

Facts that the data does not state (rows, shape) come from running each gold query once; facts of a query's form (joins,
tables) from its tree.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

from rolloutgym.server.environments.sql.database import Database
from rolloutgym.server.environments.sql.gold import GoldFailed, run_gold
from rolloutgym.server.environments.sql.questions import SqlTask

SplitBy = Literal["official", "database", "hash"]
Order = Literal["file", "curriculum"]
Shape = Literal["empty", "scalar", "row", "list", "table"]
Range = tuple[int, int]
"""Least and greatest, both included."""

HELD_OUT = 0.1
"""Share of the questions that `validation` and `test` get each, where we split."""

_HARDNESS = {"easy": 0, "simple": 0, "medium": 1, "moderate": 1, "hard": 2, "challenging": 2, "extra": 3}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskFilter:
    """What a task must be. None does not ask."""

    databases: frozenset[str] | None = None
    sources: frozenset[str] | None = None
    hardness: frozenset[str] | None = None
    joins: Range | None = None
    tables: Range | None = None
    rows: Range | None = None
    """Rows of the gold's result."""
    shapes: frozenset[Shape] | None = None

    def __call__(self, task: SqlTask) -> bool:
        return (
            (self.databases is None or task.db_id in self.databases)
            and (self.sources is None or task.source in self.sources)
            and (self.hardness is None or task.hardness in self.hardness)
            and (self.joins is None or _within(form_of(task.gold_sql).joins, self.joins))
            and (self.tables is None or _within(form_of(task.gold_sql).tables, self.tables))
            and (self.rows is None or _within(int(task.tags["n_rows"]), self.rows))
            and (self.shapes is None or shape_of(task) in self.shapes)
        )


def _within(value: int, range_: Range) -> bool:
    return range_[0] <= value <= range_[1]


def parse_range(text: str | None) -> Range | None:
    """`3` or `1-20`, as settings have it."""
    if text is None:
        return None
    low, _, high = text.partition("-")
    return int(low), int(high or low)


class Form(NamedTuple):
    """The parts of a query that make it hard."""

    joins: int
    tables: int
    """Different tables."""
    subqueries: int
    clauses: int
    """Conditions, groupings, orderings, limits and aggregates."""


@lru_cache(maxsize=65_536)
def form_of(sql: str) -> Form:
    """The form of a query; all zero where it cannot be read."""
    import sqlglot  # takes a tenth of a second, which a plain start need not pay
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return Form(0, 0, 0, 0)
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = {table.name.lower() for table in tree.find_all(exp.Table)} - own
    selects = len(list(tree.find_all(exp.Select)))
    clauses = (exp.Where, exp.Group, exp.Having, exp.Order, exp.Limit, exp.AggFunc)
    return Form(len(list(tree.find_all(exp.Join))), len(tables), selects - 1, len(list(tree.find_all(*clauses))))


def shape_of(task: SqlTask) -> Shape:
    rows, columns = int(task.tags["n_rows"]), int(task.tags["n_cols"])
    if rows == 0:
        return "empty"
    if rows == 1:
        return "scalar" if columns == 1 else "row"
    return "list" if columns == 1 else "table"


def with_result_facts(tasks: Sequence[SqlTask]) -> list[SqlTask]:
    """The tasks with `n_rows` and `n_cols`, running the golds of those that lack them. Tasks whose gold fails are left
    out, with a warning."""
    known = [task for task in tasks if "n_rows" in task.tags and "n_cols" in task.tags]
    if len(known) == len(tasks):
        return known
    result = []
    failed = 0
    for path, group in groupby(tasks, key=attrgetter("database")):
        with closing(Database(path)) as database:
            for task in group:
                try:
                    found = run_gold(database, task.gold_sql)
                except GoldFailed:
                    failed += 1
                    continue
                facts = {"n_rows": len(found.rows), "n_cols": len(found.columns)}
                result.append(replace(task, tags={**task.tags, **facts}))
    if failed:
        _log.warning(
            "left out %d of %d SQL tasks whose gold query fails: see `rolloutgym audit sql --show fails`",
            failed,
            len(tasks),
        )
    return result


# ---- order ----------------------------------------------------------------------------------------------------------


def in_order(tasks: Iterable[SqlTask], order: Order) -> list[SqlTask]:
    """The data's own order, or from easy to hard: by stated hardness, then by the form of the gold query."""
    return list(tasks) if order == "file" else sorted(tasks, key=_difficulty)


def _difficulty(task: SqlTask) -> tuple[int, int, int, int, str]:
    form = form_of(task.gold_sql)
    stated = _HARDNESS.get(task.hardness, min(3, (form.joins + form.subqueries + form.clauses) // 2))
    return stated, form.joins + form.subqueries, form.clauses, len(task.gold_sql), task.id


# ---- splits ---------------------------------------------------------------------------------------------------------


def in_splits(tasks: Sequence[SqlTask], by: SplitBy) -> list[SqlTask]:
    """The tasks with the split that the rule gives them.

    `official` keeps the data's own splits. `database` keeps each database, and databases with the same tables' sizes
    (the same data under other names), in one split. `hash` goes by the task's id alone, so a task never changes its
    split when others come or go.
    """
    if by == "official":
        return list(tasks)
    if by == "hash":
        return [replace(task, split=_split_of(_unit(task.id))) for task in tasks]
    return _by_group(tasks, _data_key)


def _by_group(tasks: Sequence[SqlTask], key: Callable[[Path], str]) -> list[SqlTask]:
    """Hold out whole groups, in the order of their hash, until each held-out split has its share."""
    sizes: dict[str, int] = {}
    for task in tasks:
        group = key(task.database)
        sizes[group] = sizes.get(group, 0) + 1
    splits: dict[str, str] = {}
    left = sorted(sizes, key=lambda group: (_unit(group), group))
    for split in ("validation", "test"):
        held = 0
        while len(left) > 1 and held < HELD_OUT * len(tasks):
            group = left.pop(0)
            splits[group] = split
            held += sizes[group]
    return [replace(task, split=splits.get(key(task.database), "train")) for task in tasks]


def _unit(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56


def _split_of(unit: float) -> str:
    if unit < HELD_OUT:
        return "validation"
    return "test" if unit < 2 * HELD_OUT else "train"


@lru_cache(maxsize=1024)
def _data_key(path: Path) -> str:
    """The same for databases that hold the same data: the sizes of their tables."""
    with closing(Database(path)) as database:
        names = [table.name.replace('"', '""') for table in database.schema().tables if table.kind == "table"]
        sizes = [database.query(f'SELECT count(*) FROM "{name}"').rows[0][0] for name in names]
    return ",".join(sorted(map(str, sizes)))
