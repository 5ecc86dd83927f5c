"""Arguments of formats that carry only text, given the types that the tool's schema declares.

What the schema calls a string stays as written, `None` and `null` included; a text that does not fit its type stays a
text and is reported. Formats that mark their types never come here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.parsing.reply import Unreadable
from rolloutgym.server.environments.toolcall.parsing.shapes import whole_value

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_ORDER = ("null", "boolean", "integer", "number", "object", "array")
"""Types by how little text fits them; a string is what is left."""
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {"number": (int, float), "object": (dict,), "array": (list,)}
_ALIASES = {
    "int": "integer", "float": "number", "bool": "boolean", "str": "string", "dict": "object", "list": "array",
    "tuple": "array",
}  # fmt: skip
"""Names of types that data sets write instead of JSON Schema's."""


class Coerced(NamedTuple):
    value: JsonValue
    fits: bool = True


def coerce(text: str, schema: Mapping[str, JsonValue], argument: str) -> Coerced:
    """The value of `text` for this argument of a tool with the argument schema `schema`."""
    properties = schema.get("properties")
    found = properties.get(argument) if isinstance(properties, Mapping) else None
    if not isinstance(found, Mapping):
        return Coerced(text)  # not an argument of the tool: no type to give it
    declared = _resolve(found, schema)
    if _in_enum(text, declared):
        return Coerced(text)
    types = _types(declared, schema)
    if not types:
        return Coerced(_any_value(text))
    for type_ in _ORDER:
        if type_ in types and (coerced := _as_type(text, type_)) is not None:
            return coerced
    return Coerced(text, fits="string" in types)


def _as_type(text: str, type_: str) -> Coerced | None:
    """Null if the text is not of this type."""
    bare = text.strip()
    if type_ == "null":
        return Coerced(None) if bare in ("null", "None") else None
    if type_ == "boolean":
        return Coerced(bare in ("true", "True")) if bare in ("true", "True", "false", "False") else None
    if type_ in ("integer", "number") and not _NUMBER.fullmatch(bare):
        return None
    try:
        value = whole_value(bare, 0).value
    except Unreadable:
        return None
    if type_ == "integer":
        return Coerced(value) if isinstance(value, int | float) and value == int(value) else None
    return Coerced(value) if isinstance(value, _PYTHON_TYPES[type_]) else None


def _any_value(text: str) -> JsonValue:
    """Without a declared type: what JSON the text is, or else the text."""
    try:
        value = whole_value(text, 0)
    except Unreadable:
        return text
    return text if value.literal else value.value


def _types(schema: Mapping[str, JsonValue], root: Mapping[str, JsonValue], depth: int = 4) -> set[str]:
    """The types that a schema allows; empty where it does not say. `depth` bounds schemas that refer to themselves."""
    declared = schema.get("type")
    if declared is not None:
        names = [declared] if isinstance(declared, str) else declared if isinstance(declared, Sequence) else []
        return {_ALIASES.get(name, name) for name in names if isinstance(name, str)} - {"any"}
    types: set[str] = set()
    if depth:
        for key in ("anyOf", "oneOf", "allOf"):
            for branch in _branches(schema, key):
                types |= _types(_resolve(branch, root), root, depth - 1)
    return types or _enum_types(schema)


def _branches(schema: Mapping[str, JsonValue], key: str) -> list[Mapping[str, JsonValue]]:
    branches = schema.get(key)
    return [branch for branch in branches if isinstance(branch, Mapping)] if isinstance(branches, list) else []


def _enum_types(schema: Mapping[str, JsonValue]) -> set[str]:
    values = schema.get("enum")
    names = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
    return {names[type(value)] for value in values if type(value) in names} if isinstance(values, list) else set()


def _in_enum(text: str, schema: Mapping[str, JsonValue]) -> bool:
    values = schema.get("enum")
    return isinstance(values, list) and text in values


def _resolve(schema: Mapping[str, JsonValue], root: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """`schema`, or what its `$ref` into the same document names."""
    for _ in range(8):  # a chain of references, never a circle
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        target: JsonValue | Mapping[str, JsonValue] = root
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            return {}
        schema = target
    return {}
