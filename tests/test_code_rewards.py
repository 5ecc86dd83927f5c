"""Rewards of the code environment."""

from itertools import product

import pytest

from rolloutgym.server.environments.code import rewards
from rolloutgym.server.environments.code.rewards import Preset

PRESETS: tuple[Preset, ...] = ("binary", "zero_one", "shaped", "tests")


def episode(preset: Preset, *, ran: bool, ending: str, share: float = 0.0) -> float:
    total = sum(rewards.run_components(preset, ran=ran, ran_before=False).values())
    if ending == "none":
        return total + sum(rewards.no_answer_components(preset, ran_before=ran).values())
    correct = ending == "right"
    share = 1.0 if correct else share
    parts = rewards.answer_components(preset, correct=correct, well_formed=ending != "shapeless", share_passed=share)
    return total + sum(parts.values())


@pytest.mark.parametrize(
    ("preset", "ending", "expected"),
    [
        ("binary", "right", 1.0),
        ("binary", "wrong", -1.0),
        ("binary", "none", -1.0),
        ("zero_one", "right", 1.0),
        ("zero_one", "wrong", 0.0),
        ("zero_one", "none", 0.0),
        ("shaped", "right", 1.1),
        ("shaped", "wrong", 0.1),
        ("shaped", "none", 0.0),
        ("tests", "right", 1.0),
        ("tests", "none", 0.0),
    ],
)
def test_returns_of_whole_episodes(preset: Preset, ending: str, expected: float) -> None:
    assert episode(preset, ran=True, ending=ending) == pytest.approx(expected)


@pytest.mark.parametrize(("preset", "ran"), list(product(PRESETS, (True, False))))
def test_an_answer_is_never_worse_than_none_and_a_right_one_beats_all(preset: Preset, ran: bool) -> None:
    nothing = episode(preset, ran=ran, ending="none")
    wrong = [episode(preset, ran=ran, ending=ending) for ending in ("wrong", "shapeless")]
    assert all(value >= nothing for value in wrong)
    assert episode(preset, ran=False, ending="right") > max(episode(preset, ran=True, ending="wrong"), *wrong)


def test_share_of_tests_is_the_reward() -> None:
    assert episode("tests", ran=False, ending="wrong", share=0.75) == 0.75


def test_running_code_again_earns_nothing() -> None:
    assert rewards.run_components("shaped", ran=True, ran_before=True) == {}
    assert rewards.run_components("shaped", ran=False, ran_before=False) == {}


@pytest.mark.parametrize("preset", PRESETS)
def test_returns_stay_in_the_stated_range(preset: Preset) -> None:
    low, high = rewards.REWARD_RANGES[preset]
    returns = [
        episode(preset, ran=ran, ending=ending) for ran in (True, False) for ending in ("right", "wrong", "none")
    ]
    assert low == pytest.approx(min(returns))
    assert high == pytest.approx(max(returns))
