"""An episode whose calls run on the item's back end: what counts is the state at the end, not the path.

The model may call as often as it needs (within the budget) until it answers the user in plain text; then the user's
next message comes. It succeeds if the final state equals the one that the data set's calls leave, all required outputs
were shown, and no user was left without a word. Where those calls change nothing and no output is required, their
results must have been shown, or doing nothing would pass.
"""

from collections import Counter
from dataclasses import replace

from rolloutgym.models import Message, StopReason
from rolloutgym.server.environments.base import Outcome
from rolloutgym.server.environments.toolcall import backends, responses
from rolloutgym.server.environments.toolcall.episode import ToolCallEpisode
from rolloutgym.server.environments.toolcall.items import BackendState, Item, Turn
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.parsing import Reply
from rolloutgym.server.environments.toolcall.rewards import Ending, TurnResult, is_well_formed


class ExecutedEpisode(ToolCallEpisode):
    def __init__(self, item: Item, options: ToolCallOptions, backend: BackendState) -> None:
        super().__init__(item, options)
        self.scoring = replace(self.scoring, preset="exact")  # the outcome is right or wrong; presets judge calls
        turns = [planned.turn for planned in self.plan.turns]
        self._goal = _Goal(backend, turns)
        self._backend = backends.make(backend)
        self._waiting = _user_turns([planned.then for planned in self.plan.turns])
        self._shown: list[str] = []
        self.budget_remaining: int = options.max_steps_per_turn
        self._format_ok = True
        self._answered = True

    def take(self, reply: Reply) -> Outcome:
        self._format_ok = self._format_ok and is_well_formed(reply)
        self._shown.append(reply.content)
        if not reply.attempts and not reply.spoilt:
            return self._next_user_turn(reply)
        messages = self._run(reply)
        self.budget_remaining -= 1
        if self.budget_remaining == 0:
            return self._finish(Ending.STOPPED, StopReason.BUDGET_EXHAUSTED, reply, messages, truncated=True)
        return self.outcome((1.0,), Ending.RUNNING, reply=reply, messages=messages)

    async def truncate(self, reason: StopReason) -> Outcome:
        self._format_ok = False
        return self._finish(Ending.STOPPED, reason, truncated=True)

    def _run(self, reply: Reply) -> tuple[Message, ...]:
        """Run the reply's calls in order; broken ones are answered too."""
        messages: list[Message] = []
        for call in reply.calls:
            if reply.spoilt:
                text = responses.error_text("not run: the reply breaks the rules for its form")
            elif call.name not in self.schemas:  # the back end may have tools that are kept from the model
                text = responses.error_text("there is no tool of this name")
            else:
                text = backends.answer_text(self._backend.call(call.name, call.arguments))
                self._shown.append(text)
            messages.append(Message(role="tool", name=call.name, content=text, tool_call_id=call.id or None))
        messages += [responses.unreadable(problem) for problem in reply.problems if problem.broken_call]
        if not messages:
            text = responses.error_text(
                "the reply breaks the rules for its form: " + ", ".join(p.code for p in reply.problems)
            )
            messages.append(Message(role="user", content=text))
        return tuple(messages)

    def _next_user_turn(self, reply: Reply) -> Outcome:
        self._answered = self._answered and bool(reply.content)
        if not self._waiting:
            return self._finish(Ending.COMPLETED, StopReason.COMPLETED, reply)
        self.budget_remaining = self.options.max_steps_per_turn
        return self.outcome((1.0,), Ending.RUNNING, reply=reply, messages=self._waiting.pop(0))

    def _finish(
        self,
        ending: Ending,
        stop_reason: StopReason,
        reply: Reply | None = None,
        messages: tuple[Message, ...] = (),
        *,
        truncated: bool = False,
    ) -> Outcome:
        success = ending is Ending.COMPLETED and self._answered and self._goal.reached(self._backend, self._shown)
        self.results.append(TurnResult(1.0 if success else 0.0, success, self._format_ok))
        return self.outcome(
            (1.0,),
            ending,
            reply=reply,
            messages=messages,
            success=success,
            stop_reason=stop_reason,
            truncated=truncated,
            turn_score=self.results[-1].score,
        )


class _Goal:
    """What the data set's own calls leave behind."""

    def __init__(self, start: BackendState, turns: list[Turn]) -> None:
        backend = backends.make(start)
        before = backend.state_hash()
        results = [
            backends.answer_text(backend.call(call.name, call.arguments)) for turn in turns for call in turn.calls
        ]
        self._state = backend.state_hash()
        self._outputs = start.required_outputs
        self._results = Counter(results if self._state == before and not self._outputs else ())

    def reached(self, backend: backends.Backend, shown: list[str]) -> bool:
        if backend.state_hash() != self._state or self._results - Counter(shown):
            return False
        text = "\n".join(shown).casefold()
        return all(output.casefold() in text for output in self._outputs)


def _user_turns(thens: list[tuple[Message, ...]]) -> list[tuple[Message, ...]]:
    """The messages that open each further user turn: what a `then` holds besides tool responses and narration."""
    opened = [tuple(message for message in then if message.role in ("user", "system")) for then in thens[:-1]]
    return [messages for messages in opened if messages]
