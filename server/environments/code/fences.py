"""Fenced blocks (CommonMark's ``` and ~~~) in what a model writes.

Time is linear in the text: a reply of a million backticks is an ordinary way for a model to fail, and is read on the
service's event loop.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_OPENING = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+-]*+)[^\n]*+\n", re.MULTILINE)


class Fence(NamedTuple):
    start: int
    end: int
    language: str
    body: str


def fences(text: str) -> Iterator[Fence]:
    """The blocks in order. One that is never closed reaches to the end of the text."""
    position = 0
    while opening := _OPENING.search(text, position):
        closing = re.compile(rf"^[ \t]*+{opening[1]}[ \t\r]*+$", re.MULTILINE).search(text, opening.end())
        body_end, position = closing.span() if closing else (len(text), len(text))
        yield Fence(opening.start(), position, opening["language"], text[opening.end() : body_end])


def without_fences(text: str) -> str:
    """The text around the blocks."""
    kept, position = [], 0
    for fence in fences(text):
        kept.append(text[position : fence.start])
        position = fence.end
    return "\n".join([*kept, text[position:]])
