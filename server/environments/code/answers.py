r"""Final answers: finding one in a reply, and comparing it with the true one by normal form.

Pure functions on text, exact and fast: most answers are decided here. `compare` says equal, different, or undecided;
only the undecided go to the computer-algebra process (`checker`). Nothing is ever evaluated as code.
"""

import re
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

from rolloutgym.server.environments.code.fences import without_fences
from rolloutgym.server.environments.code.typesetting import normalise
from rolloutgym.server.environments.code.units import split_unit

MAX_ANSWER_CHARS = 2_000
"""A longer answer is wrong without a look: no true one is near it, and comparison may not be made slow."""

_MAX_BOXES = 100
"""How many boxes from the end are looked at for a balanced one; bounds the work that a hostile reply can cause."""

_BOXED = re.compile(r"\\f?boxed\s*(?=\{)|\\boxed\s+([^\s{$\\]+)")


class Verdict(Enum):
    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


def extract_boxed(text: str) -> str | None:
    r"""The content of the last balanced `\boxed{…}` outside fenced code, or None. `\boxed 7` counts as `\boxed{7}`."""
    prose = without_fences(text)
    for match in reversed(deque(_BOXED.finditer(prose), maxlen=_MAX_BOXES)):
        if match.group(1) is not None:
            return match.group(1).rstrip(".,;")
        content = _balanced(prose, match.end())
        if content is not None:
            return content.strip()
    return None


def _balanced(text: str, start: int) -> str | None:
    """What stands between the brace at `start` and its partner; None where there is no partner."""
    depth = 0
    position = start
    end = min(len(text), start + MAX_ANSWER_CHARS + 2)
    while position < end:
        character = text[position]
        if character == "\\":
            position += 2
            continue
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : position]
        position += 1
    return None


# ---- numbers --------------------------------------------------------------------------------------------------------

_MAX_DIGITS = 400
_NUMBER = re.compile(r"([+-]?)\s*(\d+|\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+)?(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?")
_SLASH = re.compile(r"([+-]?\s*[\d.,]+)\s*/\s*([\d.,]+)")
_MIXED = re.compile(r"([+-]?)\s*(\d+) (\d+)\s*/\s*(\d+)")
_FRAC = re.compile(r"([+-]?)\s*(\d+)?\s*\\frac\s*\{\s*([+-]?[\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}")
_POWER_OF_TEN = re.compile(r"(.+?)\s*(?:\\times|\\cdot|\*)\s*10\s*(?:\^|\*\*)\s*\{?\s*([+-]?\d{1,3})\s*\}?")


class Value(NamedTuple):
    """A number as written."""

    number: Fraction
    decimals: int | None
    """Digits after the point where it was written as a decimal, else None (integers and fractions are exact)."""
    percent: bool = False


def parse_number(text: str) -> Value | None:
    """An integer, decimal, fraction, mixed number, power of ten or percentage; None for anything else."""
    text = text.strip()
    if not text or len(text) > _MAX_DIGITS:
        return None
    if text.endswith("%"):  # one sign; `5%%` is no number
        value = parse_number(text[:-1])
        return None if value is None or value.percent else value._replace(percent=True)
    return _plain(text) or _slash(text) or _mixed(text) or _frac(text) or _scientific(text)


def _plain(text: str) -> Value | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, decimals, exponent = match.groups()
    if not whole and not decimals:
        return None
    number = Fraction(f"{sign}{re.sub('[, ]', '', whole or '0')}.{decimals or '0'}") * Fraction(10) ** int(
        exponent or 0
    )
    return Value(number, len(decimals) if decimals else None)


def _slash(text: str) -> Value | None:
    match = _SLASH.fullmatch(text)
    return None if match is None else _ratio(match.group(1).replace(" ", ""), match.group(2))


def _mixed(text: str) -> Value | None:
    match = _MIXED.fullmatch(text)
    if match is None:
        return None
    sign, whole, above, below = match.groups()
    if int(above) >= int(below):
        return None
    number = int(whole) + Fraction(int(above), int(below))
    return Value(-number if sign == "-" else number, None)


def _frac(text: str) -> Value | None:
    match = _FRAC.fullmatch(text)
    if match is None:
        return None
    sign, whole, numerator, denominator = match.groups()
    ratio = _ratio(numerator, denominator)
    if ratio is None:
        return None
    if whole is not None and ratio.number < 0:
        return None
    number = Fraction(whole or 0) + ratio.number
    return Value(-number if sign == "-" else number, None)


def _ratio(numerator: str, denominator: str) -> Value | None:
    above, below = _plain(numerator), _plain(denominator)
    if above is None or below is None or below.number == 0:
        return None
    return Value(above.number / below.number, None)


def _scientific(text: str) -> Value | None:
    match = _POWER_OF_TEN.fullmatch(text)
    if match is None:
        return None
    factor = _plain(match.group(1))
    return None if factor is None else Value(factor.number * Fraction(10) ** int(match.group(2)), factor.decimals)


def numbers_equal(gold: Value, answer: Value) -> bool:
    """Exact equality of rationals. A decimal of six digits or more may be a rounding: 0.333333 is 1/3, 0.333 is not.

    A percentage equals its number and its hundredth, for data sets write "50%", "50" and "0.5" for one another.
    """
    if gold.percent != answer.percent:
        plain, percent = (answer, gold) if gold.percent else (gold, answer)
        hundredth = percent._replace(
            number=percent.number / 100, decimals=None if percent.decimals is None else percent.decimals + 2
        )
        candidates = (percent._replace(percent=False), hundredth._replace(percent=False))
        return any(numbers_equal(plain._replace(percent=False), candidate) for candidate in candidates)
    if gold.number == answer.number:
        return True
    return _is_rounding(answer, gold) or _is_rounding(gold, answer)


def _is_rounding(rounded: Value, exact: Value) -> bool:
    if rounded.decimals is None or rounded.decimals < 6:
        return False
    if exact.decimals is not None and exact.decimals <= rounded.decimals:
        return False
    return abs(rounded.number - exact.number) * 2 <= Fraction(1, 10**rounded.decimals)


# ---- structures -----------------------------------------------------------------------------------------------------

_OPEN, _CLOSE = "([{", ")]}"


def split_elements(text: str) -> list[str] | None:
    """Elements between the commas of the top level; None where brackets do not match up or an element is empty."""
    elements: list[str] = []
    depth = 0
    start = 0
    for position, character in enumerate(text):
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth < 0:
                return None
        elif character == "," and depth == 0:
            elements.append(text[start:position])
            start = position + 1
    elements.append(text[start:])
    stripped = [element.strip() for element in elements]
    return stripped if depth == 0 and all(stripped) else None


class _Structure(NamedTuple):
    brackets: str
    """The outer pair as written, `{}` for a set, an empty text for a bare list."""
    elements: tuple[str, ...]


def _structure(text: str) -> _Structure | None:
    if text.startswith(r"\{") and text.endswith(r"\}"):
        brackets, inner = "{}", text[2:-2]
    elif len(text) >= 2 and text[0] in "([{" and text[-1] in ")]}":
        brackets, inner = text[0] + text[-1], text[1:-1]
    else:
        brackets, inner = "", text
    if not inner.strip():
        return _Structure(brackets, ()) if brackets in ("{}", "()", "[]") else None
    elements = split_elements(inner)
    if elements is None or (len(elements) < 2 and brackets != "{}"):
        return None
    return _Structure(brackets, tuple(elements))


_OPEN_OPERATIONS = re.compile(
    r"\\(?:sum|prod|i*nt|lim|b?mod|pmod|binom|gcd|lcm|max|min|det|frac\s*\{\s*d)|mod|lcm|gcd|!|%\s*\d|floor|ceil|factorial|binomial"
)
_OPERATORS = re.compile(r"[-+*/^]|\\(?:frac|cdot|times|div|sqrt|pm|log|ln|exp|sin|cos|tan)")
_MAX_OPERATORS = 3
_WORDS = re.compile(r"[^\W\d_][\w' \-]*")
_LONG_WORD = re.compile(r"[^\W\d_]{4}")
_VARIABLE = re.compile(r"^(?:[A-Za-z](?:_\{?\w+\}?)?)?\s*=\s*(?=[^=])")
_CONJUNCTION = re.compile(r"\s+(?:and|or)\s+")


def compare(gold: str, answer: str) -> Verdict:
    r"""Whether two final answers are the same, where normal form and exact arithmetic can tell.

    Numbers are compared as rationals; sets and bare lists without order, tuples and intervals in order and with their
    brackets; words without case. Expressions that are not spelt alike are undecided. An answer that only writes the
    question down again (`6^{1066} \bmod 2145`) is different from the number that was asked for.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        return Verdict.DIFFERENT
    left, right = normalise(gold), normalise(answer)
    if not right:
        return Verdict.EQUAL if not left else Verdict.DIFFERENT
    if not _VARIABLE.match(left):
        right = _VARIABLE.sub("", right, count=1)
    verdict = _compare_normal(left, right, depth=0)
    if verdict is Verdict.UNDECIDED and _leaves_work(left, right):
        return Verdict.DIFFERENT
    return verdict


def _leaves_work(gold: str, answer: str) -> bool:
    """Whether the answer states a calculation instead of doing it: an operation that the gold does not have (a sum
    sign, a remainder, a factorial), or, where a number is asked for, more than a few arithmetic signs."""
    if not set(_OPEN_OPERATIONS.findall(answer)) <= set(_OPEN_OPERATIONS.findall(gold)):
        return True
    return parse_number(gold) is not None and len(_OPERATORS.findall(answer)) > _MAX_OPERATORS


def _compare_normal(left: str, right: str, depth: int) -> Verdict:
    if left == right:
        return Verdict.EQUAL
    first, second = parse_number(left), parse_number(right)
    if first is not None and second is not None:
        return Verdict.EQUAL if numbers_equal(first, second) else Verdict.DIFFERENT
    if depth > 4:
        return Verdict.UNDECIDED
    verdict = _compare_quantities(left, right, depth)
    if verdict is not None:
        return verdict
    one, other = (_structure(_CONJUNCTION.sub(", ", text)) for text in (left, right))
    if one is not None or other is not None:
        return _compare_structures(one, other, depth)
    if _WORDS.fullmatch(left) and len(left) > 1:
        same = "".join(left.casefold().split()) == "".join(right.casefold().split())
        spelt = _LONG_WORD.search(left) and _WORDS.fullmatch(right)  # a word, and no product of letters in any order
        return Verdict.EQUAL if same else Verdict.DIFFERENT if spelt else Verdict.UNDECIDED
    return Verdict.UNDECIDED


def _compare_quantities(left: str, right: str, depth: int) -> Verdict | None:
    """Numbers with units that are known to be the same or to be different; None for all else. An answer may add the
    unit to a number."""
    one, other = split_unit(left), split_unit(right)
    if other is None or (one is None and parse_number(left) is None):
        return None
    if one is not None and one.unit != other.unit:
        return Verdict.DIFFERENT
    return _compare_normal(left if one is None else one.number, other.number, depth + 1)


def _compare_structures(gold: _Structure | None, answer: _Structure | None, depth: int) -> Verdict:
    if gold is None or answer is None:
        return Verdict.UNDECIDED
    unordered = {"", "{}"}
    if gold.brackets != answer.brackets and not {gold.brackets, answer.brackets} <= unordered:
        return Verdict.DIFFERENT

    def same(left: str, right: str) -> Verdict:
        return _compare_normal(left, right, depth + 1)

    if gold.brackets not in unordered:
        if len(gold.elements) != len(answer.elements):
            return Verdict.DIFFERENT
        return _all_of([same(*pair) for pair in zip(gold.elements, answer.elements, strict=True)])
    return _compare_unordered(gold, answer, same)


def _all_of(verdicts: list[Verdict]) -> Verdict:
    if Verdict.DIFFERENT in verdicts:
        return Verdict.DIFFERENT
    return Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.EQUAL


def _compare_unordered(gold: _Structure, answer: _Structure, same: Callable[[str, str], Verdict]) -> Verdict:
    """Sets lose their duplicates; bare lists keep them. Equality of numbers is not transitive to the last digit (a
    rounding), but one gold element cannot be near two different exact ones, so greedy pairing is right."""
    left, right = list(gold.elements), list(answer.elements)
    if "{}" in (gold.brackets, answer.brackets):
        left, right = (list(dict.fromkeys(_exact_key(element) for element in elements)) for elements in (left, right))
    if Counter(map(_exact_key, left)) == Counter(map(_exact_key, right)):
        return Verdict.EQUAL
    undecided = False
    for element in left:
        verdicts = [same(element, candidate) for candidate in right]
        if Verdict.EQUAL in verdicts:
            right.pop(verdicts.index(Verdict.EQUAL))
        elif Verdict.UNDECIDED in verdicts:
            undecided = True
        else:
            return Verdict.DIFFERENT
    if undecided:
        return Verdict.UNDECIDED
    return Verdict.DIFFERENT if right else Verdict.EQUAL


def _exact_key(element: str) -> str:
    value = parse_number(element)
    return element if value is None or value.percent else str(value.number)
