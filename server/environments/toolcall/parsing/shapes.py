"""From a decoded value to a call: the shapes in which families write name and arguments."""

from collections.abc import Mapping

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.parsing.reply import Call, Found, ProblemCode, Unreadable
from rolloutgym.server.environments.toolcall.parsing.values import Value, read_value, skip_space

_ARGUMENTS = ("arguments", "parameters")
_KNOWN_KEYS = frozenset({"name", "arguments", "parameters", "id", "type", "index"})


def call_of(value: JsonValue, span: tuple[int, int], *, literal: bool = False) -> Call:
    """The call that an object stands for: name beside `arguments` or `parameters`, or OpenAI's `function` wrapper."""
    if not isinstance(value, dict):
        raise Unreadable(ProblemCode.BAD_SHAPE, span[0])
    id = value.get("id")
    function = value.get("function")
    if isinstance(function, dict):
        if not value.keys() <= {"id", "type", "index", "function"}:
            raise Unreadable(ProblemCode.BAD_SHAPE, span[0])
        value = function
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise Unreadable(ProblemCode.MISSING_NAME, span[0])
    given = [value[key] for key in _ARGUMENTS if key in value]
    if len(given) > 1 or not value.keys() <= _KNOWN_KEYS:
        raise Unreadable(ProblemCode.BAD_SHAPE, span[0])
    arguments = arguments_of(given[0] if given else None, span[0])
    return Call(name, arguments, id if isinstance(id, str) else "", span, literal)


def arguments_of(value: JsonValue, at: int = 0) -> dict[str, JsonValue]:
    """Arguments as an object, or as its text (once or twice encoded); nothing at all is `{}`."""
    for _ in range(3):
        if isinstance(value, dict):
            return value
        if value is None:
            return {}
        if not isinstance(value, str):
            break
        if not value.strip():
            return {}
        value = whole_value(value, at).value
    raise Unreadable(ProblemCode.ARGUMENTS_NOT_OBJECT, at)


def whole_value(text: str, at: int) -> Value:
    """The one value that `text` is. `at` is where problems are reported."""
    try:
        value = read_value(text, 0)
    except Unreadable as error:
        raise Unreadable(error.code, at) from None
    if skip_space(text, value.end) < len(text):
        raise Unreadable(ProblemCode.TRAILING_DATA, at)
    return value


def add_calls(found: Found, value: Value, span: tuple[int, int]) -> None:
    """The call, or the list of calls, of a decoded value; each unfit one is a problem of its own."""
    for item in value.value if isinstance(value.value, list) else [value.value]:
        if found.full(span[0]):
            return
        try:
            found.calls.append(call_of(item, span, literal=value.literal))
        except Unreadable as error:
            found.problem(error.code, span[0])


def is_call(value: JsonValue, tools: Mapping[str, object]) -> bool:
    """Whether an object that no marker announces is meant as a call."""
    if isinstance(value, list):
        return bool(value) and all(is_call(item, tools) for item in value)
    if not isinstance(value, dict):
        return False
    function = value.get("function")
    if isinstance(function, dict):
        value = function
    name = value.get("name")
    return isinstance(name, str) and (any(key in value for key in _ARGUMENTS) or (len(value) == 1 and name in tools))
