"""The helper program for data sets of `reasoning-gym`: `make` their tasks, or score answers (see `worker`).

Tasks are made in a process of one hash seed and one random state each, for some data sets go by the order of sets or by
Python's global generator: every service then has the same task under the same id. An answer is scored against the very
entry that was made. Some scorers call `eval` on it: see `evaluation`.
"""

import base64
import json
import math
import pickle
import random
import sys
from typing import Any

import numpy as np
import reasoning_gym

from rolloutgym.server.environments.code.evaluation import without_eval
from rolloutgym.server.environments.code.worker import serve

MAKE = "make"


def _make(name: str, size: int, seed: int) -> list[dict[str, str]]:
    dataset = reasoning_gym.create_dataset(name, size=size, seed=seed)
    made = []
    for index in range(size):
        random.seed(f"{name} {seed} {index}")
        np.random.seed(index)
        entry = dataset[index]
        packed = base64.b64encode(pickle.dumps(entry)).decode()
        made.append({"question": entry["question"], "answer": str(entry["answer"]), "entry": packed})
    return made


def _make_all() -> None:
    """From a list of `[name, size, seed]` on the standard input to a list of lists of tasks, or one `error`."""
    try:
        answer: Any = [_make(*wanted) for wanted in json.load(sys.stdin)]
    except ValueError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


def _score(question: dict[str, Any]) -> dict[str, Any]:
    """`dataset`, `entry` (as it was made) and `answer` in; `score` in [0, 1] out, 0 where the scorer's is no number."""
    dataset = reasoning_gym.create_dataset(question["dataset"])
    entry = pickle.loads(base64.b64decode(question["entry"]))  # of our own making
    value = float(dataset.score_answer(answer=question["answer"], entry=entry))
    return {"score": 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)}


if __name__ == "__main__":
    if sys.argv[1:] == [MAKE]:
        _make_all()
    else:
        without_eval("reasoning_gym")
        serve(_score)
