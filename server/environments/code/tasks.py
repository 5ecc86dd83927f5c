"""A code task: a problem with a checked final answer, or a program with hidden tests. Holds the gold."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from rolloutgym.models import TaskInfo

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True, slots=True)
class HiddenTests:
    """Tests of a program, in the form of HumanEval: `source` defines `check(candidate)`, which asserts."""

    entry_point: str
    """Name of the function that the program must define."""
    source: str
    reference: str
    """A program that passes: the canonical solution, whole."""
    preamble: str = ""
    """Imports and helpers that the task gives; run before the program, and before the tests."""


@dataclass(frozen=True, slots=True)
class ScoredBy:
    """A task of the `reasoning-gym` package, scored by its data set's own scorer."""

    dataset: str
    entry: str
    """The package's entry, pickled, in base 64. Holds the gold."""


@dataclass(frozen=True, slots=True)
class CodeTask:
    id: str
    split: Split
    prompt: str
    answer: str
    """The true final answer; for a program, its reference."""
    tests: HiddenTests | None = None
    scorer: ScoredBy | None = None
    source: str = ""
    tags: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def is_program(self) -> bool:
        return self.tests is not None

    def info(self) -> TaskInfo:
        kind = "program" if self.is_program else "answer"
        return TaskInfo(id=self.id, split=self.split, tags={"kind": kind, **self.tags})

    def fingerprint(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False, default=dict).encode()
