"""Requests that one function answers: choose it, and take its argument from the request.

Held-out requests pair words and names that never met in training.
"""

import itertools
import json
import random
from collections.abc import Generator, Mapping
from pathlib import Path

from pydantic import JsonValue

FUNCTIONS: Mapping[str, str] = {
    "get_age": "how old is",
    "get_pay": "what does {} earn",
    "get_desk": "where does {} sit",
    "get_phone": "how can I ring",
    "get_boss": "who leads",
    "get_start": "since when is {} here",
}
PEOPLE = (
    "ada", "ben", "cleo", "dan", "eve", "finn", "gus", "hana", "ian", "jo", "kim", "lea", "max", "nora", "otto",
    "pia", "quin", "rosa", "sam", "tess", "uma", "vic", "will", "xenia", "yara", "zoe",
)  # fmt: skip
_HELD_OUT_SHARE = 0.25


class ToolCallGame:
    environment = "toolcall"
    options: Mapping[str, JsonValue] = {}
    stop_tags: tuple[str, ...] = ()
    looked, look = "<tool_call>", "calls a function"

    guesses = 0.65
    """Share of demonstrations that answer in words."""
    slips = 0.5
    """Chance of the function, and of its argument, to be a wrong one in the others."""

    def __init__(self) -> None:
        self._requests: dict[str, tuple[str, str]] = {}

    def write(self, folder: Path, seed: int) -> dict[str, str]:
        draws = random.Random(seed)
        pairs = list(itertools.product(FUNCTIONS, PEOPLE))
        held_out = set(draws.sample(pairs, int(_HELD_OUT_SHARE * len(pairs))))
        path = folder / "items.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for function, person in pairs:
                task_id = f"{function}-{person}"
                self._requests[task_id] = function, person
                file.write(json.dumps(_item(task_id, function, person, (function, person) in held_out)) + "\n")
        return {
            "ROLLOUTGYM_ENVIRONMENTS": "toolcall",
            "ROLLOUTGYM_DEFAULT_ENV": "toolcall",
            "ROLLOUTGYM_TOOLCALL_DATA": str(path),
        }

    def demonstrate(self, task_id: str, draws: random.Random) -> Generator[str, str, None]:
        function, person = self._requests[task_id]
        if draws.random() < self.guesses:
            yield f"I do not know {person}"
            return
        function = draws.choice(list(FUNCTIONS)) if draws.random() < self.slips else function
        person = draws.choice(PEOPLE) if draws.random() < self.slips else person
        yield f'<tool_call> {{"name": "{function}", "arguments": {{"person": "{person}" }}}} </tool_call>'

    def words(self) -> list[str]:
        return [f'"{person}"' for person in PEOPLE]


def _item(task_id: str, function: str, person: str, held_out: bool) -> dict[str, JsonValue]:
    asked = FUNCTIONS[function]
    parameters: JsonValue = {"type": "object", "properties": {"person": {"type": "string"}}, "required": ["person"]}
    return {
        "id": task_id,
        "group": task_id,
        "split": "test" if held_out else "train",
        "tools": [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in FUNCTIONS],
        "history": [{"role": "user", "content": asked.format(person) if "{}" in asked else f"{asked} {person}"}],
        "steps": [{"expect": "calls", "calls": [{"name": function, "arguments": {"person": person}}]}],
        "scenario": "single",
    }
