"""Families whose calls look like source code: pythonic lists (Llama 4, LFM2, BFCL's prompt) and Gemma."""

import re

from rolloutgym.server.environments.toolcall.parsing.blocks import Marks, read_blocks
from rolloutgym.server.environments.toolcall.parsing.reply import Call, Found, ProblemCode, Schemas, Unreadable
from rolloutgym.server.environments.toolcall.parsing.values import LiteralReader

GEMMA = Marks("<|tool_call>", "<tool_call|>")
FUNCTION_GEMMA = Marks("<start_function_call>", "<end_function_call>")
LFM2 = Marks("<|tool_call_start|>", "<|tool_call_end|>")
LLAMA_4 = Marks("<|python_start|>", "<|python_end|>")

_CALL_NAME = re.compile(r"[^\W\d][\w.\-]*+", re.ASCII)
_KEYWORD = re.compile(r"[^\W\d]\w*+")
_GEMMA_NAME = re.compile(r"call:([^\s{<]{1,256}+)\s*+(?=\{)")
_GEMMA_KEY = re.compile(r"[^\s:,{}\[\]<]++")


class _Calls(LiteralReader):
    """A cursor over `name(keyword=value, …)`."""

    __slots__ = ()

    def call(self, start: int) -> Call:
        self.space()
        name = _CALL_NAME.match(self.text, self.at)
        if name is None:
            self.fail()
        self.at = name.end()
        self.expect("(")
        arguments = self.members(")", self._keyword, "=")
        return Call(name[0], arguments, "", (start, self.at), literal=True)

    def _keyword(self) -> str:
        self.space()
        keyword = _KEYWORD.match(self.text, self.at)
        if keyword is None:
            self.fail()  # an argument by position has no name to be matched by
        self.at = keyword.end()
        return keyword[0]


def read_pythonic(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """A list of calls that is the whole text from `at`."""
    found.family = "pythonic"
    found.spans.append((at, len(text)))
    cursor = _Calls(text, at)
    try:
        _read_list(cursor, at, found)
        cursor.space()
        if cursor.at < len(text):
            raise Unreadable(ProblemCode.TRAILING_DATA, cursor.at)
    except Unreadable as error:
        if error.code is ProblemCode.TRAILING_DATA:
            found.calls.clear()
        found.problem(error.code, at)


def _read_list(cursor: _Calls, start: int, found: Found) -> None:
    cursor.expect("[")
    while not cursor.take("]"):
        if found.full(cursor.at):
            cursor.at = len(cursor.text)
            return
        found.calls.append(cursor.call(start))
        if not cursor.take(","):
            cursor.expect("]")
            return


def read_lfm2(text: str, at: int, schemas: Schemas, found: Found) -> None:
    found.family = "pythonic"
    read_blocks(text, at, LFM2, _list_block, schemas, found)


def read_llama_4(text: str, at: int, schemas: Schemas, found: Found) -> None:
    found.family = "pythonic"
    read_blocks(text, at, LLAMA_4, _list_block, schemas, found)


def _list_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    cursor = _Calls(text, at)
    _read_list(cursor, start, found)
    return cursor.at


def dotted_call(text: str, at: int, start: int) -> Call:
    """`name.call(argument=value)`, the form of Llama's built-in tools, up to the end of the text."""
    cursor = _Calls(text, at)
    call = cursor.call(start)
    cursor.space()
    if cursor.at < len(text):
        raise Unreadable(ProblemCode.TRAILING_DATA, cursor.at)
    return Call(call.name.removesuffix(".call"), call.arguments, "", call.span, literal=True)


class _Gemma(LiteralReader):
    """A cursor over Gemma's values: bare keys, strings between marks, nothing escaped."""

    __slots__ = ("_quote",)

    def __init__(self, text: str, at: int, quote: str) -> None:
        super().__init__(text, at)
        self._quote = quote

    def at_string(self) -> bool:
        return self.text.startswith(self._quote, self.at)

    def string(self) -> str:
        start = self.at + len(self._quote)
        end = self.text.find(self._quote, start)
        if end < 0:
            raise Unreadable(ProblemCode.TRUNCATED, len(self.text))
        self.at = end + len(self._quote)
        return self.text[start:end]

    def key(self) -> str:
        self.space()
        if self.at_string():
            return self.string()
        key = _GEMMA_KEY.match(self.text, self.at)
        if key is None:
            self.fail()
        self.at = key.end()
        return key[0]


def read_gemma(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """`<|tool_call>call:NAME{key:<|"|>text<|"|>,key:1}<tool_call|>`"""
    found.family = "gemma"
    read_blocks(text, at, GEMMA, _gemma_block, schemas, found)


def read_function_gemma(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """The same between `<start_function_call>` and `<end_function_call>`, with `<escape>` around strings."""
    found.family = "gemma"
    read_blocks(text, at, FUNCTION_GEMMA, _function_gemma_block, schemas, found)


def _gemma_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    return _gemma_call(text, at, start, '<|"|>', found)


def _function_gemma_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    return _gemma_call(text, at, start, "<escape>", found)


def _gemma_call(text: str, at: int, start: int, quote: str, found: Found) -> int:
    name = _GEMMA_NAME.match(text, at)
    if name is None:
        raise Unreadable(ProblemCode.MISSING_NAME, at)
    cursor = _Gemma(text, name.end() + 1, quote)
    arguments = cursor.members("}", cursor.key, ":")
    found.calls.append(Call(name[1], arguments, "", (start, cursor.at)))
    return cursor.at
