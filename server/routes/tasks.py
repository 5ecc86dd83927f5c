"""Which tasks there are: OpenEnv's Task API. A task is chosen by `reset`; these routes only list, and give no answers away."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field, TypeAdapter

from rolloutgym.models import Request as Body
from rolloutgym.models import SplitInfo
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import TaskNotFound
from rolloutgym.server.routes.bodies import read
from rolloutgym.server.service import Service

Index = Annotated[int, Field(ge=0)]


class SplitRequest(Body):
    split: str


class TaskRequest(SplitRequest):
    index: Index


class RangeRequest(SplitRequest):
    start: Index = 0
    stop: Index | None = None
    """Exclusive; null is the end of the split."""


_SPLIT = TypeAdapter(SplitRequest)
_TASK = TypeAdapter(TaskRequest)
_RANGE = TypeAdapter(RangeRequest)


def router(service: Service, environment: AnyEnvironment) -> APIRouter:
    """Routes without a name in them, for the environment at hand."""
    routes = APIRouter(tags=["tasks"])
    limit = service.settings.max_body_bytes

    @routes.get("/splits")
    async def splits() -> list[SplitInfo]:
        return list_splits(environment)

    @routes.post("/tasks")
    async def tasks(request: Request) -> dict[str, Any]:
        return list_tasks(environment, (await read(request, _SPLIT, limit)).split)

    @routes.post("/num_tasks")
    async def num_tasks(request: Request) -> dict[str, int]:
        return {"num_tasks": len(environment.tasks.of_split((await read(request, _SPLIT, limit)).split))}

    @routes.post("/task")
    async def task(request: Request) -> dict[str, Any]:
        return one_task(environment, await read(request, _TASK, limit))

    @routes.post("/task_range")
    async def task_range(request: Request) -> dict[str, Any]:
        body = await read(request, _RANGE, limit)
        return list_tasks(environment, body.split, body.start, body.stop)

    return routes


def list_splits(environment: AnyEnvironment) -> list[SplitInfo]:
    known = {"train": "train", "test": "test"}
    return [SplitInfo(name=name, type=known.get(name, "validation")) for name in environment.tasks.splits()]


def list_tasks(environment: AnyEnvironment, split: str, start: int = 0, stop: int | None = None) -> dict[str, Any]:
    tasks = environment.tasks.of_split(split)[start:stop]
    return {"tasks": [task.info() for task in tasks], "env_name": environment.name}


def one_task(environment: AnyEnvironment, asked: TaskRequest) -> dict[str, Any]:
    tasks = environment.tasks.of_split(asked.split)
    if asked.index >= len(tasks):
        raise TaskNotFound(f"split {asked.split!r} has {len(tasks)} tasks; there is no index {asked.index}")
    return {"task": tasks[asked.index].info(), "env_name": environment.name}
