"""The set of SQL tasks that a service serves: read, filtered, split, ordered."""

import json
from pathlib import Path

from rolloutgym.server.environments.sql.loaders import DataError, read_tasks
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.selection import (
    Order,
    SplitBy,
    TaskFilter,
    in_order,
    in_splits,
    with_result_facts,
)
from rolloutgym.server.environments.tasks import TaskSet

__all__ = ["DataError", "SqlTask", "TaskFilter", "load_tasks"]


def load_tasks(
    path: Path | None = None,
    *,
    split_by: SplitBy = "official",
    where: TaskFilter | None = None,
    order: Order = "file",
    block_list: Path | None = None,
    empty_golds: bool = False,
) -> TaskSet[SqlTask]:
    """The tasks of a data set (see `loaders.read_tasks`), of the shipped one where the path is None. Raises
    `DataError`.

    Tasks whose gold has no rows are left out unless `empty_golds`. Where the data does not say how many rows a gold
    has, and no block list (see `audit`) does, the golds are run here, once, and failing ones are left out."""
    tasks = read_tasks(path)
    blocked = read_block_list(block_list) if block_list is not None else frozenset()
    tasks = [task for task in tasks if task.id not in blocked]
    if block_list is None or (where is not None and (where.rows is not None or where.shapes is not None)):
        tasks = with_result_facts(tasks)
    if not empty_golds:
        tasks = [task for task in tasks if task.tags.get("n_rows") != 0]
    if where is not None:
        tasks = [task for task in tasks if where(task)]
    if not tasks:
        raise DataError("no SQL task is left after the filters")
    return TaskSet(in_order(in_splits(tasks, split_by), order))


def read_block_list(path: Path) -> frozenset[str]:
    """The ids that an audit blocked: the keys of `blocked` in its JSON."""
    try:
        blocked = json.loads(path.read_text(encoding="utf-8"))["blocked"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path.name}: not a block list: {error!r}") from None
    if not isinstance(blocked, dict):
        raise DataError(f"{path.name}: `blocked` must be an object of task ids")
    return frozenset(blocked)
