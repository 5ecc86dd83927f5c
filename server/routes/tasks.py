"""Which tasks there are: OpenEnv's Task API. It lists and gives no answers away; a task is chosen by `reset`."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from pydantic import Field

from rolloutgym.models import Answer, SplitInfo, TaskInfo
from rolloutgym.models import Request as Body
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import NotFound, TaskNotFound
from rolloutgym.server.routes.bodies import JsonBytes, json_of

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


def add_task_routes(app: FastAPI, environment: AnyEnvironment) -> None:
    """Routes for the environment at hand."""
    _add(app, "", lambda _: environment, in_schema=True)


def add_named_task_routes(app: FastAPI, known: Mapping[str, AnyEnvironment]) -> None:
    """The same with the environment's name in the path, in upper or lower case, as OpenEnv's clients ask."""

    def find(request: Request) -> AnyEnvironment:
        name = request.path_params["environment"].lower()
        if name not in known:
            raise NotFound(f"no such environment; there are {', '.join(known)}")
        return known[name]

    _add(app, "/{environment}", find, in_schema=False)


def _add(app: FastAPI, prefix: str, find: Callable[[Request], AnyEnvironment], *, in_schema: bool) -> None:
    options: Any = {"tags": ["tasks"], "include_in_schema": in_schema}

    @app.get(f"{prefix}/splits", **options)
    async def splits(request: Request) -> list[SplitInfo]:
        return list_splits(find(request))

    @app.post(f"{prefix}/tasks", response_model=Tasks, **options)
    async def tasks(body: SplitRequest, request: Request) -> JsonBytes:
        return json_of(list_tasks(find(request), body.split))

    @app.post(f"{prefix}/num_tasks", response_model=TaskCount, **options)
    async def num_tasks(body: SplitRequest, request: Request) -> JsonBytes:
        return json_of(TaskCount(num_tasks=len(find(request).tasks.of_split(body.split))))

    @app.post(f"{prefix}/task", response_model=OneTask, **options)
    async def task(body: TaskRequest, request: Request) -> JsonBytes:
        return json_of(one_task(find(request), body))

    @app.post(f"{prefix}/task_range", response_model=Tasks, **options)
    async def task_range(body: RangeRequest, request: Request) -> JsonBytes:
        return json_of(list_tasks(find(request), body.split, body.start, body.stop))


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
