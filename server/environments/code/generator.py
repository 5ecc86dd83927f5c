"""The shipped problems, made from a fixed seed: the same bytes on every machine.

Each template belongs to one split. Problems with a final answer come from `templates_answers`, programs from
`templates_programs`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rolloutgym.server.environments.code.templates_answers import TEMPLATES, draw_problems
from rolloutgym.server.environments.code.templates_programs import PROGRAMS, hidden_tests
from rolloutgym.server.environments.seeding import seeded_random

SEED = 20_260_701
PER_TEMPLATE = 12
FILE_NAME = "problems.jsonl"


def generate(folder: Path) -> None:
    """Write the problems into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in (*_answer_rows(), *_program_rows())]
    (folder / FILE_NAME).write_text("".join(lines), encoding="utf-8", newline="\n")


def _answer_rows() -> Iterator[dict[str, Any]]:
    for split, templates in TEMPLATES.items():
        for template in templates:
            name = template.__name__
            rng = seeded_random(SEED, name)
            for number, problem in enumerate(draw_problems(template, rng, PER_TEMPLATE), start=1):
                yield {
                    "id": f"{name}-{number:02d}",
                    "split": split,
                    "prompt": problem.prompt,
                    "answer": problem.answer,
                    "tags": {"template": name, "answer": problem.kind},
                }


def _program_rows() -> Iterator[dict[str, Any]]:
    for split, programs in PROGRAMS.items():
        for program in programs:
            rng = seeded_random(SEED, program.name)
            for number, parameter in enumerate(program.parameter, start=1):
                tests = hidden_tests(program, parameter, rng)
                yield {
                    "id": f"program-{program.name}-{number:02d}",
                    "split": split,
                    "prompt": program.ask.format(parameter),
                    "tests": {"entry_point": tests.entry_point, "source": tests.source, "reference": tests.reference},
                    "tags": {"template": f"program-{program.name}", "answer": "program"},
                }
