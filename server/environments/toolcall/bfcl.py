"""BFCL's acceptance rules for Python functions, after its v4 AST checker (`ast_checker.py`), on our items. Pure.

A call is accepted if it has the expected name and every required argument, gives only arguments that both the schema
and the gold know, each with a value of the declared type that is among the acceptable ones, and leaves out only what
may be left out. The checker's own notions are kept, odd ones too, since its verdicts are the point: text is compared
without case, blanks and `,./-_*^`; an int passes for a float, but not inside an array; a value of the gold's type where
the schema declares another is taken for a variable and compared as it is. One thing differs: parallel calls are
assigned as a whole, where the checker takes the first that fits.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.equality import normalize
from rolloutgym.server.environments.toolcall.items import ExpectedCall
from rolloutgym.server.environments.toolcall.parsing import Call

_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "object": dict,
    "dict": dict,
    "any": str,
}
_GREATEST_DOUBLE = int(sys.float_info.max)
OMITTED = ""
"""Among acceptable values: the argument may be left out."""

Possible = Sequence[JsonValue]


def accepts(call: Call, expected: ExpectedCall, schema: Mapping[str, JsonValue]) -> bool:
    """Whether the checker would pass this call for the expected one; `schema` is the tool's argument schema."""
    if call.name != expected.name:
        return False
    possible = possible_answers(expected)
    properties = _mapping(schema.get("properties"))
    required = schema.get("required")
    if isinstance(required, list) and any(isinstance(n, str) and n not in call.arguments for n in required):
        return False
    for name, value in call.arguments.items():
        if name not in properties or name not in possible:
            return False
        if not _accepts_value(value, possible[name], _mapping(properties[name])):
            return False
    return all(name in call.arguments or OMITTED in values for name, values in possible.items())


def possible_answers(expected: ExpectedCall) -> Mapping[str, Possible]:
    """The acceptable values by argument; without such a gold, the expected arguments alone."""
    if expected.possible is not None:
        return expected.possible
    return {name: [_as_possible(value)] for name, value in expected.arguments.items()}


def _as_possible(value: JsonValue) -> JsonValue:
    """A plain value in the form of an acceptable one: objects hold lists of options."""
    if isinstance(value, dict):
        return {key: [_as_possible(inner)] for key, inner in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [_as_possible(item) for item in value]
    return value


def _accepts_value(value: JsonValue, possible: Possible, declared: Mapping[str, JsonValue]) -> bool:
    wanted = _type(declared)
    inner = _type(_mapping(declared.get("items"))) if wanted is list else None
    if wanted is float and type(value) is int:
        if abs(value) > _GREATEST_DOUBLE:
            return False
        value = float(value)
    verdict = _check_type(value, possible, wanted, inner)
    if not verdict.valid:
        return False
    if not verdict.is_variable:
        if wanted is dict:
            return isinstance(value, dict) and _accepts_object(value, possible)
        if wanted is list and inner is dict:
            return isinstance(value, list) and _accepts_objects(value, possible)
        if wanted is str:
            return isinstance(value, str) and _standard(value) in [_standard(p) for p in possible if isinstance(p, str)]
        if wanted is list:
            return isinstance(value, list) and _accepts_array(value, possible)
    return value in possible


class _TypeVerdict(NamedTuple):
    valid: bool
    is_variable: bool = False


def _check_type(value: JsonValue, possible: Possible, wanted: type, inner: type | None) -> _TypeVerdict:
    gold = next((type(answer) for answer in possible if answer != OMITTED), None)
    if type(value) is wanted:
        is_variable = gold is not None and gold is not wanted
        if inner is None:
            return _TypeVerdict(True, is_variable)
        elements = value if isinstance(value, list) else []
        for answer in possible:
            if not isinstance(answer, list) or all(_check_type(e, answer, inner, None).valid for e in elements):
                return _TypeVerdict(True, is_variable)
        return _TypeVerdict(False)
    return _TypeVerdict(gold is not None and type(value) is gold, is_variable=True)


def _accepts_object(value: Mapping[str, JsonValue], possible: Possible) -> bool:
    """One of the acceptable objects knows every key and value, and misses only what may be left out."""
    for answer in possible:
        if not isinstance(answer, dict):
            continue
        known = all(key in answer and _among(inner, answer[key]) for key, inner in value.items())
        if known and all(key in value or OMITTED in _options(options) for key, options in answer.items()):
            return True
    return False


def _among(value: JsonValue, options: JsonValue) -> bool:
    return _standard(value) in [_standard(option) for option in _options(options)]


def _options(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else list(value) if isinstance(value, str) else []


def _accepts_objects(value: Sequence[JsonValue], possible: Possible) -> bool:
    """One of the acceptable arrays has as many objects, and each accepts the one at its place."""
    for answer in possible:
        answers = _options(answer)
        if len(answers) == len(value) and all(
            isinstance(inner, dict) and _accepts_object(inner, [options])
            for inner, options in zip(value, answers, strict=True)
        ):
            return True
    return False


def _accepts_array(value: Sequence[JsonValue], possible: Possible) -> bool:
    return [_standard(item) for item in value] in [[_standard(p) for p in _options(answer)] for answer in possible]


def _standard(value: JsonValue) -> JsonValue:
    return normalize(value, "bfcl") if isinstance(value, str) else value


def _type(schema: Mapping[str, JsonValue]) -> type:
    declared = schema.get("type")
    return _TYPES.get(declared, str) if isinstance(declared, str) else str


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}
