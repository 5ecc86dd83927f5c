"""BFCL from its installed package: how much of it, and that running its golds gives what BFCL's own executor gives."""

import decimal
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rolloutgym.server.environments.toolcall.importers import bfcl
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable
from rolloutgym.server.environments.toolcall.items import Item
from rolloutgym.server.environments.toolcall.tasks import load_items

pytest.importorskip("bfcl_eval", reason="needs bfcl-eval (make .venv/.bfcl)")

DOCUMENTS: dict[str, Any] = {
    "post": {"parameters": {"properties": {"content": {}, "tags": {}}}},
    "ls": {"parameters": {"properties": {"a": {}}}},
}


@pytest.fixture(scope="module")
def items() -> list[Item]:
    tasks, problems = load_items(Path("bfcl"))
    assert problems == ()
    return [item for split in tasks.splits() for item in tasks.of_split(split)]


def of(items: list[Item], *categories: str) -> list[Item]:
    return [item for item in items if str(item.tags["source"]).removeprefix("bfcl_v4/") in categories]


def test_counts(items: list[Item]) -> None:
    assert len(of(items, *bfcl.SINGLE)) == 2351
    assert len(of(items, bfcl.FIRST_TURNS)) == 170
    assert len(of(items, *bfcl.MULTI_TURN)) == 800
    assert len(of(items, *bfcl.IRRELEVANCE)) == 1124
    assert len(items) == 4445
    assert {item.scenario for item in of(items, *bfcl.SINGLE)} == {"single"}
    assert {item.scenario for item in of(items, bfcl.FIRST_TURNS)} == {"multistep"}
    assert {item.scenario for item in of(items, *bfcl.IRRELEVANCE)} == {"relevance"}
    # A few conversations end with their first calling user turn.
    assert Counter(item.scenario for item in of(items, *bfcl.MULTI_TURN)) == {"multiturn": 788, "multistep": 12}


def test_an_evaluation_set_stays_on_the_test_side(items: list[Item]) -> None:
    assert {item.split for item in items} == {"test"}
    same_story = [item for item in items if item.group == "bfcl/multi_turn_7"]
    assert len(same_story) >= 4


def test_multi_turn_golds_run_without_an_error(items: list[Item]) -> None:
    responses = 0
    for item in of(items, *bfcl.MULTI_TURN):
        for turn in item.steps:
            if turn.calls:
                assert [message.role for message in turn.then] == ["tool"]
                assert not turn.then[0].content.startswith(('{"error"', "Error"))
                responses += 1
    assert responses == 4625


@pytest.mark.parametrize("category", bfcl.MULTI_TURN)
def test_responses_are_those_of_bfcls_own_executor(category: str) -> None:
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

    golds = {
        entry["id"]: entry["ground_truth"] for entry in bfcl.read_lines(f"possible_answer/BFCL_v4_{category}.json")
    }
    entries = {entry["id"]: entry for entry in bfcl.read_lines(f"BFCL_v4_{category}.json")}
    for item in bfcl.read((category,)):
        assert isinstance(item, Item)
        entry = entries[item.id]
        official: list[str] = []
        for calls in filter(None, golds[item.id]):
            results, _ = execute_multi_turn_func_call(
                calls, entry["initial_config"], entry["involved_classes"], "test", item.id, "long_context" in category
            )
            official += results
        assert [turn.then[0].content for turn in item.steps if turn.calls] == official


def test_importing_leaves_the_precision_of_numbers_alone() -> None:
    import mpmath

    with mpmath.workdps(33), decimal.localcontext() as context:
        context.prec = 44
        list(bfcl.read(("multi_turn_base",)))
        assert (mpmath.mp.dps, decimal.getcontext().prec) == (33, 44)


def test_functions_that_arrive_later(items: list[Item]) -> None:
    late = [item for item in of(items, "multi_turn_miss_func") if item.later_tools]
    assert len(late) == 200
    for item in late:
        names = [tool.function.name for tool in item.later_tools]
        shown = {tool.function.name for tool in item.tools}
        assert not shown & set(names)
        announced = [m.content for turn in item.steps for m in turn.then if m.role == "user" and names[0] in m.content]
        assert any(all(f'"{name}"' in text for name in names) for text in announced)
        judged = [turn for turn in item.steps if turn.expect == "none" and not turn.narration]
        assert judged, "without the function there is nothing to call"


def test_placeholders_are_not_judged(items: list[Item]) -> None:
    for item in of(items, *bfcl.MULTI_TURN):
        assert all(turn.narration == (turn.reply == "Done.") for turn in item.steps if turn.expect == "none")


def test_irrelevance_expects_no_call(items: list[Item]) -> None:
    for item in of(items, *bfcl.IRRELEVANCE):
        assert [(turn.expect, turn.narration) for turn in item.steps] == [("none", False)]


def test_faulty_golds_are_marked(items: list[Item]) -> None:
    for item in items:
        schemas: dict[str, Any] = {t.function.name: t.function.parameters for t in (*item.tools, *item.later_tools)}
        calls = [call for turn in item.steps for call in turn.calls]
        fits = all(jsonschema.Draft202012Validator(schemas[call.name]).is_valid(call.arguments) for call in calls)
        assert item.tags.get("golds_fit_schema", True) == fits
    assert sum("golds_fit_schema" in item.tags for item in items) == 25


def test_golds_keep_their_alternatives(items: list[Item]) -> None:
    calls = [call for item in of(items, *bfcl.SINGLE) for turn in item.steps for call in turn.calls]
    assert all(call.possible is not None and set(call.arguments) <= set(call.possible) for call in calls)
    assert Counter(len(item.steps[0].calls) > 1 for item in of(items, *bfcl.SINGLE)) == {False: 1911, True: 440}


@pytest.mark.parametrize(
    ("possible", "arguments"),
    [
        ({"a": [1, 2]}, {"a": 1}),
        ({"a": ["", "x"]}, {"a": "x"}),  # required
        ({"a": [""]}, {"a": ""}),
        ({"a": [0], "b": ["x", ""]}, {"a": 0}),  # b may be left out
        ({"a": [False], "b": [""]}, {"a": False}),
        ({"a": [[]]}, {"a": []}),
        ({"a": [{"x": [5, 6], "y": ["", 7]}]}, {"a": {"x": 5}}),
        ({"a": [1], "c": [[{"x": ["p", "q"]}, {"x": ["r"]}]]}, {"a": 1, "c": [{"x": "p"}, {"x": "r"}]}),
        ({"a": [1], "d": [[["m", "n"]]]}, {"a": 1, "d": [["m", "n"]]}),
    ],
)
def test_gold_of_possible_answers(possible: dict[str, Any], arguments: dict[str, Any]) -> None:
    schema = {
        "required": ["a"],
        "properties": {"c": {"type": "array", "items": {"type": "dict", "properties": {}}}, "d": {"type": "array"}},
    }
    call = bfcl.expected_call("f", possible, schema)
    assert call.arguments == arguments
    assert call.possible == {name: tuple(values) for name, values in possible.items()}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("ls()", {}),
        ("ls(a=True)", {"a": True}),
        ("ls(True)", {"a": True}),
        ("post('please ls(now)', tags=['#a', '-b'])", {"content": "please ls(now)", "tags": ["#a", "-b"]}),
        ("post(content='it\\'s', tags=[-1.5, {'k': None}])", {"content": "it's", "tags": [-1.5, {"k": None}]}),
    ],
)
def test_gold_calls_are_read(text: str, arguments: dict[str, Any]) -> None:
    assert bfcl.read_call(text, DOCUMENTS).arguments == arguments


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "post(content=open('/etc/passwd').read())",
        "post(content=ls())",
        "post(content=x)",
        "post(content='a' * 9)",
        "os.system('ls')",
        "rm(a=1)",
        "ls",
        "ls(",
        "",
        "[ls() for _ in range(9)]",
        "ls(**{'a': 1})",
        "ls(a=1, b=2)",
        "ls(1, 2)",
    ],
)
def test_what_is_no_literal_call_is_refused(text: str) -> None:
    with pytest.raises(Unplayable):
        bfcl.read_call(text, DOCUMENTS)


def test_unknown_category() -> None:
    with pytest.raises(ValueError, match="unknown BFCL category nope; there are simple_python"):
        load_items(Path("bfcl:parallel,nope"))


def test_a_file_called_bfcl_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bfcl").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no playable dialogue"):
        load_items(Path("bfcl"))
