"""Text to values without `eval`: for libraries that would evaluate what a model writes as code.

`reasoning-gym`'s scorers call `eval` and SymPy's `parse_expr` (which evaluates) on answers. `without_eval` puts the
functions of this module in their place, in the helper process that scores.
"""

import ast
import operator
import sys
from collections.abc import Callable
from typing import Any

import sympy
import sympy.physics.units  # imported late by `simplify`; makes its units from text
from sympy.parsing import sympy_parser

from rolloutgym.server.environments.code.expressions import parse_expression

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def evaluate(text: str, *_: object) -> Any:
    """The value of a Python literal, or of arithmetic on numbers. `ValueError`, `SyntaxError` or `TypeError` for all
    else."""
    return _value(ast.parse(text.strip(), mode="eval").body)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _BINARY:
            return _BINARY[type(operation)](_number(left), _number(right))
        case ast.UnaryOp(op=operation, operand=operand) if type(operation) in _UNARY:
            return _UNARY[type(operation)](_number(operand))
    return ast.literal_eval(node)


def _number(node: ast.expr) -> Any:
    value = _value(node)
    if not isinstance(value, int | float | complex):
        raise TypeError("arithmetic is for numbers")
    return value


def parse_text(text: str, *_: object, **__: object) -> Any:
    """A formula in programming notation as a SymPy expression; in the place of SymPy's `parse_expr`. A mere name is a
    symbol, as SymPy itself makes them."""
    try:
        return parse_expression(text)
    except ValueError as error:
        if text.isidentifier():
            return sympy.Symbol(text)
        raise SyntaxError("not a formula") from error


def without_eval(package: str) -> None:
    """From now on nothing in the loaded package, and nothing in SymPy, evaluates text as code in this process."""
    evaluating = sympy_parser.parse_expr
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith((f"{package}.", "sympy.parsing")) or name == "sympy":
            for attribute in [key for key, value in vars(module).items() if value is evaluating]:
                setattr(module, attribute, parse_text)
        if name == package or name.startswith(f"{package}."):
            vars(module)["eval"] = evaluate
    assert sympy.parse_expr is sympy_parser.parse_expr is parse_text
