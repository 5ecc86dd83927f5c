"""Regular expressions of data sets, run on what a model wrote.

RE2 does it: its matching takes time linear in the text whatever the pattern, where a backtracking engine can be kept
busy for years by a few dozen characters. Its syntax has no look-around and no back-references; a pattern that it does
not take is refused when the item is loaded.
"""

from functools import lru_cache
from typing import Any

import re2

_MAX_MEMORY = 2**21
"""Bytes that one compiled pattern may use; a greater one is refused."""


class PatternRefused(ValueError):
    """Not a regular expression in RE2's syntax; the text says why."""


def check_pattern(pattern: str) -> None:
    """`PatternRefused` unless the pattern can be run."""
    _compiled(pattern)


def matches_whole(pattern: str, text: str) -> bool:
    """Whether all of `text` matches."""
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=128)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise PatternRefused(error.args[0].decode(errors="replace")) from None
