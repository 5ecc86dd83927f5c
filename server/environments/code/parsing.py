"""What a reply asks for: run the last code block, or, without one, end the episode with a final answer.

Text that imitates the interpreter is text like any other: only what the service itself sent is ever output.
"""

import re
import textwrap
from typing import NamedTuple

from rolloutgym.server.environments.code.answers import extract_boxed
from rolloutgym.server.environments.code.fences import fences

_CODE_OPEN = re.compile(r"<code>", re.IGNORECASE)
_CODE_CLOSE = re.compile(r"</code>", re.IGNORECASE)
_ANSWER_BLOCK = re.compile(r"<answer>(?P<body>(?:(?!<answer>).)*?)</answer>", re.IGNORECASE | re.DOTALL)
_PYTHON = ("", "python", "python3", "py")


class RunCode(NamedTuple):
    code: str


class FinalAnswer(NamedTuple):
    answer: str | None
    """Null where the reply holds none."""


Reply = RunCode | FinalAnswer


def parse_reply(text: str, *, program: bool, fenced: bool) -> Reply:
    """The action in a model's raw text.

    The last `<code>` block is run; it may lack its closing tag, for many generators cut the stop text off. With
    `fenced`, a fenced Python block is run where there is no `<code>` block. All else is final: a program (the last
    `<answer>` block, else the last fenced block) or a boxed answer.
    """
    code = _last_code_block(text)
    if code is not None:
        return RunCode(_without_fence(code))
    submitted = _last_answer_block(text)
    if fenced and submitted is None:
        block = _last_fenced_block(text)
        if block is not None:
            return RunCode(block)
    if not program:
        return FinalAnswer(extract_boxed(text))
    if submitted is not None:
        return FinalAnswer(_without_fence(submitted))
    return FinalAnswer(_last_fenced_block(text))


def program_of_answer(answer: str) -> str:
    """The program in an answer that is given as such: without the fence, where one stands around it."""
    return _without_fence(answer)


def _last_code_block(text: str) -> str | None:
    start = None
    for match in _CODE_OPEN.finditer(text):
        start = match.end()
    if start is None:
        return None
    close = _CODE_CLOSE.search(text, start)
    return text[start : close.start() if close else len(text)]


def _last_answer_block(text: str) -> str | None:
    body = None
    for match in _ANSWER_BLOCK.finditer(text):
        body = match["body"]
    return body


def _last_fenced_block(text: str) -> str | None:
    body: str | None = None
    for fence in fences(text):
        if fence.language.lower() in _PYTHON:
            body = fence.body
    return body


def _without_fence(code: str) -> str:
    """The code itself: without a fence around it, an indentation of the whole, or a blank between tag and code."""
    stripped = code.strip()
    fence = next(fences(stripped), None)
    if fence is not None and (fence.start, fence.end) == (0, len(stripped)):
        return fence.body
    code = textwrap.dedent(code.strip("\r\n"))
    return code.lstrip() if code[:1].isspace() else code
