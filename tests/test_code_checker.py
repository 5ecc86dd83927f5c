"""Answers that only algebra can compare, in processes that may hang or die."""

import pytest

from rolloutgym.server.environments.code.checker import AnswerChecker
from rolloutgym.server.environments.code.expressions import parse_expression
from rolloutgym.server.environments.code.workers import QuestionFailed, WorkerPool

pytestmark = pytest.mark.anyio

EQUAL = [
    ("x^2+2*x", "x*(x+2)"),
    (r"\frac{x}{2}", "x/2"),
    (r"2\pi", "2*pi"),
    (r"\frac{\sqrt{3}}{2}", "sqrt(3)/2"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    ("2", r"\sqrt{4}"),
    ("12", "12 cm"),
    ("x>3", "3<x"),
    (r"\{1, \sqrt{4}\}", r"\{2, 1\}"),
    ("1024", "2^{10}"),
    ("ab", "ba"),
]
DIFFERENT = [
    (r"\pi", "3.14159"),
    ("x^2", "x^3"),
    (r"\frac{\sqrt{3}}{2}", "sqrt(3)/3"),
    ("4", "__import__('os').getpid()"),
    ("Monday", "Tuesday"),
    ("4", "four"),
]


async def test_algebra_decides_what_normal_form_cannot() -> None:
    checker = AnswerChecker()
    try:
        assert [pair for pair in EQUAL if not await checker.equal(*pair)] == []
        assert [pair for pair in DIFFERENT if await checker.equal(*pair)] == []
        assert checker.counts()["failed"] == 0
    finally:
        await checker.stop()


async def test_a_hanging_comparison_is_wrong_counted_and_leaves_the_checker_intact() -> None:
    checker = AnswerChecker(deadline_s=4.0)
    try:
        assert not await checker.equal("x", "9**9**9**9*x")
        assert checker.counts()["failed"] == 1
        assert await checker.equal("x+1", "1+x")
    finally:
        await checker.stop()


async def test_a_process_that_dies_fails_its_question_only() -> None:
    pool = WorkerPool("this", processes=1, deadline_s=20.0)  # prints a poem and ends
    with pytest.raises((QuestionFailed, ValueError)):
        await pool.ask({"gold": "1", "answer": "1"})
    await pool.stop()


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "x.real", "[1,2]", "lambda: 1", "x if x else 1", "'a'*3", "True", "ab", "f(x)", "1 if", "("],
)
async def test_formulas_take_a_short_list_of_things(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_expression(text)
