"""Families that write calls as JSON between marks: Hermes and Qwen, Llama, Mistral, DeepSeek, Kimi.

Each reader starts at its family's first mark, reads calls to the end of the text, and never raises: what cannot be read
is a problem. Values end where JSON ends, never at a tag.
"""

import re

from rolloutgym.server.environments.toolcall.parsing.blocks import Marks, read_blocks
from rolloutgym.server.environments.toolcall.parsing.literal_families import dotted_call
from rolloutgym.server.environments.toolcall.parsing.reply import Call, Found, ProblemCode, Schemas, Unreadable
from rolloutgym.server.environments.toolcall.parsing.shapes import add_calls, arguments_of
from rolloutgym.server.environments.toolcall.parsing.tagged_families import glm_block, qwen3_coder_block
from rolloutgym.server.environments.toolcall.parsing.values import read_value, skip_space

TOOL_CALL = Marks("<tool_call>", "</tool_call>")
PYTHON_TAG = "<|python_tag|>"
MISTRAL = Marks("[TOOL_CALLS]", "")
DEEPSEEK = Marks("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
KIMI = Marks("<|tool_call_begin|>", "<|tool_call_end|>")

# Possessive throughout, and names are bounded, so that no head costs more than one pass.
_MISTRAL_HEAD = re.compile(
    r"\s*+([^\s\[\]{}]{1,256}+)\s*+(?:\[CALL_ID\]\s*+([^\s\[\]{}]{0,256}+)\s*+)?+(?:\[ARGS\]\s*+)?+"
)
_DEEPSEEK_HEAD = re.compile(
    r"\s*+(?:function<｜tool▁sep｜>(?P<v3>[^\n<]{1,256}+)\n\s*+```(?:json)?+|(?P<v31>[^\n<]{1,256}+)<｜tool▁sep｜>)"
)
_KIMI_HEAD = re.compile(r"\s*+([^\s<]{1,256}+)\s*+<\|tool_call_argument_begin\|>")
_KIMI_INDEX = re.compile(r":\d+\Z")


def read_tool_call_blocks(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """`<tool_call>` blocks: JSON (Hermes), `<function=…>` (Qwen3-Coder) or `NAME<arg_key>…` (GLM), told by content."""
    read_blocks(text, at, TOOL_CALL, _tool_call_block, schemas, found)


def _tool_call_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    at = skip_space(text, at)
    first = text[at : at + 1]
    if first in ("{", "[", '"', "'", "", "<") and not text.startswith("<function=", at):
        found.family, read = "hermes", hermes_block
    elif first == "<":
        found.family, read = "qwen3_coder", qwen3_coder_block
    else:
        found.family, read = "glm", glm_block
    return read(text, at, start, schemas, found)


def hermes_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    value = read_value(text, at)
    add_calls(found, value, (start, value.end))
    return value.end


def read_python_tag(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """Llama: `<|python_tag|>` and JSON objects set apart by `;`, or a built-in tool's `name.call(argument=…)`."""
    start = text.index(PYTHON_TAG, at)
    inside = skip_space(text, start + len(PYTHON_TAG))
    if text[inside : inside + 1] in ("{", "[", ""):
        read_json_list(text, inside, schemas, found)
        return
    found.family = "llama"
    found.spans.append((start, len(text)))
    try:
        found.calls.append(dotted_call(text, inside, start))
    except Unreadable as error:
        found.problem(error.code, start)


def read_json_list(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """JSON objects with `;` between them, and nothing after: Llama's form, marked or bare."""
    found.family = "llama"
    found.spans.append((at, len(text)))
    while not found.full(at):
        try:
            value = read_value(text, at)
            after = skip_space(text, value.end)
            if after < len(text) and text[after] != ";":
                raise Unreadable(ProblemCode.TRAILING_DATA, after)
        except Unreadable as error:
            found.problem(ProblemCode.TRUNCATED if error.at >= len(text) else error.code, at)
            return
        add_calls(found, value, (at, value.end))
        at = skip_space(text, after + 1)
        if at >= len(text):
            return


def read_mistral(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """`[TOOL_CALLS]` and a JSON list (v3), or each call as `name[CALL_ID]id[ARGS]{…}` (v11), `name[ARGS]{…}` (v13)."""
    found.family = "mistral"
    read_blocks(text, at, MISTRAL, _mistral_block, schemas, found)


def _mistral_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    at = skip_space(text, at)
    if text[at : at + 1] in ("[", "{"):
        value = read_value(text, at)
        add_calls(found, value, (start, value.end))
        return value.end
    head = _MISTRAL_HEAD.match(text, at)
    if head is None:
        raise Unreadable(ProblemCode.MISSING_NAME if at < len(text) else ProblemCode.TRUNCATED, at)
    return _read_arguments(text, head.end(), start, found, name=head[1], call_id=head[2] or "")


def read_deepseek(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """V3 and R1 (`function<sep>NAME` and fenced JSON), V3.1 (`NAME<sep>{…}`)."""
    found.family = "deepseek"
    read_blocks(text, at, DEEPSEEK, _deepseek_block, schemas, found)


def _deepseek_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    head = _DEEPSEEK_HEAD.match(text, at)
    if head is None:
        raise Unreadable(ProblemCode.MISSING_NAME, at)
    end = _read_arguments(text, head.end(), start, found, name=(head["v3"] or head["v31"]).strip())
    if head["v3"]:
        fence = skip_space(text, end)
        return fence + 3 if text.startswith("```", fence) else end
    return end


def read_kimi(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """`functions.NAME:0<|tool_call_argument_begin|>{…}`; what stands before the argument mark is the call's id."""
    found.family = "kimi"
    read_blocks(text, at, KIMI, _kimi_block, schemas, found)


def _kimi_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    head = _KIMI_HEAD.match(text, at)
    if head is None:
        raise Unreadable(ProblemCode.MISSING_NAME, at)
    name = _KIMI_INDEX.sub("", head[1].removeprefix("functions."))
    return _read_arguments(text, head.end(), start, found, name=name, call_id=head[1])


def _read_arguments(text: str, at: int, start: int, found: Found, *, name: str, call_id: str = "") -> int:
    """The call that begins at `start` and has its arguments at `at`; returns the position behind them."""
    value = read_value(text, at)
    arguments = arguments_of(value.value, start)
    found.calls.append(Call(name, arguments, call_id, (start, value.end), value.literal))
    return value.end
