"""Values inside a reply: JSON read to its own end, or else a walk over Python-like literals.

Reading starts at a position and stops where the value ends, so a tag inside a string cuts nothing. The walk knows
strings, numbers, `True`/`true`, `None`/`null`, lists, tuples, dicts and trailing commas, and nothing else: no name is
looked up, nothing is evaluated. Both refuse duplicate keys, NaN, infinities, lone surrogates and nesting beyond
`MAX_DEPTH`. Both take time linear in what they read.
"""

import json
import math
import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.parsing.reply import ProblemCode, Unreadable

MAX_DEPTH = 200


class Value(NamedTuple):
    value: JsonValue
    end: int
    literal: bool = False


def read_value(text: str, at: int) -> Value:
    """The value at `at` (leading white space allowed). `Unreadable` says why there is none."""
    at = skip_space(text, at)
    try:
        return read_json(text, at)
    except Unreadable as error:
        if error.code is not ProblemCode.INVALID_JSON:
            raise
    reader = LiteralReader(text, at)
    return Value(reader.value(), reader.at, literal=True)


def read_json(text: str, at: int) -> Value:
    """Strict JSON, but for raw control characters in strings (models write line breaks into code)."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise Unreadable(ProblemCode.INVALID_JSON, error.pos) from None
    except Unreadable as error:
        raise Unreadable(error.code, at) from None
    except RecursionError:
        raise Unreadable(ProblemCode.TOO_DEEP, at) from None
    except ValueError:  # more digits than int() takes
        raise Unreadable(ProblemCode.NUMBER_TOO_LONG, at) from None
    if text.count("[", at, end) + text.count("{", at, end) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise Unreadable(ProblemCode.TOO_DEEP, at)
    if _SURROGATE.search(text, at, end) and not is_unicode(value):
        raise Unreadable(ProblemCode.BAD_UNICODE, at)
    return Value(value, end)


def skip_space(text: str, at: int) -> int:
    if text[at : at + 1] in _SPACES:  # also true at the end of the text
        match = _SPACE.match(text, at)
        assert match
        return match.end()
    return at


def check_value(value: JsonValue) -> int:
    """Hold a decoded value against the same limits; returns the length of its JSON text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        raise Unreadable(ProblemCode.BAD_UNICODE, 0) from None
    except RecursionError:
        raise Unreadable(ProblemCode.TOO_DEEP, 0) from None
    except ValueError:
        raise Unreadable(ProblemCode.NAN, 0) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise Unreadable(ProblemCode.TOO_DEEP, 0)
    return len(text)


def is_unicode(value: JsonValue) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Unreadable(ProblemCode.DUPLICATE_KEY, 0)
    return result


def _refuse_constant(_name: str) -> NoReturn:
    raise Unreadable(ProblemCode.NAN, 0)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise Unreadable(ProblemCode.NAN, 0)
    return number


_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
)
_SPACE = re.compile(r"[ \t\r\n\f]*")
_SPACES = " \t\r\n\f"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _depth(value: JsonValue) -> int:
    """How deep arrays and objects are nested, counted without recursion."""
    depth = 0
    level: list[JsonValue] = [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


# ---- literals -------------------------------------------------------------------------------------------------------

_QUOTES = ('"""', "'''", '"', "'")
# Possessive, so that an unclosed string fails in one pass.
_STRINGS = {
    '"""': re.compile(r'"""((?:[^"\\]++|\\.|"(?!""))*+)"""', re.DOTALL),
    "'''": re.compile(r"'''((?:[^'\\]++|\\.|'(?!''))*+)'''", re.DOTALL),
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL),
}
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<one>.))",
    re.DOTALL,
)
_ONE_CHARACTER = {
    "\n": "", "\\": "\\", "'": "'", '"': '"',
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?(?:\d+(?P<fraction>\.\d*)?|(?P<point>\.\d+))(?P<exponent>[eE][+-]?\d+)?(?![\w.])", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")
_CONSTANTS: dict[str, JsonValue] = {
    "True": True, "true": True, "False": False, "false": False, "None": None, "null": None,
}  # fmt: skip
_NOT_FINITE = frozenset({"nan", "NaN", "inf", "Infinity"})


class LiteralReader:
    """A cursor over Python-like literals. `value` reads one and leaves `at` behind it."""

    __slots__ = ("at", "depth", "text")

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.depth = 0

    def value(self) -> JsonValue:
        self.space()
        first = self.text[self.at : self.at + 1]
        if first == "{":
            self.at += 1
            return self.members("}", self.key, ":")
        if first == "[":
            self.at += 1
            return self.items("]")[0]
        if first == "(":
            self.at += 1
            items, comma = self.items(")")
            return items if comma or not items else items[0]  # brackets around one value are only brackets
        if self.at_string():
            return self.string()
        return self._atom()

    def space(self) -> None:
        self.at = skip_space(self.text, self.at)

    def take(self, token: str) -> bool:
        """Step over `token` if it comes next."""
        self.space()
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            self.fail()

    def fail(self, code: ProblemCode = ProblemCode.INVALID_JSON) -> NoReturn:
        """Give up here: where the text is at its end, because it was cut off."""
        cut_off = code is ProblemCode.INVALID_JSON and self.at >= len(self.text)
        raise Unreadable(ProblemCode.TRUNCATED if cut_off else code, self.at)

    def members(self, end: str, key: Callable[[], str], separator: str) -> dict[str, JsonValue]:
        """`key separator value` pairs up to `end`, comma-separated; the cursor stands behind the opening bracket."""
        self._enter()
        result: dict[str, JsonValue] = {}
        while not self.take(end):
            name = key()
            if name in result:
                self.fail(ProblemCode.DUPLICATE_KEY)
            self.expect(separator)
            result[name] = self.value()
            if not self.take(","):
                self.expect(end)
                break
        self.depth -= 1
        return result

    def items(self, end: str) -> tuple[list[JsonValue], bool]:
        """Values up to `end`, and whether there was a comma; the cursor stands behind the opening bracket."""
        self._enter()
        items: list[JsonValue] = []
        comma = False
        while not self.take(end):
            items.append(self.value())
            if not self.take(","):
                self.expect(end)
                break
            comma = True
        self.depth -= 1
        return items, comma

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(ProblemCode.TOO_DEEP)

    def key(self) -> str:
        self.space()
        return self.string()

    def at_string(self) -> bool:
        return self.text[self.at : self.at + 1] in ("'", '"')

    def string(self) -> str:
        quote = next((quote for quote in _QUOTES if self.text.startswith(quote, self.at)), None)
        if quote is None:
            self.fail()
        match = _STRINGS[quote].match(self.text, self.at)
        if match is None:
            raise Unreadable(ProblemCode.TRUNCATED, len(self.text))
        raw = match[1]
        if "\\" in raw:
            raw = _ESCAPE.sub(_unescape_in(quote), raw)
            if not raw.isascii():
                try:  # a surrogate pair of two escapes is one character
                    raw = raw.encode("utf-16", "surrogatepass").decode("utf-16")
                except UnicodeDecodeError:
                    self.fail(ProblemCode.BAD_UNICODE)
        self.at = match.end()
        return raw

    def _atom(self) -> JsonValue:
        if number := _NUMBER.match(self.text, self.at):
            return self._number(number)
        name = _NAME.match(self.text, self.at)
        if name is None:
            self.fail()
        if name[0] in _NOT_FINITE:
            self.fail(ProblemCode.NAN)
        if name[0] not in _CONSTANTS:
            self.at = name.end() if name.end() == len(self.text) else self.at
            self.fail()
        self.at = name.end()
        return _CONSTANTS[name[0]]

    def _number(self, match: re.Match[str]) -> int | float:
        self.at = match.end()
        if match["fraction"] is None and match["point"] is None and match["exponent"] is None:
            try:
                return int(match[0])
            except ValueError:
                self.fail(ProblemCode.NUMBER_TOO_LONG)
        number = float(match[0])
        if math.isinf(number):
            self.fail(ProblemCode.NAN)
        return number


def _unescape_in(quote: str) -> Callable[[re.Match[str]], str]:
    def unescape(match: re.Match[str]) -> str:
        if one := match["one"]:
            if one == "/" and quote == '"':
                return "/"  # JSON's escape, in text that is JSON but for something else
            return _ONE_CHARACTER.get(one, match[0])
        code = int(match["octal"], 8) if match["octal"] else int(match["x"] or match["u"] or match["U"], 16)
        return chr(code) if code <= 0x10FFFF else match[0]

    return unescape
