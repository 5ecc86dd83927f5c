"""Problem files in the forms that the field uses."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rolloutgym.server.environments.code.loaders import BadTaskFile, load_tasks, shipped_tasks, task_of_row
from rolloutgym.server.environments.code.tasks import CodeTask

HUMANEVAL_LIKE = {
    "task_id": "Own/0",
    "prompt": "from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    '''Add up.'''\n",
    "entry_point": "total",
    "canonical_solution": "    return sum(xs)\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n",
}
MBPP_LIKE = {
    "task_id": 7,
    "text": "Write a function that doubles a number.",
    "code": "def helper(x):\n    return x\n\ndef double(x):\n    return helper(x) * 2",
    "test_list": ["assert double(2) == 4", "assert double(-1) == -2"],
}


@pytest.mark.parametrize(
    ("row", "prompt", "answer"),
    [
        ({"prompt": "1 + 1?", "answer": 2}, "1 + 1?", "2"),
        ({"question": "How many?", "answer": "Count: 1, 2.\n#### 1,042"}, "How many?", "1,042"),
        (
            {"problem": "Halve 1.", "solution": r"It is $\boxed{\frac{1}{2}}$.", "level": "Level 1"},
            "Halve 1.",
            r"\frac{1}{2}",
        ),
        ({"problem": "Halve 1.", "answer": "0.5"}, "Halve 1.", "0.5"),
        (
            {
                "prompt": [{"role": "user", "content": "Solve."}],
                "reward_model": {"ground_truth": "34", "style": "rule"},
            },
            "Solve.",
            "34",
        ),
    ],
)
def test_forms_with_a_final_answer(row: dict[str, Any], prompt: str, answer: str) -> None:
    task = task_of_row(row, "file-00001")
    assert (task.prompt, task.answer, task.tests) == (prompt, answer, None)


def test_humaneval_form() -> None:
    task = task_of_row(HUMANEVAL_LIKE, "x")
    assert task.id == "Own/0"
    assert task.tests is not None
    assert task.tests.entry_point == "total"
    assert task.tests.preamble.strip() == "from typing import List"
    assert task.tests.reference.endswith("return sum(xs)\n")
    assert "sum(xs)" not in task.prompt
    assert "candidate" not in task.prompt


def test_mbpp_form() -> None:
    task = task_of_row(MBPP_LIKE, "x")
    assert task.id == "mbpp-7"
    assert task.tests is not None
    assert task.tests.entry_point == "double"
    assert "assert candidate(2) == 4" in task.tests.source


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2"),
        ("[1]", "not a JSON object"),
        ('{"what": 1}', "no known form"),
        ('{"prompt": "", "answer": "1"}', "not a text"),
        ('{"problem": "p", "solution": "no box"}', "no box"),
        ('{"prompt": "p", "answer": "1", "split": "dev"}', "split 'dev'"),
        ('{"prompt": "p", "reward_model": {}}', "'ground_truth' is missing"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n' + line + "\n", "utf-8")
    with pytest.raises(BadTaskFile, match=r"own\.jsonl, line 2") as failure:
        load_tasks(path)
    assert reason in str(failure.value)


def test_lines_end_at_newlines_only_and_may_be_compressed(tmp_path: Path) -> None:
    rows = [{"prompt": "a\u2028b", "answer": "1"}, {"prompt": "c", "answer": "2"}]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "t.jsonl").write_text(text, "utf-8")
    with gzip.open(tmp_path / "t.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.write(text)
    plain, packed = load_tasks(tmp_path / "t.jsonl"), load_tasks(tmp_path / "t.jsonl.gz")
    assert [plain.get(f"t-0000{n}").prompt for n in (1, 2)] == ["a\u2028b", "c"]
    assert plain.sha256() == packed.sha256()


def test_splits_are_stable_by_id_where_a_file_names_none() -> None:
    tasks = [task_of_row({"prompt": "p", "answer": "1"}, f"id-{number}") for number in range(500)]
    shares = [sum(task.split == split for task in tasks) / 500 for split in ("train", "validation", "test")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.05)
    assert task_of_row({"prompt": "other", "answer": "2"}, "id-3").split == tasks[3].split


def test_public_view_holds_no_answer() -> None:
    tasks = shipped_tasks()
    for split in tasks.splits():
        for task in tasks.of_split(split):
            view = task.info().model_dump_json()
            assert "reference" not in view
            assert task.answer not in view or len(task.answer) < 4, task.id


def test_fingerprint_follows_the_answer() -> None:
    task = CodeTask("a", "train", "p", "1")
    assert task.fingerprint() != CodeTask("a", "train", "p", "2").fingerprint()
