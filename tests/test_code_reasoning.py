"""Data sets of reasoning-gym, by name."""

import base64
import pickle
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rolloutgym.server.environments.code import reasoning
from rolloutgym.server.environments.code.checker import AnswerChecker
from rolloutgym.server.environments.code.reasoning import load_reasoning_tasks
from rolloutgym.server.environments.code.tasks import CodeTask
from rolloutgym.server.environments.tasks import TaskSet

pytestmark = pytest.mark.anyio

pytest.importorskip("reasoning_gym", reason="the reasoning-gym extra is not installed")


@pytest.fixture(scope="module", autouse=True)
def few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reasoning, "_SPLIT_SIZES", (("train", 10, 1), ("validation", 5, 2), ("test", 5, 3)))
        yield


@pytest.fixture(scope="module")
def tasks(few: None) -> TaskSet[CodeTask]:
    return load_reasoning_tasks(["gcd", "polynomial_multiplication", "string_insertion", "countdown"])


@pytest.fixture
async def checker() -> AsyncIterator[AnswerChecker]:
    checker = AnswerChecker()
    yield checker
    await checker.stop()


async def test_tasks_are_scored_by_their_own_scorer(tasks: TaskSet[CodeTask], checker: AnswerChecker) -> None:
    assert set(tasks.splits()) == {"train", "validation", "test"}
    for split in tasks.splits():
        for task in tasks.of_split(split)[::3]:
            assert task.scorer is not None
            assert await checker.score(task.scorer, task.answer) == 1.0, task.id
            assert await checker.score(task.scorer, "no number") < 1.0, task.id


async def test_every_service_has_the_same_tasks(tasks: TaskSet[CodeTask], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some data sets go by the order of sets: the seed of the hashes must not be left to chance."""
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    again = load_reasoning_tasks(["polynomial_multiplication"])
    for split in again.splits():
        assert [task.fingerprint() for task in again.of_split(split)] == [
            task.fingerprint() for task in tasks.of_split(split) if task.tags["dataset"] == "polynomial_multiplication"
        ]


@pytest.mark.parametrize("name", ["string_insertion", "countdown"])
async def test_answers_are_never_evaluated(
    name: str, tasks: TaskSet[CodeTask], checker: AnswerChecker, tmp_path: Path
) -> None:
    """The scorers of these data sets call `eval` on the answer."""
    scorer = next(task.scorer for task in tasks.of_split("train") if task.tags["dataset"] == name)
    assert scorer is not None
    won = tmp_path / "won"
    for answer in (
        f"[str(__import__('pathlib').Path({str(won)!r}).write_text('x'))]",
        f"__import__('pathlib').Path({str(won)!r}).write_text('x')",
        "[__import__('sys')._getframe(1).f_locals['entry']['answer']]",
    ):
        assert await checker.score(scorer, answer) < 0.1
    assert not won.exists()


async def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        load_reasoning_tasks(["nowhere"])


@pytest.mark.parametrize(("found", "score"), [(float("nan"), 0.0), (2, 1.0), (-1.0, 0.0), (0.5, 0.5)])
async def test_a_score_is_a_number_from_0_to_1(found: float, score: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from rolloutgym.server.environments.code import reasoning_process

    class Dataset:
        def score_answer(self, answer: str, entry: object) -> float:
            return found

    monkeypatch.setattr(f"{reasoning_process.__name__}.reasoning_gym.create_dataset", lambda _: Dataset())
    entry = base64.b64encode(pickle.dumps({})).decode()
    assert reasoning_process._score({"dataset": "any", "entry": entry, "answer": "1"}) == {"score": score}
