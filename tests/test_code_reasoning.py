"""Data sets of reasoning-gym, by name."""

import pytest

from rolloutgym.server.environments.code.checker import AnswerChecker
from rolloutgym.server.environments.code.reasoning import load_reasoning_tasks

pytestmark = pytest.mark.anyio

pytest.importorskip("reasoning_gym", reason="the reasoning-gym extra is not installed")


async def test_tasks_are_scored_by_their_own_scorer() -> None:
    tasks = load_reasoning_tasks(["gcd", "complex_arithmetic"])
    assert set(tasks.splits()) == {"train", "validation", "test"}
    checker = AnswerChecker()
    try:
        for task in (tasks.get("gcd-train-0003"), tasks.get("complex_arithmetic-test-0001")):
            assert task.scorer is not None
            assert await checker.score(task.scorer, task.answer) == 1.0
            assert await checker.score(task.scorer, "no number") < 1.0
    finally:
        await checker.stop()


async def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        load_reasoning_tasks(["nowhere"])
