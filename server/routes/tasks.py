"""Which tasks there are: OpenEnv's Task API. It lists and gives no answers away; a task is chosen by `reset`."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import Field, TypeAdapter

from rolloutgym.models import Answer, SplitInfo, TaskInfo
from rolloutgym.models import Request as Body
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import NotFound, TaskNotFound
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


class TaskCount(Answer):
    num_tasks: int


class OneTask(Answer):
    task: TaskInfo
    env_name: str


class Tasks(Answer):
    tasks: list[TaskInfo]
    env_name: str


_SPLIT = TypeAdapter(SplitRequest)
_TASK = TypeAdapter(TaskRequest)
_RANGE = TypeAdapter(RangeRequest)


def router(service: Service, environment: AnyEnvironment) -> APIRouter:
    """Routes for the environment at hand."""
    routes = APIRouter(tags=["tasks"])
    _add_routes(routes, "", lambda _: environment, service.settings.max_body_bytes)
    return routes


def named_router(service: Service, known: Mapping[str, AnyEnvironment]) -> APIRouter:
    """The same with the environment's name in the path, in upper or lower case, as OpenEnv's clients ask."""

    def find(request: Request) -> AnyEnvironment:
        name = request.path_params["environment"].lower()
        if name not in known:
            raise NotFound(f"no such environment; there are {', '.join(known)}")
        return known[name]

    routes = APIRouter(tags=["tasks"])
    _add_routes(routes, "/{environment}", find, service.settings.max_body_bytes)
    return routes


def _add_routes(routes: APIRouter, prefix: str, find: Callable[[Request], AnyEnvironment], limit: int) -> None:
    @routes.get(f"{prefix}/splits")
    async def splits(request: Request) -> list[SplitInfo]:
        return list_splits(find(request))

    @routes.post(f"{prefix}/tasks")
    async def tasks(request: Request) -> Tasks:
        return list_tasks(find(request), (await read(request, _SPLIT, limit)).split)

    @routes.post(f"{prefix}/num_tasks")
    async def num_tasks(request: Request) -> TaskCount:
        split = (await read(request, _SPLIT, limit)).split
        return TaskCount(num_tasks=len(find(request).tasks.of_split(split)))

    @routes.post(f"{prefix}/task")
    async def task(request: Request) -> OneTask:
        return one_task(find(request), await read(request, _TASK, limit))

    @routes.post(f"{prefix}/task_range")
    async def task_range(request: Request) -> Tasks:
        body = await read(request, _RANGE, limit)
        return list_tasks(find(request), body.split, body.start, body.stop)


def list_splits(environment: AnyEnvironment) -> list[SplitInfo]:
    kinds: dict[str, Literal["train", "test"]] = {"train": "train", "test": "test"}
    return [SplitInfo(name=name, type=kinds.get(name, "validation")) for name in environment.tasks.splits()]


def list_tasks(environment: AnyEnvironment, split: str, start: int = 0, stop: int | None = None) -> Tasks:
    tasks = environment.tasks.of_split(split)[start:stop]
    return Tasks(tasks=[task.info() for task in tasks], env_name=environment.name)


def one_task(environment: AnyEnvironment, asked: TaskRequest) -> OneTask:
    tasks = environment.tasks.of_split(asked.split)
    if asked.index >= len(tasks):
        raise TaskNotFound(f"split {asked.split!r} has {len(tasks)} tasks; there is no index {asked.index}")
    return OneTask(task=tasks[asked.index].info(), env_name=environment.name)
