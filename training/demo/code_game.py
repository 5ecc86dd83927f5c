"""Sums that the tiny model cannot do in its weights, and the interpreter can: run the sum, answer what it printed."""

import json
import random
from collections.abc import Generator, Mapping
from pathlib import Path

from pydantic import JsonValue

_LARGEST = 60
_TASKS = {"train": 600, "test": 100}


class CodeGame:
    environment = "code"
    options: Mapping[str, JsonValue] = {}
    stop_tags: tuple[str, ...] = ("</code>",)
    looked, look = "<code>", "runs code"

    guesses = 0.6
    """Share of demonstrations that answer without running anything."""
    slips = 0.3
    """Chance of each copied number in the others to be a wrong one."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, int]] = {}

    def write(self, folder: Path, seed: int) -> dict[str, str]:
        draws = random.Random(seed)
        pairs = draws.sample([(a, b) for a in range(_LARGEST) for b in range(_LARGEST)], sum(_TASKS.values()))
        path = folder / "problems.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number, (a, b) in enumerate(pairs):
                split = "train" if number < _TASKS["train"] else "test"
                task_id = f"{split}-{number}"
                self._sums[task_id] = a, b
                record = {"id": task_id, "split": split, "prompt": f"what is {a} + {b} ?", "answer": str(a + b)}
                file.write(json.dumps(record) + "\n")
        return {"ROLLOUTGYM_ENVIRONMENTS": "code", "ROLLOUTGYM_DEFAULT_ENV": "code", "ROLLOUTGYM_CODE_DATA": str(path)}

    def demonstrate(self, task_id: str, draws: random.Random) -> Generator[str, str, None]:
        def slip(number: int, most: int) -> int:
            return draws.randint(0, most) if draws.random() < self.slips else number

        a, b = self._sums[task_id]
        answer = draws.randint(0, 2 * _LARGEST)
        if draws.random() >= self.guesses:
            shown = yield f"<code>print( {slip(a, _LARGEST)} + {slip(b, _LARGEST)} ) </code>"
            printed = [int(word) for word in shown.split() if word.isdigit()]
            answer = slip(printed[0], 2 * _LARGEST) if printed else answer
        yield f"\\boxed{{ {answer} }}"

    def words(self) -> list[str]:
        return [str(number) for number in range(2 * _LARGEST + 1)]
