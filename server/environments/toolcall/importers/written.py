"""Tools and calls that data sets write into the text of their messages."""

import json
import re

from pydantic import JsonValue

from rolloutgym.models import FunctionCall, Message, ToolCall
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable
from rolloutgym.server.environments.toolcall.parsing import Schemas, parse

_TOOLS = re.compile(r"<tools>(.*?)</tools>", re.DOTALL | re.IGNORECASE)


def gold_message(text: str, schemas: Schemas) -> Message:
    """What the data set's assistant wrote, read by the parser that reads the models' replies."""
    reply = parse(text, schemas)
    for problem in reply.problems:
        if problem.broken_call:
            raise Unplayable(f"the assistant's call cannot be read: {problem.code} at position {problem.at}")
    calls = tuple(ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in reply.calls)
    content = reply.content if reply.reasoning is None else f"<think>{reply.reasoning}</think>\n{reply.content}"
    return Message(role="assistant", content=content.strip(), tool_calls=calls or None)


def tools_in(system: str) -> list[JsonValue]:
    """The tools in the <tools> blocks of a system message."""
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
