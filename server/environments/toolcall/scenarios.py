"""Which kind of tool-call dialogue a conversation is: a pure function of who speaks and who calls.

A turn of the assistant is a run of assistant messages with nobody else in between; it calls if any of them does. Tool
responses, however many follow parallel calls, and talk of the assistant between calls change nothing.

    relevance   no turn calls
    multiturn   the user speaks again after the first call
    single      one turn calls
    multistep   two or more turns call, one after the other
"""

from collections.abc import Sequence
from typing import Literal

from rolloutgym.models import Message
from rolloutgym.server.environments.toolcall.items import Scenario

Role = Literal["system", "user", "assistant", "tool"]

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "observation": "tool",
}
"""The names that data sets give to the four roles."""

CALLERS = frozenset({"function_call", "tool_call"})
"""Names under which the assistant does nothing but call."""


def classify(conversation: Sequence[Message]) -> Scenario:
    calling_turns = 0
    turn_calls = False
    for message in conversation:
        if message.role == "assistant":
            if message.tool_calls and not turn_calls:
                calling_turns += 1
                turn_calls = True
        else:
            turn_calls = False
            if message.role == "user" and calling_turns:
                return "multiturn"
    if calling_turns == 0:
        return "relevance"
    return "single" if calling_turns == 1 else "multistep"
