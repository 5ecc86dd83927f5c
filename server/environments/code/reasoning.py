"""Data sets of the `reasoning-gym` package (an optional extra): tasks by name, and the process that scores them.

`load_reasoning_tasks` runs in the service at start; scoring runs here as a program of its own, for the package's
scorers parse what a model writes.
"""

import math
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from rolloutgym.server.environments.code.tasks import CodeTask, ScoredBy, Split
from rolloutgym.server.environments.code.worker import serve
from rolloutgym.server.environments.tasks import TaskSet

PREFIX = "reasoning-gym:"
_SPLIT_SIZES: tuple[tuple[Split, int, int], ...] = (("train", 400, 1), ("validation", 50, 2), ("test", 50, 3))
"""Split, tasks of each data set, the package's seed."""


def load_reasoning_tasks(names: list[str]) -> TaskSet[CodeTask]:
    """Tasks of the named data sets. `ImportError` without the package, `ValueError` for an unknown name."""
    return TaskSet(task for name in names for task in _tasks_of(name))


def _tasks_of(name: str) -> Iterator[CodeTask]:
    package = import_module("reasoning_gym")
    for split, size, seed in _SPLIT_SIZES:
        for index, entry in enumerate(package.create_dataset(name, size=size, seed=seed)):
            yield CodeTask(
                id=f"{name}-{split}-{index:04d}",
                split=split,
                prompt=entry["question"],
                answer=str(entry["answer"]),
                scorer=ScoredBy(name, size, seed, index),
                source="reasoning-gym",
                tags={"dataset": name},
            )


def score(scorer: ScoredBy, answer: str) -> float:
    """The score in [0, 1] by the data set's own scorer; 0 where that is no number."""
    dataset = import_module("reasoning_gym").create_dataset(scorer.dataset, size=scorer.size, seed=scorer.seed)
    value = float(dataset.score_answer(answer=answer, entry=dataset[scorer.index]))
    return 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    return {"score": score(ScoredBy(**question["scorer"]), question["answer"])}


if __name__ == "__main__":
    import_module("reasoning_gym")  # its time belongs to no question
    serve(_answer)
