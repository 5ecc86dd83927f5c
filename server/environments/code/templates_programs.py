"""Templates of problems whose answer is a program. The reference solution is the function below itself.

Each template binds a parameter of its function, so that a problem asks for a function of one argument; the tests
compare results on drawn arguments, whose true results the reference computes when the problem is generated.
"""

import inspect
import random
import string
from collections.abc import Callable
from typing import Any, NamedTuple

from rolloutgym.server.environments.code.tasks import HiddenTests


class Program(NamedTuple):
    """One template: `ask` and `name` say what is wanted, for a value of `parameter`; `draw` makes an argument."""

    function: Callable[..., Any]
    name: str
    ask: str
    parameter: tuple[Any, ...]
    draw: Callable[[random.Random], Any]
    edge_cases: tuple[Any, ...]


def _numbers(rng: random.Random) -> list[int]:
    return [rng.randrange(-20, 21) for _ in range(rng.randrange(1, 14))]


def _words(rng: random.Random) -> str:
    alphabet = string.ascii_letters + "     ,.!0123456789"
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 30)))


def _runs(rng: random.Random) -> str:
    return "".join(rng.choice("abcd") * rng.randrange(1, 6) for _ in range(rng.randrange(1, 7)))


def _intervals(rng: random.Random) -> list[list[int]]:
    starts = [rng.randrange(0, 60) for _ in range(rng.randrange(1, 8))]
    return [[start, start + rng.randrange(0, 12)] for start in starts]


def _matrix(rng: random.Random) -> list[list[int]]:
    rows, columns = rng.randrange(1, 6), rng.randrange(1, 6)
    return [[rng.randrange(0, 50) for _ in range(columns)] for _ in range(rows)]


def _brackets(rng: random.Random) -> str:
    return "".join(rng.choice("()[]{}ab") for _ in range(rng.randrange(0, 12)))


def rotate_left(items: list[int], count: int) -> list[int]:
    if not items:
        return []
    count %= len(items)
    return items[count:] + items[:count]


def digits_in_base(number: int, base: int) -> list[int]:
    if number == 0:
        return [0]
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits[::-1]


def window_maxima(items: list[int], size: int) -> list[int]:
    return [max(items[start : start + size]) for start in range(len(items) - size + 1)]


def shift_letters(text: str, shift: int) -> str:
    shifted = []
    for character in text:
        for first in "aA":
            if first <= character <= chr(ord(first) + 25):
                character = chr((ord(character) - ord(first) + shift) % 26 + ord(first))
                break
        shifted.append(character)
    return "".join(shifted)


def pairs_with_difference(items: list[int], difference: int) -> list[tuple[int, int]]:
    values = set(items)
    return sorted((value, value + difference) for value in values if value + difference in values)


def compress_runs(text: str, least: int) -> str:
    result = []
    position = 0
    while position < len(text):
        end = position
        while end < len(text) and text[end] == text[position]:
            end += 1
        length = end - position
        result.append(text[position] + str(length) if length >= least else text[position:end])
        position = end
    return "".join(result)


def merge_intervals(intervals: list[list[int]], gap: int) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start - merged[-1][1] <= gap:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def diagonal_sums(matrix: list[list[int]], step: int) -> list[int]:
    sums: dict[int, int] = {}
    for row, values in enumerate(matrix):
        for column, value in enumerate(values):
            key = column - step * row
            sums[key] = sums.get(key, 0) + value
    return [sums[key] for key in sorted(sums)]


def count_words(text: str, least: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in text.lower().split():
        word = "".join(character for character in word if character.isalpha())
        if len(word) >= least:
            counts[word] = counts.get(word, 0) + 1
    return counts


def deepest_nesting(text: str, limit: int) -> int:
    partners = {")": "(", "]": "[", "}": "{"}
    open_brackets: list[str] = []
    deepest = 0
    for character in text:
        if character in "([{":
            open_brackets.append(character)
            deepest = max(deepest, len(open_brackets))
        elif character in partners and (not open_brackets or open_brackets.pop() != partners[character]):
            return -1
    return -1 if open_brackets or deepest > limit else deepest


PROGRAMS: dict[str, tuple[Program, ...]] = {
    "train": (
        Program(
            rotate_left,
            "rotate",
            "Write `rotate(items)`, which returns a new list: the list `items` moved {0} places to the left, the first "
            "elements coming round to the end. An empty list stays empty.",
            (1, 2, 3, 4, 5, 7),
            _numbers,
            ([], [5]),
        ),
        Program(
            digits_in_base,
            "digits",
            "Write `digits(number)`, which returns the digits of a non-negative integer in base {0} as a list, the "
            "most significant first. Zero has the one digit 0.",
            (2, 3, 5, 7, 12, 16),
            lambda rng: rng.randrange(0, 10**6),
            (0, 1),
        ),
        Program(
            shift_letters,
            "shift",
            "Write `shift(text)`, which moves each of the letters a to z and A to Z by {0} places in the alphabet, "
            "going round at the end and keeping the case, and leaves all else as it is.",
            (1, 3, 5, 13, 17, 25),
            _words,
            ("", "xyz XYZ"),
        ),
        Program(
            pairs_with_difference,
            "pairs",
            "Write `pairs(items)`, which returns a sorted list of all tuples (a, b) of values in the list `items` with "
            "b - a = {0}, each tuple once.",
            (1, 2, 3, 5, 6, 9),
            _numbers,
            ([], [1, 1]),
        ),
        Program(
            compress_runs,
            "compress",
            "Write `compress(text)`, which replaces every longest run of one character that is at least {0} long by "
            "the character and the length of the run (in decimal), and keeps shorter runs as they are.",
            (1, 2, 3, 4),
            _runs,
            ("", "a"),
        ),
        Program(
            merge_intervals,
            "merge",
            "Write `merge(intervals)`, which takes a list of [start, end] lists and joins those that overlap or are at "
            "most {0} apart (next start minus last end). Return the joined intervals as a list of lists, sorted.",
            (0, 1, 2, 3, 5),
            _intervals,
            ([], [[3, 3]]),
        ),
    ),
    "validation": (
        Program(
            window_maxima,
            "maxima",
            "Write `maxima(items)`, which returns the list of the largest values in each run of {0} neighbours of the "
            "list `items`, from left to right; the empty list where there are fewer than {0} elements.",
            (2, 3, 4, 5),
            _numbers,
            ([], [4]),
        ),
        Program(
            count_words,
            "count",
            "Write `count(text)`, which splits a text at white space, lowers the case of each word and drops every "
            "character that is not a letter, and returns a dictionary from each word of at least {0} letters to how "
            "often it occurs.",
            (1, 2, 3, 4),
            _words,
            ("", "A a, a! Bb"),
        ),
    ),
    "test": (
        Program(
            diagonal_sums,
            "diagonals",
            "Write `diagonals(matrix)`, which takes a list of rows of equal length and adds up all entries with the "
            "same value of (column - {0} * row), both counted from 0. Return the sums in rising order of that value.",
            (1, 2, 3, -1, -2),
            _matrix,
            ([], [[7]]),
        ),
        Program(
            deepest_nesting,
            "nesting",
            "Write `nesting(text)`, which returns how deep the round, square and curly brackets of a text are nested "
            "(0 without any), or -1 if they do not match up or are nested more than {0} deep. Other characters do not "
            "matter.",
            (1, 2, 3, 4, 9),
            _brackets,
            ("", "([{}])", "([)]", "(((("),
        ),
    ),
}


def hidden_tests(program: Program, parameter: Any, rng: random.Random, cases: int = 12) -> HiddenTests:
    """Assertions on the edge cases and on drawn arguments, with the results that the reference gives."""
    arguments = [*program.edge_cases, *(program.draw(rng) for _ in range(cases))]
    lines = [
        f"    assert candidate({argument!r}) == {program.function(argument, parameter)!r}" for argument in arguments
    ]
    reference = (
        f"{inspect.getsource(program.function)}\n\n"
        f"def {program.name}(argument):\n    return {program.function.__name__}(argument, {parameter!r})\n"
    )
    return HiddenTests(program.name, "def check(candidate):\n" + "\n".join(lines) + "\n", reference)
