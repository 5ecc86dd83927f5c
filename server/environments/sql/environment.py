"""The SQL environment: an agent sees a question and table names, explores by DESCRIBE, SAMPLE and QUERY, and ANSWERs.

It owns the tasks and the processes in which all SQL runs, the gold queries' too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from rolloutgym.models import SqlAction, SqlObservation, ToolSpec
from rolloutgym.server.environments.base import Environment
from rolloutgym.server.environments.sql.clock import NOW
from rolloutgym.server.environments.sql.database import DENIED_FUNCTIONS, Limits
from rolloutgym.server.environments.sql.episode import SqlEpisode
from rolloutgym.server.environments.sql.options import SqlOptions
from rolloutgym.server.environments.sql.perturbation import COPIES
from rolloutgym.server.environments.sql.prompts import PROMPT_VERSION, TOOLS
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.rewards import reward_range
from rolloutgym.server.environments.sql.selection import TaskFilter, parse_range
from rolloutgym.server.environments.sql.tasks import load_tasks
from rolloutgym.server.environments.sql.workers import Executor, InProcess, WorkerPool
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.settings import Settings

_CALL_S = 60.0
"""How long a call may take beyond its queries' own deadlines, before its worker counts as hung."""


class SqlEnvironment(Environment[SqlTask, SqlOptions, SqlAction, SqlObservation]):
    name = "sql"
    version = "1.0.0"
    prompt_version = PROMPT_VERSION
    description = "Answer questions by exploring an SQLite database step by step."
    action_type = SqlAction
    observation_type = SqlObservation
    options_type = SqlOptions
    tool_options = MappingProxyType({"action_format": "tools"})

    def __init__(self, tasks: TaskSet[SqlTask], *, workers: int = 0, limits: Limits | None = None) -> None:
        self.tasks = tasks
        self._limits = limits or Limits()
        self._workers = workers
        self._executor: Executor = (
            WorkerPool(workers, self._limits, call_s=_CALL_S + (COPIES + 1) * self._limits.cpu_s)
            if workers
            else InProcess(self._limits)
        )

    async def start(self) -> None:
        await self._executor.start()

    async def stop(self) -> None:
        await self._executor.stop()

    def episode(self, task: SqlTask, seed: int, options: SqlOptions) -> SqlEpisode:
        return SqlEpisode(task, options, self._executor)  # nothing here draws: the seed only chose the task

    def tools(self) -> Sequence[ToolSpec]:
        return TOOLS

    def reward_range(self) -> tuple[float, float]:
        return reward_range(SqlOptions().reward)

    def details(self) -> Mapping[str, Any]:
        return {
            "isolation": "process" if self._workers else "none",
            "workers": self._workers,
            "limits": asdict(self._limits),
            "clock": NOW,
            "denied_functions": sorted(DENIED_FUNCTIONS),
        }

    def health(self) -> Mapping[str, Any]:
        return self._executor.health()


def from_settings(settings: Settings) -> SqlEnvironment:
    where = TaskFilter(
        databases=frozenset(settings.sql_databases) or None,
        hardness=frozenset(settings.sql_hardness) or None,
        joins=parse_range(settings.sql_joins),
        tables=parse_range(settings.sql_tables),
        rows=parse_range(settings.sql_rows),
        shapes=frozenset(settings.sql_shapes) or None,
    )
    tasks = load_tasks(
        settings.sql_data,
        split_by=settings.sql_split_by,
        where=where,
        order=settings.sql_order,
        block_list=settings.sql_block_list,
        empty_golds=settings.sql_empty_golds,
    )
    limits = Limits(steps=settings.sql_steps, cpu_s=settings.sql_cpu_s)
    return SqlEnvironment(tasks, workers=settings.sql_workers, limits=limits)
