"""A set of tasks, by id and by split, and the one rule by which a reset chooses from it."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from rolloutgym.models import TaskInfo
from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.errors import InvalidRequest, TaskNotFound

DEFAULT_SPLIT = "train"


class Task(Protocol):
    """What every environment's task has; the rest is its own and may hold the answer."""

    @property
    def id(self) -> str: ...

    @property
    def split(self) -> str: ...

    def info(self) -> TaskInfo:
        """The public view: nothing of the answer."""
        ...

    def fingerprint(self) -> bytes:
        """Bytes that change whenever the task does, answer included."""
        ...


TaskT = TypeVar("TaskT", bound=Task)


class TaskSet(Generic[TaskT]):
    """Tasks in a fixed order. Ids are unique (`ValueError` if not)."""

    def __init__(self, tasks: Iterable[TaskT]) -> None:
        self._by_id: dict[str, TaskT] = {}
        self._by_split: dict[str, list[TaskT]] = {}
        for task in tasks:
            if task.id in self._by_id:
                raise ValueError(f"task id {task.id!r} occurs twice")
            self._by_id[task.id] = task
            self._by_split.setdefault(task.split, []).append(task)

    def __len__(self) -> int:
        return len(self._by_id)

    def splits(self) -> tuple[str, ...]:
        return tuple(self._by_split)

    def of_split(self, split: str) -> Sequence[TaskT]:
        try:
            return self._by_split[split]
        except KeyError:
            raise TaskNotFound(f"no split {split!r}; there are {', '.join(self._by_split) or 'none'}") from None

    def get(self, task_id: str) -> TaskT:
        try:
            return self._by_id[task_id]
        except KeyError:
            raise TaskNotFound(f"no task {task_id!r}") from None

    def choose(self, *, task_id: str | None, split: str | None, index: int | None, seed: int) -> TaskT:
        """The task named by id, or by position in a split, or drawn from a split by the seed (default split: train)."""
        if task_id is not None:
            task = self.get(task_id)
            if split is not None and task.split != split:
                raise TaskNotFound(f"task {task_id!r} is not in split {split!r}")
            return task
        if index is not None and split is None:
            raise InvalidRequest("index needs split")
        if split is None:
            split = DEFAULT_SPLIT if DEFAULT_SPLIT in self._by_split else next(iter(self._by_split), DEFAULT_SPLIT)
        tasks = self.of_split(split)
        if index is None:
            return seeded_random(seed, "task").choice(tasks)
        if index >= len(tasks):
            raise TaskNotFound(f"split {split!r} has {len(tasks)} tasks; there is no index {index}")
        return tasks[index]

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for task in self._by_id.values():
            fingerprint = task.fingerprint()
            digest.update(len(fingerprint).to_bytes(8, "big") + fingerprint)
        return digest.hexdigest()
