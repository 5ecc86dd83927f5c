"""The computer-algebra process: `{"gold", "answer"}` in, `{"equal"}` out.

It is run as a program of its own (see `worker`), because the libraries can hang, run out of memory or crash on what a
model writes.
"""

import sys
import warnings
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse, verify

from rolloutgym.server.environments.code.expressions import parse_expression
from rolloutgym.server.environments.code.worker import serve


def equal(gold: str, answer: str) -> bool:
    """Whether two final answers denote the same mathematical object.

    Formulas in programming notation are compared by simplifying their difference; all else is LaTeX for `math_verify`.
    """
    left, right = _formula(gold), _formula(answer)
    if left is not None and right is not None:
        return bool(sympy.simplify(left - right) == 0)
    # By way of LaTeX, so that both sides have symbols of one kind.
    expected = _parse_latex(gold if left is None else sympy.latex(left))
    given = _parse_latex(answer if right is None else sympy.latex(right))
    if not expected or not given:
        return False
    return bool(verify(expected, given, timeout_seconds=None))


def _formula(text: str) -> Any | None:
    try:
        return parse_expression(text)
    except ValueError:
        return None


def _parse_latex(text: str) -> list[Any]:
    parsed: list[Any] = parse(
        rf"\boxed{{{text}}}",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    return parsed


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    return {"equal": equal(question["gold"], question["answer"])}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.set_int_max_str_digits(10_000)
    serve(_answer)
