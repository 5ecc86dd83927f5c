"""ShareGPT/Hermes rows: `conversations` of from/value, calls and tool responses as tagged JSON in the text.

The tools stand in a `tools` column (a list or its JSON text) or, without one, in the system message's <tools> block;
the system message may be a column `system`. `export_row` writes an item back in the same form.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from rolloutgym.models import Message, ToolSpec
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable, role_of, tool_specs
from rolloutgym.server.environments.toolcall.importers.written import gold_message, tools_in
from rolloutgym.server.environments.toolcall.items import Item, Turn
from rolloutgym.server.environments.toolcall.parsing import Schemas
from rolloutgym.server.environments.toolcall.scenarios import CALLERS

_OPENING = re.compile(r"\s*+<tool_response>", re.IGNORECASE)
_CLOSING = re.compile(r"</tool_response>", re.IGNORECASE)


# ---- reading --------------------------------------------------------------------------------------------------------


def read_row(row: Mapping[str, Any]) -> tuple[list[Message], tuple[ToolSpec, ...]]:
    """The row's conversation and tools. `Unplayable` if it is not in this form."""
    spoken = row["conversations"]
    if not isinstance(spoken, Sequence) or isinstance(spoken, str):
        raise Unplayable("conversations are not a list")
    said = [_said(each) for each in spoken]
    system = row.get("system")
    if isinstance(system, str) and system.strip() and all(role_of(name) != "system" for name, _ in said):
        said.insert(0, ("system", system))
    specs = tool_specs(
        row.get("tools") or [tool for name, text in said if role_of(name) == "system" for tool in tools_in(text)]
    )
    schemas = {spec.function.name: spec.function.parameters for spec in specs}  # for forms whose values are untyped
    conversation = [message for name, text in said for message in _messages(name, text, schemas)]
    if conversation and conversation[0] == Message(role="system", content=system_text(specs)):
        del conversation[0]  # what `export_row` adds
    return conversation, specs


def _said(message: object) -> tuple[str, str]:
    """Who speaks, by the data set's name, and the text."""
    if not isinstance(message, Mapping):
        raise Unplayable("a message is not an object")
    text = message.get("value")
    if not isinstance(text, str):
        raise Unplayable("a message has no text")
    return str(message.get("from")), text


def _messages(name: str, text: str, schemas: Schemas) -> list[Message]:
    role = role_of(name)
    if role == "assistant":
        message = gold_message(text, schemas)
        if name.lower() in CALLERS and not message.tool_calls:
            raise Unplayable(f"a message from {name!r} holds no call that can be read")
        return [message]
    if role == "tool":
        return [Message(role=role, content=response, name=_response_name(response)) for response in _responses(text)]
    return [Message(role=role, content=text)]


def _responses(text: str) -> list[str]:
    """The responses in a tool message: its tagged blocks, or the whole text if it is anything else."""
    blocks: list[str] = []
    at = 0
    while opening := _OPENING.match(text, at):
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            return [text]
        blocks.append(text[opening.end() : closing.start()].strip())
        at = closing.end()
    return blocks if blocks and not text[at:].strip() else [text]


def _response_name(response: str) -> str | None:
    """The tool that answers, where the response says so: {"name": …, "content": …}."""
    try:
        value = json.loads(response)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and "content" in value and isinstance(value.get("name"), str):
        return str(value["name"])
    return None


# ---- writing --------------------------------------------------------------------------------------------------------


def export_row(item: Item) -> dict[str, Any]:
    """The item as a row that `read_row` reads back, with its id, group, split and licence.

    What the form has no place for is lost: argument rules, alternatives, back ends, and which of the turns without a
    call are judged.
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
        "later_tools": [tool.model_dump(mode="json") for tool in item.later_tools],
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
