"""Whether a final answer is right: by normal form where that decides, else by computer algebra in a helper process.

A comparison that hangs, crashes or runs out of memory is wrong for that answer, and is counted. What algebra said is
kept: a group of rollouts, or a client that tries again, sends the same answer many times.
"""

import os
from dataclasses import asdict, dataclass

from rolloutgym.server.environments.code import reasoning
from rolloutgym.server.environments.code.answers import Verdict, compare
from rolloutgym.server.environments.code.tasks import ScoredBy
from rolloutgym.server.environments.code.typesetting import as_latex
from rolloutgym.server.environments.code.workers import QuestionFailed, WorkerPool

_ALGEBRA = "rolloutgym.server.environments.code.algebra"


@dataclass
class CheckerCounts:
    by_normal_form: int = 0
    by_algebra: int = 0
    by_scorer: int = 0
    failed: int = 0
    """Comparisons that a helper process could not finish: wrong answers by rule."""


_MAX_KNOWN = 100_000


class AnswerChecker:
    """Compares answers; owns its helper processes until `stop`."""

    def __init__(self, *, processes: int | None = None, cpu_s: float = 5.0, scorer_cpu_s: float = 20.0) -> None:
        """Processor time for one comparison, and for one score."""
        processes = max(2, (os.cpu_count() or 1) // 4) if processes is None else processes
        self._counts = CheckerCounts()
        self._known: dict[tuple[str, str], bool] = {}
        self._algebra = WorkerPool(_ALGEBRA, processes=processes, cpu_s=cpu_s)
        self._scorers = WorkerPool(reasoning.PROGRAM, processes=processes, cpu_s=scorer_cpu_s)

    async def equal(self, gold: str, answer: str) -> bool:
        verdict = compare(gold, answer)
        if verdict is not Verdict.UNDECIDED:
            self._counts.by_normal_form += 1
            return verdict is Verdict.EQUAL
        self._counts.by_algebra += 1
        equal = self._known.get((gold, answer))
        if equal is None:
            equal = await self._ask_algebra(gold, answer)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[gold, answer] = equal
        return equal

    async def _ask_algebra(self, gold: str, answer: str) -> bool:
        try:
            question = {"gold": as_latex(gold), "answer": as_latex(answer)}
            return (await self._algebra.ask(question))["equal"] is True
        except QuestionFailed:
            self._counts.failed += 1
            return False

    async def score(self, scorer: ScoredBy, answer: str) -> float:
        """The score in [0, 1] by the data set's own scorer."""
        self._counts.by_scorer += 1
        try:
            reply = await self._scorers.ask({**asdict(scorer), "answer": answer})
        except QuestionFailed:
            self._counts.failed += 1
            return 0.0
        return float(reply["score"])

    def counts(self) -> dict[str, int]:
        return asdict(self._counts)

    async def stop(self) -> None:
        await self._algebra.stop()
        await self._scorers.stop()
