"""Rewards as pure functions: the potential, the telescoping sum, the bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutgym.server.environments.sql.rewards import (
    ERROR_COST,
    REPEAT_COST,
    STEP_COST,
    UNANSWERED,
    Ending,
    Move,
    Preset,
    Target,
    Verdict,
    columns_f1,
    components,
    potential,
    reward_range,
)

Pairs = frozenset[tuple[str, str]]
PRESETS: tuple[Preset, ...] = ("shaped", "sparse", "sqlenv")


def _pairs(text: str) -> Pairs:
    """`t.a t.b u.` as pairs."""
    return frozenset((name.partition(".")[0], name.partition(".")[2]) for name in text.split())


@pytest.mark.parametrize(
    ("gold", "read", "f1"),
    [
        ("t.a", "t.a", 1),
        ("t.a t.b", "t.a", 2 / 3),
        ("t.a", "t.a t.b", 2 / 3),
        ("t.a", "t.b", 0),
        ("t.a", "t.a t.", 1),
        ("t.a u.", "t.a u.", 1),
        ("t.a u.", "t.a u.b u.c", 1),
        ("t.", "t.", 1),
        ("t.", "t.a t.b t.c", 1),
        ("t.", "t. u.", 2 / 3),
        ("t.a", "t.", 0),
        ("t.a", "t.a u.", 2 / 3),
        ("t.a t.b", "", 0),
    ],
)
def test_columns_f1(gold: str, read: str, f1: float) -> None:
    target = Target.of(_pairs(gold), width=1, height=1)
    assert columns_f1(target, _pairs(read)) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("rows_f1", "read", "width", "height", "value"),
    [
        (1.0, "t.a t.b", 2, 10, 1.0),
        (0.0, "t.a t.b", 2, 10, 0.40),
        (0.0, "t.a t.b", 1, 10, 0.325),
        (0.0, "t.a t.b", 2, 100, 0.3325),
        (0.5, "t.a", 2, 10, 0.30 + 0.25 * 2 / 3 + 0.15),
        (1.0, "", 2, 10, 0.0),
        (1.0, "u.a", 2, 10, 0.0),
        (0.0, "t.c", 1, 0, 0.0),
    ],
)
def test_potential(rows_f1: float, read: str, width: int, height: int, value: float) -> None:
    target = Target.of(_pairs("t.a t.b"), width=2, height=10)
    found = potential(target, rows_f1=rows_f1, read=_pairs(read), width=width, height=height)
    assert found == pytest.approx(value)


def test_nothing_comes_nearer_to_an_empty_result() -> None:
    target = Target.of(_pairs("t.a"), width=1, height=0)
    assert potential(target, rows_f1=1.0, read=_pairs("t.a"), width=1, height=0) == 0


_MOVES = st.lists(
    st.builds(
        Move,
        executed=st.booleans(),
        repeat=st.booleans(),
        new_information=st.booleans(),
        news_before=st.integers(0, 15),
        potential=st.floats(0, 1),
    ),
    max_size=14,
)
_VERDICTS: st.SearchStrategy[Verdict] = st.sampled_from(["right", "wrong", "unanswered"])


def _play(preset: Preset, moves: list[Move], verdict: Verdict, budget: int, *, by_trainer: bool) -> list[float]:
    """The rewards of an episode of these moves, then the answer, the last step, or the trainer's cut."""
    held, rewards = 0.0, []
    for move in moves:
        rewards.append(sum(components(preset, move, None, potential_before=held, budget=budget).values()))
        held = move.potential
    last = None if by_trainer else Move(True, False, False, 15, held)
    left = budget - len(moves) - (not by_trainer)
    ending = Ending(verdict, left)
    rewards.append(sum(components(preset, last, ending, potential_before=held, budget=budget).values()))
    return rewards


@given(moves=_MOVES, verdict=_VERDICTS)
def test_shaping_sums_to_nothing(moves: list[Move], verdict: Verdict) -> None:
    """The return is the answer's reward less the costs, whatever potentials were passed on the way."""
    budget = 15
    rewards = _play("shaped", moves, verdict, budget, by_trainer=verdict == "unanswered")
    steps = budget if verdict == "unanswered" else len(moves) + 1
    repeats, errors = sum(move.repeat for move in moves), sum(not move.executed for move in moves)
    costs = (STEP_COST * steps + REPEAT_COST * repeats + ERROR_COST * errors) / budget
    gain = {"right": 1.0, "wrong": 0.0, "unanswered": UNANSWERED}[verdict]
    assert sum(rewards) == pytest.approx(gain - costs)


@given(moves=_MOVES, other=_MOVES, budget=st.integers(15, 200))
def test_the_worst_wrong_answer_is_better_than_the_best_silence(
    moves: list[Move], other: list[Move], budget: int
) -> None:
    wrong = sum(_play("shaped", moves, "wrong", budget, by_trainer=False))
    silent = sum(_play("shaped", other, "unanswered", budget, by_trainer=True))
    right = sum(_play("shaped", moves, "right", budget, by_trainer=False))
    assert right > wrong > silent


@given(moves=_MOVES, verdict=_VERDICTS, preset=st.sampled_from(PRESETS), by_trainer=st.booleans())
def test_steps_and_returns_stay_in_the_range(
    moves: list[Move], verdict: Verdict, preset: Preset, by_trainer: bool
) -> None:
    low, high = reward_range(preset)
    moves = [move._replace(news_before=number) for number, move in enumerate(moves)]
    rewards = _play(preset, moves, verdict, 15, by_trainer=by_trainer and verdict == "unanswered")
    assert all(low <= reward <= high for reward in rewards)
    assert low <= sum(rewards) <= high


def _step(
    *, executed: bool = True, repeat: bool = False, new_information: bool = False, news: int = 0, potential: float = 0.0
) -> Move:
    return Move(executed, repeat, new_information, news, potential)


@pytest.mark.parametrize(
    ("move", "before", "parts"),
    [
        (_step(), 0.0, {"step": -0.02, "execution": 0.02}),
        (_step(executed=False), 0.0, {"step": -0.02}),
        (_step(new_information=True), 0.0, {"step": -0.02, "execution": 0.02, "new_information": 0.01}),
        (_step(new_information=True, news=4), 0.0, {"step": -0.02, "execution": 0.02}),
        (_step(repeat=True), 0.0, {"step": -0.02, "execution": 0.02, "repeat": -0.03}),
        (_step(potential=0.6), 0.3, {"step": -0.02, "execution": 0.02, "progress": 0.15 * 0.25}),
        (_step(potential=0.49), 0.3, {"step": -0.02, "execution": 0.02}),
        (
            _step(potential=1.0, new_information=True),
            0.0,
            {"step": -0.02, "execution": 0.02, "new_information": 0.01, "progress": 0.15, "clip": -0.01},
        ),
    ],
)
def test_the_layers_of_sqlenv(move: Move, before: float, parts: dict[str, float]) -> None:
    assert components("sqlenv", move, None, potential_before=before, budget=15) == pytest.approx(parts)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_answer_is_a_component_of_its_own(preset: Preset) -> None:
    for verdict, reward in (("right", 1.0), ("wrong", 0.0)):
        ending = Ending(verdict, 3)  # type: ignore[arg-type]
        assert components(preset, _step(), ending, potential_before=0.5, budget=15)["answer"] == reward
    assert "answer" not in components(preset, _step(), None, potential_before=0.5, budget=15)
