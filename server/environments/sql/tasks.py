"""The set of SQL tasks that a service serves: read, filtered, split, ordered."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from rolloutgym.server.environments.sql.loaders import DataError, read_tasks
from rolloutgym.server.environments.sql.questions import SqlTask, content_sha256
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
    has, and no block list (see `audit`) does, the golds are run here, once, and failing ones are left out.
    """
    tasks = read_tasks(path)
    if block_list is not None:
        kept_out = _read_block_list(block_list, tasks, empty_golds=empty_golds)
        tasks = [task for task in tasks if task.id not in kept_out]
    if block_list is None or (where is not None and (where.rows is not None or where.shapes is not None)):
        tasks = with_result_facts(tasks)
    if not empty_golds:
        tasks = [task for task in tasks if task.tags.get("n_rows") != 0]
    if where is not None:
        tasks = [task for task in tasks if where(task)]
    if not tasks:
        raise DataError("no SQL task is left after the filters")
    return TaskSet(in_order(in_splits(tasks, split_by), order))


def _read_block_list(path: Path, tasks: Sequence[SqlTask], *, empty_golds: bool) -> frozenset[str]:
    """The ids that an audit keeps out. Raises `DataError` where it is no block list, or one of other data."""
    try:
        content = _BlockList.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise DataError(f"{path.name}: not a block list: {error.errors(include_url=False)[0]['msg']}") from None
    if content.data_sha256 != content_sha256(tasks):
        raise DataError(f"{path.name}: this block list is of other data; audit it again")
    reasons = content.blocks - {"empty"} if empty_golds else content.blocks | {"empty"}
    return frozenset(task_id for task_id, found in content.findings.items() if not reasons.isdisjoint(found))


class _BlockList(BaseModel):
    """What `audit.write_block_list` writes."""

    data_sha256: str
    blocks: frozenset[str]
    findings: dict[str, tuple[str, ...]]
