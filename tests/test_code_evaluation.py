"""Text to values without `eval`."""

import subprocess
import sys
from typing import Any

import pytest
import sympy

from rolloutgym.server.environments.code.evaluation import evaluate, parse_text


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "-1.5",
        "'a'",
        "[1, (2, 3)]",
        "{'a': {1}}",
        "1/2",
        "7//2*-3",
        "(0x3a + 0xf) * 2",
        "~5 & 3 << 2",
        "2**10",
        "1j*1j",
        "None",
    ],
)
def test_literals_and_arithmetic_have_the_values_of_python(text: str) -> None:
    assert evaluate(text) == eval(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x",
        "[x for x in y]",
        "'a' * 9",
        "[1] * 9",
        "f()",
        "a.b",
        "lambda: 1",
        "1 if 1 else 2",
        "1 +",
        "'%s' % 1",
    ],
)
def test_all_else_is_refused(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError, TypeError)):
        evaluate(text)


@pytest.mark.parametrize("text", ["2*x**3 - x/2", "sin(x)*exp(2*x)", "3*4 + 2", "yotta", "oo"])
def test_formulas_are_those_of_sympy(text: str) -> None:
    assert parse_text(text) == sympy.parse_expr(text)
    with pytest.raises(SyntaxError):
        parse_text("__import__('os')")


def test_nothing_in_sympy_or_the_package_evaluates_any_more() -> None:
    code = """
import types, sys
module = sys.modules["scorers.inner"] = types.ModuleType("scorers.inner")
from sympy.parsing.sympy_parser import parse_expr
module.parse_expr = parse_expr
exec("def score(text): return eval(text)", module.__dict__)
from rolloutgym.server.environments.code.evaluation import without_eval
without_eval("scorers")
import sympy
uses = (module.score, module.parse_expr, sympy.sympify, sympy.parse_expr, sympy.S, sympy.simplify, sympy.Matrix)
for use in uses:
    try: use("print('WON')")
    except Exception: pass
    try: use("__import__('builtins').print('WON')")
    except Exception: pass
assert module.score("[1, 2]") == [1, 2]
assert sympy.sympify("x**2") == sympy.Symbol("x")**2
"""
    finished: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == ""
