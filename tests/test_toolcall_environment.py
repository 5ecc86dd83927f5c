"""Episodes: what is shown, what is asked, what follows, how it ends. Executed ones: test_toolcall_executed."""

import asyncio
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from rolloutgym.cli.policies import toolcall as policies
from rolloutgym.models import FunctionCall, Message, StopReason, ToolCall, ToolCallAction, ToolCallInfo, ToolSpec
from rolloutgym.server.environments.base import Outcome
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall import matched, prompts
from rolloutgym.server.environments.toolcall.environment import (
    ToolCallEnvironment,
    from_settings,
    read_skip_list,
    without_completed,
)
from rolloutgym.server.environments.toolcall.items import ExpectedCall, Item, Turn
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.parsing import Family
from rolloutgym.server.environments.toolcall.rewards import PRESETS, score_turn
from rolloutgym.server.errors import InvalidRequest, TaskNotFound
from rolloutgym.server.settings import Settings


def tool(name: str, **properties: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": properties}
    return ToolSpec.model_validate({"function": {"name": name, "parameters": parameters}})


def said(role: Any, content: str, name: str | None = None) -> Message:
    return Message(role=role, content=content, name=name)


def calls(*expected: tuple[str, dict[str, Any]], then: Iterable[Message] = (), order: Any = "any") -> Turn:
    return Turn(
        expect="calls",
        calls=tuple(ExpectedCall(name=name, arguments=arguments) for name, arguments in expected),
        then=tuple(then),
        order=order,
    )


def item(*steps: Turn, id: str = "a", group: str = "", **fields: Any) -> Item:
    history = fields.pop("history", (said("system", "Be brief."), said("user", "Weather in Paris and Rome, please.")))
    return Item(
        id=id,
        group=group or id,
        split="train",
        tools=(tool("weather", city={"type": "string"}), tool("time", zone={"type": "string"})),
        history=history,
        steps=steps,
        scenario=fields.pop("scenario", "multiturn"),
        **fields,
    )


PARIS, ROME = ("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})
DIALOGUE = item(
    calls(PARIS, ROME, then=[said("tool", "sun", "weather"), said("tool", "rain", "weather")]),
    Turn(expect="none", narration=True, reply="Sun and rain.", then=(said("user", "What time is it there?"),)),
    calls(("time", {"zone": "CET"}), then=[said("tool", "noon", "time")]),
    Turn(expect="none", narration=True, reply="Noon."),
)


def hermes(*made: tuple[str, dict[str, Any]]) -> ToolCallAction:
    blocks = (f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in made)
    return ToolCallAction(text="\n".join(blocks))


def structured(*made: tuple[str, dict[str, Any]], content: str | None = None) -> ToolCallAction:
    tool_calls = tuple(
        ToolCall(id=f"id-{i}", function=FunctionCall(name=n, arguments=json.dumps(a))) for i, (n, a) in enumerate(made)
    )
    return ToolCallAction(tool_calls=tool_calls, content=content)


def talk(text: str) -> ToolCallAction:
    return ToolCallAction(text=text)


class Played:
    """An episode in hand."""

    def __init__(self, task: Item, **options: Any) -> None:
        self.episode = ToolCallEnvironment(TaskSet([task])).episode(task, 0, ToolCallOptions(**options))
        self.first = asyncio.run(self.episode.reset())
        self.total = 0.0

    def step(self, action: ToolCallAction) -> Outcome:
        return self._took(asyncio.run(self.episode.step(action)))

    def truncate(self, reason: StopReason = StopReason.MAX_TOKENS) -> Outcome:
        return self._took(asyncio.run(self.episode.truncate(reason)))

    def _took(self, outcome: Outcome) -> Outcome:
        self.total += outcome.reward
        assert sum(outcome.observation.info.reward_components.values()) == outcome.reward
        return outcome


def contents(outcome: Outcome) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in outcome.observation.messages]


def info(outcome: Outcome) -> ToolCallInfo:
    assert isinstance(outcome.observation.info, ToolCallInfo)
    return outcome.observation.info


# ---- what is shown and asked ----------------------------------------------------------------------------------------


def test_reset_shows_the_history_and_the_tools() -> None:
    first = Played(DIALOGUE).first
    assert [(m.role, m.content) for m in first.messages] == [
        ("system", "Be brief."),
        ("user", "Weather in Paris and Rome, please."),
    ]
    assert first.tools == DIALOGUE.tools
    assert first.info == ToolCallInfo()


def test_a_conversation_without_a_system_message_gets_one() -> None:
    first = Played(item(calls(PARIS), history=(said("user", "Paris?"),))).first
    assert [m.role for m in first.messages] == ["system", "user"]
    assert first.messages[0].content == prompts.DEFAULT_SYSTEM


def test_additions_to_the_prompt_are_made_only_if_asked() -> None:
    options = {"think_prompt": True, "tools_in_prompt": True, "one_at_a_time": True, "example": True}
    system = Played(DIALOGUE, **options).first.messages[0].content
    parts = [prompts.THINK, "Be brief.", prompts.EXAMPLE, prompts.ONE_AT_A_TIME]
    assert [system.index(part) for part in parts] == sorted(system.index(part) for part in parts)
    tools = [json.loads(line) for line in system.split("<tools>\n")[1].split("\n</tools>")[0].split("\n")]
    assert tools == [spec.model_dump(mode="json") for spec in DIALOGUE.tools]


def test_few_shot_example_comes_from_an_independent_task_and_is_named() -> None:
    other, variant = item(calls(ROME), id="b"), item(calls(ROME), id="c", group="a")
    environment = ToolCallEnvironment(TaskSet([DIALOGUE, other, variant]))

    def episode(task_id: str) -> Any:
        few_shot = {"task_id": task_id, "reply": "a good reply"}
        return environment.episode(DIALOGUE, 0, ToolCallOptions.model_validate({"few_shot": few_shot, "example": True}))

    first = asyncio.run(episode("b").reset())
    assert first.info.few_shot_task_id == "b"
    assert "a good reply" in first.messages[0].content
    assert prompts.EXAMPLE not in first.messages[0].content
    for task_id in ("a", "c"):
        with pytest.raises(InvalidRequest, match="not independent"):
            episode(task_id)
    with pytest.raises(TaskNotFound):
        episode("nobody")


def test_narration_of_the_data_set_stands_in_unless_the_model_narrates() -> None:
    played = Played(DIALOGUE)
    follow_up = contents(played.step(hermes(PARIS, ROME)))
    assert follow_up == [
        ("tool", "sun"),
        ("tool", "rain"),
        ("assistant", "Sun and rain."),
        ("user", "What time is it there?"),
    ]
    assert info(played.step(hermes(("time", {"zone": "CET"})))).stop_reason == StopReason.COMPLETED

    narrated = Played(DIALOGUE, generate_all_turns=True)
    assert contents(narrated.step(hermes(PARIS, ROME))) == [("tool", "sun"), ("tool", "rain")]
    assert contents(narrated.step(talk("Sun here, rain there."))) == [("user", "What time is it there?")]
    assert contents(narrated.step(hermes(("time", {"zone": "CET"})))) == [("tool", "noon")]
    last = narrated.step(talk("Noon."))
    assert last.done
    assert contents(last) == []
    assert narrated.total == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("options", "expects"),
    [
        ({}, ["calls", "calls"]),
        ({"generate_all_turns": True}, ["calls", "none", "calls", "none"]),
        ({"max_tool_turns": 1}, ["calls"]),
        ({"max_tool_turns": 1, "generate_all_turns": True}, ["calls", "none"]),
        ({"max_tool_turns": 2, "generate_all_turns": True}, ["calls", "none", "calls", "none"]),
        ({"max_tool_turns": 9}, ["calls", "calls"]),
    ],
)
def test_the_cap_counts_calling_turns_and_keeps_the_narration_after_the_last(
    options: dict[str, Any], expects: list[str]
) -> None:
    assert [planned.turn.expect for planned in Played(DIALOGUE, **options).episode.plan.turns] == expects


def test_a_turn_without_a_call_is_judged_where_it_is_not_narration() -> None:
    refusal = item(Turn(expect="none", reply="I can't."), scenario="relevance")
    assert Played(refusal).step(talk("That I cannot do.")).reward == pytest.approx(1.5)
    for wrong in (hermes(PARIS), talk(""), talk("<think>hm</think>"), talk("<tool_call>{oops}</tool_call>")):
        assert Played(refusal).step(wrong).reward == pytest.approx(-0.2)


# ---- what follows ---------------------------------------------------------------------------------------------------


def test_tool_responses_carry_the_ids_of_the_calls_they_answer() -> None:
    """The calls are right in either order, and each response goes to its own."""
    for made in ((PARIS, ROME), (ROME, PARIS)):
        messages = Played(DIALOGUE).step(structured(*made)).observation.messages
        ids = {json.dumps(call): f"id-{i}" for i, call in enumerate(made)}
        answered = [(m.content, m.tool_call_id) for m in messages if m.role == "tool"]
        assert answered == [("sun", ids[json.dumps(PARIS)]), ("rain", ids[json.dumps(ROME)])]


def test_text_gets_responses_without_ids() -> None:
    assert {m.tool_call_id for m in Played(DIALOGUE).step(hermes(PARIS, ROME)).observation.messages} == {None}


LYON = ("weather", {"city": "Lyon"})


@pytest.mark.parametrize(
    "text", ["Hello.", "", "<tool_call>{oops</tool_call>", hermes(PARIS).text, hermes(PARIS, ROME).text]
)
def test_content_without_calls_is_read_like_text(text: str) -> None:
    for task in (DIALOGUE, item(Turn(expect="none"))):
        for tool_calls in (None, ()):
            by_content = Played(task)
            by_content.step(ToolCallAction(tool_calls=tool_calls, content=text))
            by_text = Played(task)
            by_text.step(talk(text))
            assert by_content.total == by_text.total


def test_after_a_mismatch_the_episode_stops() -> None:
    played = Played(DIALOGUE)
    outcome = played.step(hermes(PARIS, LYON))
    assert outcome.done
    assert contents(outcome) == []
    assert (info(outcome).terminated, info(outcome).stop_reason, info(outcome).success) == (True, "mismatch", False)
    assert played.total == pytest.approx(-0.2)


def test_after_a_mismatch_it_may_go_on_as_recorded() -> None:
    played = Played(DIALOGUE, on_mismatch="continue_with_gold")
    outcome = played.step(structured(LYON, PARIS, ("time", {})))
    assert not outcome.done
    assert info(outcome).success is None
    responses = [(m.content, m.tool_call_id) for m in outcome.observation.messages if m.role == "tool"]
    unanswered = '{"error": "no response to this call was recorded"}'
    assert responses == [("sun", "id-1"), ("rain", "id-0"), (unanswered, "id-2")]
    last = played.step(structured(("time", {"zone": "CET"})))
    assert (info(last).stop_reason, info(last).success) == ("completed", False)
    assert played.total == pytest.approx(1 / 3)


def test_after_a_mismatch_it_may_go_on_with_what_the_model_called() -> None:
    played = Played(DIALOGUE, on_mismatch="continue_with_model")
    outcome = played.step(structured(LYON, PARIS))
    responses = [(m.content, m.tool_call_id) for m in outcome.observation.messages if m.role == "tool"]
    assert responses == [('{"error": "this call has no result"}', "id-0"), ("sun", "id-1")]
    assert contents(outcome)[2:] == [("assistant", "Sun and rain."), ("user", "What time is it there?")]


def test_fewer_responses_than_calls_were_recorded() -> None:
    """As recorded after a right turn; after a wrong one each call gets what there is for it."""
    task = item(calls(PARIS, ROME, then=[said("tool", "sun and rain")]), calls(("time", {"zone": "CET"})))
    for mode in ("continue_with_gold", "continue_with_model"):
        right = Played(task, on_mismatch=mode).step(hermes(ROME, PARIS))
        assert contents(right) == [("tool", "sun and rain")]
    wrong = Played(task, on_mismatch="continue_with_model").step(hermes(PARIS, ROME, LYON))
    nothing = ("tool", '{"error": "this call has no result"}')
    assert contents(wrong) == [("tool", "sun and rain"), nothing, nothing]


def test_broken_calls_are_answered_too() -> None:
    broken = ToolCall(id="x", function=FunctionCall(name="weather", arguments='{"city": '))
    for mode in ("continue_with_gold", "continue_with_model"):
        outcome = Played(DIALOGUE, on_mismatch=mode).step(ToolCallAction(tool_calls=(broken,)))
        answers = [m.content for m in outcome.observation.messages if m.tool_call_id == "x"]
        assert answers == ['{"error": "this call could not be read: truncated"}']
        assert info(outcome).invalid_action


def test_info_tells_the_trainer_what_was_called_and_what_differs() -> None:
    outcome = Played(DIALOGUE).step(structured(LYON, ("time", {"zone": "CET"})))
    said_of = info(outcome)
    assert [(c.name, json.loads(c.arguments), c.id) for c in said_of.calls] == [
        ("weather", {"city": "Lyon"}, "id-0"),
        ("time", {"zone": "CET"}, "id-1"),
    ]
    assert [(d.call, d.expected, d.matched, d.arguments) for d in said_of.differences] == [
        (0, 0, False, {"city": "different"}),
        (1, None, False, {}),
        (None, 1, False, {}),
    ]
    assert said_of.turn_score == 0
    broken = info(Played(DIALOGUE).step(talk('<tool_call>{"a": 1, "a": 2}</tool_call>')))
    assert [(problem.code, problem.at) for problem in broken.problems] == [("duplicate_key", 0)]


def test_deeply_nested_arguments_still_fit_into_an_answer() -> None:
    deep = "[" * 190 + "]" * 190
    text = '<tool_call>{"name":"weather","arguments":{"city":' + deep + "}}</tool_call>"
    outcome = Played(DIALOGUE).step(talk(text))
    read = type(outcome.observation).model_validate_json(outcome.observation.model_dump_json())
    assert json.loads(info(Outcome(read, 0.0)).calls[0].arguments) == {"city": json.loads(deep)}


def test_a_long_reply_is_read_like_a_short_one() -> None:
    action = hermes(PARIS, ROME)
    longer = ToolCallAction(text=f"<think>{'hm ' * 100_000}</think>{action.text}")
    assert contents(Played(DIALOGUE).step(longer)) == contents(Played(DIALOGUE).step(action))
    assert Played(DIALOGUE).step(ToolCallAction(text="x" * 2**21)).observation.info.invalid_action


def test_a_long_reply_is_taken_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def watched(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return score_turn(*args)

    monkeypatch.setattr(matched, "score_turn", watched)
    long: tuple[str, dict[str, Any]] = ("weather", {"city": "x" * 100_000})
    for action in (hermes(PARIS), structured(PARIS), hermes(long), structured(long)):
        Played(DIALOGUE).step(action)
    assert [thread is threading.main_thread() for thread in threads] == [True, True, False, False]


def test_nothing_of_the_answer_is_shown_before_it_is_due() -> None:
    secret = item(
        calls(("time", {"zone": "Zanzibar"}), then=[said("tool", "noon", "time"), said("user", "And now?")]),
        calls(("time", {"zone": "Galapagos"})),
    )
    for mode in ("stop", "continue_with_gold", "continue_with_model"):
        played = Played(secret, on_mismatch=mode)
        seen = [played.first.model_dump_json(), json.dumps(dict(played.episode.state()))]
        for action in (hermes(("time", {"zone": "x", "y": 1})), talk("hm")):
            outcome = played.step(action)
            seen += [outcome.observation.model_dump_json(), json.dumps(dict(played.episode.state()))]
            if outcome.done:
                break
        assert not [text for text in seen if "Zanzibar" in text or "Galapagos" in text]
    assert not [text for text in (DIALOGUE.info().model_dump_json(),) if "Paris" in text]


# ---- how it ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"format_penalty": -0.5}, {"on_mismatch": "continue_with_gold"}, {"preset": "toolrl"}]
)
def test_breaking_off_is_no_better_than_a_wrong_or_broken_reply(options: dict[str, Any]) -> None:
    options = {"generate_all_turns": True, **options}
    for right_turns in range(3):
        totals = []
        for bad in (None, hermes(LYON), talk("<tool_call>{"), talk("")):
            played = Played(DIALOGUE, **options)
            oracle = policies.oracle(ToolCallOptions(**options))
            oracle.start(DIALOGUE, played.first)
            for _ in range(right_turns):
                played.step(oracle.act(played.first))
            if bad is None:
                outcome = played.truncate()
                assert (info(outcome).truncated, info(outcome).terminated) == (True, False)
                assert (info(outcome).stop_reason, info(outcome).success) == ("max_tokens", False)
            else:
                for _ in range(9):
                    if played.step(bad).done:
                        break
            totals.append(played.total)
        assert totals[0] <= min(totals[1:]) + 1e-9


@pytest.mark.parametrize("form", ["tool_calls", "text"])
@pytest.mark.parametrize("preset", ["seed", "exact", "subset", "bfcl", "f1", "toolrl"])
def test_every_preset_pays_the_oracle_in_full(preset: Any, form: Any) -> None:
    options = ToolCallOptions(preset=preset, think="required", generate_all_turns=True)
    played = Played(DIALOGUE, **options.model_dump())
    oracle = policies.oracle(options, form)
    oracle.start(DIALOGUE, played.first)
    while not (outcome := played.step(oracle.act(played.first))).done:
        assert outcome.reward >= 0
    assert info(outcome).success is True
    assert played.total == pytest.approx(4.5 if preset == "toolrl" else 1.5)


def test_turns_are_counted() -> None:
    played = Played(DIALOGUE)
    for taken, action in enumerate((hermes(PARIS, ROME), hermes(("time", {"zone": "CET"}))), start=1):
        assert info(played.step(action)).turn == taken
        assert played.episode.state() == {"turn": taken}


def test_a_random_caller_without_tools_talks() -> None:
    policy = policies.random(1)
    task = item(Turn(expect="none")).model_copy(update={"tools": ()})
    policy.start(task, Played(task).first)
    assert Played(task).step(policy.act(Played(task).first)).reward == 1.5


def test_execution_needs_a_back_end_and_the_whole_dialogue() -> None:
    with pytest.raises(InvalidRequest, match="no back end"):
        Played(DIALOGUE, execute=True)
    with pytest.raises(ValidationError, match="whole dialogue"):
        ToolCallOptions(execute=True, max_tool_turns=1)


# ---- the environment ------------------------------------------------------------------------------------------------


def test_calls_of_tools_become_actions() -> None:
    episode = Played(DIALOGUE).episode
    assert episode.tools() == DIALOGUE.tools
    action = episode.action_of_call("weather", {"city": "Paris"})
    assert action.tool_calls is not None
    assert action.tool_calls[0].function.arguments == {"city": "Paris"}
    with pytest.raises(InvalidRequest):
        episode.action_of_call("reset", {})


def test_metadata_says_what_rewards_can_be_and_what_was_left_out(tmp_path: Path) -> None:
    good, other = DIALOGUE.model_dump_json(), item(calls(PARIS), id="b").model_dump_json()
    data, skip = tmp_path / "items.jsonl", tmp_path / "skip.txt"
    data.write_text(f"{good}\n{{broken\n{other}\n")
    skip.write_text("b\n\nnobody\n")
    settings = Settings(toolcall_data=data, toolcall_skip=skip)
    environment = from_settings(settings)
    assert [task.id for task in environment.tasks.of_split("train")] == ["a"]
    details = environment.details()
    assert details["items_skipped"] == 1
    assert details["items_left_out"] == 1
    assert [left_out["id"] for left_out in details["first_left_out"]] == ["items-2"]
    assert environment.reward_range() == (-0.2, 1.5)
    assert details["reward_ranges"]["toolrl"] == (-3.2, 4.5)
    json.dumps(details)


def test_completed_tasks_are_skipped_by_id_or_first_message(tmp_path: Path) -> None:
    path = tmp_path / "done.txt"
    path.write_text("b\n  Weather in   Paris and Rome, please. \n")
    items = [DIALOGUE, item(calls(PARIS), id="b"), item(calls(PARIS), id="c", history=(said("user", "Rome?"),))]
    assert [task.id for task in without_completed(items, read_skip_list(path))] == ["c"]


def test_every_option_and_preset_is_described() -> None:
    page = (Path(__file__).parents[1] / "docs" / "toolcall.md").read_text(encoding="utf-8")
    names = [*ToolCallOptions.model_fields, *PRESETS, *get_args(Family)]
    assert [name for name in names if f"`{name}`" not in page and f"`{name}:" not in page] == []
