"""What both kinds of episode share: the prompt, reading a reply, and what the trainer is told about it.

A matched episode holds each reply against the turn that the data set expects; an executed one runs the calls and looks
at the state that they leave.
"""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from rolloutgym.models import (
    CallDifference,
    FunctionCall,
    Message,
    ParsedCall,
    ParseProblem,
    StopReason,
    ToolCall,
    ToolCallAction,
    ToolCallInfo,
    ToolCallObservation,
    ToolSpec,
)
from rolloutgym.server.environments.base import Episode, Outcome
from rolloutgym.server.environments.toolcall import prompts
from rolloutgym.server.environments.toolcall.assignment import Pair
from rolloutgym.server.environments.toolcall.items import Item
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.parsing import Reply, Schemas, parse, parse_structured
from rolloutgym.server.environments.toolcall.plan import plan
from rolloutgym.server.environments.toolcall.rewards import Ending, TurnResult, episode_components
from rolloutgym.server.errors import InvalidRequest

_LONG = 50_000
"""Characters, and object members; a longer reply is taken off the event loop."""


class ToolCallEpisode(Episode[ToolCallAction]):
    def __init__(self, item: Item, options: ToolCallOptions) -> None:
        self.item = item
        self.options = options
        self.plan = plan(item, generate_all_turns=options.generate_all_turns, max_tool_turns=options.max_tool_turns)
        self.parsing = options.parsing
        self.scoring = options.scoring
        self.schemas: Schemas = {
            tool.function.name: tool.function.parameters for tool in (*item.tools, *item.later_tools)
        }
        self.results: list[TurnResult] = []
        self.steps = 0
        self.budget_remaining: int | None = None
        self._paid: dict[str, float] = {}

    async def reset(self) -> ToolCallObservation:
        few_shot = self.options.few_shot
        return ToolCallObservation(
            messages=self._opening(),
            tools=self.item.tools,
            info=ToolCallInfo(
                few_shot_task_id=few_shot.task_id if few_shot else None, budget_remaining=self.budget_remaining
            ),
        )

    async def step(self, action: ToolCallAction) -> Outcome:
        """A long reply is read and judged off the event loop: each of its calls is held against each expected one."""
        if _length(action) > _LONG:
            return await asyncio.to_thread(self._play, action)
        return self._play(action)

    def _play(self, action: ToolCallAction) -> Outcome:
        if action.tool_calls:
            reply = parse_structured(action.tool_calls, action.content or "", self.parsing)
        else:  # a message without calls may hold one that its server could not read
            reply = parse(action.text or action.content or "", self.schemas, self.parsing)
        self.steps += 1
        return self.take(reply)

    @abstractmethod
    def take(self, reply: Reply) -> Outcome:
        """Play one reply."""

    def state(self) -> Mapping[str, JsonValue]:
        return {"turn": self.steps}

    def tools(self) -> Sequence[ToolSpec]:
        return self.item.tools

    def action_of_call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolCallAction:
        if name not in self.schemas:
            raise InvalidRequest(f"no tool {name!r}")
        return ToolCallAction(tool_calls=(ToolCall(function=FunctionCall(name=name, arguments=dict(arguments))),))

    def outcome(
        self,
        weights: Sequence[float],
        ending: Ending,
        *,
        reply: Reply | None = None,
        pairs: Iterable[Pair] = (),
        turn_score: float | None = None,
        messages: Sequence[Message] = (),
        success: bool | None = None,
        stop_reason: StopReason | None = None,
        truncated: bool = False,
    ) -> Outcome:
        """The step's answer. Its reward is what the episode has earned by now, less what was paid before."""
        earned = episode_components(self.results, weights, ending, self.scoring)
        components = {name: value - self._paid.get(name, 0.0) for name, value in earned.items()}
        self._paid = earned
        info = ToolCallInfo(
            terminated=ending is not Ending.RUNNING and not truncated,
            truncated=truncated,
            stop_reason=stop_reason,
            success=success,
            reward_components=components,
            turn=self.steps,
            budget_remaining=self.budget_remaining,
            invalid_action=reply is not None and (reply.spoilt or reply.attempts > len(reply.calls)),
            calls=_calls(reply),
            differences=tuple(_difference(pair) for pair in pairs),
            problems=_problems(reply),
            family=reply.family if reply else None,
            turn_score=turn_score,
        )
        return Outcome(ToolCallObservation(messages=tuple(messages), info=info), sum(components.values()))

    def _opening(self) -> tuple[Message, ...]:
        """The item's history, with what the options add to its system message and its last user message."""
        options = self.options
        history = list(self.plan.history)
        own_system = history.pop(0).content if history[0].role == "system" else prompts.DEFAULT_SYSTEM
        system = [prompts.THINK] if options.think_prompt else []
        system.append(own_system)
        if options.tools_in_prompt:
            system.append(prompts.tools_block(self.item.tools))
        if options.few_shot is not None:
            system.append(prompts.example_block(options.few_shot.reply))
        elif options.example:
            system.append(
                prompts.example_block(prompts.EXAMPLE_CALL if options.think == "forbidden" else prompts.EXAMPLE)
            )
        if options.one_at_a_time:
            system.append(prompts.ONE_AT_A_TIME)
        return (Message(role="system", content="\n\n".join(system)), *history)


def _length(action: ToolCallAction) -> int:
    return len(action.text or action.content or "") + sum(
        len(call.function.arguments) for call in action.tool_calls or ()
    )


def _calls(reply: Reply | None) -> tuple[ParsedCall, ...]:
    if reply is None:
        return ()
    return tuple(
        ParsedCall(
            name=call.name,
            arguments=json.dumps(call.arguments, ensure_ascii=False),
            id=call.id,
            span=call.span,
            literal=call.literal,
        )
        for call in reply.calls
    )


def _problems(reply: Reply | None) -> tuple[ParseProblem, ...]:
    return tuple(ParseProblem(code=problem.code.value, at=problem.at) for problem in reply.problems) if reply else ()


def _difference(pair: Pair) -> CallDifference:
    if pair.comparison is None:
        return CallDifference(call=pair.call, expected=pair.expected, matched=False, similarity=0.0)
    return CallDifference(
        call=pair.call,
        expected=pair.expected,
        matched=pair.comparison.matched,
        similarity=pair.comparison.similarity,
        arguments={name: status.value for name, status in pair.comparison.arguments.items()},
    )
