"""What judging an SQL answer costs, beside the plain way to do it, in the same run.

The plain ways are those of published evaluators: try every permutation of the columns, count rows in a `Counter`, run
the gold query again for each answer. Run it as `python benchmarks/sql_answers.py`."""

import itertools
import sqlite3
import timeit
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from rolloutgym.server.environments.sql.answers import compare, grade, multiset_f1, spell
from rolloutgym.server.environments.sql.comparison import Group, rows_match
from rolloutgym.server.environments.sql.database import Database, QueryResult, Row
from rolloutgym.server.environments.sql.gold import Gold, compute_gold
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.tasks import load_tasks
from rolloutgym.server.environments.sql.text_database import as_sqlite

BINARY: list[Row] = [(0, 1, 0, 1, 0, 1, 0, 1, 1), (1, 0, 1, 0, 1, 0, 1, 0, 1)]
OTHER: list[Row] = [(0, 1, 0, 1, 0, 1, 0, 1, 1), (1, 0, 1, 0, 1, 0, 1, 1, 1)]
LARGE: list[Row] = [(number, f"name {number % 700}", number % 9, None, "x") for number in range(4_000)]


def main() -> None:
    table = Table("", "here", "plain", "ratio", title="microseconds, best of five")
    for name, ours, plain in (
        ("2 × 9 binary table, permuted columns", lambda: permuted(BINARY), lambda: all_permutations(BINARY)),
        ("2 × 9 binary table, no permutation fits", lambda: permuted(OTHER), lambda: all_permutations(OTHER)),
        ("4,000 × 5 rows, in another order", judge_rows(LARGE), lambda: Counter(LARGE[::-1]) == Counter(LARGE)),
        ("4,000 × 5 rows, multiset F1", f1_of(LARGE), lambda: sum((Counter(LARGE[::-1]) & Counter(LARGE)).values())),
    ):
        add_line(table, name, best(ours), best(plain))
    tasks = shipped_tasks()
    texts = [(spell(gold.rows), gold) for gold in golds_of(tasks)]
    with ExitStack() as opened:
        connections = {path: plain_connection(path, opened) for path in {task.database for task in tasks}}
        add_line(
            table,
            f"one answer in JSON, mean of {len(tasks)} shipped tasks",
            best(lambda: [grade(text, gold) for text, gold in texts]) / len(tasks),
            best(lambda: [connections[task.database].execute(task.gold_sql).fetchall() for task in tasks]) / len(tasks),
        )
    Console().print(table)


def permuted(rows: Sequence[Row]) -> bool:
    return rows_match([row[::-1] for row in rows], (Group(tuple(BINARY), 2),), any_columns=True)


def all_permutations(rows: Sequence[Row]) -> bool:
    expected = Counter(BINARY)
    turned = [row[::-1] for row in rows]
    return any(
        Counter(tuple(row[i] for i in order) for row in turned) == expected
        for order in itertools.permutations(range(9))
    )


def judge_rows(rows: list[Row]) -> Callable[[], bool]:
    gold = gold_of(rows)
    result = QueryResult(gold.columns, tuple(rows[::-1]), False, frozenset())
    return lambda: compare(result, gold)


def f1_of(rows: list[Row]) -> Callable[[], float]:
    gold = gold_of(rows)
    return lambda: multiset_f1(rows[::-1], gold)


def gold_of(rows: list[Row]) -> Gold:
    columns = tuple(f"c{number}" for number in range(len(rows[0])))
    return Gold(columns, tuple(rows), False, ((Group(tuple(rows), len(rows)),),), frozenset())


def shipped_tasks() -> list[SqlTask]:
    tasks = load_tasks()
    return [task for split in tasks.splits() for task in tasks.of_split(split)]


def golds_of(tasks: list[SqlTask]) -> Iterator[Gold]:
    for path, group in itertools.groupby(tasks, key=lambda task: task.database):
        with closing(Database(path)) as database:
            for task in group:
                yield compute_gold(database, task.gold_sql)


def plain_connection(path: Path, opened: ExitStack) -> sqlite3.Connection:
    """To run each gold query again."""
    with as_sqlite(path) as file:
        uri = f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1"
        return opened.enter_context(closing(sqlite3.connect(uri, uri=True)))


def best(call: Callable[[], object]) -> float:
    """Microseconds of one call, in the best of five runs."""
    call()
    number = max(1, int(0.05 / max(timeit.timeit(call, number=1), 1e-6)))
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e6


def add_line(table: Table, name: str, ours: float, plain: float) -> None:
    table.add_row(name, f"{ours:,.0f}", f"{plain:,.0f}", f"{ours / plain:.4f}")


if __name__ == "__main__":
    main()
