"""Episodes whose calls run on the item's back end: what is answered, what counts as success, and what ends them."""

import asyncio
import json
from random import Random
from typing import Any

import pytest

from rolloutgym.cli.policies import toolcall as policies
from rolloutgym.models import FunctionCall, Message, StopReason, ToolCall, ToolCallAction, ToolCallInfo, ToolSpec
from rolloutgym.server.environments.base import Outcome
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall.environment import ToolCallEnvironment, from_settings
from rolloutgym.server.environments.toolcall.generator.worlds import initial_state
from rolloutgym.server.environments.toolcall.items import BackendState, ExpectedCall, Item, Turn
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.settings import Settings


def tool(name: str, **properties: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": properties}
    return ToolSpec.model_validate({"function": {"name": name, "parameters": parameters}})


def hermes(*made: tuple[str, dict[str, Any]]) -> ToolCallAction:
    blocks = (f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in made)
    return ToolCallAction(text="\n".join(blocks))


class Played:
    """An executed episode in hand."""

    def __init__(self, task: Item, **options: Any) -> None:
        chosen = ToolCallOptions(execute=True, **options)
        self.episode = ToolCallEnvironment(TaskSet([task])).episode(task, 0, chosen)
        self.first = asyncio.run(self.episode.reset())
        self.total = 0.0

    def step(self, action: ToolCallAction) -> Outcome:
        outcome = asyncio.run(self.episode.step(action))
        self.total += outcome.reward
        return outcome

    def truncate(self, reason: StopReason = StopReason.MAX_TOKENS) -> Outcome:
        return asyncio.run(self.episode.truncate(reason))


def info(outcome: Outcome) -> ToolCallInfo:
    assert isinstance(outcome.observation.info, ToolCallInfo)
    return outcome.observation.info


@pytest.fixture(scope="module")
def executable() -> list[Item]:
    tasks = from_settings(Settings()).tasks
    return [task for split in tasks.splits() for task in tasks.of_split(split) if task.backend is not None]


def play(task: Item, policy: Any, **options: Any) -> tuple[Played, Outcome]:
    played = Played(task, **options)
    observation: Any = played.first
    policy.start(task, observation)
    while not (outcome := played.step(policy.act(observation))).done:
        observation = outcome.observation
    return played, outcome


def test_the_oracle_leaves_the_right_state_everywhere(executable: list[Item]) -> None:
    assert executable
    for task in executable:
        played, outcome = play(task, policies.oracle(ToolCallOptions(execute=True)))
        assert (played.total, info(outcome).success) == (1.5, True), task.id


def test_doing_nothing_or_anything_leaves_the_wrong_one(executable: list[Item]) -> None:
    for task in executable:
        played, outcome = play(task, policies.do_nothing())
        assert (played.total, info(outcome).success) == (0.0, False), task.id
        played, outcome = play(task, policies.random(1), max_steps_per_turn=3)
        assert (info(outcome).truncated, info(outcome).stop_reason) == (True, "budget_exhausted")
        assert played.total == pytest.approx(-0.2)


def test_other_ways_to_the_same_state_pass(executable: list[Item]) -> None:
    """Reading first, calling twice what changes nothing, and calling in two replies what the data set calls in one."""

    class Roundabout(policies.Oracle):
        def start(self, task: Item, observation: Any) -> None:
            super().start(task, observation)
            self.pending: list[ToolCallAction] = []

        def act(self, observation: Any) -> ToolCallAction:
            if not self.pending:
                action = super().act(observation)
                made = action.tool_calls or ()
                self.pending = [ToolCallAction(tool_calls=(call,)) for call in made] or [action]
                if made:
                    unknown = ToolCall(function=FunctionCall(name="no_such_tool", arguments="{}"))
                    self.pending.insert(0, ToolCallAction(tool_calls=(unknown,)))
            return self.pending.pop(0)

    for task in executable[::7]:
        _, outcome = play(task, Roundabout(ToolCallOptions(execute=True), "tool_calls"))
        assert info(outcome).success, task.id


def test_executed_calls_are_answered_by_the_back_end(executable: list[Item]) -> None:
    task = next(t for t in executable if t.steps[0].expect == "calls")
    played = Played(task, max_steps_per_turn=5)
    assert played.first.info.budget_remaining == 5
    expected = task.steps[0].calls[0]
    wanted = json.dumps(expected.arguments)
    made = tuple(
        ToolCall(id=call_id, function=FunctionCall(name=name, arguments=arguments))
        for call_id, name, arguments in (
            ("good", expected.name, wanted),
            ("unknown", "a_tool_of_nobody", "{}"),
            ("broken", expected.name, "{"),
        )
    )
    outcome = played.step(ToolCallAction(tool_calls=made))
    answers = {m.tool_call_id: m.content for m in outcome.observation.messages}
    recorded = next(m for m in task.steps[0].then if m.role == "tool")
    assert answers["good"] == recorded.content
    assert "there is no tool" in answers["unknown"]
    assert "could not be read" in answers["broken"]
    assert (outcome.reward, info(outcome).budget_remaining) == (0.0, 4)
    end = played.truncate(StopReason.CONTEXT_LENGTH)
    assert info(end).stop_reason == "context_length"
    assert end.reward == pytest.approx(-0.2)


def test_what_breaks_the_think_rule_is_not_run(executable: list[Item]) -> None:
    task = next(t for t in executable if t.steps[0].expect == "calls")
    expected = task.steps[0].calls[0]
    played = Played(task, think="required")
    outcome = played.step(hermes((expected.name, expected.arguments)))
    assert "not run" in outcome.observation.messages[0].content
    outcome = played.step(ToolCallAction(text="no thought, no call"))
    assert not outcome.done
    assert [m.role for m in outcome.observation.messages] == ["user"]


def test_a_dialogue_that_changes_nothing_asks_for_its_results() -> None:
    question = Item(
        id="w",
        group="w",
        split="train",
        tools=(tool("current_weather", city={"type": "string"}),),
        history=(Message(role="user", content="Weather in Paris?"),),
        steps=(Turn(expect="calls", calls=(ExpectedCall(name="current_weather", arguments={"city": "Paris"}),)),),
        scenario="single",
        backend=BackendState(name="world", initial={"weather": weather_state()}),
    )
    silent, right = Played(question), Played(question)
    assert silent.step(ToolCallAction(text="Nice weather.")).reward == 0
    right.step(hermes(("current_weather", {"city": "Paris"})))
    assert right.step(ToolCallAction(text="Nice weather.")).reward == 1.5


def test_the_budget_is_for_each_user_message_and_its_end_is_no_success(executable: list[Item]) -> None:
    task = next(t for t in executable if t.id.startswith("tidy-my-day"))  # one call for each of the user's messages
    oracle = policies.oracle(ToolCallOptions(execute=True))
    played = Played(task, max_steps_per_turn=2)
    oracle.start(task, played.first)
    budgets = []
    while not (outcome := played.step(oracle.act(played.first))).done:
        budgets.append((bool(info(outcome).calls), info(outcome).budget_remaining))
    assert set(budgets) == {(True, 1), (False, 2)}
    assert info(outcome).success
    single = next(t for t in executable if sum(turn.expect == "calls" for turn in t.steps) == 1)
    made = [(call.name, call.arguments) for turn in single.steps for call in turn.calls]
    out_of_budget = Played(single, max_steps_per_turn=1).step(hermes(*made))
    assert (out_of_budget.done, info(out_of_budget).success) == (True, False)


def test_a_user_who_gets_no_answer_is_no_success(executable: list[Item]) -> None:
    task = next(t for t in executable if sum(turn.expect == "calls" for turn in t.steps) == 1)
    made = [(call.name, call.arguments) for turn in task.steps for call in turn.calls]
    for answer, success in (("Done.", True), ("", False), ("<think>Done.</think>", False), ("<|im_end|>", False)):
        played = Played(task)
        played.step(hermes(*made))
        assert info(played.step(ToolCallAction(text=answer))).success == success


def test_every_user_must_get_an_answer(executable: list[Item]) -> None:
    task = next(t for t in executable if t.id.startswith("tidy-my-day"))
    oracle = policies.oracle(ToolCallOptions(execute=True))
    played, silent = Played(task), False
    oracle.start(task, played.first)
    while True:
        action = oracle.act(played.first)
        if not action.tool_calls and not silent:
            action, silent = ToolCallAction(text=""), True
        outcome = played.step(action)
        if outcome.done:
            break
    assert (info(outcome).stop_reason, info(outcome).success) == ("completed", False)


def test_breaking_off_an_executed_dialogue_counts_as_a_broken_reply(executable: list[Item]) -> None:
    end = Played(executable[0], format_penalty=-0.5).truncate()
    assert end.reward == pytest.approx(-0.2 - 0.5)


def test_a_tool_of_the_back_end_that_is_not_shown_cannot_be_called(executable: list[Item]) -> None:
    task = next(t for t in executable if t.steps[0].expect == "calls")
    expected = task.steps[0].calls[0]
    without = tuple(tool for tool in task.tools if tool.function.name != expected.name)
    played = Played(task.model_copy(update={"tools": without}))
    outcome = played.step(hermes((expected.name, expected.arguments)))
    assert "there is no tool" in outcome.observation.messages[0].content
    assert not info(played.step(ToolCallAction(text="Done."))).success


def weather_state() -> dict[str, Any]:
    return initial_state("weather", Random(0))
