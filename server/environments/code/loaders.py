"""Problems from files: the shipped set, and JSONL in the forms that the field uses.

The form is told by a line's keys: our own (`prompt`, `answer`), GSM8K (`question`, `answer` ending in `#### 42`), MATH
(`problem`, `solution` with a box), DAPO (`prompt` messages, `reward_model.ground_truth`), HumanEval (`entry_point`,
`test`), MBPP (`text`, `test_list`). A line that fits none is an error that names file and line.
"""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rolloutgym.server.environments.code.answers import extract_boxed
from rolloutgym.server.environments.code.mbpp import mbpp_tests
from rolloutgym.server.environments.code.tasks import CodeTask, HiddenTests, Split
from rolloutgym.server.environments.tasks import TaskSet

Row = dict[str, Any]

_SHARE_TEST, _SHARE_VALIDATION = 10, 10
"""Percent of rows in each split where a file names none."""


class BadTaskFile(ValueError):
    """A file that cannot be read as tasks; the message names file and line."""


def shipped_tasks() -> TaskSet[CodeTask]:
    path = files("rolloutgym.server.environments.code") / "data" / "problems.jsonl"
    return TaskSet(_tasks_of_lines(path.read_text("utf-8").split("\n"), "shipped"))


def load_tasks(file: str | Path) -> TaskSet[CodeTask]:
    """Tasks of a `.jsonl` or `.jsonl.gz` file. `BadTaskFile` for what cannot be read, `OSError` for no file."""
    path = Path(file)
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                lines = stream.read().split("\n")
        else:
            lines = path.read_text("utf-8").split("\n")
        return TaskSet(_tasks_of_lines(lines, path.name))
    except (UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise BadTaskFile(f"{path.name}: {error}") from error


def _tasks_of_lines(lines: list[str], name: str) -> Iterator[CodeTask]:
    stem = name.split(".")[0]
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            task = task_of_row(row, default_id=f"{stem}-{number:05d}")
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise BadTaskFile(f"{name}, line {number}: {_reason(error)}") from error
        yield task


def _reason(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def task_of_row(row: Row, default_id: str) -> CodeTask:
    """One task. `ValueError`, `KeyError` or `TypeError` for a row of no known form."""
    if not isinstance(row, dict):
        raise TypeError("not a JSON object")
    for keys, read in _FORMS:
        if keys <= row.keys():
            task_id = str(row.get("id", row.get("task_id", default_id)))
            return read(row, task_id)
    raise ValueError(f"no known form has the keys {', '.join(sorted(map(str, row))) or '(none)'}")


def _split(row: Row, task_id: str) -> Split:
    """The row's own split, else a stable draw by the id."""
    if "split" in row:
        split: Split = row["split"]
        if split not in ("train", "validation", "test"):
            raise ValueError(f"split {split!r} is not train, validation or test")
        return split
    percentile = int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big") % 100
    if percentile < _SHARE_TEST:
        return "test"
    return "validation" if percentile < _SHARE_TEST + _SHARE_VALIDATION else "train"


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is not a text")
    return value


def _answer_task(row: Row, task_id: str, *, prompt: str, answer: str, source: str) -> CodeTask:
    tags = row.get("tags", {})
    if "level" in row:
        tags = {**tags, "level": row["level"]}
    return CodeTask(
        id=task_id,
        split=_split(row, task_id),
        prompt=_text(prompt, "the problem"),
        answer=_text(str(answer), "the answer"),
        source=str(row.get("source", source)),
        tags=tags,
    )


def _read_own(row: Row, task_id: str) -> CodeTask:
    if "tests" not in row:
        return _answer_task(row, task_id, prompt=row["prompt"], answer=row["answer"], source="")
    tests = HiddenTests(**row["tests"])
    return CodeTask(
        id=task_id,
        split=_split(row, task_id),
        prompt=_text(row["prompt"], "the problem"),
        answer=tests.reference,
        tests=tests,
        source=str(row.get("source", "")),
        tags=row.get("tags", {}),
    )


def _read_dapo(row: Row, task_id: str) -> CodeTask:
    prompt = row["prompt"]
    if not isinstance(prompt, str):
        prompt = "\n\n".join(message["content"] for message in prompt if message["role"] == "user")
    return _answer_task(row, task_id, prompt=prompt, answer=row["reward_model"]["ground_truth"], source="dapo")


def _read_gsm8k(row: Row, task_id: str) -> CodeTask:
    _, mark, answer = str(row["answer"]).rpartition("####")
    if not mark:
        return _answer_task(row, task_id, prompt=row["question"], answer=row["answer"], source="")
    return _answer_task(row, task_id, prompt=row["question"], answer=answer.strip(), source="gsm8k")


def _read_math(row: Row, task_id: str) -> CodeTask:
    answer = row["answer"] if "answer" in row else extract_boxed(row["solution"])
    if answer is None:
        raise ValueError("the solution has no box")
    return _answer_task(row, task_id, prompt=row["problem"], answer=answer, source="math")


def _read_humaneval(row: Row, task_id: str) -> CodeTask:
    prompt, entry_point = _text(row["prompt"], "the prompt"), _text(row["entry_point"], "the entry point")
    preamble = prompt.partition(f"def {entry_point}(")[0]
    tests = HiddenTests(
        entry_point=entry_point,
        source=_text(row["test"], "the test"),
        reference=prompt + row["canonical_solution"],
        preamble=preamble,
    )
    asked = f"Complete this Python function. Give the whole function.\n\n```python\n{prompt.rstrip()}\n```"
    return CodeTask(task_id, _split(row, task_id), asked, tests.reference, tests=tests, source="humaneval")


def _read_mbpp(row: Row, task_id: str) -> CodeTask:
    text = _text(row.get("text", row.get("prompt")), "the problem")
    tests = mbpp_tests(row["test_list"], code=row["code"], setup=row.get("test_setup_code", ""))
    asked = f"{text}\n\nThe function is called `{tests.entry_point}`."
    return CodeTask(f"mbpp-{task_id}", _split(row, task_id), asked, tests.reference, tests=tests, source="mbpp")


_FORMS: tuple[tuple[set[str], Callable[[Row, str], CodeTask]], ...] = (
    ({"prompt", "entry_point", "test", "canonical_solution"}, _read_humaneval),
    ({"code", "test_list"}, _read_mbpp),
    ({"prompt", "reward_model"}, _read_dapo),
    ({"prompt", "tests"}, _read_own),
    ({"prompt", "answer"}, _read_own),
    ({"problem", "solution"}, _read_math),
    ({"problem", "answer"}, _read_math),
    ({"question", "answer"}, _read_gsm8k),
)
