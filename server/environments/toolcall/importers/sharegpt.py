"""ShareGPT/Hermes rows: `conversations` of from/value, calls and tool responses as tagged JSON in the text.

The tools stand in a `tools` column (a list or its JSON text) or, without one, in the system message's <tools> block.
`export_row` writes an item back in the same form.
"""

import json
import re
from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from rolloutgym.models import FunctionCall, Message, ToolCall, ToolSpec
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable, role_of, strict_json, tool_specs
from rolloutgym.server.environments.toolcall.items import Item, Turn

_OPEN = re.compile(r"<tool_call>\s*", re.IGNORECASE)
_CLOSE = re.compile(r"\s*</tool_call>", re.IGNORECASE)
_RESPONSE = re.compile(r"\s*<tool_response>\s*(.*?)\s*</tool_response>\s*", re.DOTALL | re.IGNORECASE)
_TOOLS = re.compile(r"<tools>(.*?)</tools>", re.DOTALL | re.IGNORECASE)


# ---- reading --------------------------------------------------------------------------------------------------------


def read_row(row: Mapping[str, Any]) -> tuple[list[Message], tuple[ToolSpec, ...]]:
    """The row's conversation and tools. `Unplayable` if it is not in this form."""
    spoken = row["conversations"]
    if not isinstance(spoken, Sequence) or isinstance(spoken, str):
        raise Unplayable("conversations are not a list")
    conversation = [message for said in spoken for message in _messages(said)]
    tools = row.get("tools")
    if tools is None:
        tools = [tool for m in conversation if m.role == "system" for tool in _tools_in(m.content)]
    specs = tool_specs(tools)
    if conversation and conversation[0] == Message(role="system", content=system_text(specs)):
        del conversation[0]  # what `export_row` adds
    return conversation, specs


def _messages(said: object) -> list[Message]:
    if not isinstance(said, Mapping):
        raise Unplayable("a message is not an object")
    role, text = role_of(said.get("from")), said.get("value")
    if not isinstance(text, str):
        raise Unplayable("a message has no text")
    if role == "assistant":
        content, calls = split_calls(text)
        return [Message(role=role, content=content, tool_calls=calls or None)]
    if role == "tool":
        return [Message(role=role, content=response, name=_response_name(response)) for response in _responses(text)]
    return [Message(role=role, content=text)]


def split_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """The assistant's text without its calls, and the calls. `Unplayable` on a call that is not well formed."""
    kept: list[str] = []
    calls: list[ToolCall] = []
    position = 0
    while opening := _OPEN.search(text, position):
        kept.append(text[position : opening.start()])
        value, end = _call_value(text, opening.end())
        calls += [_tool_call(call) for call in (value if isinstance(value, list) else [value])]
        position = end
    kept.append(text[position:])
    return "\n".join(part.strip() for part in kept if part.strip()), tuple(calls)


def _call_value(text: str, start: int) -> tuple[Any, int]:
    """The value at `start` and the position after its closing tag: by JSON's own end, so that a tag inside a string
    closes nothing; else as a Python literal, which some data sets wrote instead."""
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text, start)
        if closing := _CLOSE.match(text, end):
            return strict_json(text[start:end]), closing.end()
    except (json.JSONDecodeError, RecursionError):
        pass
    closing = _CLOSE.search(text, start)
    if closing is None:
        raise Unplayable("a <tool_call> is not closed")
    try:
        return literal_eval(text[start : closing.start()]), closing.end()
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Unplayable("a <tool_call> holds neither JSON nor a Python literal") from None


def _tool_call(value: object) -> ToolCall:
    if isinstance(value, Mapping) and isinstance(value.get("function"), Mapping):
        value = value["function"]
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise Unplayable("a call has no name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = strict_json(arguments or "{}")
    if not isinstance(arguments, dict):
        raise Unplayable("a call's arguments are not an object")
    return ToolCall(function=FunctionCall(name=value["name"], arguments=arguments))


def _responses(text: str) -> list[str]:
    """The responses in a tool message: its tagged blocks, or the whole text if it is anything else."""
    blocks: list[str] = []
    position = 0
    while block := _RESPONSE.match(text, position):
        blocks.append(block[1])
        position = block.end()
    return blocks if blocks and position == len(text) else [text]


def _response_name(response: str) -> str | None:
    try:
        value = json.loads(response)
    except (ValueError, RecursionError):
        return None
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None


def _tools_in(system: str) -> list[JsonValue]:
    tools: list[JsonValue] = []
    for block in _TOOLS.findall(system):
        text = block.strip()
        while text[:1] in ("[", "{"):  # a list, or objects one after the other; a block in prose may be empty
            try:
                value, end = json.JSONDecoder().raw_decode(text)
            except (json.JSONDecodeError, RecursionError):
                raise Unplayable("the <tools> block is not JSON") from None
            tools += value if isinstance(value, list) else [value]
            text = text[end:].lstrip()
    return tools


# ---- writing --------------------------------------------------------------------------------------------------------


def export_row(item: Item) -> dict[str, Any]:
    """The item as a row that `read_row` reads back, with its id, group, split and licence.

    What the form has no place for (argument rules, alternatives, back ends, late tools) is lost.
    """
    conversations = [{"from": _FROM[m.role], "value": m.content} for m in item.history]
    if item.history[0].role != "system":
        conversations.insert(0, {"from": "system", "value": system_text(item.tools)})
    for turn in item.steps:
        conversations.append({"from": "gpt", "value": _gold_text(turn)})
        conversations += _then_rows(turn.then)
    return {
        "id": item.id,
        "group": item.group,
        "split": item.split,
        "license": item.license,
        "scenario": item.scenario,
        "tags": item.tags,
        "tools": [tool.model_dump(mode="json") for tool in item.tools],
        "conversations": conversations,
    }


_FROM = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}


def system_text(tools: Iterable[ToolSpec]) -> str:
    """The system message in the Hermes manner, for rows whose item has none of its own."""
    listed = "\n".join(_dumps(tool.model_dump(mode="json")) for tool in tools)
    return (
        "You can call functions. Their signatures:\n"
        f"<tools>\n{listed}\n</tools>\n"
        "Write each call as a JSON object with its name and arguments:\n"
        '<tool_call>\n{"name": "<name>", "arguments": {<arguments>}}\n</tool_call>'
    )


def _gold_text(turn: Turn) -> str:
    blocks = [
        f"<tool_call>\n{_dumps({'name': call.name, 'arguments': call.arguments})}\n</tool_call>" for call in turn.calls
    ]
    return "\n".join([turn.reply, *blocks] if turn.reply else blocks)


def _then_rows(then: Sequence[Message]) -> list[dict[str, str]]:
    """The messages as rows, neighbouring tool responses in one."""
    rows: list[dict[str, str]] = []
    previous = ""
    for message in then:
        if message.role == "tool":
            block = f"<tool_response>\n{message.content}\n</tool_response>"
            if previous == "tool":
                rows[-1]["value"] += "\n" + block
            else:
                rows.append({"from": "tool", "value": block})
        else:
            rows.append({"from": _FROM[message.role], "value": message.content})
        previous = message.role
    return rows


def _dumps(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
