"""The shipped dialogues: regenerated, replayed, and held against what they promise."""

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rolloutgym.models import FunctionCall, Message, ToolCall
from rolloutgym.server.environments.toolcall.backends import DOMAINS, World, answer_text
from rolloutgym.server.environments.toolcall.generator import dialogues, generate
from rolloutgym.server.environments.toolcall.generator.draft import HELD_OUT, Dialogue
from rolloutgym.server.environments.toolcall.items import Item
from rolloutgym.server.environments.toolcall.scenarios import classify
from rolloutgym.server.environments.toolcall.tasks import load_items

SHIPPED = Path(__file__).parents[1] / "server" / "environments" / "toolcall" / "data"
REFUSED_ON_PURPOSE = {"too-many-for-the-stock", "double-booking"}
COMPUTED = {"a-little-warmer", "tell-them-when"}
"""Scripts whose last argument is worked out from what was said."""


@pytest.fixture(scope="module")
def made() -> list[Dialogue]:
    return list(dialogues())


@pytest.fixture(scope="module")
def items() -> list[Item]:
    tasks, problems = load_items(None)
    assert problems == ()
    return [item for split in tasks.splits() for item in tasks.of_split(split)]


def test_regenerated_byte_for_byte(tmp_path: Path) -> None:
    generate(tmp_path)
    for name in ("items.jsonl", "tools.json"):
        assert (tmp_path / name).read_bytes() == (SHIPPED / name).read_bytes(), f"{name}: regenerate the data"
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 3_000_000


def test_enough_of_each_kind(items: list[Item]) -> None:
    assert len(items) >= 300
    by_kind = Counter((item.split, item.scenario) for item in items)
    for split, least in (("train", 50), ("validation", 10), ("test", 10)):
        for scenario in ("single", "multistep", "multiturn", "relevance"):
            assert by_kind[split, scenario] >= least  # type: ignore[index]
    assert sum(any(len(turn.calls) > 1 for turn in item.steps) for item in items) >= 30
    assert sum(item.backend is not None for item in items) >= 100
    assert len({call.name for item in items for turn in item.steps for call in turn.calls}) >= 24


def test_the_page_gives_the_right_numbers(items: list[Item]) -> None:
    page = " ".join((SHIPPED.parents[3] / "docs" / "toolcall.md").read_text(encoding="utf-8").split())
    tools = sum(len(domain.specs) for domain in DOMAINS.values())
    assert f"{len(items)} dialogues over {tools} tools of fourteen small executable worlds" in page
    assert len(DOMAINS) == 14
    assert f"{sum(item.backend is not None for item in items)} items can be executed" in page


def test_splits_share_neither_scenario_nor_wording(items: list[Item]) -> None:
    for field in ("group", "opening"):
        sides: dict[str, set[str]] = {}
        for item in items:
            key = item.group if field == "group" else item.history[0].content
            sides.setdefault(key, set()).add(item.split)
        assert all(len(splits) == 1 for splits in sides.values())
    for item in items:
        domains = str(item.tags["domain"]).split("+")
        assert all(HELD_OUT.get(domain, item.split) == item.split for domain in domains)


def test_no_dialogue_is_there_twice(items: list[Item]) -> None:
    seen = Counter((str(item.tools), str(item.history), str(item.steps)) for item in items)
    assert max(seen.values()) == 1


def test_gold_calls_give_exactly_the_shipped_responses(made: list[Dialogue], items: list[Item]) -> None:
    assert {dialogue.item.id: dialogue.item for dialogue in made} == {item.id: item for item in items}
    for dialogue in made:
        world = World(dialogue.initial)
        for turn in dialogue.item.steps:
            answers = [world.call(call.name, call.arguments) for call in turn.calls]
            responses = [message for message in turn.then if message.role == "tool"]
            assert [answer_text(answer) for answer in answers] == [message.content for message in responses]
            assert [call.name for call in turn.calls] == [message.name for message in responses]
            if dialogue.item.group not in REFUSED_ON_PURPOSE:
                assert not any("error" in answer for answer in answers if isinstance(answer, dict))


def test_doing_nothing_reaches_no_goal(made: list[Dialogue]) -> None:
    for dialogue in made:
        backend = dialogue.item.backend
        if backend is None:
            continue
        assert backend.initial == dialogue.initial
        world = World(backend.initial)
        before = world.state_hash()
        for turn in dialogue.item.steps:
            for call in turn.calls:
                world.call(call.name, call.arguments)
        assert world.state_hash() != before or backend.required_outputs


def test_scenario_is_that_of_the_conversation(items: list[Item]) -> None:
    for item in items:
        spoken = [*item.history]
        for turn in item.steps:
            calls = tuple(ToolCall(function=FunctionCall(name=c.name, arguments=c.arguments)) for c in turn.calls)
            spoken += [Message(role="assistant", content=turn.reply, tool_calls=calls or None), *turn.then]
        assert classify(spoken) == item.scenario


def test_gold_fits_the_schemas_and_leaves_nothing_to_chance(items: list[Item]) -> None:
    for item in items:
        schemas: dict[str, Any] = {tool.function.name: tool.function.parameters for tool in item.tools}
        said = "".join(message.content for message in item.history)
        for turn in item.steps:
            for call in turn.calls:
                schema = schemas[call.name]
                jsonschema.validate(call.arguments, schema)
                for name, value in call.arguments.items():
                    parameter = schema["properties"][name]
                    assert value != parameter.get("default"), f"{item.id}: {name} might as well be left out"
                    if item.group not in COMPUTED and "enum" not in parameter:
                        assert is_said(value, said), f"{item.id}: nobody said {name} = {value!r}"
            said += turn.reply + "".join(message.content for message in turn.then)


def is_said(value: Any, said: str) -> bool:
    """Whether a value can be read off the conversation: as it is, or as people speak of days, times and paths."""
    if isinstance(value, bool):
        return True  # on or off, open or shut: a matter of words
    if not isinstance(value, str):
        return str(value) in said
    forms = {value, value.replace("\n", "\\n")}
    if len(value) == 10 and value[4] == value[7] == "-":
        day = date.fromisoformat(value)
        forms |= {f"{day.day} {day:%B} {day.year}", f"{day:%B} {day.day}, {day.year}"}
    if len(value) == 5 and value[2] == ":":
        hour, minute = int(value[:2]), value[3:]
        half = "am" if hour < 12 else "pm"
        forms |= {f"{(hour - 1) % 12 + 1}{'' if minute == '00' else ':' + minute} {half}"}
    return any(form in said for form in forms) or ("/" in value and all(part in said for part in value.split("/")))


def test_a_withheld_tool_is_withheld(items: list[Item]) -> None:
    for group, tool in (("cannot-send-back", "return_order"), ("cannot-delete", "delete_file")):
        shown = [item for item in items if item.group == group]
        assert shown
        assert all(tool not in {spec.function.name for spec in item.tools} for item in shown)
