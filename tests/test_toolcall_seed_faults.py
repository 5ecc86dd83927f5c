"""Faults that multi-turn tool-use environments are known for, each with the right result."""

import asyncio
import json
from typing import Any

import pytest

from rolloutgym.models import FunctionCall, Message, StopReason, ToolCall, ToolCallAction, ToolSpec
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall.environment import ToolCallEnvironment
from rolloutgym.server.environments.toolcall.importers import sharegpt
from rolloutgym.server.environments.toolcall.importers.conversation import assemble
from rolloutgym.server.environments.toolcall.items import ExpectedCall, Item
from rolloutgym.server.environments.toolcall.options import ToolCallOptions

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"x": {}, "u": {}}}}}
    for name in ("f", "g")
]


def block(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def from_conversation(*said: tuple[str, str]) -> Item:
    row = {"tools": TOOLS, "conversations": [{"from": role, "value": value} for role, value in said]}
    conversation, tools = sharegpt.read_row(row)
    return assemble(conversation, id="t", group="t", split="train", tools=tools)


MULTITURN = from_conversation(
    ("system", "Call tools."),
    ("human", "Please do f."),
    ("gpt", "Which one?"),
    ("human", "The first."),
    ("gpt", block("f", x=1)),
    ("tool", '<tool_response>{"name": "f", "content": "r1"}</tool_response>'),
    ("gpt", "Done: r1."),
    ("human", "Now g."),
    ("gpt", block("g", x=2)),
    ("tool", '<tool_response>{"name": "g", "content": "r2"}</tool_response>'),
    ("gpt", "All done."),
)
PARALLEL = from_conversation(
    ("human", "Both."),
    ("gpt", block("f", x=1) + "\n" + block("g", x=2)),
    ("tool", "<tool_response>r1</tool_response><tool_response>r2</tool_response>"),
    ("gpt", "Both done."),
)
ONE = from_conversation(("human", "f"), ("gpt", block("f", x=1)))
THREE = from_conversation(
    ("human", "f three times"),
    *[said for x in (1, 2, 3) for said in (("gpt", block("f", x=x)), ("tool", "<tool_response>ok</tool_response>"))],
)


def expecting(**arguments: Any) -> Item:
    steps = (ONE.steps[0].model_copy(update={"calls": (ExpectedCall(name="f", arguments=arguments),)}),)
    return ONE.model_copy(update={"steps": steps})


def play(task: Item, *texts: str, truncate: bool = False, **options: Any) -> tuple[float, list[list[Message]], Any]:
    """The return, each step's messages (the reset's first), and the last info."""
    chosen = ToolCallOptions.model_validate({"preset": "seed", **options})
    episode = ToolCallEnvironment(TaskSet([task])).episode(task, 0, chosen)
    observation = asyncio.run(episode.reset())
    messages, total = [list(observation.messages)], 0.0
    last: Any = observation.info
    for text in texts:
        outcome = asyncio.run(episode.step(ToolCallAction(text=text)))
        total += outcome.reward
        messages.append(list(outcome.observation.messages))
        last = outcome.observation.info
    if truncate:
        total += asyncio.run(episode.truncate(StopReason.TIME_LIMIT)).reward
    return total, messages, last


THINK = "<think>\nhm\n</think>\n"


# ---- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "texts", "value"),
    [
        (ONE, [block("f", x=1)], 1.5),
        (ONE, [block("f", x=2)], -1.0),
        (THREE, [block("f", x=1), block("f", x=2), block("f", x=3)], 1.5),
        (THREE, [block("f", x=1), block("f", x=2), "no"], 2 / 3 - 0.2),
        (THREE, [block("f", x=1), "no"], 1 / 3 - 0.2),
        (THREE, ["no"], -1.0),
    ],
)
def test_the_seeds_numbers(task: Item, texts: list[str], value: float) -> None:
    assert play(task, *texts)[0] == pytest.approx(value)


# ---- what the model is shown ----------------------------------------------------------------------------------------


def test_no_expected_call_is_put_into_the_conversation() -> None:
    _, messages, _ = play(MULTITURN, block("f", x=1), block("g", x=2))
    shown = json.dumps([[m.model_dump() for m in step] for step in messages])
    assert "tool_call>" not in shown
    assert '"x"' not in shown
    assert all(not message.tool_calls for step in messages for message in step)


def test_roles_are_those_of_chat_templates() -> None:
    _, messages, _ = play(MULTITURN, block("f", x=1), block("g", x=2))
    assert {m.role for step in messages for m in step} == {"system", "user", "assistant", "tool"}


def test_what_was_said_before_the_first_call_is_kept_in_order() -> None:
    _, messages, _ = play(MULTITURN)
    assert [(m.role, m.content) for m in messages[0]] == [
        ("system", "Call tools."),
        ("user", "Please do f."),
        ("assistant", "Which one?"),
        ("user", "The first."),
    ]


def test_all_responses_to_parallel_calls_are_shown() -> None:
    _, messages, _ = play(PARALLEL, block("f", x=1) + block("g", x=2), generate_all_turns=True)
    assert [(m.role, m.content) for m in messages[1]] == [("tool", "r1"), ("tool", "r2")]


@pytest.mark.parametrize("task", [MULTITURN, PARALLEL])
def test_narration_is_asked_once_and_after_the_tool_responses(task: Item) -> None:
    texts = [block("f", x=1), "r1.", block("g", x=2)] if task is MULTITURN else [block("f", x=1) + block("g", x=2)]
    _, messages, before = play(task, *texts, generate_all_turns=True)
    assert not before.terminated
    assert messages[-1][-1].role == "tool"
    total, _, last = play(task, *texts, "That is all.", generate_all_turns=True)
    assert last.terminated
    assert total == pytest.approx(1.5)


def test_without_narration_in_the_data_there_is_no_narration_turn() -> None:
    total, _, last = play(ONE, block("f", x=1), generate_all_turns=True)
    assert (total, last.terminated) == (1.5, True)


def test_the_cap_leaves_narration_uncounted() -> None:
    texts = [block("f", x=1), "r1.", block("g", x=2), "All."]
    total, _, last = play(MULTITURN, *texts, generate_all_turns=True, max_tool_turns=2)
    assert total == pytest.approx(1.5)
    assert last.stop_reason == "completed"


def test_examples_do_not_travel_between_tasks() -> None:
    """A success on one task changes no other task's prompt: an example is part of the reset that asked for it."""
    environment = ToolCallEnvironment(TaskSet([ONE, MULTITURN.model_copy(update={"id": "other"})]))
    before = asyncio.run(environment.episode(MULTITURN, 0, ToolCallOptions(example=True)).reset())
    winner = environment.episode(ONE, 0, ToolCallOptions(example=True))
    asyncio.run(winner.reset())
    assert asyncio.run(winner.step(ToolCallAction(text=block("f", x=1)))).reward == 1.5
    assert asyncio.run(environment.episode(MULTITURN, 0, ToolCallOptions(example=True)).reset()) == before


# ---- what counts as right -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "written", "right"),
    [
        ({"x": 1}, '{"x": true}', False),
        ({"x": True}, '{"x": 1}', False),
        ({"x": 1}, '{"x": 1.0}', True),
        ({"x": 1}, '{"x": "1"}', False),
        ({"x": None}, '{"x": "None"}', False),
        ({"x": [1, 2]}, '{"x": "[1, 2]"}', False),
        ({"x": "none"}, '{"x": "null"}', False),
        ({"u": "http://x"}, '{"u": "http:\\/\\/x"}', True),
        ({"x": [{"a": 1}]}, '{"x": [{"a": true}]}', False),
        ({"x": {"a": 1}}, '{"x": {"a": 1, "b": 2}}', True),
        ({"x": "what's"}, '{"x": "what\'s"}', True),
        ({"x": "'mode': 'fast'", "u": True}, "{'x': \"'mode': 'fast'\", 'u': true}", True),
        ({"x": ["a", "b"], "u": True}, "{'x': ['a','b'], 'u': true}", True),
        ({"x": 1}, '{"x": 2, "x": 1}', False),
        ({"x": 1}, '{"x": NaN}', False),
        ({"x": "</tool_call>"}, '{"x": "</tool_call>"}', True),
        ({"x": "<think>"}, '{"x": "<think>"}', True),
        ({"x": "<tool_call>\n"}, '{"x": "<tool_call>\\n"}', True),
    ],
)
@pytest.mark.parametrize("think", ["required", "optional"])
def test_values(expected: dict[str, Any], written: str, right: bool, think: str) -> None:
    quote = "'" if written.startswith("{'") else '"'
    text = (
        f"{THINK}<tool_call>\n{{{quote}name{quote}: {quote}f{quote}, {quote}arguments{quote}: {written}}}\n</tool_call>"
    )
    assert play(expecting(**expected), text, think=think)[0] == (1.5 if right else -1.0)


def test_a_tuple_or_set_of_a_literal_reader_is_no_object() -> None:
    for text in ("<tool_call>('f', {'x': 1})</tool_call>", "<tool_call>{'name', 'f'}</tool_call>"):
        assert play(expecting(x=1), text)[0] == -1.0


def test_drafts_in_the_reasoning_do_not_count() -> None:
    draft = f"<think>maybe {block('f', x=9)}</think>"
    assert play(ONE, draft + block("f", x=1))[0] == 1.5
    assert play(ONE, f"<think>{block('f', x=1)}</think>")[0] == -1.0


@pytest.mark.parametrize("tag", ["<TOOL_CALL>", "<tool_call >"])
def test_tags_are_the_same_everywhere(tag: str) -> None:
    """A tag that is no call when a call is expected is none when talk is expected either."""
    text = tag + '{"name": "f", "arguments": {"x": 1}}'
    talk = from_conversation(("human", "hello"), ("gpt", "hello"))
    assert play(ONE, text)[0] == -1.0
    assert play(talk, text)[0] == 1.5


def test_a_prompt_that_opens_the_reasoning_block_is_no_fault() -> None:
    text = f"hm\n</think>\n{block('f', x=1)}"
    assert play(ONE, text, think="required", prefilled_think=True)[0] == 1.5
    assert play(ONE, block("f", x=1), think="optional")[0] == 1.5
    assert play(ONE, block("f", x=1), think="required")[0] == -1.0


# ---- what it costs --------------------------------------------------------------------------------------------------


def test_failed_narration_is_not_free() -> None:
    texts = [block("f", x=1) + block("g", x=2)]
    right = play(PARALLEL, *texts, "Done.", generate_all_turns=True)[0]
    wrong = play(PARALLEL, *texts, block("f", x=1), generate_all_turns=True)
    assert right == pytest.approx(1.5)
    assert wrong[0] == pytest.approx(1 - 0.2)
    assert wrong[2].success is False


def test_partly_right_is_told_from_wholly_wrong_if_the_floor_is_off() -> None:
    five = from_conversation(
        ("human", "f"),
        *[said for x in range(5) for said in (("gpt", block("f", x=x)), ("tool", "<tool_response>ok</tool_response>"))],
    )
    texts = [block("f", x=0), "no"]
    assert play(five, *texts)[0] == -1.0  # 1/5 − 0.2 is no more than 0
    assert play(five, *texts, seed_floor=False)[0] == pytest.approx(0.0)
    assert play(five, "no", seed_floor=False)[0] == pytest.approx(-0.2)


def test_a_mismatch_is_seen_wherever_it_stands() -> None:
    assert play(THREE, block("f", x=1), block("f", x=9))[0] == pytest.approx(1 / 3 - 0.2)
    assert play(PARALLEL, block("f", x=1) + block("g", x=9))[0] == -1.0
    partial = play(PARALLEL, block("f", x=1) + block("g", x=9), preset="f1")[0]
    assert partial == pytest.approx((1 + 2 / 3) / 2 - 0.2)


def test_episodes_that_the_trainer_breaks_off_are_told_apart() -> None:
    """An episode ends by its own rules or by the trainer's word; a fault of the service is an error, never a score."""
    total, _, last = play(THREE, block("f", x=1), truncate=True)
    assert total == pytest.approx(1 / 3 - 0.2)
    assert not last.terminated


def test_talk_items_can_be_won_and_lost() -> None:
    talk = from_conversation(("human", "hello"), ("gpt", "hello"))
    assert play(talk, "Hello!")[0] == 1.5
    assert play(talk, block("f", x=1))[0] == -1.0


def test_the_same_replies_give_the_same_episode() -> None:
    texts = [block("f", x=1), "r1.", block("g", x=9)]
    assert play(MULTITURN, *texts, generate_all_turns=True) == play(MULTITURN, *texts, generate_all_turns=True)


def test_structured_calls_need_no_text() -> None:
    """Messages with `tool_calls` and no content, and contents that are not text in a data set, break nothing."""
    episode = ToolCallEnvironment(TaskSet([ONE])).episode(ONE, 0, ToolCallOptions(preset="seed"))
    asyncio.run(episode.reset())
    call = ToolCall(id="1", function=FunctionCall(name="f", arguments='{"x": 1}'))
    assert asyncio.run(episode.step(ToolCallAction(tool_calls=(call,)))).reward == 1.5
    assert ToolSpec.model_validate(TOOLS[0]).function.name == "f"
