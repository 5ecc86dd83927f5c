"""What a client knows of an episode: the part of `Episode` and `AsyncEpisode` that talks to nobody."""

from typing import Generic, TypeVar

from rolloutgym.models import Message, Observation, State, StepResult, ToolSpec

ObservationT = TypeVar("ObservationT", bound=Observation)


class EpisodeView(Generic[ObservationT]):
    """An episode as its answers so far tell it. One thread or task plays it; many episodes may share a client."""

    def __init__(self, environment: str, episode_id: str) -> None:
        self._environment = environment
        self._id = episode_id
        self._task_id: str | None = None
        self._seed: int | None = None
        self._observation: ObservationT | None = None
        self._messages: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._reward: float | None = None
        self._total_reward = 0.0
        self._done = False
        self._step_count = 0

    @property
    def id(self) -> str:
        return self._id

    @property
    def environment(self) -> str:
        return self._environment

    @property
    def task_id(self) -> str | None:
        return self._task_id

    @property
    def seed(self) -> int | None:
        """The seed in use, drawn by the service where none was given. None after `resume`."""
        return self._seed

    @property
    def observation(self) -> ObservationT:
        """The latest one. `LookupError` between `resume` and the next step: the service keeps no copy to show."""
        if self._observation is None:
            raise LookupError(f"episode {self._id} was resumed; its next step brings the next observation")
        return self._observation

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the environment said since the reset, in order; what the policy said is the caller's own to keep."""
        return tuple(self._messages)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the model may be shown, as given at reset."""
        return self._tools

    @property
    def reward(self) -> float | None:
        """Of the last step; None before the first."""
        return self._reward

    @property
    def total_reward(self) -> float:
        """The return so far."""
        return self._total_reward

    @property
    def done(self) -> bool:
        return self._done

    @property
    def step_count(self) -> int:
        """Steps taken; the number that the next one is sent with."""
        return self._step_count

    def __repr__(self) -> str:
        end = "done" if self._done else "running"
        return f"<{type(self).__name__} {self._environment} {self._id}: step {self._step_count}, {end}>"

    def _began(self, result: StepResult[ObservationT]) -> None:
        self._task_id, self._seed = result.task_id, result.seed
        self._tools = result.observation.tools
        self._take(result)

    def _stepped(self, result: StepResult[ObservationT]) -> None:
        self._reward = result.reward
        self._total_reward += result.reward or 0.0
        self._take(result)

    def _take(self, result: StepResult[ObservationT]) -> None:
        self._observation = result.observation
        self._messages.extend(result.observation.messages)
        self._done, self._step_count = result.done, result.step_count

    def _resumed(self, state: State) -> None:
        self._task_id, self._total_reward = state.task_id, state.total_reward
        self._done, self._step_count = state.done, state.step_count
