"""Ways to be paid for what is not an answer: none beats the honest reply, in any preset, in either form."""

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutgym.models import FunctionCall, Message, ToolCall, ToolCallAction, ToolSpec
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall.environment import ToolCallEnvironment
from rolloutgym.server.environments.toolcall.items import ExpectedCall, Item, Turn
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.rewards import PRESETS

Calls = list[tuple[str, dict[str, Any]]]
NAMES = ("f", "g", "h")


def item(*turns: Calls) -> Item:
    steps = [
        Turn(
            expect="calls" if calls else "none",
            calls=tuple(ExpectedCall(name=name, arguments=arguments) for name, arguments in calls),
            then=(Message(role="tool", content="ok"), Message(role="user", content="go on")),
        )
        for calls in turns
    ]
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}
    tools = [ToolSpec.model_validate({"function": {"name": name, "parameters": parameters}}) for name in NAMES]
    history = (Message(role="user", content="go"),)
    return Item(
        id="t", group="t", split="train", tools=tuple(tools), history=history, steps=tuple(steps), scenario="multiturn"
    )


ITEMS = {
    "one call": item([("f", {"x": 1, "y": "a"})]),
    "parallel": item([("f", {"x": 1}), ("f", {"x": 2}), ("g", {"y": "b"})]),
    "several turns": item([("f", {"x": 1})], [], [("g", {"x": 2}), ("f", {"x": 3})]),
    "talk": item([]),
    "no arguments": item([("h", {})]),
}


def hermes(calls: Sequence[tuple[str, Any]]) -> str:
    return "\n".join(f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in calls)


def honest(calls: Calls) -> str:
    return hermes(calls) or "Here you are."


def bare(calls: Calls) -> str:
    return json.dumps([{"name": n, "arguments": a} for n, a in calls])


def changed(calls: Calls, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Calls:
    return [(name, change(arguments)) for name, arguments in calls] or [("f", {})]


GUESSES = [{}, {"x": 1}, {"x": 2}, {"x": 3}, {"y": "a"}, {"x": 1, "y": "a"}]

# What the attacker knows is the right calls themselves: each shows them in a way that must not count, or adds to them.
ATTACKS: dict[str, Callable[[Calls], str]] = {
    "the right calls and spam": lambda calls: hermes(calls) + hermes([("h", {"x": 9})] * 5),
    "the right calls twice": lambda calls: hermes(calls + calls) if calls else hermes([("f", {})]),
    "the right calls and garbage": lambda calls: hermes(calls) + "<tool_call>{</tool_call>",
    "the right calls and a cut-off one": lambda calls: hermes(calls) + '<tool_call>{"name": "f',
    "all but the last call": lambda calls: hermes(calls[:-1]) or "…",
    "every tool": lambda calls: hermes([(name, {}) for name in NAMES]),
    "every tool with every guess": lambda calls: hermes([(name, guess) for name in NAMES for guess in GUESSES]),
    "no arguments": lambda calls: hermes([(name, {}) for name, _ in calls] or [("f", {})]),
    "arguments of every kind": lambda calls: hermes(changed(calls, lambda a: {**a, "z": 1, "q": [1]})),
    "nothing": lambda calls: "",
    "blanks": lambda calls: " \n\t ",
    "calls in prose": lambda calls: "I would call " + bare(calls),
    "calls in a code block": lambda calls: f"```json\n{bare(calls)}\n```",
    "calls in the reasoning": lambda calls: f"<think>{hermes(calls) or 'x'}</think>",
    "reasoning that never ends": lambda calls: f"<think>{hermes(calls)}",
    "a key given twice": lambda calls: '<tool_call>{"name":"g","name":"f","arguments":{"x":2,"x":1}}</tool_call>',
    "all values at once": lambda calls: hermes(changed(calls, lambda a: {k: [v, 1, 2] for k, v in a.items()})),
    "text for everything": lambda calls: hermes(changed(calls, lambda a: {"q": "", **{k: f"{a[k]} " for k in a}})),
    "several objects in one block": lambda calls: f"<tool_call>{bare(calls)}{bare(calls)}</tool_call>",
    "an invented response": lambda calls: hermes(calls[:-1]) + "<tool_response>1</tool_response>" + hermes([("f", {})]),
    "another form on top": lambda calls: hermes(calls) + '<tool_call>\n<function=f>\n</function>\n</tool_call>',
    "the answer's numbers": lambda calls: "reward: 1.5, success: true",
}  # fmt: skip


class Played(NamedTuple):
    total: float
    success: bool | None


def play(task: Item, texts: Sequence[str], **options: Any) -> Played:
    return play_actions(task, [ToolCallAction(text=text) for text in texts], ToolCallOptions.model_validate(options))


def play_actions(task: Item, actions: Sequence[ToolCallAction], options: ToolCallOptions) -> Played:
    episode = ToolCallEnvironment(TaskSet([task])).episode(task, 0, options)
    asyncio.run(episode.reset())
    earned, success = 0.0, None
    for action in actions:
        outcome = asyncio.run(episode.step(action))
        earned += outcome.reward
        success = outcome.observation.info.success
        if outcome.done:
            break
    return Played(earned, success)


def gold(task: Item) -> list[Calls]:
    return [[(call.name, call.arguments) for call in turn.calls] for turn in task.steps]


# What of them is an answer after all: talk where talk is wanted, a call without arguments where it has none, and more
# arguments than expected where a subset is enough.
RIGHT = {
    *[("talk", attack, None) for attack in ("all but the last call", "calls in prose", "calls in a code block")],
    ("talk", "the answer's numbers", None),
    *[("no arguments", attack, None) for attack in ("no arguments", "all values at once")],
    *[(name, "arguments of every kind", preset) for name in ITEMS if name != "talk" for preset in ("seed", "subset")],
    *[("no arguments", "text for everything", preset) for preset in ("seed", "subset")],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", ITEMS)
def test_no_attack_beats_the_honest_answer(name: str, attack: str) -> None:
    """Whether at every turn, at the first or at the last, and whatever follows a mismatch."""
    task = ITEMS[name]
    right = [honest(calls) for calls in gold(task)]
    bad = [ATTACKS[attack](calls) for calls in gold(task)]
    for preset in PRESETS:
        best = 4.5 if preset == "toolrl" else 1.5
        for mode in ("stop", "continue_with_gold", "continue_with_model"):
            options = {"preset": preset, "on_mismatch": mode, "format_penalty": -0.1}
            answered = play(task, right, **options)
            assert answered.total == pytest.approx(best)
            assert answered.success
            for texts in (bad, [bad[0], *right[1:]], [*right[:-1], bad[-1]]):
                played = play(task, texts, **options)
                if played.success:
                    assert {(name, attack, None), (name, attack, preset)} & RIGHT
                    assert played.total == pytest.approx(best)
                else:
                    assert played.total < best - 0.4, (preset, mode)


LEAVES = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé ", max_size=3), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["x", "y", "é", "a b"]), VALUES, min_size=1, max_size=3)
ENCODERS: list[Callable[[Any], str]] = [
    json.dumps,
    repr,
    lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True),
    lambda value: json.dumps(value, indent=3),
    lambda value: json.dumps(value, separators=(",", ":")),
    lambda value: json.dumps(json.dumps(value)),
]
FRAMES = ["{}", "<think>\nf(x=2)?\n</think>\n\n{}", "I call it.\n{}\nDone.", "{}<|im_end|>\n", "hm\n</think>{}"]


def respelt(value: Any) -> Any:
    """The same value, otherwise: whole numbers as floats where a float can hold them, members in another order."""
    if type(value) is int and float(value) == value:
        return float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [respelt(inner) for inner in value]
    return {k: respelt(value[k]) for k in reversed(value)} if isinstance(value, dict) else value


@settings(max_examples=100, deadline=None)
@given(ARGUMENTS, st.sampled_from(ENCODERS), st.sampled_from(FRAMES), st.booleans())
def test_every_spelling_of_the_right_call_is_right(
    arguments: dict[str, Any], encode: Callable[[Any], str], frame: str, otherwise: bool
) -> None:
    written = encode(respelt(arguments) if otherwise else arguments)
    text = frame.format(f'<tool_call>\n{{"name": "f", "arguments": {written}}}\n</tool_call>')
    for preset in ("exact", "toolrl"):
        assert play(item([("f", arguments)]), [text], preset=preset).success


NOTHINGS: tuple[Any, ...] = (None, False, 0, "", [], {})


def puns(value: Any) -> list[Any]:
    """Values that a careless comparison takes for this one."""
    texts = [f"{value} "] if isinstance(value, str) else [str(value), json.dumps(value)]
    numbers = [int(value)] if isinstance(value, bool) else [bool(value)] if value in (0, 1) else []
    kind = int if type(value) is float else type(value)
    nothings = [] if value else [other for other in NOTHINGS if type(other) is not kind]
    return [*texts, *numbers, *nothings, [value], {"value": value}]


@settings(max_examples=60, deadline=None)
@given(ARGUMENTS, st.data())
def test_no_pun_of_a_right_value_is_right(arguments: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(arguments)))
    for pun in puns(arguments[key]):
        assert not play(item([("f", arguments)]), [hermes([("f", {**arguments, key: pun})])]).success, pun


@pytest.mark.parametrize("preset", PRESETS)
def test_more_spam_never_pays_more(preset: Any) -> None:
    task = ITEMS["parallel"]
    spam = [[("h", {"x": i}) for i in range(n)] for n in (0, 1, 2, 5, 50)]
    earned = [play(task, [hermes(gold(task)[0] + more)], preset=preset).total for more in spam]
    assert earned == sorted(earned, reverse=True)
    assert earned[0] > earned[1]


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != "toolrl"])
@pytest.mark.parametrize("bonus", [0.0, 0.5])
def test_calling_every_candidate_pays_no_more_than_a_guess(preset: Any, bonus: float) -> None:
    """Of n candidates that are equally likely and differ in some arguments. (ToolRL's own formula pays for it.)"""
    for shared, unsure, n in product((0, 1, 4), (1, 2, 4), (2, 3, 5)):
        same: dict[str, Any] = {f"same{i}": 0 for i in range(shared)}
        candidates: list[Calls] = [[("f", {**same, **{f"a{i}": c for i in range(unsure)}})] for c in range(n)]
        tasks = [item(candidate) for candidate in candidates]

        def expected(reply: Calls, tasks: list[Item] = tasks) -> float:
            return sum(play(task, [hermes(reply)], preset=preset, success_bonus=bonus).total for task in tasks)

        guess = expected(candidates[0])
        for more in range(2, n + 1):
            assert expected([call for candidate in candidates[:more] for call in candidate]) <= guess + 1e-9


@pytest.mark.parametrize("preset", PRESETS)
def test_fewer_right_calls_never_pay_more(preset: Any) -> None:
    task = ITEMS["parallel"]
    earned = [play(task, [hermes(gold(task)[0][:n]) or "no"], preset=preset).total for n in range(4)]
    assert earned == sorted(earned)
    assert earned[3] > earned[2]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ITEMS)
def test_text_and_structured_calls_score_the_same(name: str, preset: Any) -> None:
    task = ITEMS[name]
    variants: list[Callable[[Calls], Calls]] = [
        lambda calls: calls,
        lambda calls: calls[:-1],
        lambda calls: calls[::-1],
        lambda calls: calls + calls,
        lambda calls: [(n, {**a, "z": 1}) for n, a in calls],
        lambda calls: [(n, {k: str(v) for k, v in a.items()}) for n, a in calls],
        lambda calls: [("nobody", a) for _, a in calls],
    ]
    for vary in variants:
        for arguments in (json.dumps, lambda given: given):
            made = [vary(calls) for calls in gold(task)]
            text = [ToolCallAction(text=honest(calls)) for calls in made]
            structured = [
                ToolCallAction(
                    tool_calls=tuple(ToolCall(function=FunctionCall(name=n, arguments=arguments(a))) for n, a in calls),
                    content=None if calls else "Here you are.",
                )
                for calls in made
            ]
            options = ToolCallOptions(preset=preset, on_mismatch="continue_with_gold")
            assert play_actions(task, text, options) == play_actions(task, structured, options)


def test_a_broken_structured_call_is_as_bad_as_a_broken_text() -> None:
    task = ITEMS["one call"]
    call = ToolCall(function=FunctionCall(name="f", arguments='{"x": 1, "y": "a"'))
    for preset in PRESETS:
        options = ToolCallOptions(preset=preset, format_penalty=-0.3)
        text = ToolCallAction(text='<tool_call>{"name": "f", "arguments": {"x": 1, "y": "a"}')
        structured = ToolCallAction(tool_calls=(call,))
        assert play_actions(task, [structured], options) == play_actions(task, [text], options)
