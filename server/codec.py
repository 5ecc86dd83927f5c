"""JSON of one environment's actions and answers, read and written by pydantic-core in one pass each."""

from typing import Any, Generic, NotRequired, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rolloutgym.models import Action, Observation
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import InvalidJson, InvalidRequest, Problem, ServiceError

T = TypeVar("T")
ObservationT = TypeVar("ObservationT", bound=Observation)

_SHOWN_PROBLEMS = 10


class AnswerFields(TypedDict, Generic[ObservationT]):
    """`rolloutgym.models.StepResult` as a plain dictionary: it is only written here, so there is nothing to check."""

    observation: ObservationT
    reward: float | None
    done: bool
    truncated: bool
    episode_id: str
    step_count: int
    seed: NotRequired[int]
    task_id: NotRequired[str]


class Codec:
    """Of one environment."""

    def __init__(self, environment: AnyEnvironment) -> None:
        self.action: TypeAdapter[Any] = TypeAdapter(environment.action_type)
        answer: TypeAdapter[Any] = TypeAdapter(AnswerFields[environment.observation_type])  # type: ignore[name-defined]
        self._answer_json = answer.serializer.to_json
        self._action_json = self.action.serializer.to_json

    def write_action(self, action: Action) -> bytes:
        """The same bytes for the same action, however its JSON was laid out."""
        return self._action_json(action, exclude_unset=True)

    def write_first(self, observation: Observation, episode_id: str, seed: int, task_id: str) -> bytes:
        fields: AnswerFields[Any] = {
            "observation": observation,
            "reward": None,
            "done": False,
            "truncated": False,
            "episode_id": episode_id,
            "step_count": 0,
            "seed": seed,
            "task_id": task_id,
        }
        return self._answer_json(fields)

    def write_answer(
        self, observation: Observation, reward: float, done: bool, *, episode_id: str, step_count: int
    ) -> bytes:
        fields: AnswerFields[Any] = {
            "observation": observation,
            "reward": reward,
            "done": done,
            "truncated": done and observation.info.truncated,
            "episode_id": episode_id,
            "step_count": step_count,
        }
        return self._answer_json(fields)


def write_json(model: BaseModel) -> bytes:
    return model.__pydantic_serializer__.to_json(model)


def read_json(adapter: TypeAdapter[T], data: bytes | str) -> T:
    """`InvalidJson`; `InvalidRequest` with what does not fit."""
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise misfit(error, "body") from None


def misfit(error: ValidationError, what: str) -> ServiceError:
    """The service's error for input that does not fit: it names fields and reasons, and repeats no values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    if found[0]["type"] == "json_invalid":
        return InvalidJson(found[0]["msg"])
    problems = [
        Problem(type=one["type"], loc=tuple(map(_shorten, one["loc"])), msg=_shorten(one["msg"], 200))
        for one in found[:_SHOWN_PROBLEMS]
    ]
    shown = [f"{'.'.join(map(str, one['loc'])) or what}: {one['msg']}" for one in problems]
    if len(found) > _SHOWN_PROBLEMS:
        shown.append(f"and {len(found) - _SHOWN_PROBLEMS} more")
    return InvalidRequest("; ".join(shown), problems=problems)


def _shorten(part: int | str, chars: int = 80) -> Any:
    """A name of the caller's own may be of any length."""
    return part if isinstance(part, int) or len(part) <= chars else part[:chars] + "…"
