"""What judging an SQL answer costs, beside the plain way to do it, in the same run.

The plain ways are those of published evaluators: try every permutation of the columns, count rows in a `Counter`, run
the gold query again for each answer. Run it as `python benchmarks/sql_answers.py`."""

import itertools
import sqlite3
import timeit
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

from rich.console import Console
from rich.table import Table

from rolloutgym.server.environments.sql.answers import compare, grade, multiset_f1, spell
from rolloutgym.server.environments.sql.comparison import Group, rows_match
from rolloutgym.server.environments.sql.database import Database, QueryResult, Row
from rolloutgym.server.environments.sql.gold import Gold, compute_gold
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.tasks import load_tasks

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
    golds = shipped_golds()
    texts = [(spell(gold.rows), gold) for _, gold in golds]
    add_line(
        table,
        f"one answer in JSON, mean of {len(golds)} shipped tasks",
        best(lambda: [grade(text, gold) for text, gold in texts]) / len(golds),
        best(lambda: run_all([task for task, _ in golds])) / len(golds),
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


def shipped_golds() -> list[tuple[SqlTask, Gold]]:
    tasks = load_tasks()
    golds = []
    for task in (task for split in tasks.splits() for task in tasks.of_split(split)):
        with closing(Database(task.database)) as database:
            golds.append((task, compute_gold(database, task)))
    return golds


def run_all(tasks: list[SqlTask]) -> None:
    """Run each gold query again on a plain connection."""
    for path, group in itertools.groupby(tasks, key=lambda task: task.database):
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
            for task in group:
                connection.execute(task.gold_sql).fetchall()


def best(call: Callable[[], object]) -> float:
    """Microseconds of one call, in the best of five runs."""
    call()
    number = max(1, int(0.05 / max(timeit.timeit(call, number=1), 1e-6)))
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e6


def add_line(table: Table, name: str, ours: float, plain: float) -> None:
    table.add_row(name, f"{ours:,.0f}", f"{plain:,.0f}", f"{ours / plain:.4f}")


if __name__ == "__main__":
    main()
