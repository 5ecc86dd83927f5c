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
    needed: bool = False
    """Whether a block without `close` is cut off, as its content does not tell where it ends."""


class _Next:
    """Where a mark stands next. Asked at growing positions, all its answers together take one pass over the text."""

    __slots__ = ("_found", "_mark", "_text")

    def __init__(self, text: str, mark: str) -> None:
        self._text = text
        self._mark = mark
        self._found = -1

    def at(self, position: int) -> int:
        """Its first place from `position` on; the end of the text if there is none."""
        if self._found < position:
            found = self._text.find(self._mark, position) if self._mark else -1
            self._found = found if found >= 0 else len(self._text)
        return self._found


def read_blocks(text: str, at: int, marks: Marks, inside: ReadInside, schemas: Schemas, found: Found) -> None:
    """All blocks from `at` on."""
    opening, closing = _Next(text, marks.open), _Next(text, marks.close)
    while (start := opening.at(at)) < len(text):
        if found.full(start):
            return
        calls, problems = len(found.calls), len(found.problems)
        begin = start + len(marks.open)
        try:
            at = _behind(text, inside(text, begin, start, schemas, found), start, marks, found)
        except Unreadable as error:
            del found.calls[calls:], found.problems[problems:]
            resumed = max(error.at, begin)
            at = min(opening.at(resumed), closing.at(resumed))
            if text.startswith(marks.close, at):
                at += len(marks.close)
            code = error.code
            if code in (ProblemCode.TRUNCATED, ProblemCode.INVALID_JSON):  # cut off only if nothing ends it
                closed = at < len(text) or (marks.close and text.endswith(marks.close))
                code = ProblemCode.INVALID_JSON if closed else ProblemCode.TRUNCATED
            found.problem(code, start)
        found.spans.append((start, at))


def _behind(text: str, end: int, start: int, marks: Marks, found: Found) -> int:
    """Behind the closing mark of the block at `start`, whose content ends at `end`."""
    if not marks.close:
        return end
    end = skip_space(text, end)
    if text.startswith(marks.close, end):
        return end + len(marks.close)
    if end < len(text) and not text.startswith(marks.open, end):
        raise Unreadable(ProblemCode.TRAILING_DATA, end)
    if marks.needed:
        raise Unreadable(ProblemCode.TRUNCATED, end)
    found.problem(ProblemCode.UNCLOSED, start)
    return end
