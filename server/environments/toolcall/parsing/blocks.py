"""One block of a marked format: where it begins and ends, and what to do when it is broken."""

from collections.abc import Callable
from typing import NamedTuple

from rolloutgym.server.environments.toolcall.parsing.reply import Found, ProblemCode, Schemas, Unreadable
from rolloutgym.server.environments.toolcall.parsing.values import skip_space

ReadInside = Callable[[str, int, int, Schemas, Found], int]
"""(text, position inside the block, start of the block, schemas, found) → position behind the block's content. Adds the
calls to `found`; raises `Unreadable`."""


class Marks(NamedTuple):
    open: str
    close: str
    """Empty where a block ends with its content."""


def read_blocks(text: str, at: int, marks: Marks, inside: ReadInside, schemas: Schemas, found: Found) -> None:
    """All blocks from `at` on."""
    while (start := text.find(marks.open, at)) >= 0:
        if found.full(start):
            return
        at = read_block(text, start, start + len(marks.open), marks, inside, schemas, found)


def read_block(text: str, start: int, at: int, marks: Marks, inside: ReadInside, schemas: Schemas, found: Found) -> int:
    """The block at `start`, whose content begins at `at`; returns where to read on."""
    calls, problems = len(found.calls), len(found.problems)
    try:
        end = inside(text, at, start, schemas, found)
        if marks.close:
            end = skip_space(text, end)
            if text.startswith(marks.close, end):
                end += len(marks.close)
            elif end >= len(text) or text.startswith(marks.open, end):
                found.problem(ProblemCode.UNCLOSED, start)
            else:
                raise Unreadable(ProblemCode.TRAILING_DATA, end)
    except Unreadable as error:
        del found.calls[calls:], found.problems[problems:]
        end = _end_of_broken(text, max(error.at, at), marks)
        code = error.code
        if code in (ProblemCode.TRUNCATED, ProblemCode.INVALID_JSON):  # cut off only if nothing ends it
            closed = end < len(text) or (marks.close and text.endswith(marks.close))
            code = ProblemCode.INVALID_JSON if closed else ProblemCode.TRUNCATED
        found.problem(code, start)
    found.spans.append((start, end))
    return end


def _end_of_broken(text: str, at: int, marks: Marks) -> int:
    """Behind the block's closing mark, or at the next opening one, or the end of the text."""
    closing = text.find(marks.close, at) if marks.close else -1
    opening = text.find(marks.open, at)
    if closing >= 0 and (opening < 0 or closing < opening):
        return closing + len(marks.close)
    return opening if opening >= 0 else len(text)
