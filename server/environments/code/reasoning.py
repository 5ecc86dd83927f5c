"""Data sets of the `reasoning-gym` package (an optional extra), by name. `reasoning_process` makes and scores them."""

import json
import subprocess
import sys
from importlib.util import find_spec

from rolloutgym.server.environments.code.tasks import CodeTask, ScoredBy, Split
from rolloutgym.server.environments.code.workers import environment_of_workers
from rolloutgym.server.environments.tasks import TaskSet

PREFIX = "reasoning-gym:"
PROGRAM = "rolloutgym.server.environments.code.reasoning_process"
_SPLIT_SIZES: tuple[tuple[Split, int, int], ...] = (("train", 400, 1), ("validation", 50, 2), ("test", 50, 3))
"""Split, tasks of each data set, the package's seed."""


def load_reasoning_tasks(names: list[str]) -> TaskSet[CodeTask]:
    """Tasks of the named data sets. `ImportError` without the package, `ValueError` for an unknown name."""
    if find_spec("reasoning_gym") is None:
        raise ImportError("the reasoning-gym extra is not installed")
    wanted = [(name, split, size, seed) for name in names for split, size, seed in _SPLIT_SIZES]
    finished = subprocess.run(
        [sys.executable, "-m", PROGRAM, "make"],
        input=json.dumps([(name, size, seed) for name, _, size, seed in wanted]),
        env=environment_of_workers(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    made = json.loads(finished.stdout)
    if "error" in made:
        raise ValueError(made["error"])
    return TaskSet(
        CodeTask(
            id=f"{name}-{split}-{index:04d}",
            split=split,
            prompt=entry["question"],
            answer=entry["answer"],
            scorer=ScoredBy(name, entry["entry"]),
            source="reasoning-gym",
            tags={"dataset": name},
        )
        for (name, split, _, _), entries in zip(wanted, made, strict=True)
        for index, entry in enumerate(entries)
    )
