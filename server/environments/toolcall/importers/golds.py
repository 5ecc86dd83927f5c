"""Whether expected calls fit the schemas of their own tools. Data sets hold some that do not: they can be played and
matched, but a model that keeps to the schema cannot make them, so they are marked. What is no JSON Schema forbids
nothing.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.items import Item

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def golds_fit(item: Item) -> bool:
    """Types, enumerations, required and undeclared arguments of all expected calls, as the tools' schemas have them."""
    schemas = {tool.function.name: tool.function.parameters for tool in (*item.tools, *item.later_tools)}
    return all(_fits(call.arguments, schemas[call.name]) for turn in item.steps for call in turn.calls)


def _fits(value: JsonValue, schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    declared = schema.get("type")
    if isinstance(declared, str) and declared in _JSON_TYPES and not _is_of_type(value, declared):
        return False
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        return False
    if isinstance(value, dict):
        return _members_fit(value, schema)
    if isinstance(value, list):
        return all(_fits(element, schema.get("items")) for element in value)
    return True


def _is_of_type(value: JsonValue, declared: str) -> bool:
    if isinstance(value, bool):
        return declared == "boolean"
    if declared == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES[declared])


def _members_fit(value: dict[str, JsonValue], schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return True
    required = schema.get("required")
    if isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required):
        return False
    if schema.get("additionalProperties") is False and not value.keys() <= properties.keys():
        return False
    return all(_fits(value[name], member) for name, member in properties.items() if name in value)
