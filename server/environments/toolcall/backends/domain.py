"""A domain: a few tools over one JSON state.

A tool is a method marked with `tool`; its schema is what the model is shown and what its arguments are checked against.
A tool that refuses raises `ToolError`, before it has changed anything. Records are kept by id; ids come from the
content, not from a counter, so that doing two independent things in either order ends in the same state.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, ClassVar, TypeVar

from pydantic import JsonValue

from rolloutgym.models import FunctionSpec, ToolSpec

MAX_RECORDS = 200
"""Most records of one kind: an episode's state stays small whatever the model does."""

Record = dict[str, Any]
_Method = TypeVar("_Method", bound=Callable[..., JsonValue])


class ToolError(Exception):
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


class Domain:
    """One domain's live state and tools. `state` holds JSON values only; the caller gives a copy that is ours."""

    name: ClassVar[str]
    specs: ClassVar[Mapping[str, ToolSpec]]

    def __init_subclass__(cls) -> None:
        cls.specs = {
            name: method.__dict__["tool_spec"]
            for name, method in vars(cls).items()
            if inspect.isfunction(method) and "tool_spec" in method.__dict__
        }

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def records(self, kind: str) -> dict[str, Record]:
        return self.state.setdefault(kind, {})  # type: ignore[no-any-return]

    def get(self, kind: str, id: str) -> Record:
        """The record, or `ToolError`."""
        try:
            return self.records(kind)[id]
        except KeyError:
            raise ToolError(f"there is no {kind.removesuffix('s')} '{id[:60]}'") from None

    def add(self, kind: str, prefix: str, record: Record) -> str:
        """Keep a new record; returns its id."""
        records = self.records(kind)
        if len(records) >= MAX_RECORDS:
            raise ToolError(f"there can be no more than {MAX_RECORDS} {kind}")
        for copy in range(MAX_RECORDS + 1):
            text = repr((copy, sorted(record.items())))
            id = f"{prefix}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
            if id not in records:
                records[id] = record
                return id
        raise ToolError(f"there can be no more {kind} like this one")


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
