"""Reference policies of the toolcall environment: the data set's own answer, a random caller, one that does nothing."""

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Literal

from pydantic import JsonValue

from rolloutgym.models import FunctionCall, Observation, ToolCall, ToolCallAction, ToolSpec
from rolloutgym.server.environments.toolcall.items import Item, Turn
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.plan import plan

Form = Literal["tool_calls", "text"]

_TALK = "There is nothing to call for this."


class Oracle:
    """Makes the expected calls, as structured calls or as Hermes text. `options` are those of the reset."""

    def __init__(self, options: ToolCallOptions, form: Form) -> None:
        self._options = options
        self._form = form
        self._turns: Iterator[Turn] = iter(())

    def start(self, task: Item, observation: Observation) -> None:
        options = self._options
        planned = plan(task, generate_all_turns=options.generate_all_turns, max_tool_turns=options.max_tool_turns).turns
        turns = [step.turn for step in planned]
        if options.execute:
            turns = list(_executed_turns(task))
        self._turns = iter(turns)

    def act(self, observation: Observation) -> ToolCallAction:
        turn = next(self._turns)
        think = "<think>\nThe next step is clear.\n</think>\n" if self._options.think == "required" else ""
        talk = "" if turn.calls else turn.reply or _TALK
        if self._form == "text":
            blocks = [_hermes(call.name, call.arguments) for call in turn.calls]
            return ToolCallAction(text=think + "\n".join(blocks or [talk]))
        calls = tuple(
            ToolCall(id=f"call_{i}", function=FunctionCall(name=call.name, arguments=json.dumps(call.arguments)))
            for i, call in enumerate(turn.calls)
        )
        return ToolCallAction(tool_calls=calls, content=think + talk)


def _executed_turns(task: Item) -> Iterator[Turn]:
    """Where calls are run, a user turn ends with plain text: every turn of calls that the user answers gets one."""
    for number, turn in enumerate(task.steps):
        last = number == len(task.steps) - 1
        user_speaks = last or any(message.role == "user" for message in turn.then)
        if turn.calls:
            yield turn
        if not turn.calls or user_speaks:
            yield Turn(expect="none", reply=turn.reply)


def _hermes(name: str, arguments: Mapping[str, JsonValue]) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


class RandomCaller:
    """Calls a random tool with arguments of the declared types; talks where there is none."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._tools: tuple[ToolSpec, ...] = ()

    def start(self, task: Item, observation: Observation) -> None:
        self._tools = observation.tools

    def act(self, observation: Observation) -> ToolCallAction:
        if not self._tools:
            return ToolCallAction(text=_TALK)
        function = self._random.choice(self._tools).function
        properties = function.parameters.get("properties")
        declared = properties if isinstance(properties, dict) else {}
        arguments = {name: self._value(schema) for name, schema in declared.items()}
        return ToolCallAction(tool_calls=(ToolCall(function=FunctionCall(name=function.name, arguments=arguments)),))

    def _value(self, schema: JsonValue) -> JsonValue:
        declared = schema if isinstance(schema, dict) else {}
        options = declared.get("enum")
        if isinstance(options, list) and options:
            return self._random.choice(options)
        match declared.get("type"):
            case "integer":
                return self._random.randrange(100)
            case "number":
                return self._random.randrange(1000) / 10
            case "boolean":
                return self._random.random() < 0.5
            case "array":
                return []
            case "object":
                return {}
            case _:
                return self._random.choice(("red", "green", "blue"))


class DoNothing:
    """Says nothing and calls nothing."""

    def start(self, task: Item, observation: Observation) -> None:
        return

    def act(self, observation: Observation) -> ToolCallAction:
        return ToolCallAction(text="")


def oracle(options: ToolCallOptions | None = None, form: Form = "tool_calls") -> Oracle:
    return Oracle(options or ToolCallOptions(), form)


def random(seed: int) -> RandomCaller:
    return RandomCaller(seed)


def do_nothing() -> DoNothing:
    return DoNothing()
