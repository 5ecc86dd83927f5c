"""From a conversation to an item, and the checks that every item passes before it is served.

The data set's assistant is the gold: its messages from the first call on become turns and stay out of `history` and
`then`. Neighbouring assistant messages are one turn: some data sets write the sentence before a call by itself.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import JsonValue, ValidationError

from rolloutgym.models import Message, ToolSpec
from rolloutgym.server.environments.toolcall.equality import satisfies
from rolloutgym.server.environments.toolcall.items import ArgumentRule, ExpectedCall, Item, Turn
from rolloutgym.server.environments.toolcall.patterns import PatternRefused, check_pattern
from rolloutgym.server.environments.toolcall.scenarios import ROLES, Role, classify

Split = Literal["train", "validation", "test"]


class Unplayable(ValueError):
    """A row that cannot be made an item; the text says why."""


# ---- reading --------------------------------------------------------------------------------------------------------


def role_of(name: object) -> Role:
    try:
        return ROLES[str(name).lower()]
    except KeyError:
        raise Unplayable(f"unknown role {name!r}") from None


def strict_json(text: str | bytes) -> Any:
    """JSON without what JSON does not have: NaN, infinities, a key twice. `Unplayable` says what is wrong."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise Unplayable("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unplayable(f"not JSON: {error.msg} at position {error.pos}") from None
    except RecursionError:
        raise Unplayable("JSON nested too deeply") from None
    except Unplayable:
        raise
    except ValueError:  # more digits than int() takes
        raise Unplayable("a number has too many digits") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Unplayable("an object has a key twice")
    return result


def _refuse_constant(name: str) -> None:
    raise Unplayable(f"{name} is not JSON")


def tool_specs(value: object) -> tuple[ToolSpec, ...]:
    """Tools as data sets give them: a list or its JSON text, of OpenAI function objects or of bare functions."""
    if isinstance(value, str):
        value = strict_json(value)
    if not isinstance(value, Sequence):
        raise Unplayable("tools are not a list")
    return tuple(_tool_spec(tool) for tool in value)


def _tool_spec(tool: object) -> ToolSpec:
    if not isinstance(tool, Mapping):
        raise Unplayable("a tool is not an object")
    function = tool.get("function", tool)
    if isinstance(function, Mapping):  # null stands for what is not given
        function = {key: value for key, value in function.items() if value is not None}
    try:
        return ToolSpec.model_validate({"type": "function", "function": function})
    except ValidationError as error:
        raise Unplayable(f"a tool is not well formed: {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'row'}: {fault['msg']}"


# ---- assembling -----------------------------------------------------------------------------------------------------


def merge_assistant(conversation: Iterable[Message]) -> list[Message]:
    """The conversation with each run of assistant messages as one message."""
    merged: list[Message] = []
    for message in conversation:
        if merged and message.role == merged[-1].role == "assistant":
            content = "\n".join(text for text in (merged[-1].content, message.content) if text)
            calls = (merged[-1].tool_calls or ()) + (message.tool_calls or ())
            merged[-1] = Message(role="assistant", content=content, tool_calls=calls or None)
        else:
            merged.append(message)
    return merged


def assemble(
    conversation: Sequence[Message],
    *,
    id: str,
    group: str,
    split: Split,
    tools: Sequence[ToolSpec],
    later_tools: Sequence[ToolSpec] = (),
    license: str = "",
    tags: Mapping[str, str | int | float | bool] | None = None,
) -> Item:
    """The item of a conversation whose assistant messages hold their calls in `tool_calls`, arguments as objects.

    Judged are the first calling turn and all that follow; without any call, all assistant turns. In a dialogue with
    calls, turns without one are narration.
    """
    messages = merge_assistant(conversation)
    _check_all_calls_are_read(messages, [tool.function.name for tool in (*tools, *later_tools)])
    scenario = classify(messages)
    if scenario == "relevance" and not tools:
        raise Unplayable("there is nothing to call, and no tool that could be")
    judged_from = next((i for i, m in enumerate(messages) if m.role == "assistant" and _judged(m, scenario)), None)
    if judged_from is None:
        raise Unplayable("the assistant says nothing")
    history, rest = messages[:judged_from], messages[judged_from:]
    starts = [i for i, m in enumerate(rest) if m.role == "assistant"]
    steps = [
        _turn(rest[start], _in_call_order(rest[start + 1 : end], rest[start]), narration=scenario != "relevance")
        for start, end in zip(starts, [*starts[1:], len(rest)], strict=True)
    ]
    item = Item(
        id=id,
        group=group,
        split=split,
        license=license,
        tools=tuple(tools),
        later_tools=tuple(later_tools),
        history=tuple(history),
        steps=tuple(steps),
        scenario=scenario,
        tags=dict(tags or {}),
    )
    check_playable(item)
    return item


def _check_all_calls_are_read(messages: Sequence[Message], tools: Sequence[str]) -> None:
    """`Unplayable` if the assistant seems to call where no call was read: such a turn would be taken for one that wants
    none, and pay for talk."""
    names = "|".join(map(re.escape, filter(None, tools))) or r"(?!)"
    call = re.compile(rf"""(?<![\w.\-])(?:{names})\(|["']name["']\s*:\s*["'](?:{names})["']""")
    for number, (message, following) in enumerate(zip(messages, [*messages[1:], None], strict=False)):
        if message.role != "assistant" or message.tool_calls:
            continue
        if following is not None and following.role == "tool":
            raise Unplayable(f"a tool answers message {number}, in which no call can be read")
        if call.search(message.content.rpartition("</think>")[2]):
            raise Unplayable(f"message {number} seems to call in a form that cannot be read")


def _in_call_order(then: Sequence[Message], gold: Message) -> tuple[Message, ...]:
    """What follows the gold, with the tool responses in the order of its calls and each with its tool's name.

    A response belongs to the call of its id, or else to the next one of its name, or else to the next that nothing
    answers. The ids are the data set's own and are not kept: the model's calls will have others.
    """
    calls = gold.tool_calls or ()
    end = next((i for i, message in enumerate(then) if message.role != "tool"), len(then))
    responses, rest = [*then[:end]], then[end:]
    if len(responses) == len(calls):
        ordered: list[Message | None] = [_take(responses, "tool_call_id", call.id) for call in calls]
        for fits in ("name", "any"):
            for i, call in enumerate(calls):
                ordered[i] = ordered[i] or _take(responses, fits, call.function.name)
        responses = [
            message.model_copy(update={"name": call.function.name})
            for message, call in zip(ordered, calls, strict=True)
            if message is not None
        ]
    return tuple(message.model_copy(update={"tool_call_id": None}) for message in (*responses, *rest))


def _take(responses: list[Message], fits: str, wanted: str) -> Message | None:
    """The first response whose field has this value (`any`: the first), taken off the list."""
    for index, message in enumerate(responses):
        if fits == "any" or (wanted and getattr(message, fits) == wanted):
            return responses.pop(index)
    return None


def _judged(message: Message, scenario: str) -> bool:
    return scenario == "relevance" or bool(message.tool_calls)


def _turn(gold: Message, then: tuple[Message, ...], *, narration: bool) -> Turn:
    calls = tuple(
        ExpectedCall(name=call.function.name, arguments=_object(call.function.arguments))
        for call in gold.tool_calls or ()
    )
    if calls:
        return Turn(expect="calls", calls=calls, then=then, reply=gold.content)
    return Turn(expect="none", then=then, narration=narration, reply=gold.content)


def _object(arguments: str | dict[str, JsonValue]) -> dict[str, JsonValue]:
    if isinstance(arguments, str):
        arguments = strict_json(arguments or "{}")
    if not isinstance(arguments, dict):
        raise Unplayable("arguments are not an object")
    return arguments


# ---- checking -------------------------------------------------------------------------------------------------------


def check_playable(item: Item) -> None:
    """`Unplayable` unless every turn can be played and no expected answer stands in what the model is shown."""
    _check_text(item)
    names = [tool.function.name for tool in (*item.tools, *item.later_tools)]
    if len(set(names)) != len(names):
        raise Unplayable("two tools have one name")
    if not item.history or item.history[-1].role not in ("user", "tool"):
        raise Unplayable("nobody speaks to the assistant before its first judged turn")
    for number, turn in enumerate(item.steps):
        _check_turn(turn, set(names), f"turn {number}", last=number == len(item.steps) - 1)
    if all(turn.narration or turn.expect == "any" for turn in item.steps):
        raise Unplayable("no turn is judged: every reply would be right")


def _check_text(item: Item) -> None:
    try:
        item.model_dump_json()
    except ValueError:  # a lone surrogate: no JSON answer could carry it
        raise Unplayable("text that is not Unicode") from None


def _check_turn(turn: Turn, names: set[str], where: str, *, last: bool) -> None:
    if bool(turn.calls) != (turn.expect == "calls"):
        raise Unplayable(f"{where} expects {turn.expect} with {len(turn.calls)} calls")
    if turn.narration and turn.expect != "none":
        raise Unplayable(f"{where} is narration but expects {turn.expect}")
    if any(message.role == "assistant" for message in turn.then):
        raise Unplayable(f"{where} is followed by an assistant message")
    if not last and (not turn.then or turn.then[-1].role not in ("user", "tool")):
        raise Unplayable(f"{where} is followed by nobody")
    for call in turn.calls:
        if call.name not in names:
            raise Unplayable(f"{where} calls {call.name!r}, which is not among the tools")
        for argument, rule in call.rules.items():
            if argument not in call.arguments:
                raise Unplayable(f"{where} has a rule for {argument!r}, which {call.name!r} is not given")
            _check_rule(rule, call.arguments[argument], f"{where} has a rule for {argument!r}")


def _check_rule(rule: ArgumentRule, gold: JsonValue, where: str) -> None:
    """A rule must be one that can be run and that the expected value itself satisfies."""
    try:
        check_pattern(rule.pattern)
    except PatternRefused as error:
        raise Unplayable(f"{where} whose pattern is no regular expression of RE2: {error}") from None
    if not satisfies(gold, gold, rule):
        raise Unplayable(f"{where} that the expected value does not satisfy")
