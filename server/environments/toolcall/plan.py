"""Which turns of an item the policy plays, and what stands between them. Pure."""

from typing import NamedTuple

from rolloutgym.models import Message
from rolloutgym.server.environments.toolcall.items import Item, Turn


class PlannedTurn(NamedTuple):
    turn: Turn
    then: tuple[Message, ...]
    """What follows, narration that the policy does not write included."""


class Plan(NamedTuple):
    history: tuple[Message, ...]
    """What was said before the first turn played."""
    turns: tuple[PlannedTurn, ...]


def plan(item: Item, *, generate_all_turns: bool, max_tool_turns: int | None) -> Plan:
    """The item's judged turns. Without `generate_all_turns` the data set's own narration stands where narration turns
    would; with `max_tool_turns` the item ends after that many calling turns and the narration after the last."""
    history = list(item.history)
    turns: list[tuple[Turn, list[Message]]] = []
    for turn in _capped(item.steps, max_tool_turns):
        if turn.narration and not generate_all_turns:
            following = turns[-1][1] if turns else history
            if turn.reply:
                following.append(Message(role="assistant", content=turn.reply))
            following += turn.then
        else:
            turns.append((turn, list(turn.then)))
    return Plan(tuple(history), tuple(PlannedTurn(turn, tuple(then)) for turn, then in turns))


def _capped(steps: tuple[Turn, ...], max_tool_turns: int | None) -> tuple[Turn, ...]:
    if max_tool_turns is None:
        return steps
    calling = [i for i, turn in enumerate(steps) if turn.expect == "calls"]
    if len(calling) <= max_tool_turns:
        return steps
    end = calling[max_tool_turns - 1] + 1
    return steps[: end + 1] if steps[end].narration else steps[:end]
