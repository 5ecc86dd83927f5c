"""Formulas in programming notation (`2*x**2 + sqrt(3)/2`), read into computer algebra without evaluating any text.

The text is parsed by Python's grammar and walked through a short list of allowed nodes; everything else is refused.
"""

import ast
import re
from collections.abc import Callable
from typing import Any

import sympy

_CONSTANTS: dict[str, Any] = {"pi": sympy.pi, "e": sympy.E, "E": sympy.E, "I": sympy.I, "oo": sympy.oo, "inf": sympy.oo}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(sympy, name)
    for name in ("sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "factorial", "binomial", "floor")
} | {
    "ln": sympy.log,
    "abs": sympy.Abs,
    "Abs": sympy.Abs,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "ceil": sympy.ceiling,
}
_VARIABLE = re.compile(r"[A-Za-z](?:_?\d{1,3})?|alpha|beta|gamma|delta|theta|lambda|mu|phi|omega")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.Pow: lambda left, right: left**right,
}


def parse_expression(text: str) -> Any:
    """The formula as a SymPy expression; names that are no constant become symbols. `^` is a power.

    Raises `ValueError` for text that is no such formula.
    """
    try:
        tree = ast.parse(text.replace("^", "**").strip(), mode="eval")
        return _convert(tree.body)
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError("not a formula") from error


def _named(name: str) -> Any:
    """A constant or a variable; a longer word is refused, for in mathematics it is a product of letters."""
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if _VARIABLE.fullmatch(name) is None:
        raise ValueError(f"{name} is no variable")
    return sympy.Symbol(name)


def _convert(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("a truth value is not a number")
        case ast.Constant(value=int() as number):
            return sympy.Integer(number)
        case ast.Constant(value=float()):
            return sympy.Rational(ast.unparse(node))
        case ast.Name(id=name):
            return _named(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_convert(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _convert(operand)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_convert(left), _convert(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_convert, arguments))
    raise ValueError(f"{type(node).__name__} has no place in a formula")
