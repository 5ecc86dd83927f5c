"""One question being explored: what was taken, what was shown, how near the best query came.

Databases, golds and grading live in engines behind an executor. Everything that an episode says is a function of its
task, its options and its actions.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue, ValidationError

from rolloutgym.models import Message, SqlAction, SqlInfo, SqlObservation, StopReason, ToolCall, ToolSpec
from rolloutgym.server.environments.base import Episode, Outcome
from rolloutgym.server.environments.sql.actions import (
    Command,
    Invalid,
    parse_calls,
    parse_fields,
    parse_text,
    sample_request,
    table_name,
)
from rolloutgym.server.environments.sql.database import TOO_EXPENSIVE
from rolloutgym.server.environments.sql.engine import Engine, Subject
from rolloutgym.server.environments.sql.options import SqlOptions
from rolloutgym.server.environments.sql.prompts import TOOLS, question_prompt, step_prompt, system_prompt
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.rewards import Ending, Move, Verdict, components
from rolloutgym.server.environments.sql.workers import Executor, TooExpensive
from rolloutgym.server.errors import InvalidRequest

SAMPLE_ROWS = 5
_ANSWERED = "The answer was recorded."
_OUT_OF_STEPS = "No steps are left: the episode ended without an answer."
_NOT_RUN = "Not run: only one call a step is."

_QUOTED_OR_COMMENT = re.compile(
    # The closing quotes are optional, so that one that is missing is looked for only once.
    r"""('[^']*'?|"[^"]*"?|`[^`]*`?|\[[^\]]*\]?|--[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)"""
)


class _Effect(NamedTuple):
    """What one action did, before the episode takes note of it."""

    text: str
    failed: bool = False
    invalid: bool = False
    key: tuple[str, str] | None = None
    """The same for actions that are repeats of one another; null for what is no action."""
    seen: frozenset[str] = frozenset()
    potential: float = 0.0
    verdict: Verdict | None = None


class SqlEpisode(Episode[SqlAction]):
    def __init__(self, task: SqlTask, options: SqlOptions, executor: Executor) -> None:
        self._task = task
        self._options = options
        self._executor = executor
        self._subject = Subject(str(task.database), task.gold_sql)
        self._caps = options.caps()
        self._turn = 0
        self._taken: set[tuple[str, str]] = set()
        self._seen: set[str] = set()
        self._news = 0
        self._operational = 0
        self._potential = 0.0

    async def reset(self) -> SqlObservation:
        task, options = self._task, self._options
        opened = await self._executor.run(Engine.open, self._subject)
        if opened.empty and not options.include_empty:
            raise InvalidRequest("the answer of this task may be an empty result; the option include_empty allows it")
        system = system_prompt(
            action_format=options.action_format, answer=options.answer, budget=options.budget, dialect=options.dialect
        )
        user = question_prompt(task.question, opened.tables, task.evidence if options.evidence else "")
        return SqlObservation(
            messages=(Message(role="system", content=system), Message(role="user", content=user)),
            tools=TOOLS,
            info=SqlInfo(budget_remaining=options.budget),
            question=task.question,
        )

    async def step(self, action: SqlAction) -> Outcome:
        command = _command(action)
        # Nothing of the episode changes before the effect is known, so that a fault of ours leaves it as it was.
        effect = await self._effect(command)
        return self._settle(action, command, effect)

    async def truncate(self, reason: StopReason) -> Outcome:
        ending = Ending("unanswered", self._options.budget - self._turn)
        return self._outcome(None, ending, reason, result=None, error=None)

    def state(self) -> Mapping[str, JsonValue]:
        return {"question": self._task.question, "budget_remaining": self._options.budget - self._turn}

    def action_of_call(self, name: str, arguments: Mapping[str, JsonValue]) -> SqlAction:
        try:
            call = ToolCall.model_validate({"function": {"name": name, "arguments": dict(arguments)}})
        except ValidationError:
            raise InvalidRequest("the arguments of a tool call are a JSON object") from None
        command = parse_calls([call])
        if isinstance(command, Invalid):
            raise InvalidRequest(command.reason)
        return SqlAction(tool_calls=(call,))

    def tools(self) -> Sequence[ToolSpec]:
        return TOOLS

    # -- what an action does

    async def _effect(self, command: Command | Invalid) -> _Effect:
        if isinstance(command, Invalid):
            return _Effect(command.reason, failed=True, invalid=True)
        if command.verb == "QUERY":
            return await self._query(command.argument)
        if command.verb == "ANSWER":
            return await self._answer(command.argument)
        name, rows = command.argument, None
        if command.verb == "SAMPLE":
            name, rows = sample_request(name)
        name = table_name(name)
        if command.verb == "DESCRIBE":
            shown = await self._executor.run(Engine.describe, self._subject.database, name)
        else:
            rows = min(max(SAMPLE_ROWS if rows is None else rows, 1), self._options.max_rows)
            shown = await self._executor.run(Engine.sample, self._subject.database, name, rows, self._caps)
        return _Effect(shown.text, shown.failed, key=(command.verb, f"{name.lower()} {rows}"), seen=shown.seen)

    async def _query(self, sql: str) -> _Effect:
        key = ("QUERY", _normalised(sql))
        run, dialect = self._executor.run, self._options.dialect
        try:
            ran = await run(Engine.query, self._subject, sql, dialect, self._caps, self._seen)
        except TooExpensive:
            return _Effect(TOO_EXPENSIVE, failed=True, key=key)
        return _Effect(ran.text, ran.failed, key=key, seen=ran.seen, potential=ran.potential)

    async def _answer(self, answer: str) -> _Effect:
        subject, options = self._subject, self._options
        if options.answer == "value":
            right = await self._executor.run(Engine.grade, subject, answer, options.answers())
        else:
            try:
                right = await self._executor.run(Engine.grade_sql, subject, answer, options.dialect, options.answers())
            except TooExpensive:
                right = False
        return _Effect(_ANSWERED, verdict="right" if right else "wrong")

    # -- what the episode makes of it

    def _settle(self, action: SqlAction, command: Command | Invalid, effect: _Effect) -> Outcome:
        self._turn += 1
        repeat = effect.key is not None and effect.key in self._taken
        if effect.key is not None:
            self._taken.add(effect.key)
        new_information = not self._seen.issuperset(effect.seen)
        if new_information:
            self._seen.update(effect.seen)
        move = Move(
            executed=not effect.failed,
            repeat=repeat,
            new_information=new_information,
            news_before=self._news,
            potential=max(self._potential, effect.potential),
        )
        self._news += new_information
        self._operational += move.executed - repeat
        steps_left = self._options.budget - self._turn
        ending, reason, note = None, None, step_prompt(effect.text, steps_left)
        if effect.verdict is not None:
            ending, reason, note = Ending(effect.verdict, steps_left), StopReason.ANSWERED, effect.text
        elif steps_left == 0:
            ending, reason = Ending("unanswered", 0), StopReason.BUDGET_EXHAUSTED
            note = f"{effect.text}\n\n{_OUT_OF_STEPS}"
        return self._outcome(
            move,
            ending,
            reason,
            result=None if effect.failed else effect.text,
            error=effect.text if effect.failed else None,
            messages=_reply(action, command, note),
            invalid=effect.invalid,
        )

    def _outcome(
        self,
        move: Move | None,
        ending: Ending | None,
        reason: StopReason | None,
        *,
        result: str | None,
        error: str | None,
        messages: tuple[Message, ...] = (),
        invalid: bool = False,
    ) -> Outcome:
        """The step's observation and reward; takes note of the potential that was reached."""
        budget = self._options.budget
        parts = components(self._options.reward, move, ending, potential_before=self._potential, budget=budget)
        if move is not None:
            self._potential = move.potential
        info = SqlInfo(
            terminated=reason is StopReason.ANSWERED,
            truncated=reason is not None and reason is not StopReason.ANSWERED,
            stop_reason=reason,
            success=None if ending is None else ending.verdict == "right",
            reward_components=parts,
            turn=self._turn,
            budget_remaining=budget - self._turn,
            invalid_action=invalid,
            execution_ok=None if move is None else move.executed,
            new_information=move is not None and move.new_information,
            repeat=move is not None and move.repeat,
            operational=self._operational,
            progress=self._potential,
        )
        observation = SqlObservation(
            messages=messages, info=info, question=self._task.question, result=result, error=error
        )
        return Outcome(observation, sum(parts.values()))


def _command(action: SqlAction) -> Command | Invalid:
    if action.text is not None:
        return parse_text(action.text)
    if action.tool_calls is not None:
        return parse_calls(action.tool_calls)
    assert action.action_type is not None
    assert action.argument is not None
    return parse_fields(action.action_type, action.argument)


def _reply(action: SqlAction, command: Command | Invalid, text: str) -> tuple[Message, ...]:
    """The messages that answer an action, in the form that it came in: every tool call gets an answer of its own."""
    if action.tool_calls:
        return tuple(
            Message(
                role="tool",
                content=text if call.id == command.call_id else _NOT_RUN,
                name=call.function.name,
                tool_call_id=call.id,
            )
            for call in action.tool_calls
        )
    if command.call_id is not None:
        return (Message(role="tool", content=text, tool_call_id=command.call_id or None),)
    return (Message(role="user", content=text),)


def _normalised(sql: str) -> str:
    """SQL without what makes no difference: case outside quotes, comments, white space, a last semicolon."""
    parts = _QUOTED_OR_COMMENT.split(sql)
    parts[::2] = [" ".join(part.lower().split()) for part in parts[::2]]
    return " ".join([part for part in parts if part and not part.startswith(("--", "/*"))]).strip(" ;")
