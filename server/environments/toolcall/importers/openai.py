"""Rows of OpenAI chat messages: `messages` of role/content/tool_calls, beside `tools`.

Some data sets write tools and calls into the text of such messages: a message without `tool_calls` is read as text, and
without a `tools` column the system message's <tools> block is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from rolloutgym.models import FunctionCall, Message, ToolCall, ToolSpec
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable, first_fault, role_of, tool_specs
from rolloutgym.server.environments.toolcall.importers.written import gold_message, tools_in
from rolloutgym.server.environments.toolcall.parsing import Schemas, parse_structured


def read_row(row: Mapping[str, Any]) -> tuple[list[Message], tuple[ToolSpec, ...]]:
    """The row's conversation and tools. `Unplayable` if it is not in this form."""
    spoken = row["messages"]
    if not isinstance(spoken, Sequence) or isinstance(spoken, str):
        raise Unplayable("messages are not a list")
    specs = tool_specs(row.get("tools") or row.get("functions") or _tools_in_text(spoken))
    schemas = {spec.function.name: spec.function.parameters for spec in specs}
    called: dict[str, str] = {}  # call id to tool name
    return [_message(said, called, schemas) for said in spoken], specs


def _tools_in_text(spoken: Sequence[object]) -> list[JsonValue]:
    systems = [said for said in spoken if isinstance(said, Mapping) and said.get("role") == "system"]
    return [tool for said in systems for tool in tools_in(_text(said.get("content")))]


def _message(said: object, called: dict[str, str], schemas: Schemas) -> Message:
    if not isinstance(said, Mapping):
        raise Unplayable("a message is not an object")
    role, content = role_of(said.get("role")), _text(said.get("content"))
    if role == "tool":
        id = str(said.get("tool_call_id") or "")
        name = said.get("name") or called.get(id)
        return Message(
            role=role, content=content, name=name if isinstance(name, str) else None, tool_call_id=id or None
        )
    if role != "assistant":
        return Message(role=role, content=content)
    calls = _calls(said)
    if not calls:
        return gold_message(content, schemas)
    called.update({call.id: call.function.name for call in calls if call.id})
    reply = parse_structured(calls, content)
    for problem in reply.problems:
        if problem.broken_call:
            raise Unplayable(f"the assistant's call cannot be read: {problem.code}")
    read = tuple(
        ToolCall(id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments)) for call in reply.calls
    )
    return Message(role=role, content=content, tool_calls=read)


def _calls(said: Mapping[str, Any]) -> list[ToolCall]:
    calls = said.get("tool_calls") or ()
    if legacy := said.get("function_call"):
        calls = [{"function": legacy}]
    if not isinstance(calls, Sequence):
        raise Unplayable("tool_calls are not a list")
    try:
        return [ToolCall.model_validate(call) for call in calls]
    except ValidationError as error:
        raise Unplayable(f"a call is not well formed: {first_fault(error)}") from None


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
