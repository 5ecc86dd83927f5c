"""Arguments against a tool's JSON Schema: the keywords that the tools here use, with bounds on everything.

A model's arguments are hostile until they have passed: afterwards they are flat, finite, short and valid Unicode.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

MAX_TEXT = 4000
"""Longest string, characters."""
MAX_ITEMS = 50
"""Longest array."""
MAX_NUMBER = 10**12
"""Largest magnitude of a number."""


class InvalidArguments(ValueError):
    """The arguments do not fit; the text is for the caller of the tool."""


def checked(arguments: Mapping[str, JsonValue], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, integral numbers as `int`. `InvalidArguments` names the first misfit."""
    properties = schema["properties"]
    for name in schema.get("required", ()):
        if name not in arguments:
            raise InvalidArguments(f"missing argument '{name}'")
    for name in arguments:
        if name not in properties:
            raise InvalidArguments(f"unexpected argument {shown(name)}")
    return {name: _value(value, properties[name], f"'{name}'") for name, value in arguments.items()}


def shown(value: JsonValue, limit: int = 60) -> str:
    """A value of the caller's for an error message, cut short."""
    if isinstance(value, str):
        text = value[:limit].encode("utf-8", "replace").decode()
        return f"'{text}…'" if len(value) > limit else f"'{text}'"
    return {bool: "true" if value else "false", type(None): "null", list: "an array", dict: "an object"}.get(
        type(value), "a number"
    )


def _value(value: JsonValue, schema: Mapping[str, Any], where: str) -> Any:
    match schema["type"]:
        case "string":
            value = _text(value, schema, where)
        case "integer" | "number" as kind:
            value = _number(value, schema, where, whole=kind == "integer")
        case "boolean":
            if not isinstance(value, bool):
                raise InvalidArguments(f"{where} must be true or false")
        case "array":
            if not isinstance(value, list) or not schema.get("minItems", 0) <= len(value) <= MAX_ITEMS:
                raise InvalidArguments(f"{where} must be an array of {schema.get('minItems', 0)} to {MAX_ITEMS} values")
            value = [_value(element, schema["items"], f"an element of {where}") for element in value]
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidArguments(f"{where} must be one of {', '.join(schema['enum'])}; got {shown(value)}")
    return value


def _text(value: JsonValue, schema: Mapping[str, Any], where: str) -> str:
    if not isinstance(value, str):
        raise InvalidArguments(f"{where} must be a string")
    least, most = schema.get("minLength", 0), schema.get("maxLength", MAX_TEXT)
    if not least <= len(value) <= most:
        raise InvalidArguments(f"{where} must have {least} to {most} characters")
    if any("\ud800" <= character <= "\udfff" for character in value) or "\0" in value:
        raise InvalidArguments(f"{where} is not valid text")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        raise InvalidArguments(f"{where} must look like {schema.get('example', schema['pattern'])}; got {shown(value)}")
    return value


def _number(value: JsonValue, schema: Mapping[str, Any], where: str, *, whole: bool) -> int | float:
    kind = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArguments(f"{where} must be {kind}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArguments(f"{where} must be finite")
    least, most = schema.get("minimum", -MAX_NUMBER), schema.get("maximum", MAX_NUMBER)
    if not least <= value <= most:
        raise InvalidArguments(f"{where} must be from {least} to {most}")
    if value == int(value):
        return int(value)  # 21 and 21.0 are one number and must leave one state
    if whole:
        raise InvalidArguments(f"{where} must be {kind}")
    return value
