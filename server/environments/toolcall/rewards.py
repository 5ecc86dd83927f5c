"""What a turn and an episode are worth. Pure functions of replies, expected turns and options.

    episode = Σ w·turn / Σ w + λ·[all turns perfect] + p·[stopped early] + ρ·[format error]

Turns that were never played count as the worst turn there is, so ending early is never better than answering wrongly.
Presets say what a turn is worth:

    seed    1 if its calls match one by one, in order (arguments: a subset is enough), else 0; turns after the first
            failure count nothing, and an episode with R ≤ 0 gets −1
    exact   1 if calls and expected calls are equal, else 0
    subset  1 if there are as many calls as expected and each expected call is contained in one, else 0
    bfcl    1 if BFCL's AST checker accepts the calls, else 0
    f1      2·A/(|M| + |E|), A the greatest total similarity of an assignment of M calls to E expected ones
    toolrl  6·S/S_max − 3 for correctness, plus 1 for the format (ToolRL, arXiv 2504.13958), or mapped to [0, 1]

A broken call counts among the calls in each of them, and matches nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

from rolloutgym.server.environments.toolcall import bfcl
from rolloutgym.server.environments.toolcall.assignment import Pair, Weight, by_match, by_similarity, pair_up
from rolloutgym.server.environments.toolcall.equality import Strings
from rolloutgym.server.environments.toolcall.items import ExpectedCall, Turn
from rolloutgym.server.environments.toolcall.matching import (
    ArgumentStatus,
    Comparison,
    ExtraArguments,
    MatchOptions,
    compare,
)
from rolloutgym.server.environments.toolcall.parsing import ProblemCode, Reply, Schemas

Preset = Literal["seed", "exact", "subset", "bfcl", "f1", "toolrl"]

_EXTRA_ARGUMENTS: dict[Preset, ExtraArguments] = {"seed": "allow", "subset": "allow"}
PRESETS: tuple[Preset, ...] = get_args(Preset)
SEED_FLOOR = -1.0


@dataclass(frozen=True, slots=True)
class Scoring:
    """How turns and episodes are scored."""

    preset: Preset = "exact"
    success_bonus: float = 0.5
    """λ ≥ 0"""
    stop_penalty: float = -0.2
    """p ≤ 0"""
    format_penalty: float = 0.0
    """ρ ≤ 0"""
    weights: Literal["calls", "turns"] = "calls"
    """A turn weighs as many as the calls it expects, or 1."""
    seed_floor: bool = True
    toolrl_normalized: bool = False
    strings: Strings = "exact"
    extra_arguments: ExtraArguments | None = None
    """Null is the preset's own."""
    defaults_equal: bool = True

    @property
    def matching(self) -> MatchOptions:
        return MatchOptions(
            strings=self.strings,
            extra_arguments=self.extra_arguments or _EXTRA_ARGUMENTS.get(self.preset, "forbid"),
            subset=self.preset in _EXTRA_ARGUMENTS,
            defaults_equal=self.defaults_equal,
        )

    @property
    def turn_range(self) -> tuple[float, float]:
        return (-3.0, 4.0) if self.preset == "toolrl" and not self.toolrl_normalized else (0.0, 1.0)


class TurnResult(NamedTuple):
    """One reply beside the turn it answers."""

    score: float
    """In the preset's turn range."""
    perfect: bool
    format_ok: bool
    pairs: tuple[Pair, ...] = ()


class Ending(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    """Every turn was played."""
    STOPPED = "stopped"
    """Ended early: by a mismatch, a budget, or the trainer."""


# ---- turns ----------------------------------------------------------------------------------------------------------


def score_turn(reply: Reply, turn: Turn, schemas: Schemas, scoring: Scoring) -> TurnResult:
    """What a reply is worth at a turn. `schemas`: the tools' argument schemas by name."""
    worst, best = scoring.turn_range
    format_ok = is_well_formed(reply)
    if turn.expect == "any":
        return TurnResult(best, True, format_ok)
    if reply.spoilt:
        return TurnResult(worst, False, False, _nothing_paired(reply, turn))
    if turn.expect == "none":
        return _talk(reply, turn, format_ok, scoring)
    pairs = pair_calls(reply, turn, schemas, scoring)
    if scoring.preset == "toolrl":
        return _toolrl(reply, turn, pairs, format_ok, scoring)
    if scoring.preset == "f1":
        total = sum(pair.comparison.similarity for pair in pairs if pair.comparison)
        score = 2 * total / (reply.attempts + len(turn.calls))
        return TurnResult(score, score == 1.0, format_ok, pairs)
    matched = sum(1 for pair in pairs if pair.comparison and pair.comparison.matched)
    perfect = matched == len(turn.calls) == reply.attempts
    return TurnResult(best if perfect else worst, perfect, format_ok, pairs)


def unanswered(scoring: Scoring) -> TurnResult:
    """A turn that was broken off: it counts as an unreadable reply, or silence would pay more than a wrong call."""
    return TurnResult(scoring.turn_range[0], False, False)


def _talk(reply: Reply, turn: Turn, format_ok: bool, scoring: Scoring) -> TurnResult:
    """A turn without a call: the reply must say something and call nothing."""
    format_ok = format_ok and bool(reply.content or reply.attempts)
    perfect = bool(reply.content) and not reply.attempts
    if scoring.preset == "toolrl":
        score = _toolrl_score(3.0 if perfect else -3.0, format_ok, scoring)
    else:
        score = 1.0 if perfect else 0.0
    return TurnResult(score, perfect, format_ok, _nothing_paired(reply, turn))


def is_well_formed(reply: Reply) -> bool:
    """Whether the reply keeps its format. A value of the wrong type is wrong, and not a fault of the form."""
    return all(problem.code is ProblemCode.WRONG_TYPE for problem in reply.problems)


def pair_calls(reply: Reply, turn: Turn, schemas: Schemas, scoring: Scoring) -> tuple[Pair, ...]:
    """The reply's calls beside the expected ones, as the preset pairs them."""
    options = scoring.matching
    compared: Callable[[int, int], Comparison]

    def plainly(i: int, j: int) -> Comparison:
        expected = turn.calls[j]
        return compare(reply.calls[i], expected, schemas.get(expected.name, {}), options)

    def as_bfcl(i: int, j: int) -> Comparison:
        expected = turn.calls[j]
        accepted = bfcl.accepts(reply.calls[i], expected, schemas.get(expected.name, {}))
        return plainly(i, j)._replace(matched=accepted)

    compared = as_bfcl if scoring.preset == "bfcl" else plainly
    order: Literal["ordered", "any", "by_position"] = "by_position" if scoring.preset == "seed" else turn.order
    weight = _WEIGHTS.get(scoring.preset, by_match)
    return pair_up(compared, len(reply.calls), len(turn.calls), order=order, weight=weight)


def _nothing_paired(reply: Reply, turn: Turn) -> tuple[Pair, ...]:
    left_over = [Pair(i, None, None) for i in range(len(reply.calls))]
    return (*left_over, *(Pair(None, j, None) for j in range(len(turn.calls))))


def _toolrl(reply: Reply, turn: Turn, pairs: tuple[Pair, ...], format_ok: bool, scoring: Scoring) -> TurnResult:
    """S = Jaccard of the names + Σ over expected calls (Jaccard of keys + equal values); S_max = 1 + Σ (1 + |e|)."""
    called = Counter(call.name for call in reply.calls)
    called[""] = reply.attempts - len(reply.calls)  # broken calls: no tool has this name
    points, most = _jaccard(called, Counter(call.name for call in turn.calls)), 1.0
    for pair in pairs:
        if pair.expected is None:
            continue
        if pair.comparison is None:
            most += 1 + _judged_arguments(turn.calls[pair.expected])
        else:
            points += by_toolrl(pair.comparison)
            most += 1 + _wanted(pair.comparison)
    correctness = 6 * points / most - 3
    return TurnResult(_toolrl_score(correctness, format_ok, scoring), points == most, format_ok, pairs)


def _toolrl_score(correctness: float, format_ok: bool, scoring: Scoring) -> float:
    score = correctness + (1.0 if format_ok else 0.0)
    return (score + 3) / 7 if scoring.toolrl_normalized else score


def by_toolrl(comparison: Comparison) -> float:
    """ToolRL's points of a pair: Jaccard of the keys + equal values, of calls of one tool."""
    if comparison.similarity == 0:
        return 0.0
    statuses = Counter(comparison.arguments.values())
    shared = len(comparison.arguments) - statuses[ArgumentStatus.MISSING] - statuses[ArgumentStatus.EXTRA]
    return (shared / len(comparison.arguments) if comparison.arguments else 1.0) + statuses[ArgumentStatus.EQUAL]


_WEIGHTS: dict[Preset, Weight] = {"f1": by_similarity, "toolrl": by_toolrl}
"""What an assignment makes as great as possible; the other presets count matches."""


def _wanted(comparison: Comparison) -> int:
    return sum(status is not ArgumentStatus.EXTRA for status in comparison.arguments.values())


def _judged_arguments(expected: ExpectedCall) -> int:
    return sum(1 for key in expected.arguments if key not in expected.rules or expected.rules[key].kind != "ignore")


def _jaccard(a: Counter[str], b: Counter[str]) -> float:
    """Of multisets; 1 if both are empty."""
    union = (a | b).total()
    return (a & b).total() / union if union else 1.0


# ---- episodes -------------------------------------------------------------------------------------------------------


def turn_weights(turns: Sequence[Turn], scoring: Scoring) -> tuple[float, ...]:
    """Each turn's share of the episode; they sum to 1. Where no turn expects a call, all judged ones weigh the same."""
    judged = [0.0 if turn.expect == "any" else 1.0 for turn in turns]
    raw = [float(len(turn.calls)) for turn in turns]
    if not any(raw) or (scoring.weights == "turns" and scoring.preset != "seed"):
        raw = judged if any(judged) else [1.0] * len(turns)
    total = sum(raw)
    return tuple(weight / total for weight in raw)


def episode_components(
    results: Sequence[TurnResult], weights: Sequence[float], ending: Ending, scoring: Scoring
) -> dict[str, float]:
    """The return so far, by component: what an episode of these turn results has earned at this ending."""
    ended = ending is not Ending.RUNNING
    worst = scoring.turn_range[0]
    scores = [result.score for result in results]
    if scoring.preset == "seed":
        first_failure = next((i for i, result in enumerate(results) if not result.perfect), len(results))
        scores[first_failure:] = [worst] * (len(results) - first_failure)
    if ended:
        scores += [worst] * (len(weights) - len(scores))
    all_perfect = ending is Ending.COMPLETED and all(result.perfect for result in results)
    failed = ending is Ending.STOPPED or (ended and scoring.preset == "seed" and not all_perfect)
    format_error = any(not result.format_ok for result in results)
    components = {
        "turns": sum(score * weight for score, weight in zip(scores, weights, strict=False)),
        "bonus": scoring.success_bonus if all_perfect else 0.0,
        "stop": scoring.stop_penalty if failed else 0.0,
        "format": scoring.format_penalty if format_error else 0.0,
    }
    if ended and scoring.preset == "seed" and scoring.seed_floor and sum(components.values()) <= 0:
        components["floor"] = SEED_FLOOR - sum(components.values())
    return components


def return_range(scoring: Scoring) -> tuple[float, float]:
    """Bounds of an episode's return."""
    worst, best = scoring.turn_range
    least = worst + scoring.stop_penalty + scoring.format_penalty
    if scoring.preset == "seed" and scoring.seed_floor:
        least = SEED_FLOOR
    return least, best + scoring.success_bonus
