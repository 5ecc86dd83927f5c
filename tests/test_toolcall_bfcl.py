"""The `bfcl` rules: by hand, and against BFCL's own AST checker on its golds and mutations of them."""

import copy
import json
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from random import Random
from typing import Any

import pytest

from rolloutgym.server.environments.toolcall import bfcl
from rolloutgym.server.environments.toolcall.importers import bfcl as importer
from rolloutgym.server.environments.toolcall.items import ExpectedCall, Item, Turn
from rolloutgym.server.environments.toolcall.parsing import Call, Reply
from rolloutgym.server.environments.toolcall.rewards import Scoring, score_turn

Calls = list[tuple[str, dict[str, Any]]]

SCHEMA: dict[str, Any] = {
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "xs": {"type": "array", "items": {"type": "number"}},
        "ss": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {}},
        "os": {"type": "array", "items": {"type": "object"}},
        "any": {},
    },
    "required": ["s"],
}


@pytest.mark.parametrize(
    ("possible", "right", "wrong"),
    [
        ({"s": ["San Francisco, CA"]}, [{"s": "san francisco CA"}], [{"s": "SF"}, {}, {"s": 1}, {"s": "", "t": 1}]),
        ({"s": ["a"], "i": [1]}, [{"s": "a", "i": 1}], [{"s": "a"}, {"s": "a", "i": True}, {"s": "a", "i": 1.0}]),
        ({"s": ["a"], "i": [1, ""]}, [{"s": "a"}, {"s": "a", "i": 1}], [{"s": "a", "i": 2}]),
        ({"s": ["a"], "x": [1.0]}, [{"s": "a", "x": 1}, {"s": "a", "x": 1.0}], [{"s": "a", "x": "1"}]),
        ({"s": ["a"], "b": [True]}, [{"s": "a", "b": True}], [{"s": "a", "b": 1}, {"s": "a", "b": "true"}]),
        (
            {"s": ["a"], "xs": [[1.0, 2.0]]},
            [{"s": "a", "xs": [1.0, 2.0]}],
            [{"s": "a", "xs": [1, 2]}, {"s": "a", "xs": [2.0, 1.0]}],
        ),
        ({"s": ["a"], "ss": [["X y"]]}, [{"s": "a", "ss": ["x-Y"]}], [{"s": "a", "ss": ["x", "y"]}]),
        (
            {"s": ["a"], "o": [{"k": ["V", ""], "n": [1]}]},
            [{"s": "a", "o": {"n": 1}}, {"s": "a", "o": {"k": "v", "n": 1}}],
            [{"s": "a", "o": {"k": "v"}}, {"s": "a", "o": {"n": 1, "z": 0}}, {"s": "a", "o": [1]}],
        ),
        (
            {"s": ["a"], "os": [[{"k": [1]}]]},
            [{"s": "a", "os": [{"k": 1}]}],
            [{"s": "a", "os": []}, {"s": "a", "os": [1]}],
        ),
        ({"s": ["a"], "i": ["variable"]}, [{"s": "a", "i": "variable"}], [{"s": "a", "i": "Variable"}]),
    ],
)
def test_acceptance_by_hand(possible: dict[str, Any], right: list[dict[str, Any]], wrong: list[dict[str, Any]]) -> None:
    expected = ExpectedCall(name="f", arguments={}, possible=possible)
    assert [bfcl.accepts(Call("f", call), expected, SCHEMA) for call in right] == [True] * len(right)
    assert [bfcl.accepts(Call("f", call), expected, SCHEMA) for call in wrong] == [False] * len(wrong)
    assert not bfcl.accepts(Call("g", right[0]), expected, SCHEMA)


def test_without_acceptable_values_the_expected_arguments_are_the_gold() -> None:
    expected = ExpectedCall(name="f", arguments={"s": "A b", "o": {"k": "v"}, "os": [{"k": [1]}], "ss": ["x"]})
    call: dict[str, Any] = {"s": "ab", "o": {"k": "V"}, "os": [{"k": [1]}], "ss": ["X"]}
    assert bfcl.accepts(Call("f", call), expected, SCHEMA)
    assert not bfcl.accepts(Call("f", {**call, "i": 1}), expected, SCHEMA)
    assert not bfcl.accepts(Call("f", {**call, "os": [{"k": [2]}]}), expected, SCHEMA)


def test_parallel_calls_are_assigned_as_a_whole() -> None:
    """The first call fits both golds: taking the first that fits, as the checker does, leaves the second without."""
    golds = (
        ExpectedCall(name="f", arguments={}, possible={"s": ["a", "b"]}),
        ExpectedCall(name="f", arguments={}, possible={"s": ["a"]}),
    )
    calls = (Call("f", {"s": "a"}), Call("f", {"s": "b"}))
    reply = Reply(None, "", calls, ())
    for order in (golds, golds[::-1]):
        assert score_turn(reply, Turn(expect="calls", calls=order), {"f": SCHEMA}, Scoring(preset="bfcl")).perfect


# ---- against the checker --------------------------------------------------------------------------------------------

FAULTY_GOLDS = {
    "live_simple_106-63-0": "two required arguments have no acceptable value",
    "live_simple_112-68-0": "five required arguments have no acceptable value",
    "live_multiple_862-181-3": "journey_start_time is not an argument of the function",
    "live_multiple_964-207-0": "the function requires statement, the gold gives question",
}
"""Golds of BFCL that its own checker refuses, and why."""


@pytest.fixture(scope="module")
def checker() -> Iterator[Callable[..., Any]]:
    """BFCL's `ast_checker`. The table of models that it imports, and with it every model's client, is stood in for."""
    pytest.importorskip("bfcl_eval", reason="needs bfcl-eval (make .venv/.bfcl)")
    name = "bfcl_eval.constants.model_config"
    stub = types.ModuleType(name)
    stub.MODEL_CONFIG_MAPPING = {"model": types.SimpleNamespace(underscore_to_dot=False)}  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, stub)
        for module in ("js", "java"):
            converter = f"bfcl_eval.eval_checker.ast_eval.type_convertor.{module}_type_converter"
            stand_in = types.ModuleType(converter)
            setattr(stand_in, f"{module}_type_converter", lambda *_: pytest.fail("only Python is checked"))
            patch.setitem(sys.modules, converter, stand_in)
        from bfcl_eval.constants.enums import Language
        from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

        def check(entry: Mapping[str, Any], gold: Sequence[Any], calls: Calls, category: str) -> bool:
            output = [{name: copy.deepcopy(arguments)} for name, arguments in calls]
            try:
                verdict = ast_checker(entry["function"], output, gold, Language.PYTHON, category, "model")
            except (TypeError, AttributeError, KeyError):
                return False  # the checker itself fails on some wrong values
            return bool(verdict["valid"])

        yield check
    sys.modules.pop("bfcl_eval.eval_checker.ast_eval.ast_checker", None)


@cache
def golds(category: str) -> dict[str, Any]:
    return {
        entry["id"]: entry["ground_truth"] for entry in importer.read_lines(f"possible_answer/BFCL_v4_{category}.json")
    }


def entries(category: str) -> dict[str, Any]:
    return {entry["id"]: entry for entry in importer.read_lines(f"BFCL_v4_{category}.json")}


def our_verdict(item: Item, calls: Calls) -> bool:
    schemas = {tool.function.name: tool.function.parameters for tool in item.tools}
    reply = Reply(None, "", tuple(Call(name, arguments) for name, arguments in calls), ())
    return score_turn(reply, item.steps[0], schemas, Scoring(preset="bfcl")).perfect


# -- mutations: each takes the canonical calls and makes them something else

Mutation = Callable[[Calls, Random], Calls | None]


def _some_argument(
    calls: Calls, random: Random, kind: type | tuple[type, ...] = object
) -> tuple[dict[str, Any], str] | None:
    found = [
        (a, k)
        for _, a in calls
        for k, v in a.items()
        if isinstance(v, kind) and not (kind is int and isinstance(v, bool))
    ]
    return random.choice(found) if found else None


def _changing(kind: type | tuple[type, ...], change: Callable[[Any, Random], Any]) -> Mutation:
    def mutate(calls: Calls, random: Random) -> Calls | None:
        chosen = _some_argument(calls, random, kind)
        if chosen is None:
            return None
        arguments, key = chosen
        arguments[key] = change(arguments[key], random)
        return calls

    return mutate


def _drop(calls: Calls, random: Random) -> Calls | None:
    chosen = _some_argument(calls, random)
    if chosen is None:
        return None
    del chosen[0][chosen[1]]
    return calls


def _rename(calls: Calls, random: Random) -> Calls | None:
    chosen = _some_argument(calls, random)
    if chosen is None:
        return None
    arguments, key = chosen
    arguments[key + "_x"] = arguments.pop(key)
    return calls


def _extra(value: Any) -> Mutation:
    def mutate(calls: Calls, random: Random) -> Calls:
        random.choice(calls)[1]["unheard_of"] = value
        return calls

    return mutate


def _naming(change: Callable[[str], str]) -> Mutation:
    def mutate(calls: Calls, random: Random) -> Calls:
        index = random.randrange(len(calls))
        calls[index] = (change(calls[index][0]), calls[index][1])
        return calls

    return mutate


def _in_object(value: dict[str, Any], random: Random) -> dict[str, Any]:
    if value and random.random() < 0.5:
        value.pop(random.choice(sorted(value)))
    else:
        value["unheard_of"] = 1
    return value


MUTATIONS: dict[str, Mutation] = {
    "drop an argument": _drop,
    "rename an argument": _rename,
    "one argument more": _extra(1),
    "one text more": _extra(""),
    "one null more": _extra(None),
    "rename the function": _naming(lambda name: name + "_x"),
    "function in upper case": _naming(str.upper),
    "function without its module": _naming(lambda name: name.rpartition(".")[2] + "_"),
    "no call": lambda calls, _: [],
    "one call less": lambda calls, _: calls[:-1],
    "all calls twice": lambda calls, _: calls * 2,
    "one call twice": lambda calls, random: [*calls, copy.deepcopy(random.choice(calls))],
    "calls reversed": lambda calls, _: calls[::-1],
    "arguments swapped between calls": lambda calls, _: [(n, calls[-1 - i][1]) for i, (n, _a) in enumerate(calls)],
    "number to text": _changing((int, float), lambda value, _: str(value)),
    "text to number": _changing(str, lambda value, _: 7),
    "int to float": _changing(int, lambda value, _: float(value)),
    "float to int": _changing(float, lambda value, _: int(value)),
    "to bool": _changing((int, float), lambda value, _: bool(value)),
    "bool to int": _changing(bool, lambda value, _: int(value)),
    "to null": _changing(object, lambda value, _: None),
    "number changed": _changing((int, float), lambda value, _: value + 1),
    "text changed": _changing(str, lambda value, _: value + " indeed"),
    "text in other case": _changing(str, lambda value, _: value.upper()),
    "punctuation": _changing(str, lambda value, _: value.replace(" ", "-_") + "."),
    "quotes": _changing(str, lambda value, _: value.replace('"', "'") + "'"),
    "empty text": _changing(str, lambda value, _: ""),
    "array reversed": _changing(list, lambda value, _: value[::-1]),
    "array shorter": _changing(list, lambda value, _: value[:-1]),
    "array longer": _changing(list, lambda value, _: [*value, *value[:1]]),
    "array emptied": _changing(list, lambda value, _: []),
    "elements to text": _changing(list, lambda value, _: [str(element) for element in value]),
    "elements to float": _changing(list, lambda value, _: [float(e) if type(e) is int else e for e in value]),
    "elements to int": _changing(list, lambda value, _: [int(e) if type(e) is float else e for e in value]),
    "wrapped in an array": _changing(object, lambda value, _: [value]),
    "object changed": _changing(dict, _in_object),
    "object to text": _changing(dict, lambda value, _: json.dumps(value)),
}  # fmt: skip


def variants(item: Item, gold: Sequence[Any], random: Random) -> Iterator[tuple[str, Calls]]:
    """The canonical calls, every mutation that applies, and acceptable values other than the canonical ones."""
    canonical: Calls = [(call.name, dict(call.arguments)) for call in item.steps[0].calls]
    yield "canonical", canonical
    for name, mutate in MUTATIONS.items():
        mutated = mutate(copy.deepcopy(canonical), random)
        if mutated is not None:
            yield name, mutated
    for index, call in enumerate(gold):
        for argument, options in next(iter(call.values())).items():
            for option in options[-3:]:
                other = copy.deepcopy(canonical)
                other[index][1][argument] = option
                yield f"{argument} = {option!r}", other


def differences(check: Callable[..., bool], category: str, part: slice) -> tuple[int, list[str]]:
    """How many verdicts were compared, and those that differ.

    The checker gives each gold the first call that fits, which can leave another without one; such a refusal counts as
    acceptance if the checker accepts the same calls in some other order."""
    asked = entries(category)
    compared, different = 0, []
    for item in [item for item in importer.read((category,)) if isinstance(item, Item)][part]:
        gold = golds(category)[item.id]
        for name, calls in variants(item, gold, Random(item.id)):
            compared += 1
            ours, theirs = our_verdict(item, calls), check(asked[item.id], gold, calls, category)
            if ours and not theirs and "parallel" in category and len(calls) <= 5:
                theirs = any(check(asked[item.id], gold, list(p), category) for p in permutations(calls))
            if ours != theirs:
                different.append(f"{item.id}: {name}: ours {ours}, theirs {theirs}: {calls}")
    return compared, different


@pytest.mark.parametrize("category", importer.SINGLE)
def test_verdicts_are_the_checkers(checker: Callable[..., bool], category: str) -> None:
    compared, different = differences(checker, category, slice(0, None, 12 if len(golds(category)) > 100 else 1))
    assert different == []
    assert compared > 100


@pytest.mark.slow
@pytest.mark.parametrize("category", importer.SINGLE)
def test_all_verdicts_are_the_checkers(checker: Callable[..., bool], category: str) -> None:
    compared, different = differences(checker, category, slice(None))
    assert different == []
    assert compared > 10 * len(golds(category))


def test_the_checker_refuses_only_the_golds_that_are_faulty(checker: Callable[..., bool]) -> None:
    refused = []
    for category in importer.SINGLE:
        asked = entries(category)
        for item in [item for item in importer.read((category,)) if isinstance(item, Item)]:
            canonical = [(call.name, call.arguments) for call in item.steps[0].calls]
            ours = our_verdict(item, canonical)
            assert ours == checker(asked[item.id], golds(category)[item.id], canonical, category)
            refused += [] if ours else [item.id]
    assert sorted(refused) == sorted(FAULTY_GOLDS)
