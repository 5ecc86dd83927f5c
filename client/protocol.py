"""What is said to the service and how its answers are read: pure functions that both clients share.

A `Call` is one request in both of its forms, HTTP and WebSocket frame, with the type of its answer. Every call is safe
to repeat: tasks and states are only read, closing is idempotent, a reset names its episode, and steps are numbered.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx2
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from rolloutgym.client.errors import ConnectionFailed, ErrorAnswer, InvalidRequest, RolloutGymError
from rolloutgym.models import (
    Action,
    Answer,
    CodeObservation,
    ErrorCode,
    Metadata,
    Observation,
    ResetRequest,
    SplitInfo,
    SqlObservation,
    State,
    StepResult,
    TaskInfo,
    ToolCallObservation,
    TruncationReason,
)

T = TypeVar("T")
ObservationT = TypeVar("ObservationT", bound=Observation)

# What a gateway says for the service; the next try may reach it.
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request: its HTTP form, the WebSocket frame that says the same (where one does), and its answer's type."""

    answer: TypeAdapter[T]
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    params: Mapping[str, str] | None = None
    frame: Mapping[str, Any] | None = None
    episode_id: str | None = None
    steps: int | None = None
    """How many steps the episode has when the call is answered, where that is known."""


class AnyObservation(Observation):
    """Of an environment that the client has no type for."""

    model_config = ConfigDict(extra="allow")


OBSERVATIONS: dict[str, type[Observation]] = {
    "sql": SqlObservation,
    "toolcall": ToolCallObservation,
    "code": CodeObservation,
}

# ---- calls ----------------------------------------------------------------------------------------------------------

_STATE = TypeAdapter(State)
_NOTHING: TypeAdapter[Any] = TypeAdapter(Any)
_JSON_OBJECT = TypeAdapter(dict[str, JsonValue])
_NAMES = TypeAdapter(list[str])
_SPLITS = TypeAdapter(list[SplitInfo])
_METADATA = TypeAdapter(Metadata)


class TaskCount(Answer):
    num_tasks: int


class OneTask(Answer):
    task: TaskInfo


class SomeTasks(Answer):
    tasks: list[TaskInfo]


_COUNT = TypeAdapter(TaskCount)
_ONE_TASK = TypeAdapter(OneTask)
_SOME_TASKS = TypeAdapter(SomeTasks)


def new_episode_id() -> str:
    """A name that the client gives an episode, so that a repeated reset restarts it and leaves no second one behind."""
    return uuid4().hex


@cache
def _step_result(observation: type[ObservationT]) -> TypeAdapter[StepResult[ObservationT]]:
    return TypeAdapter(StepResult[observation])  # type: ignore[valid-type]


def reset_call(
    environment: str,
    observation: type[ObservationT],
    episode_id: str,
    *,
    task_id: str | None,
    split: str | None,
    index: int | None,
    seed: int | None,
    options: Mapping[str, JsonValue] | None,
) -> Call[StepResult[ObservationT]]:
    try:
        request = ResetRequest(
            seed=seed,
            episode_id=episode_id,
            split=split,
            index=index,
            task_id=task_id,
            options=dict(options or {}),
        )
    except ValidationError as error:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "request", f"this is no reset: {error}") from error
    body = request.model_dump(mode="json", exclude_defaults=True)
    return Call(
        answer=_step_result(observation),
        method="POST",
        path=f"/{environment}/reset",
        body=body,
        frame={"type": "reset", "data": body},
        episode_id=episode_id,
        steps=0,
    )


def step_call(
    environment: str,
    observation: type[ObservationT],
    episode_id: str,
    action: str | Action | Mapping[str, JsonValue],
    step: int,
) -> Call[StepResult[ObservationT]]:
    data = action_data(action)
    return Call(
        answer=_step_result(observation),
        method="POST",
        path=f"/{environment}/step",
        body={"episode_id": episode_id, "action": data, "step": step},
        frame={"type": "step", "data": data, "step": step},
        episode_id=episode_id,
        steps=step + 1,
    )


def truncate_call(
    environment: str, observation: type[ObservationT], episode_id: str, reason: TruncationReason, step: int
) -> Call[StepResult[ObservationT]]:
    return Call(
        answer=_step_result(observation),
        method="POST",
        path=f"/{environment}/truncate",
        body={"episode_id": episode_id, "reason": reason, "step": step},
        frame={"type": "truncate", "data": {"reason": reason}, "step": step},
        episode_id=episode_id,
        steps=step + 1,
    )


def state_call(environment: str, episode_id: str) -> Call[State]:
    return Call(
        answer=_STATE,
        method="GET",
        path=f"/{environment}/state",
        params={"episode_id": episode_id},
        frame={"type": "state"},
        episode_id=episode_id,
    )


def close_call(environment: str, episode_id: str) -> Call[Any]:
    path = f"/{environment}/episodes/{quote(episode_id, safe='')}"
    return Call(answer=_NOTHING, method="DELETE", path=path, episode_id=episode_id)


def health_call() -> Call[dict[str, JsonValue]]:
    return Call(answer=_JSON_OBJECT, method="GET", path="/health")


def ready_call() -> Call[dict[str, JsonValue]]:
    return Call(answer=_JSON_OBJECT, method="GET", path="/ready")


def list_environments_call() -> Call[list[str]]:
    return Call(answer=_NAMES, method="GET", path="/list_environments")


def metadata_call(environment: str) -> Call[Metadata]:
    return Call(answer=_METADATA, method="GET", path=f"/{environment}/metadata")


def schema_call(environment: str) -> Call[dict[str, JsonValue]]:
    return Call(answer=_JSON_OBJECT, method="GET", path=f"/{environment}/schema")


def splits_call(environment: str) -> Call[list[SplitInfo]]:
    return Call(answer=_SPLITS, method="GET", path=f"/{environment}/splits")


def num_tasks_call(environment: str, split: str) -> Call[TaskCount]:
    return Call(answer=_COUNT, method="POST", path=f"/{environment}/num_tasks", body={"split": split})


def task_call(environment: str, split: str, index: int) -> Call[OneTask]:
    return Call(answer=_ONE_TASK, method="POST", path=f"/{environment}/task", body={"split": split, "index": index})


def tasks_call(environment: str, split: str, start: int, stop: int | None) -> Call[SomeTasks]:
    body: dict[str, str | int] = {"split": split, "start": start}
    if stop is not None:
        body["stop"] = stop
    return Call(answer=_SOME_TASKS, method="POST", path=f"/{environment}/task_range", body=body)


def action_data(action: str | Action | Mapping[str, JsonValue]) -> Mapping[str, Any]:
    """An action as the wire has it; a text is raw model output, which the service parses."""
    if isinstance(action, str):
        return {"text": action}
    if isinstance(action, Action):
        return action.model_dump(mode="json", exclude_unset=True)
    return action


def encode(data: Mapping[str, Any]) -> str:
    """JSON. `InvalidRequest` for what JSON in UTF-8 cannot carry: NaN, a lone surrogate, an object of no JSON type."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "request", f"this cannot be sent as JSON: {error}") from error
    return text


# ---- answers --------------------------------------------------------------------------------------------------------


def read_answer(call: Call[T], status: int, content: bytes, retry_after: str | None) -> T:
    """The answer to an HTTP request, or the error that it holds, raised."""
    if status >= 300:
        raise error_of(call, status, content, retry_after)
    try:
        return _own(call, call.answer.validate_json(content or b"null"))
    except ValidationError as error:
        raise _strange(call, f"HTTP {status}", error) from error


def read_ready(call: Call[Any], status: int, content: bytes) -> bool:
    """The answer to `ready_call`: whoever says 503, the service or a gateway before it, there is none ready."""
    if status == 503:
        return False
    read_answer(call, status, content, None)
    return True


def read_frame(call: Call[T], content: str) -> T:
    """The answer in a WebSocket frame, or the error that it holds, raised."""
    try:
        frame = _FRAME.validate_json(content)
        if frame.type == "error":
            raise ErrorAnswer.model_validate(frame.data["error"]).exception()
        return _own(call, call.answer.validate_python(frame.data))
    except (ValidationError, KeyError) as error:
        raise _strange(call, "a frame", error) from error


class _Frame(Answer):
    type: str
    data: dict[str, Any] = Field(default_factory=dict)


class _ErrorBody(Answer):
    error: ErrorAnswer


_FRAME = TypeAdapter(_Frame)


def error_of(call: Call[Any], status: int, content: bytes, retry_after: str | None) -> RolloutGymError:
    """The error in an HTTP answer that should have been another."""
    retry_after_s = _seconds(retry_after)
    try:
        return _ErrorBody.model_validate_json(content).error.exception(retry_after_s)
    except ValidationError:
        return ConnectionFailed(
            f"{call.method} {call.path} was answered with HTTP {status}, and not by the service",
            retryable=status in _TRANSIENT_STATUS,
            episode_id=call.episode_id,
            retry_after_s=retry_after_s,
        )


def _own(call: Call[T], answer: T) -> T:
    """The answer, if it is this call's. One that went astray, as where two processes share a connection or a cache
    stands between, would be another episode's reward."""
    if isinstance(answer, StepResult | State) and (
        answer.episode_id != call.episode_id or call.steps not in (None, answer.step_count)
    ):
        raise ConnectionFailed(
            f"{call.method} {call.path} was answered for episode {answer.episode_id} at step {answer.step_count}",
            episode_id=call.episode_id,
        )
    return answer


def _strange(call: Call[Any], what: str, error: Exception) -> ConnectionFailed:
    message = f"{call.method} {call.path} was answered with {what} that does not fit: {error}"
    return ConnectionFailed(message, retryable=False, episode_id=call.episode_id)


def _seconds(retry_after: str | None) -> float | None:
    # The service sends seconds; a gateway may send a date, and then the usual back-off does.
    if retry_after is None or not retry_after.isascii() or not retry_after.isdigit():
        return None
    return float(retry_after)


# ---- the way to the service -----------------------------------------------------------------------------------------

TIMEOUT_S = 150.0
"""A client's patience with one answer, unless told otherwise: above the service's own with a step, whose error then
says what happened."""
# Establishing a connection is quick or hopeless; only answers may take long.
_CONNECT_TIMEOUT_S = 10.0
# Below a proxy's 60 s, and the service's own: no connection is reused while the other side is closing it.
_KEEPALIVE_EXPIRY_S = 30.0


class HttpOptions(TypedDict):
    base_url: str
    headers: dict[str, str]
    timeout: httpx2.Timeout
    limits: httpx2.Limits
    trust_env: bool


def http_options(base_url: str, *, api_key: str | None, timeout_s: float, max_connections: int | None) -> HttpOptions:
    """How both clients set up httpx2. `ValueError` for an address or a number that makes no sense."""
    if not timeout_s > 0 or (max_connections is not None and max_connections < 1):
        raise ValueError("timeout_s and max_connections must be positive")
    base_url = checked_base_url(base_url)
    return {
        "base_url": base_url,
        "headers": {} if api_key is None else {"authorization": f"Bearer {api_key}"},
        # Waiting for a connection of the pool is waiting for one's turn, and no fault.
        "timeout": httpx2.Timeout(timeout_s, connect=min(_CONNECT_TIMEOUT_S, timeout_s), pool=None),
        "limits": httpx2.Limits(
            max_connections=max_connections,
            max_keepalive_connections=max_connections,
            keepalive_expiry=_KEEPALIVE_EXPIRY_S,
        ),
        "trust_env": not is_loopback(base_url),
    }


def checked_base_url(base_url: str) -> str:
    """`base_url` without a trailing slash. `ValueError` where it is no HTTP address."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"a service's address starts with http:// or https://; this is {base_url!r}")
    return base_url.rstrip("/")


def is_loopback(base_url: str) -> bool:
    """Whether the service is on this machine: then no proxy of the environment's applies."""
    host = urlsplit(base_url).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")
