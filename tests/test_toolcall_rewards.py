"""What turns and episodes are worth, by hand for every preset, and what must hold whatever the reply."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutgym.server.environments.toolcall.equality import equal
from rolloutgym.server.environments.toolcall.items import ArgumentRule, ExpectedCall, Turn
from rolloutgym.server.environments.toolcall.parsing import Call, Problem, ProblemCode, Reply
from rolloutgym.server.environments.toolcall.rewards import (
    PRESETS,
    Ending,
    Scoring,
    TurnResult,
    episode_components,
    return_range,
    score_turn,
    turn_weights,
    unanswered,
)

BROKEN = Problem(ProblemCode.INVALID_JSON, 0)


def turn(*calls: tuple[str, dict[str, Any]], order: Any = "any") -> Turn:
    expected = tuple(ExpectedCall(name=name, arguments=arguments) for name, arguments in calls)
    return Turn(expect="calls" if calls else "none", calls=expected, order=order)


def reply(
    *calls: tuple[str, dict[str, Any]], content: str = "", problems: tuple[Problem, ...] = (), spoilt: bool = False
) -> Reply:
    return Reply(None, content, tuple(Call(*call) for call in calls), problems, spoilt=spoilt)


def score(said: Reply, expected: Turn, preset: Any, **options: Any) -> float:
    return score_turn(said, expected, {}, Scoring(preset=preset, **options)).score


A, B = ("f", {"x": 1, "y": "a"}), ("g", {"x": 2})
A_WRONG = ("f", {"x": 1, "y": "b"})
A_MORE = ("f", {"x": 1, "y": "a", "z": 0})
AB = turn(A, B)


@pytest.mark.parametrize(
    ("said", "expected", "scores"),
    [
        # (seed, exact, subset, bfcl, f1, toolrl)
        (reply(A, B), AB, (1, 1, 1, 1, 1, 4)),
        (reply(B, A), AB, (0, 1, 1, 1, 1, 4)),
        (reply(A_MORE, B), AB, (1, 0, 1, 0, (11 / 12 + 1) / 2, 6 * (1 + 2 / 3 + 2 + 2) / 6 - 2)),
        (reply(A_WRONG, B), AB, (0, 0, 0, 0, (3 / 4 + 1) / 2, 6 * 5 / 6 - 2)),
        (reply(A), AB, (0, 0, 0, 0, 2 / 3, 6 * (1 / 2 + 3) / 6 - 2)),
        (reply(A, B, B), AB, (0, 0, 0, 0, 4 / 5, 6 * (2 / 3 + 5) / 6 - 2)),
        (reply(A, B, *[("h", {})] * 4), AB, (0, 0, 0, 0, 4 / 8, 6 * (2 / 6 + 5) / 6 - 2)),
        (reply(A, B, problems=(BROKEN,)), AB, (0, 0, 0, 0, 4 / 5, 6 * (2 / 3 + 5) / 6 - 3)),
        (reply(content="no"), AB, (0, 0, 0, 0, 0, -2)),
        (reply(problems=(BROKEN,)), AB, (0, 0, 0, 0, 0, -3)),
        (reply(A, B, problems=(Problem(ProblemCode.THINK_MISSING, 0),), spoilt=True), AB, (0, 0, 0, 0, 0, -3)),
        (reply(A, B, problems=(Problem(ProblemCode.UNCLOSED, 0),)), AB, (1, 1, 1, 1, 1, 3)),
        (reply(content="hello"), turn(), (1, 1, 1, 1, 1, 4)),
        (reply(A, content="hello"), turn(), (0, 0, 0, 0, 0, -2)),
        (reply(problems=(BROKEN,)), turn(), (0, 0, 0, 0, 0, -3)),
        (reply(), turn(), (0, 0, 0, 0, 0, -3)),
        (reply(("pwd", {})), turn(("pwd", {})), (1, 1, 1, 1, 1, 4)),
        (reply(B, A), turn(A, B, order="ordered"), (0, 0, 0, 0, 2 * 1 / 4, 6 * (1 + 3) / 6 - 2)),
    ],
)  # fmt: skip
def test_turn_scores_by_hand(said: Reply, expected: Turn, scores: tuple[float, ...]) -> None:
    schemas: dict[str, Any] = {
        name: {"properties": {"x": {"type": "integer"}, "y": {"type": "string"}}} for name in "fg"
    }
    results = {preset: score_turn(said, expected, {**schemas, "pwd": {}}, Scoring(preset=preset)) for preset in PRESETS}
    order = ("seed", "exact", "subset", "bfcl", "f1", "toolrl")
    assert {name: results[name].score for name in order} == pytest.approx(dict(zip(order, scores, strict=True)))  # type: ignore[index]
    for name, result in results.items():
        correct = (result.score - result.format_ok) / 3 if name == "toolrl" else result.score
        assert result.perfect == (correct == 1)


def test_any_turn_is_not_judged() -> None:
    for said in (reply(), reply(A), reply(content="x")):
        assert score_turn(said, Turn(expect="any"), {}, Scoring()).perfect


def test_options_of_matching_reach_the_turns() -> None:
    expected = turn(("f", {"x": "Café"}))
    assert score(reply(("f", {"x": "CAFE\u0301"})), expected, "exact", strings="casefold") == 1
    assert score(reply(("f", {"x": "Café", "z": 1})), expected, "exact", extra_arguments="allow") == 1
    assert score(reply(("f", {"x": "Café", "z": 1})), expected, "subset", extra_arguments="forbid") == 0
    schema: dict[str, Any] = {"f": {"properties": {"z": {"default": 1}}}}
    said = reply(("f", {"x": "Café", "z": 1}))
    assert score_turn(said, expected, schema, Scoring()).perfect
    assert not score_turn(said, expected, schema, Scoring(defaults_equal=False)).perfect


def eight(common: Any, last: Any) -> dict[str, Any]:
    return {**{f"a{i}": common for i in range(7)}, "last": last}


def test_bfcl_pairs_what_matches_and_not_what_looks_alike() -> None:
    """Each call is, but for the case of its letters, one expected call, and to the letter nearly the other."""
    expected = turn(("f", eight("x", "one")), ("f", eight("X", "two")))
    schema: dict[str, Any] = {"f": {"properties": {key: {"type": "string"} for key in eight("", "")}}}
    said = reply(("f", eight("x", "TWO")), ("f", eight("X", "ONE")))
    assert score_turn(said, expected, schema, Scoring(preset="bfcl")).perfect


def test_f1_pairs_for_the_greatest_total_and_not_for_the_most_matches() -> None:
    either = ArgumentRule(kind="any_of", values=(0, 1))
    loose = ExpectedCall(name="f", arguments=eight(0, 0), rules=dict.fromkeys(eight(0, 0), either))
    strict = ExpectedCall(name="f", arguments=eight(1, 5))
    said = reply(("f", eight(1, 1)), ("f", eight(0, 7)))
    # The first call is the loose one, or but for an argument the strict one; the second is nearly the loose one alone.
    assert score(said, Turn(expect="calls", calls=(loose, strict)), "f1") == pytest.approx(2 * (0.9 + 0.9) / 4)


def test_an_extra_argument_that_is_allowed_costs_nothing() -> None:
    for preset in ("exact", "subset", "seed", "f1", "toolrl"):
        best = 4.0 if preset == "toolrl" else 1.0
        assert score(reply(A_MORE, B), AB, preset, extra_arguments="allow") == best
        assert score(reply(A_MORE, B), AB, preset, extra_arguments="forbid") < best


def test_toolrl_normalized_and_with_ignored_arguments() -> None:
    assert score(reply(A, B), AB, "toolrl", toolrl_normalized=True) == 1
    assert score(reply(problems=(BROKEN,)), AB, "toolrl", toolrl_normalized=True) == 0
    assert score(reply(content="x"), turn(), "toolrl", toolrl_normalized=True) == 1
    ignoring = ExpectedCall(name="f", arguments={"x": 1, "y": 2}, rules={"y": ArgumentRule(kind="ignore")})
    assert score(reply(("f", {"x": 1})), Turn(expect="calls", calls=(ignoring,)), "toolrl") == 4
    both = Turn(expect="calls", calls=(ignoring, ExpectedCall(name="g", arguments={"x": 2})))
    assert score(reply(B), both, "toolrl") == pytest.approx(6 * (1 / 2 + 2) / (1 + 2 + 2) - 2)


# ---- episodes -------------------------------------------------------------------------------------------------------

PERFECT, WRONG = TurnResult(1.0, True, True), TurnResult(0.0, False, True)
MALFORMED = TurnResult(0.0, False, False)


def played(results: list[TurnResult], turns: list[Turn], ending: Ending, **options: Any) -> float:
    scoring = Scoring(**options)
    return sum(episode_components(results, turn_weights(turns, scoring), ending, scoring).values())


ONE = turn(A)
TALK = turn()
DONE, STOPPED = Ending.COMPLETED, Ending.STOPPED


@pytest.mark.parametrize(
    ("results", "turns", "ending", "value"),
    [
        ([PERFECT], [ONE], DONE, 1.5),
        ([WRONG], [ONE], STOPPED, -1.0),
        ([PERFECT] * 3, [ONE] * 3, DONE, 1.5),
        ([PERFECT, PERFECT, WRONG], [ONE] * 3, STOPPED, 2 / 3 - 0.2),
        ([PERFECT, WRONG], [ONE] * 3, STOPPED, 1 / 3 - 0.2),
        ([WRONG], [ONE] * 3, STOPPED, -1.0),
        # one of five is 0.0 with the penalty, which the seed maps to −1 as well
        ([PERFECT, WRONG], [ONE] * 5, STOPPED, -1.0),
        ([PERFECT, WRONG], [AB, ONE, ONE], STOPPED, 2 / 4 - 0.2),
        # a failed narration turn is a failure
        ([PERFECT, WRONG], [ONE, TALK], STOPPED, 1 - 0.2),
        ([PERFECT, PERFECT], [ONE, TALK], DONE, 1.5),
        ([PERFECT, WRONG], [ONE, TALK], DONE, 1 - 0.2),
        # after the first failure nothing counts, even if the episode goes on
        ([WRONG, PERFECT, PERFECT], [ONE] * 3, DONE, -1.0),
        ([PERFECT, WRONG, PERFECT], [ONE] * 3, DONE, 1 / 3 - 0.2),
        # no call is expected
        ([PERFECT], [TALK], DONE, 1.5),
        ([WRONG], [TALK], STOPPED, -1.0),
    ],
)
def test_seed_numbers(results: list[TurnResult], turns: list[Turn], ending: Ending, value: float) -> None:
    assert played(results, turns, ending, preset="seed") == pytest.approx(value)


def test_seed_without_its_floor() -> None:
    assert played([WRONG], [ONE] * 3, STOPPED, preset="seed", seed_floor=False) == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("results", "turns", "ending", "options", "value"),
    [
        ([PERFECT, WRONG], [AB, ONE], STOPPED, {}, 2 / 3 - 0.2),
        ([PERFECT, WRONG], [AB, ONE], DONE, {}, 2 / 3),
        ([PERFECT, WRONG], [AB, ONE], DONE, {"weights": "turns"}, 1 / 2),
        ([PERFECT, WRONG, PERFECT], [AB, ONE, TALK], DONE, {"weights": "turns"}, 2 / 3),
        ([PERFECT, PERFECT], [AB, ONE], DONE, {"success_bonus": 2.0}, 3.0),
        ([PERFECT, MALFORMED], [ONE, ONE], STOPPED, {"format_penalty": -0.3}, 0.5 - 0.2 - 0.3),
        ([MALFORMED, MALFORMED], [ONE, ONE], DONE, {"format_penalty": -0.3}, -0.3),
        ([TurnResult(0.75, False, True)], [ONE], DONE, {"preset": "f1"}, 0.75),
        ([TurnResult(4.0, True, True)], [ONE], DONE, {"preset": "toolrl"}, 4.5),
        ([TurnResult(2.0, False, True)], [ONE, ONE], STOPPED, {"preset": "toolrl"}, (2 - 3) / 2 - 0.2),
        ([PERFECT], [Turn(expect="any")], DONE, {}, 1.5),
        ([PERFECT, WRONG], [Turn(expect="any"), ONE], DONE, {}, 0.0),
    ],
)
def test_general_episode(
    results: list[TurnResult], turns: list[Turn], ending: Ending, options: dict[str, Any], value: float
) -> None:
    assert played(results, turns, ending, **options) == pytest.approx(value)


@pytest.mark.parametrize(
    ("turns", "by_calls", "by_turns"),
    [
        ([AB, ONE, TALK, Turn(expect="any")], (2 / 3, 1 / 3, 0, 0), (1 / 3, 1 / 3, 1 / 3, 0)),
        ([Turn(expect="any"), TALK], (0, 1), (0, 1)),
        ([TALK, TALK], (0.5, 0.5), (0.5, 0.5)),
        ([Turn(expect="any"), Turn(expect="any")], (0.5, 0.5), (0.5, 0.5)),
    ],
)
def test_weights(turns: list[Turn], by_calls: tuple[float, ...], by_turns: tuple[float, ...]) -> None:
    """A turn that is not judged pays nothing while there is one that is."""
    assert turn_weights(turns, Scoring()) == pytest.approx(by_calls)
    assert turn_weights(turns, Scoring(weights="turns")) == pytest.approx(by_turns)
    assert turn_weights(turns, Scoring(weights="turns", preset="seed")) == pytest.approx(by_calls)


SCORINGS = st.builds(
    Scoring,
    preset=st.sampled_from(PRESETS),
    success_bonus=st.sampled_from([0.0, 0.5]),
    stop_penalty=st.sampled_from([0.0, -0.2, -1.0]),
    format_penalty=st.sampled_from([0.0, -0.1]),
    weights=st.sampled_from(["calls", "turns"]),
    seed_floor=st.booleans(),
    toolrl_normalized=st.booleans(),
)
ARGUMENTS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([1, 2, "a", True, None, [1]]), max_size=2)
CALL_LISTS = st.lists(st.tuples(st.sampled_from("fgh"), ARGUMENTS), max_size=4)
PROBLEMS = st.lists(st.sampled_from([BROKEN, Problem(ProblemCode.UNCLOSED, 0)]), max_size=2).map(tuple)
REPLIES = st.builds(
    lambda calls, problems, content: reply(*calls, problems=problems, content=content),
    CALL_LISTS,
    PROBLEMS,
    st.sampled_from(["", "hi"]),
)
TURNS = st.builds(lambda calls, order: turn(*calls, order=order), CALL_LISTS, st.sampled_from(["any", "ordered"]))
SCHEMAS: dict[str, Any] = {name: {"properties": {key: {} for key in "xyz"}} for name in "fgh"}


def answer_to(expected: Turn) -> Reply:
    return reply(*[(call.name, call.arguments) for call in expected.calls], content="" if expected.calls else "hi")


@settings(max_examples=400, deadline=None)
@given(REPLIES, TURNS, SCORINGS)
def test_turn_scores_stay_in_range_and_only_the_right_answer_is_perfect(
    said: Reply, expected: Turn, scoring: Scoring
) -> None:
    worst, best = scoring.turn_range
    honest = score_turn(answer_to(expected), expected, SCHEMAS, scoring)
    result = score_turn(said, expected, SCHEMAS, scoring)
    if scoring.preset != "bfcl":  # there a value must have the declared type, and these have none
        assert (honest.score, honest.perfect) == (best, True)
        assert result.score <= honest.score
    assert worst <= result.score <= best
    if result.perfect:
        assert said.attempts == len(expected.calls)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(REPLIES, TURNS), min_size=1, max_size=4), SCORINGS, st.integers(0, 3))
def test_returns_stay_in_range_and_silence_never_pays(
    script: list[tuple[Reply, Turn]], scoring: Scoring, cut: int
) -> None:
    turns = [expected for _, expected in script]
    weights = turn_weights(turns, scoring)
    results = [score_turn(said, expected, SCHEMAS, scoring) for said, expected in script]
    least, most = return_range(scoring)
    assert sum(weights) == pytest.approx(1.0)
    whole = sum(episode_components(results, weights, DONE, scoring).values())
    cut = min(cut, len(turns) - 1)
    stopped = sum(episode_components(results[: cut + 1], weights, STOPPED, scoring).values())
    silent = sum(episode_components([*results[:cut], unanswered(scoring)], weights, STOPPED, scoring).values())
    for value in (whole, stopped, silent):
        assert least - 1e-9 <= value <= most + 1e-9
    assert silent <= stopped + 1e-9
    assert silent <= whole + 1e-9


def _jaccard(a: Counter[str], b: Counter[str]) -> float:
    return (a & b).total() / (a | b).total() if a or b else 1.0


def _points(call: Call, expected: ExpectedCall) -> tuple[float, int]:
    """Jaccard of the keys and the number of equal values; nothing for another tool."""
    if call.name != expected.name:
        return 0.0, 0
    equal_values = sum(k in call.arguments and equal(call.arguments[k], v) for k, v in expected.arguments.items())
    return _jaccard(Counter(list(call.arguments)), Counter(list(expected.arguments))), equal_values


def _best(said: Reply, expected: Turn, worth: Callable[[Call, ExpectedCall], float]) -> float:
    """The greatest sum over all one-to-one maps, by trying them all."""
    calls: list[Call | None] = [*said.calls, *[None] * len(expected.calls)]
    return max(
        sum(worth(call, wanted) for call, wanted in zip(chosen, expected.calls, strict=True) if call is not None)
        for chosen in permutations(calls, len(expected.calls))
    )


@settings(max_examples=150, deadline=None)
@given(REPLIES, CALL_LISTS.filter(bool).filter(lambda calls: len(calls) < 4))
def test_assigning_presets_against_all_assignments(said: Reply, calls: list[tuple[str, dict[str, Any]]]) -> None:
    expected = turn(*calls)

    def similarity(call: Call, wanted: ExpectedCall) -> float:
        shared, same = _points(call, wanted)
        return (1 + shared + same) / (2 + len(wanted.arguments)) if call.name == wanted.name else 0.0

    f1 = 2 * _best(said, expected, similarity) / (said.attempts + len(expected.calls))
    assert score(said, expected, "f1") == pytest.approx(f1)

    names = Counter(call.name for call in said.calls) + Counter({"": said.attempts - len(said.calls)})
    points = _jaccard(names, Counter(call.name for call in expected.calls))
    points += _best(said, expected, lambda call, wanted: sum(_points(call, wanted)))
    most = 1 + sum(1 + len(call.arguments) for call in expected.calls)
    assert score(said, expected, "toolrl") == pytest.approx(6 * points / most - 3 + (not said.problems))


def test_ranges() -> None:
    assert return_range(Scoring()) == (-0.2, 1.5)
    assert return_range(Scoring(preset="seed")) == (-1.0, 1.5)
    assert return_range(Scoring(preset="toolrl", format_penalty=-0.5)) == (-3.7, 4.5)
    assert return_range(Scoring(preset="toolrl", toolrl_normalized=True)) == (-0.2, 1.5)
