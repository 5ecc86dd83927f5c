"""A domain: a few tools over one state.

A tool is a method marked with `tool`; its schema is what the model is shown and what its arguments are checked against.
A tool that refuses raises `ToolError`, before it has changed anything. Records are kept by id; ids come from the
content, not from a counter, so that doing two independent things in either order ends in the same state.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

from rolloutgym.models import FunctionSpec, ToolSpec

MAX_RECORDS = 200
"""Most records of one kind: an episode's state stays small whatever the model does."""


class Record(BaseModel):
    """A part of a domain's state: JSON values, checked when an item is loaded."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


_Method = TypeVar("_Method", bound=Callable[..., JsonValue])
_Record = TypeVar("_Record", bound=Record)
_State = TypeVar("_State", bound=Record)


class ToolError(ValueError):
    """A tool refuses; the message is its answer to the caller."""


def tool(description: str, **parameters: Mapping[str, Any]) -> Callable[[_Method], _Method]:
    """Mark a method as a tool. Parameters with a default value are optional."""

    def mark(method: _Method) -> _Method:
        signature = inspect.signature(method).parameters
        properties: dict[str, Any] = {}
        for name, schema in parameters.items():
            default = signature[name].default
            shown_default = {} if default in (inspect.Parameter.empty, None) else {"default": default}
            properties[name] = {**schema, **shown_default}
        required = [name for name in parameters if signature[name].default is inspect.Parameter.empty]
        method.__dict__["tool_spec"] = ToolSpec(
            function=FunctionSpec(
                name=method.__name__,
                description=description,
                parameters={
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": False,
                },
            )
        )
        return method

    return mark


class Domain(Generic[_State]):
    """One domain's live state and tools."""

    name: ClassVar[str]
    state_type: ClassVar[type[Record]]
    specs: ClassVar[Mapping[str, ToolSpec]]

    def __init_subclass__(cls) -> None:
        cls.specs = {
            name: method.__dict__["tool_spec"]
            for name, method in vars(cls).items()
            if inspect.isfunction(method) and "tool_spec" in method.__dict__
        }

    def __init__(self, state: _State) -> None:
        self.state = state


# ---- records --------------------------------------------------------------------------------------------------------


def find(records: Mapping[str, _Record], id: str, what: str) -> _Record:
    """The record of this id, or `ToolError`."""
    if id not in records:
        raise ToolError(f"there is no {what} '{id[:60]}'")
    return records[id]


def add(records: dict[str, _Record], prefix: str, record: _Record) -> str:
    """Keep a new record; returns its id. `ToolError` if there are too many."""
    if len(records) >= MAX_RECORDS:
        raise ToolError(f"there can be no more than {MAX_RECORDS} of these")
    for copy in range(MAX_RECORDS + 1):
        content = repr((copy, sorted(record.model_dump().items())))
        id = f"{prefix}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
        if id not in records:
            break
    records[id] = record
    return id


# ---- parameters -----------------------------------------------------------------------------------------------------


def text(description: str, most: int = 200) -> dict[str, Any]:
    return {"type": "string", "description": description, "minLength": 1, "maxLength": most}


def choice(description: str, *values: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "enum": list(values)}


def whole(description: str, least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most}


def number(description: str, least: float, most: float) -> dict[str, Any]:
    return {"type": "number", "description": description, "minimum": least, "maximum": most}


def flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


def identifier(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "minLength": 1, "maxLength": 40}


DAY = {"type": "string", "description": "Day as YYYY-MM-DD.", "pattern": r"\d{4}-\d{2}-\d{2}"}
CLOCK = {"type": "string", "description": "Time of day as HH:MM, 24 hours.", "pattern": r"\d{2}:\d{2}"}


def checked_day(value: str) -> str:
    try:
        date.fromisoformat(value)
    except ValueError:
        raise ToolError(f"there is no day {value}") from None
    return value


def minutes_of(clock: str) -> int:
    """Minutes since midnight."""
    try:
        time = datetime.strptime(clock, "%H:%M").time()  # noqa: DTZ007 (a time of day has no zone)
    except ValueError:
        raise ToolError(f"there is no time of day {clock}") from None
    return time.hour * 60 + time.minute


def clock_of(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def cents(amount: float) -> int:
    """An amount of money in cents; `ToolError` if it has a fraction of one."""
    value = round(amount * 100)
    if abs(amount * 100 - value) > 1e-6:
        raise ToolError("an amount has at most two decimals")
    return value
