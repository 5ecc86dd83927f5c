"""Data sets of the `reasoning-gym` package (an optional extra): tasks by name, and the process that scores them.

`load_reasoning_tasks` runs in the service at start; scoring runs here as a program of its own, for the package's
scorers parse what a model writes.
"""

import json
import resource
import sys
from collections.abc import Iterator
from importlib import import_module

from rolloutgym.server.environments.code.tasks import CodeTask, ScoredBy, Split
from rolloutgym.server.environments.tasks import TaskSet

PREFIX = "reasoning-gym:"
_SPLIT_SIZES: tuple[tuple[Split, int, int], ...] = (("train", 400, 1), ("validation", 50, 2), ("test", 50, 3))
"""Split, tasks of each data set, the package's seed."""

MEMORY_BYTES = 2 * 2**30


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
    """The score in [0, 1] by the data set's own scorer."""
    dataset = import_module("reasoning_gym").create_dataset(scorer.dataset, size=scorer.size, seed=scorer.seed)
    return min(max(float(dataset.score_answer(answer=answer, entry=dataset[scorer.index])), 0.0), 1.0)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        question = json.loads(line)
        value = score(ScoredBy(**question["scorer"]), question["answer"])
        sys.stdout.write(json.dumps({"score": value}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
