"""The wire: every message that crosses HTTP or WebSocket between the service and its clients.

Requests forbid unknown fields, so a typing error is a 422 and not a silent default. Answers ignore unknown fields, so
an older client reads a newer service. Everything is frozen. Behaviour lives elsewhere: these are data.
"""

import math
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, model_validator

EnvironmentName = Literal["sql", "toolcall", "code"]

EpisodeId = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\w.:\-]+$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
StepNumber = Annotated[int, Field(ge=0)]
TimeoutSeconds = Annotated[float, Field(gt=0, le=3600)]


def _finite(value: JsonValue) -> JsonValue:
    """`ValueError` for a number that JSON cannot write: it would come back as null, which is another value."""
    match value:
        case float() if not math.isfinite(value):
            raise ValueError("every number must be finite")
        case dict():
            for each in value.values():
                _finite(each)
        case list():
            for each in value:
                _finite(each)
    return value


JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_finite)]


class Request(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Answer(BaseModel):
    """What the service sends."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False)


# ---- conversation ---------------------------------------------------------------------------------------------------


class FunctionCall(Answer):
    name: str
    arguments: str | JsonObject = "{}"
    """A JSON object as text (OpenAI's form) or as an object; an empty text is an empty object."""


class ToolCall(Answer):
    """One call in OpenAI's `tool_calls` form."""

    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Answer):
    """One chat message, in the form that chat templates take."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None


class FunctionSpec(Answer):
    name: str
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """JSON Schema of the arguments."""


class ToolSpec(Answer):
    """A tool that the model may be shown, in OpenAI's function format."""

    type: Literal["function"] = "function"
    function: FunctionSpec


# ---- observations ---------------------------------------------------------------------------------------------------


class StopReason(StrEnum):
    """Why an episode ended."""

    ANSWERED = "answered"
    """The policy gave its final answer (terminated)."""
    COMPLETED = "completed"
    """All judged turns were played (terminated)."""
    MISMATCH = "mismatch"
    """A wrong turn ended the episode early (terminated)."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The environment's step or turn budget ran out (truncated)."""
    MAX_TOKENS = "max_tokens"
    """The trainer's token budget ran out (truncated by the trainer)."""
    CONTEXT_LENGTH = "context_length"
    """The model's context would have overflowed (truncated by the trainer)."""
    MAX_TURNS = "max_turns"
    """The trainer's own turn limit was reached (truncated by the trainer)."""
    TIME_LIMIT = "time_limit"
    """The trainer's time limit was reached (truncated by the trainer)."""


TruncationReason = Literal[
    StopReason.MAX_TOKENS, StopReason.CONTEXT_LENGTH, StopReason.MAX_TURNS, StopReason.TIME_LIMIT
]


class Info(Answer):
    """Numbers for the trainer. They never appear in `messages`."""

    terminated: bool = False
    truncated: bool = False
    stop_reason: StopReason | None = None
    success: bool | None = None
    """Whether the task is solved; null until known."""
    reward_components: dict[str, FiniteFloat] = Field(default_factory=dict)
    """Name to value; their sum is this step's reward."""
    turn: int = 0
    """Actions taken so far."""
    budget_remaining: int | None = None
    """Actions left before the episode is truncated; null where there is no budget."""
    invalid_action: bool = False
    """Whether this step's action could not be understood."""


class Observation(Answer):
    """What every environment answers; each adds fields of its own."""

    messages: tuple[Message, ...] = ()
    """To append to the conversation before the model speaks again."""
    tools: tuple[ToolSpec, ...] = ()
    """At reset: the tools the model may be shown. Empty afterwards."""
    info: Info = Field(default_factory=Info)


# ---- actions --------------------------------------------------------------------------------------------------------


class Action(Request):
    """What a policy does: raw model text, parsed on the server, or the environment's structured form; never both."""

    text: str | None = None
    """The model's raw output, as sampled."""
    metadata: JsonObject | None = None
    """Without effect: OpenEnv's typed actions carry it, and null for each field that they do not use."""

    @model_validator(mode="after")
    def _exactly_one_form(self) -> "Action":
        structured = any(getattr(self, name) is not None for name in self.model_fields_set - {"text", "metadata"})
        if (self.text is None) == (not structured):
            raise ValueError("give either text or the structured fields")
        return self


# -- sql

SqlVerb = Literal["DESCRIBE", "SAMPLE", "QUERY", "ANSWER"]


class SqlAction(Action):
    action_type: SqlVerb | None = None
    argument: str | None = None
    """A table name (DESCRIBE, SAMPLE), SQL (QUERY), or the answer (ANSWER)."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """The action as calls of the tools; the last one that can be understood is taken."""

    @model_validator(mode="after")
    def _one_structured_form(self) -> "SqlAction":
        if (self.action_type is None) != (self.argument is None):
            raise ValueError("action_type and argument go together")
        if self.tool_calls is not None and self.action_type is not None:
            raise ValueError("give either tool_calls or action_type and argument")
        return self


class SqlInfo(Info):
    execution_ok: bool | None = None
    """Whether this step's action was understood and ran; null at reset."""
    new_information: bool = False
    """Whether this step showed a column, or described a table, that no step before it had."""
    repeat: bool = False
    """Whether the same action, normalised, was taken before."""
    operational: float = 0.0
    """Over the episode so far: steps that ran, less repeats."""
    progress: FiniteFloat = 0.0
    """Over the episode so far: how close the best query came to the gold query, 0 to 1."""


class SqlObservation(Observation):
    question: str = ""
    result: str | None = None
    """What the action showed, as in `messages`; null where it failed."""
    error: str | None = None
    """Why the action failed, as in `messages`."""
    info: SqlInfo = SqlInfo()


# -- toolcall


class ToolCallAction(Action):
    tool_calls: tuple[ToolCall, ...] | None = None
    content: str | None = None
    """Assistant text beside the calls."""


class ParsedCall(Answer):
    """A call as the service read it."""

    name: str
    arguments: str
    """A JSON object as text, so that rows of different tools have one type."""
    id: str = ""
    span: tuple[int, int] = (0, 0)
    """Where in the text it stands, characters; (0, 0) for structured calls."""
    literal: bool = False
    """Whether it was read as a Python-like literal, not as JSON."""


class ParseProblem(Answer):
    """What was wrong with a reply's form."""

    code: str
    """Such as `invalid_json`, `duplicate_key`, `truncated`, `think_missing`."""
    at: int
    """Character position in the text."""


class CallDifference(Answer):
    """A call beside the expected call that it answers for."""

    call: int | None
    """Position in `calls`; null for an expected call that nothing answers for."""
    expected: int | None
    """Position among the turn's expected calls; null for a call too many."""
    matched: bool
    similarity: FiniteFloat
    """In [0, 1]."""
    arguments: dict[str, Literal["equal", "different", "wrong_type", "missing", "extra"]] = Field(default_factory=dict)
    """Of the arguments that count: not those that may be left out or added."""


class ToolCallInfo(Info):
    calls: tuple[ParsedCall, ...] = ()
    differences: tuple[CallDifference, ...] = ()
    problems: tuple[ParseProblem, ...] = ()
    family: str | None = None
    """In which form the model called, such as `hermes`; null without a call."""
    turn_score: FiniteFloat | None = None
    """What the preset gives this turn, before the episode weighs it."""
    few_shot_task_id: str | None = None
    """At reset: whence the example in the prompt comes."""


class ToolCallObservation(Observation):
    info: ToolCallInfo = Field(default_factory=ToolCallInfo)


# -- code


class CodeAction(Action):
    code: str | None = None
    """Python to run in the episode's interpreter."""
    answer: str | None = None
    """The final answer; ends the episode."""


class CodeInfo(Info):
    unsafe_sandbox: bool = False
    """Whether the code ran without the isolation that the service asks for (only where its operator allows that)."""


class CodeObservation(Observation):
    info: CodeInfo = Field(default_factory=CodeInfo)
    output: str | None = None
    """What the run printed and its last expression's value; null where nothing ran."""
    error: str | None = None


# ---- episodes -------------------------------------------------------------------------------------------------------

ObservationT = TypeVar("ObservationT", bound=Observation)


class ResetRequest(Request):
    seed: Seed | None = None
    """Null draws a fresh seed; the answer reports it."""
    episode_id: EpisodeId | None = None
    """A live episode of this name is restarted; null names a new one."""
    split: str | None = None
    index: Annotated[int, Field(ge=0)] | None = None
    """Position in the split; needs `split`."""
    task_id: str | None = None
    options: JsonObject = Field(default_factory=dict)
    """The environment's own options; `/schema` has their JSON Schema."""


class StepRequest(Request):
    episode_id: EpisodeId
    action: JsonObject
    step: StepNumber | None = None
    """The number of this step from 0; makes a retry safe."""
    timeout_s: TimeoutSeconds | None = None
    """Sooner than the service's own step deadline."""
    request_id: str | None = None
    """Without effect: what OpenEnv's clients may send."""


class TruncateRequest(Request):
    """The trainer ends the episode at a limit of its own; it is graded on what there is."""

    episode_id: EpisodeId
    reason: TruncationReason
    step: StepNumber | None = None


class StepResult(Answer, Generic[ObservationT]):
    """The answer to reset and to step."""

    observation: ObservationT
    reward: FiniteFloat | None
    """Null at reset, a finite number at every step."""
    done: bool
    truncated: bool = False
    episode_id: str
    step_count: int
    seed: int | None = None
    """At reset: the seed in use."""
    task_id: str | None = None
    """At reset: the task in use."""


class State(Answer):
    """The public state of an episode: nothing of the answer."""

    model_config = ConfigDict(extra="allow")

    episode_id: str | None
    step_count: int
    done: bool
    environment: str
    task_id: str | None = None
    total_reward: FiniteFloat = 0.0


# ---- tasks and service ----------------------------------------------------------------------------------------------


class TaskInfo(Answer):
    """What may be said of a task in public."""

    id: str
    split: str
    tags: dict[str, str | int | float | bool] = Field(default_factory=dict)


class SplitInfo(Answer):
    name: str
    type: Literal["train", "validation", "test"]


class Metadata(Answer):
    name: str
    description: str
    version: str
    prompt_version: str
    reward_range: tuple[FiniteFloat, FiniteFloat]
    """Least and greatest return of an episode under the default options."""
    num_tasks: dict[str, int]
    """By split."""
    data_sha256: dict[str, str]
    """By data set."""
    details: dict[str, Any] = Field(default_factory=dict)
    """The environment's own facts, such as the sandbox's isolation level."""


class ErrorCode(StrEnum):
    INVALID_JSON = "invalid_json"
    INVALID_REQUEST = "invalid_request"
    UNKNOWN_MESSAGE = "unknown_message"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN_ORIGIN = "forbidden_origin"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TASK_NOT_FOUND = "task_not_found"
    EPISODE_NOT_FOUND = "episode_not_found"
    EPISODE_NOT_RESET = "episode_not_reset"
    EPISODE_DONE = "episode_done"
    EPISODE_BUSY = "episode_busy"
    STEP_CONFLICT = "step_conflict"
    STEP_TIMEOUT = "step_timeout"
    CAPACITY_REACHED = "capacity_reached"
    SHUTTING_DOWN = "shutting_down"
    STORE_UNAVAILABLE = "store_unavailable"
    WORKER_LOST = "worker_lost"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    INTERNAL = "internal"


class ErrorDetail(Answer):
    code: ErrorCode
    boundary: Literal["request", "session", "environment", "sandbox", "store", "service"]
    """Which part failed."""
    message: str
    retryable: bool
    """Whether the same request may succeed later without change."""
    episode_id: str | None = None


class ErrorBody(Answer):
    error: ErrorDetail
