"""The client for ordinary code: blocks until the service has answered.

One client serves any number of threads, each playing episodes of its own. Every call is safe to
repeat (see `rolloutgym.client.protocol`): a fault on the way costs a retry, and neither a doubled step nor a reward.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, overload

import httpx2
from pydantic import JsonValue

from rolloutgym.client import protocol
from rolloutgym.client.errors import RolloutGymError
from rolloutgym.client.protocol import AnyObservation, Call
from rolloutgym.client.rest import RestTransport
from rolloutgym.client.retries import RetryPolicy
from rolloutgym.client.view import EpisodeView
from rolloutgym.client.websocket import Links, WebSocketChannel
from rolloutgym.models import (
    Action,
    CodeAction,
    CodeObservation,
    Metadata,
    Observation,
    SplitInfo,
    SqlAction,
    SqlObservation,
    State,
    StepResult,
    TaskInfo,
    ToolCallAction,
    ToolCallObservation,
    TruncationReason,
)

T = TypeVar("T")
ActionT = TypeVar("ActionT", bound=Action)
ObservationT = TypeVar("ObservationT", bound=Observation)


class Channel(Protocol):
    """The way on which one episode is played."""

    def request(self, call: Call[T]) -> T: ...

    def end(self, call: Call[Any]) -> None:
        """End the episode that `call` closes, and the way to it if that is the episode's own."""
        ...


class Client:
    """A running service. Use it as a context manager, or close it."""

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        transport: Literal["rest", "websocket"] = "rest",
        *,
        api_key: str | None = None,
        timeout_s: float = protocol.TIMEOUT_S,
        retries: int = 3,
        max_connections: int = 128,
        http_transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`timeout_s` bounds each wait for an answer (keep it above the service's `step_timeout_s` for its own, typed
        error), `retries` how often a failed call is sent again, `max_connections` how many REST calls are under way at
        once: more wait their turn. `http_transport` replaces the network, in tests."""
        if transport not in ("rest", "websocket"):
            raise ValueError(f"transport is 'rest' or 'websocket', not {transport!r}")
        options = partial(protocol.http_options, base_url, api_key=api_key, timeout_s=timeout_s)

        def connect(at_once: int | None) -> httpx2.Client:
            return httpx2.Client(transport=http_transport, **options(max_connections=at_once))

        self._retry = RetryPolicy(retries, longest_wait_s=timeout_s)
        self._rest = RestTransport(partial(connect, max_connections), self._retry)
        self._links: Links | None = None
        if transport == "websocket":
            # Its connections stay open as long as their episodes: no pool may make them wait for each other.
            self._links = Links(partial(connect, None), timeout_s)
        self._copy = partial(
            Client, base_url, transport, api_key=api_key, timeout_s=timeout_s, retries=retries,
            max_connections=max_connections, http_transport=http_transport,
        )  # fmt: skip

    def __reduce__(self) -> tuple[object, ...]:
        """A copy, for another process perhaps, has connections of its own."""
        return self._copy, ()

    # -- environments

    @property
    def sql(self) -> "EnvironmentHandle[SqlAction, SqlObservation]":
        return EnvironmentHandle(self, "sql", SqlObservation)

    @property
    def toolcall(self) -> "EnvironmentHandle[ToolCallAction, ToolCallObservation]":
        return EnvironmentHandle(self, "toolcall", ToolCallObservation)

    @property
    def code(self) -> "EnvironmentHandle[CodeAction, CodeObservation]":
        return EnvironmentHandle(self, "code", CodeObservation)

    @overload
    def environment(self, name: Literal["sql"]) -> "EnvironmentHandle[SqlAction, SqlObservation]": ...
    @overload
    def environment(self, name: Literal["toolcall"]) -> "EnvironmentHandle[ToolCallAction, ToolCallObservation]": ...
    @overload
    def environment(self, name: Literal["code"]) -> "EnvironmentHandle[CodeAction, CodeObservation]": ...
    @overload
    def environment(self, name: str) -> "EnvironmentHandle[Any, Any]": ...

    def environment(self, name: str) -> "EnvironmentHandle[Any, Any]":
        """By name; one that this client has no types for keeps its own fields as extra ones."""
        return EnvironmentHandle(self, name, protocol.OBSERVATIONS.get(name, AnyObservation))

    # -- service

    def health(self) -> dict[str, JsonValue]:
        """The service's report about itself. Raises `ConnectionFailed` at once where nobody answers."""
        return self._rest.once(protocol.health_call())

    def ready(self) -> bool:
        """Whether the service takes new episodes now. Raises `ConnectionFailed` at once where nobody answers."""
        call = protocol.ready_call()
        response = self._rest.send(call)
        return protocol.read_ready(call, response.status_code, response.content)

    def list_environments(self) -> list[str]:
        return self._rest.request(protocol.list_environments_call())

    def close(self) -> None:
        """Let go of all connections. Episodes that were not closed end on the service when their time is up."""
        if self._links is not None:
            self._links.close()
        self._rest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _channel(self, environment: str, episode_id: str, *, live: bool) -> Channel:
        if self._links is None:
            return self._rest
        return WebSocketChannel(
            self._links, self._rest, self._retry, environment=environment, episode_id=episode_id, live=live
        )


class EnvironmentHandle(Generic[ActionT, ObservationT]):
    """One environment of the service: its tasks, and episodes in it."""

    def __init__(self, client: Client, name: str, observation: type[ObservationT]) -> None:
        self._client = client
        self._observation = observation
        self.name = name

    def reset(
        self,
        *,
        task_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        options: Mapping[str, JsonValue] | None = None,
        episode_id: str | None = None,
    ) -> "Episode[ActionT, ObservationT]":
        """Begin an episode: of the task named, of the one at `index` of `split`, or of one that the seed draws.

        A live episode called `episode_id` starts over; without a name it gets a fresh one."""
        episode_id = episode_id or protocol.new_episode_id()
        call = protocol.reset_call(
            self.name,
            self._observation,
            episode_id,
            task_id=task_id,
            split=split,
            index=index,
            seed=seed,
            options=options,
        )
        channel = self._client._channel(self.name, episode_id, live=False)
        episode = Episode[ActionT, ObservationT](channel, self.name, episode_id, self._observation)
        episode._began(channel.request(call))
        return episode

    def resume(self, episode_id: str) -> "Episode[ActionT, ObservationT]":
        """Go on with a live episode. Its messages so far are not repeated."""
        channel = self._client._channel(self.name, episode_id, live=True)
        episode = Episode[ActionT, ObservationT](channel, self.name, episode_id, self._observation)
        episode._resumed(episode.state())
        return episode

    def splits(self) -> list[SplitInfo]:
        return self._client._rest.request(protocol.splits_call(self.name))

    def num_tasks(self, split: str) -> int:
        return self._client._rest.request(protocol.num_tasks_call(self.name, split)).num_tasks

    def task(self, split: str, index: int) -> TaskInfo:
        return self._client._rest.request(protocol.task_call(self.name, split, index)).task

    def tasks(self, split: str, start: int = 0, stop: int | None = None) -> list[TaskInfo]:
        """The public view of tasks `start` to `stop` (excluded; None is the end) of a split."""
        return self._client._rest.request(protocol.tasks_call(self.name, split, start, stop)).tasks

    def metadata(self) -> Metadata:
        return self._client._rest.request(protocol.metadata_call(self.name))

    def schema(self) -> dict[str, JsonValue]:
        """JSON Schemas of actions, observations, state and reset options."""
        return self._client._rest.request(protocol.schema_call(self.name))


class Episode(EpisodeView[ObservationT], Generic[ActionT, ObservationT]):
    """A live episode. As a context manager it closes itself."""

    def __init__(self, channel: Channel, environment: str, episode_id: str, observation: type[ObservationT]) -> None:
        super().__init__(environment, episode_id)
        self._channel = channel
        self._observation_type = observation

    def step(self, action: str | ActionT | Mapping[str, JsonValue]) -> StepResult[ObservationT]:
        """Act: raw model text, an action of `rolloutgym.models`, or the same as a dict."""
        call = protocol.step_call(self.environment, self._observation_type, self.id, action, self.step_count)
        result = self._channel.request(call)
        self._stepped(result)
        return result

    def truncate(self, reason: TruncationReason) -> StepResult[ObservationT]:
        """End the episode at a limit of the trainer's own; it is graded on what there is."""
        call = protocol.truncate_call(self.environment, self._observation_type, self.id, reason, self.step_count)
        result = self._channel.request(call)
        self._stepped(result)
        return result

    def state(self) -> State:
        """The episode's public state on the service."""
        return self._channel.request(protocol.state_call(self.environment, self.id))

    def close(self) -> None:
        """End the episode and free its place. Idempotent."""
        self._channel.end(protocol.close_call(self.environment, self.id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A failed farewell loses nothing: the service ends an episode that is left alone. It must not hide `error`,
        # nor cost the caller an episode that was played to its end.
        with suppress(RolloutGymError):
            self.close()
