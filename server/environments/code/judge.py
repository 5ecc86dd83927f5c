"""Hidden tests against a program, in two sandboxed processes that share nothing but plain data (see `harness`).

First the tests run with the reference solution, which tells the calls they make and how many assertions there are. Then
the program's process makes those calls, and the tests run again with its recorded results. A test whose later calls
depend on earlier results asks for them one by one.
"""

import ast
import inspect
import json
import secrets
from dataclasses import dataclass, replace
from typing import Any

from rolloutgym.server.environments.code import harness, transport
from rolloutgym.server.environments.code.tasks import HiddenTests
from rolloutgym.server.errors import Internal
from rolloutgym.server.sandbox.client import RunResult, Sandbox, SandboxSession
from rolloutgym.server.sandbox.policy import Limits

_MAX_ROUNDS = 300
"""Calls that may be asked for one by one, after those that the reference's run foretold."""

_WALL_TIMES = 4
"""One judgement may take this many times the wall clock of one run: else a program that sleeps in each of many calls
would outlast the service's limit of a step, which is a fault and no reward."""

_OUTPUT = 6 << 20
"""Bytes of a process's output that are read: the record of the calls is in it."""

_AS_A_MODULE = "__import__('sys').modules['program'] = __import__('sys').modules[__name__]\n__name__ = 'program'"
"""The program is imported and not run: what stands under `if __name__ == "__main__"` is not part of the answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    passed: int
    """Assertions that held."""
    total: int
    """Assertions that the reference's run made."""
    complete: bool
    """Whether the tests ran to their end, and every assertion that they made held."""

    @property
    def correct(self) -> bool:
        return self.complete and self.passed >= self.total

    @property
    def share(self) -> float:
        """Share of tests passed, in [0, 1]; 1 only for a correct program."""
        return 1.0 if self.correct else min(self.passed, self.total - 1) / self.total


class Judge:
    """Judges programs. The calls that a task's tests make are learnt once and kept."""

    def __init__(self, sandbox: Sandbox, limits: Limits) -> None:
        self._sandbox = sandbox
        self._limits = replace(limits, output=_OUTPUT)
        self._rehearsals: dict[HiddenTests, dict[str, Any]] = {}

    async def judge(self, program: str, tests: HiddenTests) -> Verdict:
        """`Internal` where the tests fail with their own reference; `SandboxUnavailable` for lost processes."""
        rehearsal = self._rehearsals.get(tests)
        if rehearsal is None:
            rehearsal = self._rehearsals[tests] = await self._rehearse(tests)
        session = await self._sandbox.open_session(limits=self._limits)
        try:
            await session.step(f"{tests.preamble}\n{_AS_A_MODULE}")
            started = await session.step(program)
            if started.status != "ok":
                return Verdict(0, rehearsal["total"], complete=False)
            budget = _Budget(_WALL_TIMES * self._limits.wall_s - started.wall_s)
            return await self._judge_calls(tests, _Player(session, tests.entry_point, budget), rehearsal, budget)
        finally:
            await session.close()

    async def _rehearse(self, tests: HiddenTests) -> dict[str, Any]:
        report = await self._run_tests(tests, f"__candidate__ = __harness__.Candidate([], {tests.entry_point})")
        if report is None:
            raise Internal("the tests of this task do not come to an end with their own reference solution")
        if report["error"] or report["passed"] != report["total"]:
            raise Internal("the tests of this task fail with their own reference solution")
        if not report["total"]:
            raise Internal("the tests of this task assert nothing")
        return report

    async def _judge_calls(
        self, tests: HiddenTests, player: "_Player", rehearsal: dict[str, Any], budget: "_Budget"
    ) -> Verdict:
        foretold = harness.unpack(rehearsal["calls"])
        total: int = rehearsal["total"]
        record = [
            _with_mutation_of(reference, call)
            for reference, call in zip(foretold, await player.perform(foretold), strict=False)
        ]
        for _ in range(_MAX_ROUNDS):
            candidate = f"__harness__.Candidate(__harness__.unpack({harness.pack(record)!r}))"
            report = await self._run_tests(tests, f"__candidate__ = {candidate}", budget)
            if report is None:
                break
            if report["missing"] is None:
                complete = not report["error"] and report["passed"] == report["total"]
                return Verdict(report["passed"], total, complete)
            answered = await player.perform([report["missing"]])
            if not answered:
                return Verdict(report["passed"], total, complete=False)
            record = [*record[: report["position"]], _without_mutation(answered[0])]
        return Verdict(0, total, complete=False)

    async def _run_tests(
        self, tests: HiddenTests, setup: str, budget: "_Budget | None" = None
    ) -> dict[str, Any] | None:
        """The report of one run in a fresh process; None where it did not come to an end."""
        mark = secrets.token_hex(16)
        run = f"__harness__.run_check(globals(), __candidate__, {mark!r})"
        # The reference stays at hand: tests may compare with it by name.
        code = "\n".join((HARNESS, tests.preamble, tests.reference, setup, instrument(tests.source), run))
        result = await self._sandbox.run(code, limits=self._limits)
        if budget is not None:
            budget.left_s -= result.wall_s
        reports = _marked_lines(result, mark, 1)
        return reports[0] if reports else None


def _with_mutation_of(reference: harness.Call, call: harness.Call) -> harness.Call:
    """A program may change its arguments only where the reference does: else it could edit what the tests compare."""
    return call if "after" in reference else _without_mutation(call)


def _without_mutation(call: harness.Call) -> harness.Call:
    return {key: value for key, value in call.items() if key != "after"}


@dataclass
class _Budget:
    """What is left of a judgement's wall clock, without queueing and what a busy machine adds."""

    left_s: float

    @property
    def is_spent(self) -> bool:
        return self.left_s <= 0


class _Player:
    """Makes calls in the program's process."""

    def __init__(self, session: SandboxSession, entry_point: str, budget: _Budget) -> None:
        self._session = session
        self._entry_point = entry_point
        self._budget = budget
        self._ready = False
        self._stopped = False

    async def perform(self, calls: list[harness.Call]) -> list[harness.Call]:
        """What came of the calls, as far as the program got: one that hangs or dies in a call makes no more. Output is
        capped, so many calls may take several steps."""
        asked = [{"args": call["args"], "kwargs": call["kwargs"]} for call in calls]
        performed: list[harness.Call] = []
        while len(performed) < len(asked) and not self._stopped and not self._budget.is_spent:
            mark = secrets.token_hex(16)
            rest = asked[len(performed) :]
            packed = f"__harness__.unpack({harness.pack(rest)!r})"
            code = f"__harness__.perform_all({self._entry_point}, {packed}, {mark!r})"
            result = await self._session.step(code if self._ready else f"{HARNESS}\n{code}")
            self._ready = True
            self._budget.left_s -= result.wall_s
            new = [
                {**line, **call}
                for call, line in zip(rest, _marked_lines(result, mark, len(rest)), strict=False)
                if _is_call(line)
            ]
            performed.extend(new)
            self._stopped = not new or result.status != "ok"
        return performed


def _is_call(line: Any) -> bool:
    """Whether a line has the form of a performed call: the program's process may print anything."""
    if not isinstance(line, dict) or not ("result" in line or "error" in line):
        return False
    return all(isinstance(line.get(key, ""), str) for key in ("result", "error", "after"))


def _marked_lines(result: RunResult, mark: str, at_most: int) -> list[Any]:
    """What was printed after the mark, line by line, as far as it is JSON. The program's process may print anything,
    and as much as it likes."""
    lines: list[Any] = []
    for part in result.output.split(mark, at_most)[1:]:
        try:
            lines.append(json.loads(part.partition("\n")[0]))
        except (json.JSONDecodeError, RecursionError):
            break
    return lines


def _source(module: Any) -> str:
    """A module's code without its imports of this package: both parts stand in one namespace."""
    tree = ast.parse(inspect.getsource(module))
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rolloutgym"))
    ]
    return ast.unparse(tree)


# In a module of its own, so that no name of a program or a test meets one of the harness.
HARNESS = (
    "__harness__ = __import__('types').ModuleType('harness')\n"
    f"exec({_source(transport) + chr(10) + _source(harness)!r}, __harness__.__dict__)"
)


def instrument(source: str) -> str:
    """The tests with `assert condition` as `__tally__.holds(lambda: condition)`: counted, and none hides the next."""
    return ast.unparse(ast.fix_missing_locations(_CountAssertions().visit(ast.parse(source))))


class _CountAssertions(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        no_arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        holds = ast.Attribute(ast.Name("__tally__", ast.Load()), "holds", ast.Load())
        call = ast.Call(holds, [ast.Lambda(no_arguments, node.test)], [])
        return ast.copy_location(ast.Expr(call), node)
