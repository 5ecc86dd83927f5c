"""An audit of gold queries: which of them cannot be graded by, and which leave their answer open.

Published sets hold a good share of golds that fail, return nothing, cut through a tie or depend on the order of rows.
Grading accepts every answer that such a gold allows (see `gold`); the audit tells of them, and its block list keeps
those out that a trainer does not want. A gold that counts nothing because its words are not those of the data shows as
one that no loss of rows changes.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal, get_args

from rolloutgym.server.environments.sql.answers import compare_on_copy
from rolloutgym.server.environments.sql.database import Database, Limits, QueryResult
from rolloutgym.server.environments.sql.gold import Gold, GoldFailed, compute_gold
from rolloutgym.server.environments.sql.perturbation import Copies
from rolloutgym.server.environments.sql.questions import SqlTask, content_sha256

Finding = Literal["fails", "times_out", "empty", "constant", "tie", "row_values", "row_order", "float_order"]
FINDINGS: tuple[Finding, ...] = get_args(Finding)

MEANINGS: Mapping[Finding, str] = {
    "fails": "the gold query does not run",
    "times_out": "the gold query is too expensive",
    "empty": "the result has no rows, so that an empty answer would be right",
    "constant": "the result is the same on all smaller copies of the data: as an answer in SQL, a constant is right",
    "tie": "a LIMIT cuts through equal rows: several answers are right, and all are accepted",
    "row_values": "values depend on the order in which rows are scanned: the results of both orders are accepted",
    "row_order": "rows come in another order when scanned backwards: harmless, they are compared without order",
    "float_order": "reals differ in their last digits when added in another order: harmless, there is a tolerance",
}
BLOCKED: tuple[Finding, ...] = ("fails", "times_out", "empty", "row_values")
"""What keeps a task out unless told otherwise: what cannot be graded by, or would reward luck."""


@dataclass(frozen=True)
class Report:
    """What was found of one task."""

    task_id: str
    findings: tuple[Finding, ...]
    note: str = ""
    """Why the gold failed."""


def audit(tasks: Iterable[SqlTask], limits: Limits | None = None) -> Iterator[Report]:
    """One report for each task, in their order. Raises `DatabaseBroken`."""
    with closing(Copies()) as copies:
        for path, group in groupby(tasks, key=attrgetter("database")):
            with ExitStack() as opened:
                database = opened.enter_context(closing(Database(path, limits)))
                smaller = [
                    opened.enter_context(closing(Database(copy, limits))) for copy in copies.of(path, database.schema())
                ]
                for task in group:
                    yield _inspect(task, database, smaller)


def _inspect(task: SqlTask, database: Database, copies: Sequence[Database]) -> Report:
    try:
        gold = compute_gold(database, task.gold_sql)
    except GoldFailed as error:
        return Report(task.id, ("times_out" if error.kind == "timeout" else "fails",), error.message)
    found: dict[Finding, bool] = {
        "empty": gold.empty,
        "constant": not gold.empty and _is_constant(task, gold, copies),
        "tie": gold.tie,
        "row_values": gold.row_dependent,
        "row_order": gold.row_order,
        "float_order": gold.float_order,
    }
    return Report(task.id, tuple(finding for finding, is_so in found.items() if is_so))


def _is_constant(task: SqlTask, gold: Gold, copies: Sequence[Database]) -> bool:
    """Whether the gold's result agrees with that of every copy."""
    result = QueryResult(gold.columns, gold.rows, truncated=False, read=gold.read)
    for copy in copies:
        try:
            other = compute_gold(copy, task.gold_sql)
        except GoldFailed:
            continue
        if not compare_on_copy(result, other):
            return False
    return bool(copies)


def count(reports: Iterable[Report]) -> Counter[Finding]:
    return Counter(finding for report in reports for finding in report.findings)


def write_block_list(
    path: Path, tasks: Sequence[SqlTask], reports: Sequence[Report], blocks: Sequence[Finding] = BLOCKED
) -> int:
    """Write what was found, and which findings keep a task out, as JSON for `load_tasks`; how many tasks that
    blocks."""
    findings = {report.task_id: list(report.findings) for report in reports if report.findings}
    content = {"data_sha256": content_sha256(tasks), "blocks": list(blocks), "findings": findings}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return sum(not set(blocks).isdisjoint(found) for found in findings.values())
