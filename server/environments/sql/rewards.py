"""What a step is worth: pure functions from what an action did to named reward components.

The default preset, `shaped`, is potential-based shaping with γ = 1 (Ng, Harada & Russell, 1999): a step adds
`SHAPING · (φ(s') − φ(s))`, and φ is zero both before the first action and after the last. So shaping sums to zero over
every episode, the best policy is the best policy of the terminal reward, and nothing that is not an answer can be
farmed. What stays is the answer's reward and three costs that are shares of the budget, together less than an
unanswered episode costs: so the worst wrong answer is better than the best silence.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

Preset = Literal["shaped", "sparse", "sqlenv"]
Verdict = Literal["right", "wrong", "unanswered"]
Columns = Set[tuple[str, str]]
"""(table, column) pairs, lower-case; an empty column stands for rows that were only counted."""

SHAPING = 0.3
"""Weight of the potential in `shaped`."""
STEP_COST, REPEAT_COST, ERROR_COST = 0.05, 0.05, 0.05
"""What a whole budget of steps, of repeats and of errors costs in `shaped`."""
UNANSWERED = -0.2
"""What an episode that ends without an answer costs (`shaped`, `sqlenv`)."""

ROWS_WEIGHT, COLUMNS_WEIGHT, SHAPE_WEIGHT = 0.60, 0.25, 0.15

# The layered reward of SQLEnv (huggingface.co/spaces/hjerpe/sql_env), second version.
_SQLENV_EXECUTED, _SQLENV_NEW, _SQLENV_REPEAT, _SQLENV_STEP, _SQLENV_PROGRESS = 0.02, 0.01, -0.03, -0.02, 0.15
_SQLENV_MAX_NEWS = 4
_SQLENV_CLIP = (-0.10, 0.15)
_SQLENV_BINS = 4


class Move(NamedTuple):
    """What one action did."""

    executed: bool
    """The action was understood and ran."""
    repeat: bool
    """The same action, normalised, was taken before in this episode."""
    new_information: bool
    """It showed a column, or described a table, that nothing before it had."""
    news_before: int
    """How many earlier steps brought new information."""
    potential: float
    """φ after the action, were the episode to go on: that of the best query so far."""


class Ending(NamedTuple):
    verdict: Verdict
    steps_left: int
    """Budget that was not used."""


# ---- the potential --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What of the gold query and its result the potential looks at, beside the rows."""

    all_read: Columns
    read: Columns
    """Without the bare mention of a table of which a column is read too."""
    counted: frozenset[str]
    """Tables that the gold query reads no column of: any reading of them is the right one."""
    tables: frozenset[str]
    width: int
    """Columns of the result."""
    height: int
    """Rows of the result."""

    @classmethod
    def of(cls, read: Columns, *, width: int, height: int) -> "Target":
        needed = _essential(read)
        return cls(
            all_read=read,
            read=needed,
            counted=frozenset(table for table, column in needed if not column),
            tables=frozenset(table for table, _ in needed),
            width=width,
            height=height,
        )


def potential(target: Target, *, rows_f1: float, read: Columns, width: int, height: int) -> float:
    """How close one query is to the gold query, 0 to 1.

    A query that reads none of the gold query's tables is worth nothing, whatever it returns; neither is one that is to
    find nothing, for there is no way to come closer to an empty result.
    """
    if target.height == 0 or target.tables.isdisjoint([table for table, _ in read]):
        return 0.0
    near = min(height, target.height) / max(height, target.height)
    shape = 0.5 * (width == target.width) + 0.5 * near
    return ROWS_WEIGHT * rows_f1 + COLUMNS_WEIGHT * columns_f1(target, read) + SHAPE_WEIGHT * shape


def columns_f1(target: Target, read: Columns) -> float:
    """F1 of the columns read against those the gold query reads: to read everything is not to read the right ones."""
    if read == target.all_read:
        return 1.0
    found = _essential(read)
    if target.counted:
        found = {(table, "") if table in target.counted else (table, column) for table, column in found}
    return 2 * len(target.read & found) / (len(target.read) + len(found))


def _essential(read: Columns) -> Columns:
    """Without the bare mention of a table (empty column) where a column of it is read too."""
    tables = {table for table, column in read if column}
    return {(table, column) for table, column in read if column or table not in tables}


# ---- the presets ----------------------------------------------------------------------------------------------------


def components(
    preset: Preset, move: Move | None, ending: Ending | None, *, potential_before: float, budget: int
) -> dict[str, float]:
    """The reward of one step, by component; its sum is the reward.

    `move` is null where the trainer ends the episode without an action, `ending` while the episode goes on.
    """
    if preset == "shaped":
        return _shaped(move, ending, potential_before, budget)
    if preset == "sqlenv":
        return _sqlenv(move, ending, potential_before)
    return {} if ending is None else {"answer": float(ending.verdict == "right")}


def _shaped(move: Move | None, ending: Ending | None, before: float, budget: int) -> dict[str, float]:
    parts: dict[str, float] = {"step": 0.0}
    after = 0.0
    if move is not None:
        parts["step"] = -STEP_COST / budget
        if move.repeat:
            parts["repeat"] = -REPEAT_COST / budget
        if not move.executed:
            parts["error"] = -ERROR_COST / budget
    if ending is None:
        after = move.potential if move is not None else before
    elif ending.verdict == "unanswered":
        parts["unanswered"] = UNANSWERED
        # Silence costs the whole budget, so that giving up early saves nothing.
        parts["step"] -= STEP_COST * ending.steps_left / budget
    else:
        parts["answer"] = float(ending.verdict == "right")
    if after != before:
        parts["shaping"] = SHAPING * (after - before)
    return parts


def _sqlenv(move: Move | None, ending: Ending | None, before: float) -> dict[str, float]:
    if ending is not None and ending.verdict != "unanswered":
        return {"answer": float(ending.verdict == "right")}
    parts: dict[str, float] = {}
    if move is not None:
        parts["step"] = _SQLENV_STEP
        if move.executed:
            parts["execution"] = _SQLENV_EXECUTED
        if move.repeat:
            parts["repeat"] = _SQLENV_REPEAT
        if move.new_information and move.news_before < _SQLENV_MAX_NEWS:
            parts["new_information"] = _SQLENV_NEW
        progress = _binned(move.potential) - _binned(before)
        if progress:
            parts["progress"] = _SQLENV_PROGRESS * progress
        total = sum(parts.values())
        low, high = _SQLENV_CLIP
        if not low <= total <= high:
            parts["clip"] = min(max(total, low), high) - total
    if ending is not None:
        parts["unanswered"] = UNANSWERED
    return parts


def _binned(value: float) -> float:
    """One of five levels, as SQLEnv reports progress."""
    return int(value * _SQLENV_BINS) / _SQLENV_BINS


def reward_range(preset: Preset) -> tuple[float, float]:
    """Bounds of every step's reward and of every episode's return."""
    if preset == "shaped":
        return UNANSWERED - SHAPING - STEP_COST - REPEAT_COST - ERROR_COST, 1.0
    if preset == "sqlenv":
        return -2.0, 1.0 + _SQLENV_PROGRESS + _SQLENV_MAX_NEWS * _SQLENV_NEW
    return 0.0, 1.0
