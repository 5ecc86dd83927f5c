"""Rows of OpenAI chat messages: `messages` of role/content/tool_calls, beside `tools`."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from rolloutgym.models import FunctionCall, Message, ToolCall, ToolSpec
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable, role_of, strict_json, tool_specs


def read_row(row: Mapping[str, Any]) -> tuple[list[Message], tuple[ToolSpec, ...]]:
    """The row's conversation and tools. `Unplayable` if it is not in this form."""
    spoken = row["messages"]
    if not isinstance(spoken, Sequence) or isinstance(spoken, str):
        raise Unplayable("messages are not a list")
    called: dict[str, str] = {}  # call id to tool name
    return [_message(said, called) for said in spoken], tool_specs(row.get("tools") or row.get("functions") or ())


def _message(said: object, called: dict[str, str]) -> Message:
    if not isinstance(said, Mapping):
        raise Unplayable("a message is not an object")
    role, content = role_of(said.get("role")), _text(said.get("content"))
    if role == "tool":
        # The ids belong to the data set's own calls, not to those that a model will make: kept is which tool answers.
        name = said.get("name") or called.get(str(said.get("tool_call_id")))
        return Message(role=role, content=content, name=name if isinstance(name, str) else None)
    if role != "assistant":
        return Message(role=role, content=content)
    calls: list[ToolCall] = []
    listed = said.get("tool_calls") or ()
    if not isinstance(listed, Sequence):
        raise Unplayable("tool_calls are not a list")
    if legacy := said.get("function_call"):
        listed = [{"function": legacy}]
    for call in listed:
        calls.append(_call(call))
        called[str(call.get("id"))] = calls[-1].function.name
    return Message(role=role, content=content, tool_calls=tuple(calls) or None)


def _call(call: object) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Unplayable("a call has no function name")
    arguments = function.get("arguments", {})
    for _ in range(2):  # some logs encode the arguments twice
        if isinstance(arguments, str):
            arguments = strict_json(arguments or "{}")
    if not isinstance(arguments, dict):
        raise Unplayable("a call's arguments are not an object")
    return ToolCall(function=FunctionCall(name=function["name"], arguments=arguments))


def _text(content: JsonValue) -> str:
    """A message's text: null is none; parts are joined, and only text parts can be played."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(parts) == len(content) and all(isinstance(part, str) for part in parts):
            return "".join(str(part) for part in parts)
    raise Unplayable("a message's content is not text")
