"""What an environment is: one object per service that owns tasks and shared resources, and one live episode per record.

An episode is a deterministic function of (task, seed, options, actions): the session layer keeps those and rebuilds the
live object by replay whenever it is gone. So an episode holds no wall clock, no global random state and nothing that
replaying its actions would not restore. Methods are coroutines; one that needs no other process simply never suspends,
so a quick step costs no thread and no loop turn. Anything that blocks (a query, a sandboxed run) is awaited from a
process of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

from rolloutgym.models import Action, Observation, StopReason, ToolSpec
from rolloutgym.server.environments.tasks import Task, TaskSet

ActionT = TypeVar("ActionT", bound=Action)
ObservationT = TypeVar("ObservationT", bound=Observation)
TaskT = TypeVar("TaskT", bound=Task)


class Options(BaseModel):
    """Base of an environment's reset options: frozen, unknown names refused, documented by attribute docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


OptionsT = TypeVar("OptionsT", bound=Options)


class Outcome(NamedTuple):
    """What one step did. `observation.info` says whether and why the episode ended."""

    observation: Observation
    reward: float

    @property
    def done(self) -> bool:
        return self.observation.info.terminated or self.observation.info.truncated


class Episode(ABC, Generic[ActionT]):
    """One live episode. Calls never overlap: the session layer orders them."""

    @abstractmethod
    async def reset(self) -> Observation:
        """The first observation. Called once, before any step."""

    @abstractmethod
    async def step(self, action: ActionT) -> Outcome:
        """Take one action. Raises `ServiceError` for a fault of ours: then the step has not happened, and this object
        is thrown away and rebuilt by replay."""

    @abstractmethod
    async def truncate(self, reason: StopReason) -> Outcome:
        """The trainer ends the episode at a limit of its own: grade what there is, exactly as at the environment's own
        budget end, with this stop reason."""

    @abstractmethod
    def state(self) -> Mapping[str, JsonValue]:
        """Public fields beside those every state has (see `rolloutgym.models.State`). Never part of the answer."""

    @abstractmethod
    def action_of_call(self, name: str, arguments: Mapping[str, JsonValue]) -> ActionT:
        """The action that a call of one of `tools()` stands for (for MCP and tool-calling trainers).
        `InvalidRequest` for an unknown tool or unfit arguments."""

    @abstractmethod
    def tools(self) -> Sequence[ToolSpec]:
        """The tools that an agent may call in this episode: never reset, scoring or task choice."""

    async def close(self) -> None:
        """Free what the episode holds. Idempotent."""
        return


class Environment(ABC, Generic[TaskT, OptionsT, ActionT, ObservationT]):
    """One environment of a running service."""

    name: ClassVar[str]
    version: ClassVar[str]
    prompt_version: ClassVar[str]
    description: ClassVar[str]
    action_type: type[ActionT]
    observation_type: type[ObservationT]
    options_type: type[OptionsT]
    tasks: TaskSet[TaskT]
    tool_options: ClassVar[Mapping[str, JsonValue]] = MappingProxyType({})
    """Reset options of an agent that plays by tool calls, where its trainer gives none."""

    async def start(self) -> None:
        """Start pools and workers. Called once, inside the running loop, before the first episode."""
        return

    async def stop(self) -> None:
        """Stop what `start` started; leaves no process, file or connection behind."""
        return

    @abstractmethod
    def episode(self, task: TaskT, seed: int, options: OptionsT) -> Episode[ActionT]:
        """A new live episode. Cheap and synchronous: work belongs in `Episode.reset`."""

    @abstractmethod
    def tools(self) -> Sequence[ToolSpec]:
        """The tools common to every episode (empty where each task brings its own)."""

    @abstractmethod
    def reward_range(self) -> tuple[float, float]:
        """Least and greatest return of an episode under the default options."""

    def details(self) -> Mapping[str, Any]:
        """Environment facts for `/metadata`: limits, presets, isolation level. JSON values only."""
        return {}

    def health(self) -> Mapping[str, Any]:
        """Facts for `/health`. A key `degraded` (a text) marks the service as degraded."""
        return {}
