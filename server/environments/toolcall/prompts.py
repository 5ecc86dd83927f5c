"""The texts that the environment itself adds to a data set's conversation; a change to one changes `PROMPT_VERSION`."""

import json
from collections.abc import Iterable

from rolloutgym.models import ToolSpec

PROMPT_VERSION = "2"

DEFAULT_SYSTEM = (
    "You can call functions. Call those that the request needs, with arguments taken from the conversation. "
    "Calls that do not need each other's results belong in one reply. "
    "If none fits, or something that a function needs is missing, answer in plain text."
)
"""For conversations that bring no system message."""

THINK = (
    "First reason step by step between <think> and </think>. "
    "After </think> make your function calls, or give your answer in plain text."
)

ONE_AT_A_TIME = (
    "Make exactly one function call per message. Wait for its response before you decide on the next call. "
    "When nothing is left to call, answer in plain text."
)

EXAMPLE_CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 + 2"}}\n</tool_call>'
"""A reply in the Hermes form, about a tool of no data set."""

EXAMPLE = f"<think>\nThe user wants a sum. The calculator can do that.\n</think>\n{EXAMPLE_CALL}"


def tools_block(tools: Iterable[ToolSpec]) -> str:
    """The tools and the Hermes form of a call, for models whose chat template does not show tools."""
    listed = "\n".join(json.dumps(tool.model_dump(mode="json"), ensure_ascii=False) for tool in tools)
    return (
        f"These are the functions, as JSON Schema:\n<tools>\n{listed}\n</tools>\n"
        "Write each call as one JSON object between tags:\n"
        '<tool_call>\n{"name": "the function", "arguments": {"argument": "value"}}\n</tool_call>'
    )


def example_block(reply: str) -> str:
    return f"An example of a good reply, from another conversation:\n{reply}"
