"""What a reply is once it is read: reasoning, visible text, calls, and whatever was wrong with it.

The text itself is never rewritten; spans point into it. A block that announces a call and holds none that can be read
is a broken call: it is kept as a problem and counts as an attempt, so that garbage beside a right call is not free.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import JsonValue

Family = Literal[
    "hermes",
    "qwen3_coder",
    "llama",
    "pythonic",
    "mistral",
    "deepseek",
    "dsml",
    "minimax",
    "glm",
    "kimi",
    "harmony",
    "gemma",
    "openai",
]
"""Who writes calls in that form; `openai` is the structured form, which is no text."""


class ProblemCode(StrEnum):
    INVALID_JSON = "invalid_json"
    """Neither JSON nor a literal."""
    DUPLICATE_KEY = "duplicate_key"
    """An object, or a call, gives one key twice."""
    NAN = "nan"
    """NaN, an infinity, or a number too great for a double."""
    TOO_DEEP = "too_deep"
    NUMBER_TOO_LONG = "number_too_long"
    BAD_UNICODE = "bad_unicode"
    """A lone surrogate: no JSON could carry it on."""
    TRAILING_DATA = "trailing_data"
    """More than one value where one belongs."""
    TRUNCATED = "truncated"
    """The reply ends inside a call."""
    UNCLOSED = "unclosed"
    """The call is complete and its closing tag is missing."""
    MISSING_NAME = "missing_name"
    BAD_SHAPE = "bad_shape"
    """Well-formed data that is no call."""
    ARGUMENTS_NOT_OBJECT = "arguments_not_object"
    WRONG_TYPE = "wrong_type"
    """The text of an untyped format does not fit the type in the tool's schema; it is kept as text."""
    TOO_LONG = "too_long"
    TOO_MANY_CALLS = "too_many_calls"
    INVENTED_RESPONSE = "invented_response"
    """The model wrote a tool's response, or the user's words, itself."""
    CALL_IN_THINK = "call_in_think"
    THINK_MISSING = "think_missing"
    THINK_FORBIDDEN = "think_forbidden"
    THINK_UNCLOSED = "think_unclosed"
    THINK_REPEATED = "think_repeated"
    """Reasoning tags beyond the one leading block."""


_BROKEN_CALL = frozenset(
    {
        ProblemCode.INVALID_JSON,
        ProblemCode.DUPLICATE_KEY,
        ProblemCode.NAN,
        ProblemCode.TOO_DEEP,
        ProblemCode.NUMBER_TOO_LONG,
        ProblemCode.BAD_UNICODE,
        ProblemCode.TRAILING_DATA,
        ProblemCode.TRUNCATED,
        ProblemCode.MISSING_NAME,
        ProblemCode.BAD_SHAPE,
        ProblemCode.ARGUMENTS_NOT_OBJECT,
        ProblemCode.TOO_LONG,
        ProblemCode.TOO_MANY_CALLS,
    }
)


class Problem(NamedTuple):
    code: ProblemCode
    at: int
    """Character position in the text."""
    id: str = ""
    """The id that the model gave to a broken call."""

    @property
    def broken_call(self) -> bool:
        return self.code in _BROKEN_CALL


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: dict[str, JsonValue]
    id: str = ""
    """The model's own id for it, where its form has one."""
    span: tuple[int, int] = (0, 0)
    """Where in the text it stands, from its opening mark to the end of its arguments."""
    literal: bool = False
    """Whether it was read as a Python literal, not as JSON."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply, read."""

    reasoning: str | None
    """The text of the leading reasoning block; null without one."""
    content: str
    """What is left of the visible text without calls and reasoning."""
    calls: tuple[Call, ...]
    problems: tuple[Problem, ...]
    family: Family | None = None
    """In which form it called; null without a call."""
    spoilt: bool = False
    """Whether a rule for the whole reply is broken (the think policy, the size): then none of its calls counts."""

    @property
    def attempts(self) -> int:
        """Calls, broken ones included."""
        return len(self.calls) + (sum(problem.broken_call for problem in self.problems) if self.problems else 0)


@dataclass(frozen=True, slots=True)
class ParseOptions:
    family: Family | Literal["auto"] = "auto"
    think: Literal["required", "optional", "forbidden"] = "optional"
    prefilled_think: bool = False
    """The prompt already opened the reasoning block."""
    think_tags: tuple[str, str] | None = None
    """Opening and closing tag of reasoning; null knows those of the families."""
    calls_in_think: Literal["ignore", "error", "accept"] = "ignore"
    """Calls drafted in the reasoning do not count, spoil the reply, or count where none follows the reasoning."""


Schemas = Mapping[str, Mapping[str, JsonValue]]
"""Tool name to the JSON Schema of its arguments."""

MAX_CALLS = 256
"""More attempts in one reply are not read."""


class Unreadable(ValueError):
    """Why a value or a call could not be read, and where."""

    def __init__(self, code: ProblemCode, at: int) -> None:
        super().__init__(code.value)
        self.code = code
        self.at = at


@dataclass(slots=True)
class Found:
    """Calls and problems as a family's reader collects them."""

    calls: list[Call] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    """What is neither content nor reasoning: calls with their tags, broken ones included."""
    family: Family | None = None

    def problem(self, code: ProblemCode, at: int) -> None:
        self.problems.append(Problem(code, at))

    def full(self, at: int) -> bool:
        """Whether the most calls that a reply may hold are read; says so among the problems."""
        if len(self.calls) + sum(problem.broken_call for problem in self.problems) < MAX_CALLS:
            return False
        self.problem(ProblemCode.TOO_MANY_CALLS, at)
        return True
