"""What the conversation goes on with after a turn: recorded tool responses, made to answer the model's own calls."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rolloutgym.models import Message
from rolloutgym.server.environments.toolcall.assignment import Pair
from rolloutgym.server.environments.toolcall.parsing import Problem, Reply


class _Split(NamedTuple):
    responses: tuple[Message, ...]
    rest: tuple[Message, ...]


def error_text(error: str) -> str:
    """A tool response that says what went wrong."""
    return json.dumps({"error": error}, ensure_ascii=False)


def recorded(then: Sequence[Message], reply: Reply, pairs: Iterable[Pair]) -> tuple[Message, ...]:
    """`then` as it was recorded. Where the model's calls have ids, each response carries the id of the call it answers,
    and a call that no response answers gets one that says so: every id has its answer."""
    responses, rest = _split(then)
    call_of = {pair.expected: pair.call for pair in pairs if pair.call is not None and pair.expected is not None}
    answered: set[int] = set()
    messages: list[Message] = []
    for index, message in enumerate(responses):
        call = call_of.get(index)
        if call is not None and reply.calls[call].id:
            answered.add(call)
            message = message.model_copy(update={"tool_call_id": reply.calls[call].id})
        messages.append(message)
    messages += [
        _response(call.name, "no response to this call was recorded", call.id)
        for index, call in enumerate(reply.calls)
        if call.id and index not in answered
    ]
    return (*messages, *_broken(reply), *rest)


def own(then: Sequence[Message], reply: Reply, pairs: Iterable[Pair]) -> tuple[Message, ...]:
    """Answers to the calls that the model made: the recorded response where a call is expected, else an error."""
    responses, rest = _split(then)
    right = {pair.call: pair.expected for pair in pairs if pair.comparison is not None and pair.comparison.matched}
    messages: list[Message] = []
    for index, call in enumerate(reply.calls):
        expected = right.get(index)
        if expected is not None and expected < len(responses):
            messages.append(responses[expected].model_copy(update={"tool_call_id": call.id or None}))
        else:
            messages.append(_response(call.name, "this call has no result", call.id))
    return (*messages, *_broken(reply, all_of_them=True), *rest)


def unreadable(problem: Problem) -> Message:
    """The answer to a broken call."""
    return Message(
        role="tool",
        content=error_text(f"this call could not be read: {problem.code.value}"),
        tool_call_id=problem.id or None,
    )


def _broken(reply: Reply, *, all_of_them: bool = False) -> list[Message]:
    return [unreadable(p) for p in reply.problems if p.broken_call and (all_of_them or p.id)]


def _response(name: str, error: str, id: str) -> Message:
    return Message(role="tool", name=name, content=error_text(error), tool_call_id=id or None)


def _split(then: Sequence[Message]) -> _Split:
    """The tool responses at the beginning, and the rest."""
    end = next((i for i, message in enumerate(then) if message.role != "tool"), len(then))
    return _Split(tuple(then[:end]), tuple(then[end:]))
