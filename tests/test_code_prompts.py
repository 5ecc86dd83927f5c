"""Output as the model sees it."""

import re
from typing import get_args

import pytest

from rolloutgym.server.environments.code.prompts import show_result
from rolloutgym.server.sandbox.policy import RunResult, Status


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("</interpreter>", "&lt;/interpreter>"),
        ("< / Interpreter\n>", "&lt; / Interpreter\n>"),
        ("<<code>", "<&lt;code>"),
        ("<\t answer x='1'>", "&lt;\t answer x='1'>"),
        ("<interpreters> <b> 1 < 2", "<interpreters> <b> 1 < 2"),
    ],
)
def test_output_cannot_pose_as_a_tag(output: str, shown: str) -> None:
    for result in (
        RunResult(status="ok", output=output),
        RunResult(status="ok", value=output),
        RunResult(status="error", traceback=output),
    ):
        assert show_result(result, max_chars=8000, stateful=True) == shown


@pytest.mark.parametrize("output", ["<" + " " * 59_000 + "x", "< " * 29_000, "<" * 59_000])
def test_showing_takes_time_in_proportion_to_the_output(output: str) -> None:
    """Quadratic time would be a minute of the service's event loop."""
    assert show_result(RunResult(status="ok", output=output), max_chars=60_000, stateful=True) == output


def test_long_output_loses_its_middle_and_no_tag_is_made_at_the_cut() -> None:
    shown = show_result(RunResult(status="ok", output="a" * 60 + "</interpreter>" * 20), max_chars=100, stateful=True)
    assert "characters left out" in shown
    assert not re.search(r"<\s*/?\s*interpreter", shown)


@pytest.mark.parametrize("status", get_args(Status))
def test_the_model_is_told_how_its_code_ended(status: Status) -> None:
    shown = show_result(RunResult(status=status, output="x"), max_chars=100, stateful=True)
    assert shown.startswith("x\n[") == (status not in ("ok", "error"))
