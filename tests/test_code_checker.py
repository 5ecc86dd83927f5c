"""Answers that only algebra can compare, in processes that may hang or die."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rolloutgym.server.environments.code.checker import AnswerChecker
from rolloutgym.server.environments.code.expressions import parse_expression
from rolloutgym.server.environments.code.workers import QuestionFailed, WorkerPool
from rolloutgym.server.errors import WorkerLost

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
    (r"6\sqrt{3}", "6√3"),
    (r"\frac{\sqrt{2}}{2}", "√2/2"),
    ("x^2+1", "1 + x²"),
]
DIFFERENT = [
    (r"\pi", "3.14159"),
    ("x^2", "x^3"),
    (r"\frac{\sqrt{3}}{2}", "sqrt(3)/3"),
    ("4", "__import__('os').getpid()"),
    ("Monday", "Tuesday"),
    ("4", "four"),
    ("2", "2 or 3"),
    ("2", "x=2, x=3"),
    ("2", r"\{1, 2\}"),
    ("2", "(2, 3)"),
    ("5", r"\pm 5"),
    ("5", r"x \le 5"),
    ("5", "5 = 6"),
    ("5", r"5\%\%"),
    ("x<3", "x>3"),
    ("3x+2", "3x-2"),
    (r"[0,1]", r"[0,1] \cup [2,3]"),
    ("7", "6 7"),
    ("12", "1 2"),
    ("10/3", "1 7/3"),
    ("1200", "12 00"),
    ("5", "5*x"),
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
    checker = AnswerChecker(cpu_s=1.0)
    try:
        assert not await checker.equal("x", "9**9**9**9*x")
        assert checker.counts()["failed"] == 1
        assert await checker.equal("x+1", "1+x")
        assert not await checker.equal("x", "9**9**9**9*x")
        assert await checker.equal("x+1", "1+x")
        assert checker.counts()["failed"] == 1  # nothing is asked twice
    finally:
        await checker.stop()


_WORKER = """
import json
import os
import socket
from rolloutgym.server.environments.code.worker import serve

answered, hoard = 0, []

def escapes():
    deeds = {
        "read": lambda: open("/etc/passwd"),
        "write": lambda: open("/tmp/escaped", "w"),
        "write to a library": lambda: open(json.__file__, "a"),
        "connect": socket.socket,
        "fork": lambda: os.fork() or os._exit(0),
        "run": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "signal": lambda: os.kill(os.getppid(), 0),
    }
    won = []
    for name, deed in deeds.items():
        try:
            deed()
            won.append(name)
        except OSError:
            pass
    import sympy.physics.mechanics  # what a library imports late is still there
    return won

def answer(question):
    global answered
    answered += 1
    match question["do"]:
        case "die when used" if answered > 1:
            os._exit(1)
        case "die":
            os._exit(1)
        case "run out of memory when used" if answered > 1:
            raise MemoryError
        case "run out of memory":
            raise MemoryError
        case "fail":
            raise KeyError("x")
        case "grow":
            hoard.append(bytearray(b"x") * (800 << 20))
        case "print":
            print("noise")
            os.write(1, b"noise")
        case "escape":
            return {"won": escapes()}
        case "spin":
            while True:
                pass
    return {"answered": answered, "pid": os.getpid(), "hash": hash("x"), "secret": os.environ.get("SECRET")}

serve(answer)
"""


@pytest.fixture
async def pool(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WorkerPool]:
    """Of one process; its parameter is the processor time, seconds."""
    (tmp_path / "trial_worker.py").write_text(_WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pool = WorkerPool("trial_worker", processes=1, cpu_s=getattr(request, "param", 30.0))
    yield pool
    await pool.stop()


async def test_a_process_is_kept_and_what_a_library_prints_is_no_answer(pool: WorkerPool) -> None:
    assert [(await pool.ask({"do": "print"}))["answered"] for _ in range(3)] == [1, 2, 3]


async def test_a_process_is_kept_although_a_large_one_started_it(pool: WorkerPool) -> None:
    hoard = b"x" * (1 << 30)
    assert [(await pool.ask({"do": "nothing"}))["answered"] for _ in range(2)] == [1, 2]
    assert hoard


@pytest.mark.parametrize(
    ("pool", "deed"), [(30.0, "die"), (30.0, "run out of memory"), (30.0, "fail"), (0.5, "spin")], indirect=["pool"]
)
async def test_a_question_that_is_too_much_fails_alone(pool: WorkerPool, deed: str) -> None:
    for _ in range(2):
        with pytest.raises(QuestionFailed):
            await pool.ask({"do": deed})
        assert "pid" in await pool.ask({"do": "nothing"})


@pytest.mark.skipif(sys.platform != "linux", reason="confined by Linux's means")
async def test_a_process_is_confined(pool: WorkerPool) -> None:
    assert (await pool.ask({"do": "escape"}))["won"] == []


async def test_processes_hash_alike_and_know_nothing_of_the_service(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    first, second = await pool.ask({"do": "grow"}), await pool.ask({"do": "nothing"})
    assert first["pid"] != second["pid"]
    assert first["hash"] == second["hash"]
    assert first["secret"] is None


@pytest.mark.parametrize("deed", ["die when used", "run out of memory when used"])
async def test_what_earlier_questions_left_behind_fails_no_later_one(pool: WorkerPool, deed: str) -> None:
    before = await pool.ask({"do": "nothing"})
    after = await pool.ask({"do": deed})
    assert (after["answered"], after["pid"] != before["pid"]) == (1, True)


async def test_a_process_that_has_grown_is_not_asked_again(pool: WorkerPool) -> None:
    assert (await pool.ask({"do": "grow"}))["answered"] == 1
    assert (await pool.ask({"do": "nothing"}))["answered"] == 1


async def test_a_process_that_cannot_be_started_is_a_fault_of_ours() -> None:
    pool = WorkerPool("no_such_module", processes=1, cpu_s=1.0)
    with pytest.raises(WorkerLost):
        await pool.ask({"gold": "1", "answer": "1"})
    await pool.stop()


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "x.real", "[1,2]", "lambda: 1", "x if x else 1", "'a'*3", "True", "ab", "f(x)", "1 if", "("],
)
async def test_formulas_take_a_short_list_of_things(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_expression(text)
