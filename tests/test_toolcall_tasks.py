"""Files of tasks: what is read, what is reported and left out, and which split a dialogue belongs to."""

import asyncio
import copy
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rolloutgym.models import ToolCallAction
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall.environment import ToolCallEnvironment
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable, strict_json
from rolloutgym.server.environments.toolcall.importers.golds import golds_fit
from rolloutgym.server.environments.toolcall.items import Item
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.tasks import load_items, read_row, split_of

APIBANK = Path(__file__).parents[2] / "shared" / "data" / "toolcall" / "apibank.jsonl"
needs_apibank = pytest.mark.skipif(not APIBANK.is_file(), reason="needs ../shared/data/toolcall")

TOOL = {"type": "function", "function": {"name": "clock"}}
GOOD = {
    "id": "good",
    "tools": [TOOL],
    "conversations": [
        {"from": "human", "value": "What time is it?\u2028Tell me."},
        {"from": "gpt", "value": '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"z": {"type": "integer", "default": 3, "enum": [1, 3]}},
    "required": ["z"],
}
CALL = {"name": "clock", "arguments": {}}
NATIVE = {
    "id": "native",
    "group": "g",
    "split": "test",
    "tools": [TOOL],
    "history": [{"role": "user", "content": "Now?"}],
    "steps": [{"expect": "calls", "calls": [CALL]}],
    "scenario": "single",
}


OPENAI = {
    "id": "openai",
    "tools": [{"type": "function", "function": {"name": "clock", "parameters": SCHEMA}}],
    "messages": [
        {"role": "user", "content": "Now?"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "clock", "arguments": '{"z": 1}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "12:00"},
        {"role": "assistant", "content": "Noon."},
    ],
}
SCHEMA_KEYS = ("type", "properties", "required", "enum", "items", "$ref", "anyOf", "default", "parameters")
ODD: tuple[Any, ...] = (
    None, 0, -1.5, True, 10**400, "", "x", "clock", "(", "[", "{}", "[]", "\ud800", "<tool_call>", [], {}, [1], [None],
    [[]], ["z", {"b": 1}], [{"x": 1}], {"a": 1}, {"z": "integer"}, {"$ref": "#/x"}, {"type": "object"},
)  # fmt: skip
TAGGED_CALL = "<tool_call><function=clock><parameter=z>1</parameter></function></tool_call>"


def native(id: str, **turn: Any) -> dict[str, Any]:
    """A row of our own form with one turn like this."""
    return {**NATIVE, "id": id, "steps": [{"expect": "calls", "calls": [CALL], **turn}]}


RULE = "turn 0 has a rule for 'z'"


def with_rule(id: str, gold: Any, **rule: Any) -> dict[str, Any]:
    return native(id, calls=[{**CALL, "arguments": {"z": gold}, "rules": {"z": rule}}])


def write(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def every(path: Path | None) -> Iterator[Item]:
    tasks, _ = load_items(path)
    return (item for split in tasks.splits() for item in tasks.of_split(split))


# ---- files ----------------------------------------------------------------------------------------------------------


def test_bad_rows_are_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows.jsonl",
        GOOD,
        "",
        "{broken",
        "[1]",
        '{"id": "nan", "x": NaN}',
        GOOD,
        {**GOOD, "id": "no-tool", "tools": []},
        {"id": "nothing"},
        native("native", expect="calls", calls=[]),
        {**NATIVE, "id": "typo", "stepss": 1},
        native("narrates-calls", narration=True),
        native("leak", then=[{"role": "assistant", "content": "x"}]),
        with_rule("rule", "x", kind="regex", pattern="("),
        with_rule("look-ahead", "x", kind="regex", pattern="(?=x)x"),
        with_rule("great-pattern", "x", kind="regex", pattern="x|" + "a{1000}b{1000}" * 100),
        with_rule("unmet-pattern", "x", kind="regex", pattern="y+"),
        with_rule("no-number", "7", kind="number", tolerance=1),
        with_rule("anything", "x", kind="similarity", threshold=0),
        native("lost-rule", calls=[{**CALL, "rules": {"z": {"kind": "ignore"}}}]),
        native("not-judged", expect="none", calls=[], narration=True),
        native("any-reply", expect="any", calls=[]),
        json.dumps(native("digits", calls=[{**CALL, "arguments": {"z": 1}}])).replace('"z": 1', '"z": ' + "1" * 5000),
        {**NATIVE, "id": "no-end", "backend": {"name": "moon"}},
        NATIVE,
    )
    tasks, problems = load_items(path)
    assert [item.id for split in tasks.splits() for item in tasks.of_split(split)] == ["good", "native"]
    lines = path.read_text(encoding="utf-8").split("\n")
    reasons = {}
    for problem in problems:
        place, _, reasons[problem.id] = problem.reason.partition(": ")
        file, _, line = place.partition(":")
        assert file == "rows.jsonl"
        assert line == problem.id.removeprefix("rows-") or f'"id": "{problem.id}"' in lines[int(line) - 1]
    assert reasons.pop("rows-3").startswith("not JSON")
    assert reasons.pop("rows-4") == "the line is not an object"
    assert reasons == {
        "rows-5": "NaN is not JSON",  # before its id could be read
        "good": "the id occurs twice",
        "no-tool": "turn 0 calls 'clock', which is not among the tools",
        "nothing": "the row has neither steps, conversations nor messages",
        "native": "turn 0 expects calls with 0 calls",
        "typo": "stepss: Extra inputs are not permitted",
        "narrates-calls": "turn 0 is narration but expects calls",
        "leak": "turn 0 is followed by an assistant message",
        "lost-rule": "turn 0 has a rule for 'z', which 'clock' is not given",
        "rule": f"{RULE} whose pattern is no regular expression of RE2: missing ): (",
        "look-ahead": f"{RULE} whose pattern is no regular expression of RE2: invalid perl operator: (?=",
        "great-pattern": f"{RULE} whose pattern is no regular expression of RE2: pattern too large - compile failed",
        "unmet-pattern": f"{RULE} that the expected value does not satisfy",
        "no-number": f"{RULE} that the expected value does not satisfy",
        "anything": "steps.0.calls.0.rules.z.threshold: Input should be greater than 0",
        "not-judged": "no turn is judged: every reply would be right",
        "any-reply": "no turn is judged: every reply would be right",
        "rows-22": "a number has too many digits",
        "no-end": "there is no back end 'moon'",
    }


def test_null_columns_and_ids_that_are_numbers(tmp_path: Path) -> None:
    """As a table of rows of several forms writes them."""
    absent = {"steps": None, "conversations": None, "messages": None, "split": None, "group": None, "later_tools": None}
    assert [item.id for item in every(write(tmp_path / "rows.jsonl", {**absent, **GOOD, "id": 0}))] == ["0"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([GOOD, NATIVE, OPENAI, with_rule("r", 1, kind="number", tolerance=1)]), st.data())
def test_no_row_keeps_the_others_from_being_served(row: dict[str, Any], data: st.DataObject) -> None:
    """Whatever stands at any place of a row: it is read or refused, and what is read can be played."""
    row = copy.deepcopy(row)
    for _ in range(data.draw(st.integers(1, 3))):
        holder: Any = row
        while True:
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            key = data.draw(
                st.sampled_from([*keys, *SCHEMA_KEYS]) if isinstance(holder, dict) else st.sampled_from(keys)
            )
            inner = holder.get(key) if isinstance(holder, dict) else holder[key]
            if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
                break
            holder = inner
        holder[key] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    read_and_play(row)


@pytest.mark.parametrize("key", SCHEMA_KEYS)
def test_no_schema_keeps_the_others_from_being_served(key: str) -> None:
    for odd in ODD:
        for schema in ({**SCHEMA, key: odd}, {"properties": {"z": {**SCHEMA["properties"]["z"], key: odd}}}):
            for gold in (1, [{"z": 1}]):
                tool = {"function": {"name": "clock", "parameters": schema}}
                read_and_play({**native("n", calls=[{**CALL, "arguments": {"z": gold}}]), "tools": [tool]})


def read_and_play(row: dict[str, Any]) -> None:
    try:
        item = read_row(strict_json(json.dumps(row)), "some id")
    except (Unplayable, ValidationError):
        return
    golds_fit(item)
    asyncio.run(play(item))


async def play(item: Item) -> None:
    for preset in ("exact", "bfcl"):
        options = ToolCallOptions(preset=preset, defaults_equal=True, on_mismatch="continue_with_model")
        episode = ToolCallEnvironment(TaskSet([item])).episode(item, 0, options)
        (await episode.reset()).model_dump_json()
        for text in ('<tool_call>{"name": "clock", "arguments": {"z": 1}}</tool_call>', TAGGED_CALL):
            if (await episode.step(ToolCallAction(text=text))).done:
                break


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", {**GOOD, "id": "b"})
    write(tmp_path / "a.jsonl", {**GOOD, "id": "a"})
    write(tmp_path / "notes.txt", "nothing")
    tasks, problems = load_items(tmp_path)
    assert [item.id for item in every(tmp_path)] == ["a", "b"]
    assert (len(tasks), problems) == (2, ())


def test_compressed_files_byte_order_marks_and_broken_bytes(tmp_path: Path) -> None:
    rows = [json.dumps({**GOOD, "id": id}).encode() for id in ("a", "b")]
    with gzip.open(tmp_path / "rows.jsonl.gz", "wb") as file:
        file.write(b"\xef\xbb\xbf" + rows[0] + b'\r\n{"id": "\xff"}\n' + rows[1])
    for path in (tmp_path, tmp_path / "rows.jsonl.gz"):
        tasks, problems = load_items(path)
        assert [item.id for item in every(path)] == ["a", "b"]
        place = path.name if path.is_file() else "rows.jsonl.gz"
        assert [(problem.id, problem.reason) for problem in problems] == [("rows-2", f"{place}:2: not UTF-8")]
        assert len(tasks) == 2


def test_rows_may_name_shared_tools(tmp_path: Path) -> None:
    write(tmp_path / "tools.json", json.dumps([TOOL]))
    path = write(tmp_path / "rows.jsonl", {**NATIVE, "tools": ["clock"]}, {**NATIVE, "id": "x", "tools": ["moon"]})
    tasks, problems = load_items(path)
    assert [tool.function.name for tool in tasks.get("native").tools] == ["clock"]
    assert [problem.reason for problem in problems] == ["rows.jsonl:2: tool 'moon' is not in tools.json"]


def test_back_end_must_show_what_is_required(tmp_path: Path) -> None:
    item = next(item for item in every(None) if item.id.startswith("all-my-balances"))
    assert item.backend is not None
    impossible = item.model_copy(update={"backend": item.backend.model_copy(update={"required_outputs": ("7 moons",)})})
    with pytest.raises(ValueError, match="do not bring '7 moons' to light"):
        load_items(write(tmp_path / "rows.jsonl", impossible.model_dump(mode="json")))


@pytest.mark.parametrize("name", ["absent.jsonl", "absent"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        load_items(tmp_path / name)


def test_empty_folder_and_file_without_playable_rows(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="jsonl"):
        load_items(tmp_path)
    with pytest.raises(ValueError, match="no playable dialogue"):
        load_items(write(tmp_path / "rows.jsonl", "{}"))


def test_golds_that_their_schema_forbids_are_marked(tmp_path: Path) -> None:
    properties = {"n": {"type": "integer"}, "u": {"enum": ["x"]}, "l": {"type": "array", "items": {"type": "number"}}}
    schema = {"type": "object", "properties": properties, "required": ["n"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "clock", "parameters": schema}}
    golds: dict[str, Any] = {
        "fits": {"n": 1.0},
        "list": {"n": 1, "l": [1, 2.5]},
        "fraction": {"n": 1.5},
        "undeclared": {"n": 1, "z": 1},
        "in the list": {"n": 1, "l": [1, "2"]},
        "bool": {"n": True},
        "text": {"n": "1"},
        "other": {"n": 1, "u": "y"},
        "missing": {},
    }
    rows = [{**native(id, calls=[{"name": "clock", "arguments": gold}]), "tools": [tool]} for id, gold in golds.items()]
    marks = {item.id: item.tags.get("golds_fit_schema", True) for item in every(write(tmp_path / "rows.jsonl", *rows))}
    assert [id for id, fits in marks.items() if fits] == ["fits", "list"]


# ---- splits ---------------------------------------------------------------------------------------------------------


def test_split_is_a_fixed_draw_by_group() -> None:
    counts = Counter(split_of(f"group {number}") for number in range(5000))
    assert 0.77 < counts["train"] / 5000 < 0.83
    assert 0.08 < counts["validation"] / 5000 < 0.12
    assert [split_of("a"), split_of("b"), split_of("c")] == ["train", "train", "validation"]  # on every machine
    assert len({split_of("some group", seed) for seed in range(50)}) == 3


# ---- real dialogues -------------------------------------------------------------------------------------------------


@needs_apibank
def test_every_real_dialogue_is_playable() -> None:
    tasks, problems = load_items(APIBANK)
    assert (len(tasks), problems) == (261, ())
    assert Counter(item.scenario for item in every(APIBANK)) == {"multiturn": 131, "multistep": 45, "single": 85}
    assert all(count > 0 for count in Counter(item.split for item in every(APIBANK)).values())


@needs_apibank
def test_real_dialogues_keep_their_golds_and_leak_none() -> None:
    rows = {row["id"]: row for row in map(json.loads, APIBANK.read_text(encoding="utf-8").split("\n")[:-1])}
    for item in every(APIBANK):
        row = rows[item.id]
        assert item.scenario == row["scenario"]
        expected = [calls for calls in row["expected_calls_by_turn"] if calls]
        judged = [turn for turn in item.steps if turn.expect == "calls"]
        assert [[{"name": c.name, "arguments": c.arguments} for c in turn.calls] for turn in judged] == expected
        shown = [*item.history, *(message for turn in item.steps for message in turn.then)]
        assert not any(message.tool_calls for message in shown)
        assert not any("<tool_call>" in message.content for message in shown if message.role != "system")
        assert not any(message.role == "assistant" for turn in item.steps for message in turn.then)
        assert item.history[-1].role == "user"


@needs_apibank
def test_real_dialogues_split_by_group() -> None:
    sides: dict[str, set[str]] = {}
    for item in every(APIBANK):
        sides.setdefault(item.group, set()).add(item.split)
    assert len(sides) < 261
    assert all(len(splits) == 1 for splits in sides.values())
