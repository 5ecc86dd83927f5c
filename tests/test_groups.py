"""Group functions: length penalty, equal groups, per-turn advantages, the example for a new group."""

import pytest

from rolloutgym.training.groups import (
    Success,
    drop_equal,
    latest_success,
    turn_advantages,
    with_length_penalty,
)


@pytest.mark.parametrize(
    ("rewards", "tokens", "perfect", "expected"),
    [
        ([1.5, 1.5, 1.5], [50, 75, 100], [True] * 3, [1.5, 1.0, 0.5]),
        ([1.5, 1.5], [0, 500], [True, True], [1.5, 0.5]),
        ([1.5, 1.4], [100, 100], [True, False], [1.5, 1.4]),
        ([0.4, 0.4], [100, 10], [True, True], [0.0, 0.4]),
        ([-1.0, -1.0], [100, 10], [True, True], [-1.0, -1.0]),
        ([], [], [], []),
    ],
)
def test_length_penalty_splits_groups_that_are_perfect(
    rewards: list[float], tokens: list[int], perfect: list[bool], expected: list[float]
) -> None:
    """L = 100 tokens that the model generated: free up to 50, a full point at 100."""
    assert with_length_penalty(rewards, tokens, perfect, max_tokens=100) == pytest.approx(expected)


def test_length_penalty_wants_a_length_for_each() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        with_length_penalty([1.0, 1.0], [5], [True, True], 10)


def test_groups_without_a_difference_are_dropped_and_counted() -> None:
    groups = [("a", [1.0, 1.0]), ("b", [1.0, 0.5]), ("c", [0.1 + 0.2, 0.3]), ("d", [1.0]), ("e", [])]
    assert drop_equal(groups) == (["b"], 4)


def test_turn_advantages_by_hand() -> None:
    """Turn 0: rewards 1, 0, 1, 0; turn 1: two rollouts got there, with 1 and 0; outcomes 1.5, −1, 1.5, −1."""
    advantages = turn_advantages([[1.0, 1.0], [0.0], [1.0, 0.0], [0.0]], [1.5, -1.0, 1.5, -1.0], outcome_weight=0.5)
    assert advantages == [[1.5, 1.5], [-1.5], [1.5, -0.5], [-1.5]]


def test_turn_advantages_where_nothing_differs() -> None:
    assert turn_advantages([[0.3], [0.3], [0.3]], [1.0, 1.0, 1.0]) == [[0.0], [0.0], [0.0]]
    assert turn_advantages([[1.0, 1.0], [1.0]], [2.0, 2.0]) == [[0.0, 0.0], [0.0]]
    assert turn_advantages([], []) == []
    assert turn_advantages([[], []], [1.0, 2.0]) == [[], []]


def test_the_example_is_the_latest_success_on_an_independent_item() -> None:
    successes = [Success("a", "g1", "reply a"), Success("b", "g2", "reply b"), Success("c", "g1", "reply c")]
    assert latest_success(successes, task_id="d") == successes[2]
    assert latest_success(successes, task_id="c") == successes[1]
    assert latest_success(successes, task_id="d", group="g1") == successes[1]
    assert latest_success(successes[:1], task_id="a") is None
    assert latest_success([], task_id="a") is None
