"""The one parser, for training and for evaluation: text or structured calls to a `Reply`.

Reasoning is split off first and only the rest is scanned. The first mark found tells the family, which then reads the
rest of the text. Text without a mark holds calls only if all of it is calls (bare JSON, a pythonic list): what stands
in prose does not count. Never raises, never evaluates, never changes the text; time is linear in its length.
"""

import re
from collections.abc import Callable, Iterable
from typing import get_args

from rolloutgym.models import ToolCall
from rolloutgym.server.environments.toolcall.parsing.harmony import STARTS, read_harmony
from rolloutgym.server.environments.toolcall.parsing.json_families import (
    read_deepseek,
    read_json_list,
    read_kimi,
    read_mistral,
    read_python_tag,
    read_tool_call_blocks,
)
from rolloutgym.server.environments.toolcall.parsing.literal_families import (
    read_function_gemma,
    read_gemma,
    read_lfm2,
    read_llama_4,
    read_pythonic,
)
from rolloutgym.server.environments.toolcall.parsing.reasoning import TAGS, Reasoning, split_reasoning
from rolloutgym.server.environments.toolcall.parsing.reply import (
    Call,
    Family,
    Found,
    ParseOptions,
    Problem,
    ProblemCode,
    Reply,
    Schemas,
    Unreadable,
)
from rolloutgym.server.environments.toolcall.parsing.shapes import arguments_of, is_call
from rolloutgym.server.environments.toolcall.parsing.tagged_families import (
    read_dsml,
    read_functions,
    read_kimi_k3,
    read_minimax,
)
from rolloutgym.server.environments.toolcall.parsing.values import (
    check_value,
    is_unicode,
    read_value,
    skip_space,
)

MAX_CHARS = 2**20
"""A longer reply is not read."""

_Read = Callable[[str, int, Schemas, Found], None]

_READERS: dict[str, tuple[_Read, frozenset[Family]]] = {
    "<tool_call>": (read_tool_call_blocks, frozenset({"hermes", "qwen3_coder", "glm"})),
    "<function=": (read_functions, frozenset({"qwen3_coder", "llama"})),
    "<|python_tag|>": (read_python_tag, frozenset({"llama"})),
    "[TOOL_CALLS]": (read_mistral, frozenset({"mistral"})),
    "<｜tool▁call▁begin｜>": (read_deepseek, frozenset({"deepseek"})),
    "<｜DSML｜invoke": (read_dsml, frozenset({"dsml"})),
    "<minimax:tool_call>": (read_minimax, frozenset({"minimax"})),
    "<|tool_call_begin|>": (read_kimi, frozenset({"kimi"})),
    "<|open|>call": (read_kimi_k3, frozenset({"kimi"})),
    "<|tool_call>": (read_gemma, frozenset({"gemma"})),
    "<start_function_call>": (read_function_gemma, frozenset({"gemma"})),
    "<|tool_call_start|>": (read_lfm2, frozenset({"pythonic"})),
    "<|python_start|>": (read_llama_4, frozenset({"pythonic"})),
}


def _openings(marks: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(mark) for mark in marks) or r"(?!)")


_ANY_OPENING = _openings(_READERS)
_FAMILY_OPENINGS = {
    family: _openings(mark for mark, (_, families) in _READERS.items() if family in families)
    for family in get_args(Family)
}
_BARE_JSON = re.compile(r"""(?:\[\s*+)?+\{\s*+["'](?:name|arguments|parameters|function|type|id)["']\s*+:""")
_BARE_PYTHONIC = re.compile(r"\[\s*+[^\W\d][\w.\-]*+\s*+\(")
_STOP_TOKENS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "</s>", "<｜end▁of▁sentence｜>", "<end_of_turn>",
    "<turn|>", "<|eot|>", "<|eom|>", "<|user|>", "<|observation|>", "<|end_of_msg|>", "[e~[",
)  # fmt: skip
_SECTION_MARKS = re.compile(
    r"<｜tool▁calls▁(?:begin|end)｜>|</?｜DSML｜(?:function|tool)_calls>|<\|tool_calls?_section_(?:begin|end)\|>"
    r"|<\|(?:open|close)\|>(?:response|tools|message)<\|sep\|>"
)
_INVENTED = "<tool_response>"
_NO_OPENING = re.compile(r"(?!)")
_ALWAYS_SPOILS = frozenset({ProblemCode.CALL_IN_THINK, ProblemCode.THINK_MISSING, ProblemCode.THINK_FORBIDDEN})
_SPOILING = {
    "required": _ALWAYS_SPOILS | {ProblemCode.THINK_UNCLOSED, ProblemCode.THINK_REPEATED},
    "optional": _ALWAYS_SPOILS,
    "forbidden": _ALWAYS_SPOILS,
}
_DEFAULT = ParseOptions()


def parse(text: str, schemas: Schemas, options: ParseOptions = _DEFAULT) -> Reply:
    """Read a model's raw output. `schemas` are the argument schemas of the tools it may call, by name."""
    if len(text) > MAX_CHARS:
        return _unread(ProblemCode.TOO_LONG)
    if not text.isascii() and not is_unicode(text):
        return _unread(ProblemCode.BAD_UNICODE)
    try:
        return _parse(text, schemas, options)
    except RecursionError:  # the caller's own stack is deep already
        return _unread(ProblemCode.TOO_DEEP)


def _parse(text: str, schemas: Schemas, options: ParseOptions) -> Reply:
    found = Found()
    if options.family == "harmony" or (options.family == "auto" and STARTS.match(text)):
        said = read_harmony(text, found)
        thought = said.reasoning
        span = None if thought is None else (0, len(thought))
        _check_think(thought or "", Reasoning(span, 0, opened=thought is not None), options, found)
        return _reply(said.reasoning, said.content, found, options)
    text = _without_stop_tokens(text)
    opening = _ANY_OPENING if options.family == "auto" else _FAMILY_OPENINGS[options.family]
    reasoning = split_reasoning(text, options, opening)
    span = reasoning.span
    _scan(text, reasoning.body, schemas, options, opening, found)
    if span and options.calls_in_think != "ignore" and opening.search(text, *span):
        if options.calls_in_think == "error":
            found.problem(ProblemCode.CALL_IN_THINK, span[0])
        elif not found.calls and not found.problems:
            _scan(text[: span[1]], span[0], schemas, options, opening, found)
    _check_think(text, reasoning, options, found)
    return _reply(_within(text, span), _content(text, reasoning.body, found), found, options)


def parse_structured(tool_calls: Iterable[ToolCall], content: str, options: ParseOptions = _DEFAULT) -> Reply:
    """Read calls in OpenAI's form, and the text beside them. That text is not searched for calls."""
    found = Found()
    size = len(content)
    for call in tool_calls:
        if found.full(0):
            break
        found.family = "openai"
        given = call.function.arguments
        try:
            if isinstance(given, dict):
                size += check_value(given)
                arguments = given
            else:
                size += len(given)
                if size > MAX_CHARS:
                    break
                arguments = arguments_of(given)
            if not call.function.name:
                raise Unreadable(ProblemCode.MISSING_NAME, 0)
        except Unreadable as error:
            found.problems.append(Problem(error.code, 0, call.id))
        else:
            found.calls.append(Call(call.function.name, arguments, call.id))
    if size > MAX_CHARS:
        return _unread(ProblemCode.TOO_LONG)
    reasoning = split_reasoning(content, options, _NO_OPENING)
    _check_think(content, reasoning, options, found)
    return _reply(_within(content, reasoning.span), content[reasoning.body :].strip(), found, options)


def _scan(text: str, at: int, schemas: Schemas, options: ParseOptions, opening: re.Pattern[str], found: Found) -> None:
    """Read the calls from `at` on: bare if that is how the text begins, else from the first mark."""
    at = skip_space(text, at)
    if text[at : at + 1] in ("{", "[") and _read_bare(text, at, schemas, options.family, found):
        return
    if mark := opening.search(text, at):
        _READERS[mark[0]][0](text, mark.start(), schemas, found)


def _read_bare(text: str, at: int, schemas: Schemas, family: str, found: Found) -> bool:
    """Calls without any mark; whether there were any."""
    if family in ("auto", "pythonic") and _BARE_PYTHONIC.match(text, at):
        read_pythonic(text, at, schemas, found)
        return True
    if family in ("auto", "llama") and _BARE_JSON.match(text, at):
        try:
            meant = is_call(read_value(text, at).value, schemas)
        except Unreadable:
            meant = True  # it begins like a call, and is broken
        if meant:
            read_json_list(text, at, schemas, found)
        return meant
    return False


def _without_stop_tokens(text: str) -> str:
    """The text up to the end-of-turn tokens that some servers leave on it."""
    kept = end = len(text)
    while end:
        if text[end - 1].isspace():
            end -= 1
        elif token := next((token for token in _STOP_TOKENS if text.endswith(token, 0, end)), None):
            kept = end = end - len(token)
        else:
            break
    return text[:kept]


def _content(text: str, body: int, found: Found) -> str:
    """The visible text that is no call."""
    kept: list[str] = []
    at = body
    for start, end in found.spans:
        kept.append(text[at:start])
        at = max(at, end)
    kept.append(text[at:])
    return _SECTION_MARKS.sub("", "".join(kept)).strip()


def _reply(reasoning: str | None, content: str, found: Found, options: ParseOptions) -> Reply:
    if _has_tag(content, options):
        found.problem(ProblemCode.THINK_REPEATED, 0)
    if found.calls and _INVENTED in content:
        found.problem(ProblemCode.INVENTED_RESPONSE, 0)
    spoilt = bool(found.problems) and not _SPOILING[options.think].isdisjoint(p.code for p in found.problems)
    family = found.family if found.calls or found.problems else None
    return Reply(reasoning, content, tuple(found.calls), tuple(found.problems), family, spoilt)


def _check_think(text: str, reasoning: Reasoning, options: ParseOptions, found: Found) -> None:
    """Hold the reasoning against the policy."""
    thought = _within(text, reasoning.span)
    if options.think == "required" and not reasoning.opened:
        found.problem(ProblemCode.THINK_MISSING, 0)
    if options.think == "forbidden" and thought and thought.strip():
        found.problem(ProblemCode.THINK_FORBIDDEN, 0)
    if not reasoning.closed:
        found.problem(ProblemCode.THINK_UNCLOSED, 0)


def _within(text: str, span: tuple[int, int] | None) -> str | None:
    return None if span is None else text[slice(*span)]


def _has_tag(content: str, options: ParseOptions) -> bool:
    pairs = (options.think_tags,) if options.think_tags else TAGS
    return any(tag in content for pair in pairs for tag in pair)


def _unread(code: ProblemCode) -> Reply:
    return Reply(None, "", (), (Problem(code, 0),), spoilt=True)
