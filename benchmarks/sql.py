"""What a step of the SQL environment costs, beside bare `sqlite3` on the same queries in the same run.

One step is: parse the model's text, run the query under all controls, format the rows, score them, settle the reward.
Run it as `python benchmarks/sql.py [DATA]`; DATA is a data set as `ROLLOUTGYM_SQL_DATA` takes it, the shipped tasks by
default.
"""

import argparse
import asyncio
import gc
import sqlite3
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from rolloutgym.models import SqlAction
from rolloutgym.server.environments.sql.actions import parse_text
from rolloutgym.server.environments.sql.database import Database
from rolloutgym.server.environments.sql.environment import SqlEnvironment
from rolloutgym.server.environments.sql.options import SqlOptions
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.tasks import load_tasks
from rolloutgym.server.environments.sql.text_database import as_sqlite
from rolloutgym.server.environments.tasks import TaskSet

FETCHED = 1_000
"""Rows that the bare connection fetches: what a step fetches at most where the gold has up to half of them."""


Query = tuple[SqlTask, str]
"""A task and SQL that an episode of it runs."""


@dataclass(frozen=True)
class Line:
    """One measurement: seconds of each query, in the pass where it was quickest."""

    name: str
    seconds: Sequence[float]
    rate: float | None = None
    """Queries per second of wall clock in the best pass, where several run at once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="data set; the shipped tasks by default")
    parser.add_argument("--passes", type=int, default=5, help="passes over all queries")
    parser.add_argument("--workers", type=int, default=2, help="processes of the isolated run")
    arguments = parser.parse_args()
    tasks = load_tasks(arguments.data)
    right = [(task, task.gold_sql) for split in tasks.splits() for task in tasks.of_split(split)]
    passes, workers = arguments.passes, arguments.workers
    gc.collect()
    gc.freeze()  # as the service does once it has loaded
    report(
        [
            timed("parse the text alone", right, passes, lambda _, sql: parse_text(f"QUERY: {sql}")),
            bare("bare sqlite3, read-only", right, passes, "mode=ro"),
            bare("bare sqlite3, immutable", right, passes, "mode=ro&immutable=1"),
            guarded("under all controls", right, passes),
            asyncio.run(steps("step in process", tasks, right, passes, workers=0)),
            asyncio.run(steps("step in process, wrong query", tasks, neighbours(right), passes, workers=0)),
            asyncio.run(steps("step in a worker", tasks, right, passes, workers=1)),
            asyncio.run(steps(f"{workers} workers, 8 at once", tasks, right, passes, workers=workers, at_once=8)),
        ],
        len(right),
    )


def neighbours(queries: Sequence[Query]) -> list[Query]:
    """Each task with the gold query of the next one over the same database: as a rule the wrong query."""
    by_database: dict[Path, list[SqlTask]] = {}
    for task, _ in queries:
        by_database.setdefault(task.database, []).append(task)
    return [
        (task, following.gold_sql)
        for tasks in by_database.values()
        for task, following in zip(tasks, tasks[1:] + tasks[:1], strict=True)
    ]


def timed(name: str, queries: Sequence[Query], passes: int, work: Callable[[SqlTask, str], object]) -> Line:
    measured = []
    for _ in range(passes):
        gc.collect()
        seconds = []
        for task, sql in queries:
            before = time.perf_counter()
            work(task, sql)
            seconds.append(time.perf_counter() - before)
        measured.append(seconds)
    return Line(name, [min(times) for times in zip(*measured, strict=True)])


def bare(name: str, queries: Sequence[Query], passes: int, mode: str) -> Line:
    """The same queries on plain connections: one to a database, statements compiled anew each time."""
    connections = {}
    for path in {task.database for task, _ in queries}:
        with as_sqlite(path) as file:
            uri = f"file:{quote(str(file.absolute()))}?{mode}"
            connections[path] = sqlite3.connect(uri, uri=True, cached_statements=0)
    line = timed(name, queries, passes, lambda task, sql: connections[task.database].execute(sql).fetchmany(FETCHED))
    for connection in connections.values():
        connection.close()
    return line


def guarded(name: str, queries: Sequence[Query], passes: int) -> Line:
    databases = {path: Database(path) for path in {task.database for task, _ in queries}}
    line = timed(name, queries, passes, lambda task, sql: databases[task.database].query(sql, max_rows=FETCHED))
    for database in databases.values():
        database.close()
    return line


async def steps(
    name: str, tasks: TaskSet[SqlTask], queries: Sequence[Query], passes: int, *, workers: int, at_once: int = 1
) -> Line:
    """One QUERY step in an episode of each task; resets are not timed."""
    environment = SqlEnvironment(tasks, workers=workers)
    await environment.start()
    try:
        for _ in range(2 * workers):  # so that every worker has computed the golds before the clock runs
            await asyncio.gather(*(environment.episode(task, 0, SqlOptions()).reset() for task, _ in queries))
        measured = [await one_pass(environment, queries, at_once) for _ in range(passes)]
    finally:
        await environment.stop()
    seconds = [min(times) for times in zip(*(seconds for seconds, _ in measured), strict=True)]
    return Line(name, seconds, None if at_once == 1 else max(rate for _, rate in measured))


async def one_pass(
    environment: SqlEnvironment, queries: Sequence[Query], at_once: int
) -> tuple[Sequence[float], float]:
    """Seconds of each query's step, and steps per second."""
    episodes = [environment.episode(task, 0, SqlOptions()) for task, _ in queries]
    await asyncio.gather(*(episode.reset() for episode in episodes))
    actions = [SqlAction(text=f"I look at the rows.\nQUERY: {sql}") for _, sql in queries]
    seconds = [0.0] * len(queries)
    waiting = list(range(len(queries)))[::-1]

    async def play() -> None:
        while waiting:
            number = waiting.pop()
            before = time.perf_counter()
            await episodes[number].step(actions[number])
            seconds[number] = time.perf_counter() - before

    gc.collect()
    start = time.perf_counter()
    await asyncio.gather(*(play() for _ in range(at_once)))
    return seconds, len(queries) / (time.perf_counter() - start)


def report(lines: Sequence[Line], count: int) -> None:
    table = Table(title=f"{count} queries, each in its best pass; times in microseconds")
    for heading in ("", "p50", "p90", "p99", "mean", "per second", "mean / bare"):
        table.add_column(heading, justify="left" if not heading else "right")
    reference = statistics.fmean(next(line for line in lines if "immutable" in line.name).seconds)
    for line in lines:
        ordered = sorted(line.seconds)
        quantiles = [ordered[min(int(len(ordered) * q), len(ordered) - 1)] for q in (0.5, 0.9, 0.99)]
        mean = statistics.fmean(ordered)
        figures = [f"{1e6 * value:,.0f}" for value in (*quantiles, mean)]
        table.add_row(line.name, *figures, f"{line.rate or 1 / mean:,.0f}", f"{mean / reference:.1f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
