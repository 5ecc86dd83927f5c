"""The environments inside of OpenEnv's own server: an `Environment` of OpenEnv over an episode of ours. Needs the extra
`openenv`.

OpenEnv makes an object for each session and calls it from threads and loops of its own; our environments and their
processes live on one event loop. So a `Host` runs that loop in a thread, and each call crosses over to it.
"""

import asyncio
import threading
import uuid
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, TypeVar

from openenv.core.env_server.interfaces import Environment as OpenEnvEnvironment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import from_json

from rolloutgym.models import EnvironmentName, ResetRequest
from rolloutgym.server.codec import misfit
from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.environments.tasks import Task
from rolloutgym.server.errors import EpisodeNotReset, TaskNotFound
from rolloutgym.server.service import Service
from rolloutgym.server.settings import Settings

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)


class Host:
    """One of our environments, running in a thread until `stop` or the process's end.

    `environment`, `action_type` and `observation_type` are what OpenEnv's `create_app` asks for."""

    def __init__(self, name: EnvironmentName, settings: Settings | None = None) -> None:
        settings = settings or Settings(environments=(name,))
        self.core: AnyEnvironment = build_environments(settings)[name]
        self.service = Service(settings, {name: self.core})
        self.action_type = _beside(Action, self.core.action_type, without={"metadata"})
        self.observation_type = _beside(Observation, self.core.observation_type)
        self._loop = asyncio.new_event_loop()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def environment(self) -> "Adapter":
        """A session's environment; starts ours with the first one, or raises what keeps it from starting."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop.run_forever, name="rolloutgym", daemon=True)
                self._thread.start()
                try:
                    self.wait(self.service.start())
                except BaseException:
                    self._end_loop()
                    raise
        return Adapter(self)

    def wait(self, doing: Coroutine[Any, Any, T]) -> T:
        """The result, for a caller that may block."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result()

    async def cross(self, doing: Coroutine[Any, Any, T]) -> T:
        """The result, for a caller on a loop of its own."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(doing, self._loop))

    def stop(self) -> None:
        """End all episodes, and what the environment has started."""
        if self._thread is not None:
            self.wait(self.service.drain())
            self.wait(self.service.stop())
            self._end_loop()
        self._loop.close()

    def _end_loop(self) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._thread = None


class Adapter(OpenEnvEnvironment[Action, Observation, State]):  # type: ignore[misc]
    """One session: one episode at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._episode_id: str | None = None
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **choice: Any) -> Observation:
        return self._host.wait(self._reset({"seed": seed, "episode_id": episode_id, **choice}))

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **choice: Any) -> Observation:
        return await self._host.cross(self._reset({"seed": seed, "episode_id": episode_id, **choice}))

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        return self._host.wait(self._step(action, timeout_s))

    async def step_async(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        return await self._host.cross(self._step(action, timeout_s))

    @property
    def state(self) -> State:
        """As after the last step: OpenEnv asks for it on its event loop."""
        return self._state

    def close(self) -> None:
        if self._episode_id is not None:
            episode_id, self._episode_id = self._episode_id, None
            self._host.wait(self._host.service.sessions.delete(self._host.core, episode_id))

    def get_metadata(self) -> EnvironmentMetadata:
        core = self._host.core
        return EnvironmentMetadata(name=core.name, description=core.description, version=core.version)

    # -- OpenEnv's Task API

    def list_splits(self) -> list[str]:
        return list(self._host.core.tasks.splits())

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        return len(self._of_split(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        if index < 0:
            raise IndexError(index)
        return _public(self._of_split(split)[index])

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return [_public(task) for task in self._of_split(split)[start:stop]]

    def _of_split(self, split: str) -> Sequence[Task]:
        """`IndexError`, which OpenEnv's server takes for the caller's mistake."""
        try:
            return self._host.core.tasks.of_split(split)
        except TaskNotFound as error:
            raise IndexError(error.message) from None

    # -- on the host's loop

    async def _reset(self, request: dict[str, Any]) -> Observation:
        sessions = self._host.service.sessions
        request["episode_id"] = request["episode_id"] or uuid.uuid4().hex
        record = await sessions.reset(self._host.core, _read(ResetRequest, request), instead_of=self._episode_id)
        self._episode_id = record.key.episode_id
        return await self._observed(record.first)

    async def _step(self, action: Action, timeout_s: float | None) -> Observation:
        episode_id = self._playing()
        ours = _read(self._host.core.action_type, action.model_dump(exclude={"metadata"}, exclude_none=True))
        answer = await self._host.service.sessions.step(self._host.core, episode_id, ours, timeout_s=timeout_s)
        return await self._observed(answer)

    async def _observed(self, answer: bytes) -> Observation:
        state = await self._host.service.sessions.state(self._host.core, self._playing())
        self._state = State.model_validate_json(state)
        result = from_json(answer)
        return self._host.observation_type(**result["observation"], reward=result["reward"], done=result["done"])

    def _playing(self) -> str:
        if self._episode_id is None:
            raise EpisodeNotReset("this session plays no episode yet: reset first")
        return self._episode_id


def _beside(base: type[BaseModel], ours: type[BaseModel], *, without: Collection[str] = ()) -> Any:
    """OpenEnv's type with our type's fields."""
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in ours.model_fields.items() if name not in without
    }
    return create_model(ours.__name__, __base__=base, __doc__=ours.__doc__, **fields)


def _read(kind: type[ModelT], fields: dict[str, Any]) -> ModelT:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise misfit(error, kind.__name__) from None


def _public(task: Task) -> dict[str, Any]:
    return task.info().model_dump()
