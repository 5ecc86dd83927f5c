"""Families that write each argument between tags of its own: Qwen3-Coder, GLM, DeepSeek's DSML, MiniMax, Kimi K3.

A value ends at the closing tag after which the format goes on, so a value may hold such a tag itself. Values are text
without a type: the tool's schema gives them one. DSML and Kimi K3 mark strings, so they need no schema.
"""

import re
from typing import NamedTuple

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.parsing.blocks import Marks, read_blocks
from rolloutgym.server.environments.toolcall.parsing.reply import Call, Found, ProblemCode, Schemas, Unreadable
from rolloutgym.server.environments.toolcall.parsing.schema import coerce
from rolloutgym.server.environments.toolcall.parsing.shapes import arguments_of, whole_value
from rolloutgym.server.environments.toolcall.parsing.values import read_value, skip_space

FUNCTION = Marks("<function=", "</function>")
DSML = Marks("<｜DSML｜invoke", "</｜DSML｜invoke>", needed=True)
MINIMAX = Marks("<minimax:tool_call>", "</minimax:tool_call>")
KIMI_K3 = Marks("<|open|>call", "<|close|>call<|sep|>", needed=True)

# Possessive white space and bounded names: each pattern passes over a text once.
_XML_NAME = re.compile(r"([^>\n]{0,256}+)>")
_XML_PARAMETER = re.compile(r"\s*+<parameter=([^>\n]{0,256}+)>")
_XML_VALUE_END = re.compile(
    r"</parameter>\s*+(?=<parameter=|</function>\s*+(?:</tool_call>|<function=|<tool_call>|\Z))"
)
_GLM_CLOSE = "</tool_call>"
_GLM_NAME = re.compile(r"[^\s<]{1,256}+")
_GLM_KEY = re.compile(r"\s*+<arg_key>([^<]{0,256}+)</arg_key>\s*+<arg_value>")
_GLM_VALUE_END = re.compile(r"</arg_value>(?=\s*+(?:<arg_key>|</tool_call>))")
_K3_ATTRIBUTES = r'((?:\s++\w{1,64}+="[^"]{0,256}+")*+)\s*+<\|sep\|>'
_K3_CALL = re.compile(_K3_ATTRIBUTES)
_K3_ARGUMENT = re.compile(r"\s*+<\|open\|>(argument|json)" + _K3_ATTRIBUTES)
_K3_ATTRIBUTE = re.compile(r'(\w++)="([^"]*+)"')
_K3_VALUE_END = re.compile(
    r"<\|close\|>argument<\|sep\|>(?=\s*+<\|(?:open\|>(?:argument|json)\b|close\|>call<\|sep\|>))"
)
_K3_JSON_END = "<|close|>json<|sep|>"


class _Invoke(NamedTuple):
    """`<invoke name="…"> <parameter name="…">VALUE</parameter> … </invoke>`, each tag with a family's own prefix."""

    head: re.Pattern[str]
    parameter: re.Pattern[str]
    value_end: re.Pattern[str]
    close: str

    @classmethod
    def of(cls, prefix: str) -> "_Invoke":
        return cls(
            re.compile(rf'\s*+<{prefix}invoke\s++name="([^"]{{0,256}}+)"\s*+>'),
            re.compile(rf'\s*+<{prefix}parameter\s++name="([^"]{{0,256}}+)"(?:\s++string="(true|false)")?+\s*+>'),
            re.compile(rf"</{prefix}parameter>(?=\s*+(?:<{prefix}parameter\s|</{prefix}invoke>))"),
            f"</{prefix}invoke>",
        )


_DSML_INVOKE = _Invoke.of("｜DSML｜")
_MINIMAX_INVOKE = _Invoke.of("")


def read_functions(text: str, at: int, schemas: Schemas, found: Found) -> None:
    """`<function=NAME>` without the `<tool_call>` around it: parameters in tags, or JSON arguments (Llama's own)."""
    found.family = "qwen3_coder"
    read_blocks(text, at, FUNCTION, _function, schemas, found)


def qwen3_coder_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    """One or more functions."""
    while True:
        at = _function(text, at + len(FUNCTION.open), start, schemas, found)
        if not text.startswith(FUNCTION.close, at):
            raise Unreadable(ProblemCode.INVALID_JSON, at)
        at += len(FUNCTION.close)
        following = skip_space(text, at)
        if not text.startswith(FUNCTION.open, following):
            return at
        at = following


def _function(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    """`NAME> <parameter=K>\\nVALUE\\n</parameter> …`; returns the position of `</function>`."""
    name = _XML_NAME.match(text, at)
    if name is None:
        raise Unreadable(ProblemCode.MISSING_NAME, at)
    arguments = _Arguments(name[1].strip(), start, schemas)
    at = skip_space(text, name.end())
    is_json = text.startswith("{", at)
    if is_json:
        at = arguments.take_json(text, at)
    while parameter := _XML_PARAMETER.match(text, at):
        end = _value_end(_XML_VALUE_END, text, parameter.end())
        arguments.take_text(parameter[1].strip(), _without_line_ends(text[parameter.end() : end.start()]))
        at = end.end()
    at = skip_space(text, at)
    if at == len(text) and not is_json:  # more parameters might have followed
        raise Unreadable(ProblemCode.TRUNCATED, at)
    found.calls.append(arguments.call((start, at), found))
    return at


def glm_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    """`NAME <arg_key>K</arg_key> <arg_value>VALUE</arg_value> …`; without its closing tag even the name may be cut."""
    name = _GLM_NAME.match(text, at)
    if name is None:
        raise Unreadable(ProblemCode.MISSING_NAME, at)
    arguments = _Arguments(name[0], start, schemas)
    at = name.end()
    while key := _GLM_KEY.match(text, at):
        end = _value_end(_GLM_VALUE_END, text, key.end())
        arguments.take_text(key[1].strip(), text[key.end() : end.start()])
        at = end.end()
    at = skip_space(text, at)
    if not text.startswith(_GLM_CLOSE, at):
        raise Unreadable(ProblemCode.INVALID_JSON, at)
    found.calls.append(arguments.call((start, at), found))
    return at


def read_dsml(text: str, at: int, schemas: Schemas, found: Found) -> None:
    found.family = "dsml"
    read_blocks(text, at, DSML, _dsml_block, schemas, found)


def _dsml_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    return _invoke(_DSML_INVOKE, text, start, start, schemas, found)


def read_minimax(text: str, at: int, schemas: Schemas, found: Found) -> None:
    found.family = "minimax"
    read_blocks(text, at, MINIMAX, _minimax_block, schemas, found)


def _minimax_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    """One or more calls."""
    while True:
        at = skip_space(text, _invoke(_MINIMAX_INVOKE, text, at, start, schemas, found))
        if not text.startswith(_MINIMAX_INVOKE.close, at):
            raise Unreadable(ProblemCode.INVALID_JSON, at)
        at += len(_MINIMAX_INVOKE.close)
        if not _MINIMAX_INVOKE.head.match(text, at):
            return at


def _invoke(form: _Invoke, text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    """The call at `at`; returns the position behind its parameters. DSML says of each whether it is a string."""
    name = form.head.match(text, at)
    if name is None:
        raise Unreadable(ProblemCode.MISSING_NAME, at)
    arguments = _Arguments(name[1], start, schemas)
    at = name.end()
    while parameter := form.parameter.match(text, at):
        end = _value_end(form.value_end, text, parameter.end())
        value = text[parameter.end() : end.start()]
        if parameter[2] == "true":
            arguments.take(parameter[1], value)
        elif parameter[2] == "false":
            arguments.take(parameter[1], whole_value(value, parameter.end()).value)
        else:
            arguments.take_text(parameter[1], value)
        at = end.end()
    found.calls.append(arguments.call((start, at), found))
    return at


def read_kimi_k3(text: str, at: int, schemas: Schemas, found: Found) -> None:
    found.family = "kimi"
    read_blocks(text, at, KIMI_K3, _kimi_k3_block, schemas, found)


def _kimi_k3_block(text: str, at: int, start: int, schemas: Schemas, found: Found) -> int:
    """`<|open|>call tool="…"<|sep|>`, then `<|open|>argument key="…" type="…"<|sep|>VALUE` and its end for each,
    or `<|open|>json<|sep|>{…}` for all of them."""
    head = _K3_CALL.match(text, at)
    if head is None:
        raise Unreadable(ProblemCode.MISSING_NAME, at)
    arguments = _Arguments(_attributes(head[1]).get("tool", ""), start, schemas)
    at = head.end()
    while argument := _K3_ARGUMENT.match(text, at):
        begin = argument.end()
        if argument[1] == "json":
            at = skip_space(text, arguments.take_json(text, begin))
            if not text.startswith(_K3_JSON_END, at):
                raise Unreadable(ProblemCode.INVALID_JSON, at)
            at += len(_K3_JSON_END)
            continue
        end = _value_end(_K3_VALUE_END, text, begin)
        value = text[begin : end.start()]
        attributes = _attributes(argument[2])
        key, type_ = attributes.get("key", ""), attributes.get("type")
        if type_ == "string":
            arguments.take(key, value)
        elif type_:
            arguments.take(key, whole_value(value, begin).value)
        else:
            arguments.take_text(key, value)
        at = end.end()
    found.calls.append(arguments.call((start, at), found))
    return at


def _attributes(header: str) -> dict[str, str]:
    """The template escapes quotes and ampersands in them."""
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _K3_ATTRIBUTE.findall(header)}


class _Arguments:
    """One call's arguments as they come in."""

    __slots__ = ("_misfits", "_name", "_schema", "_start", "_values")

    def __init__(self, name: str, start: int, schemas: Schemas) -> None:
        if not name:
            raise Unreadable(ProblemCode.MISSING_NAME, start)
        self._name = name
        self._start = start
        self._schema = schemas.get(name, {})
        self._values: dict[str, JsonValue] = {}
        self._misfits = 0

    def take(self, key: str, value: JsonValue) -> None:
        if key in self._values:
            raise Unreadable(ProblemCode.DUPLICATE_KEY, self._start)
        self._values[key] = value

    def take_text(self, key: str, text: str) -> None:
        value, fits = coerce(text, self._schema, key)
        self._misfits += not fits
        self.take(key, value)

    def take_json(self, text: str, at: int) -> int:
        value = read_value(text, at)
        for key, item in arguments_of(value.value, at).items():
            self.take(key, item)
        return value.end

    def call(self, span: tuple[int, int], found: Found) -> Call:
        if self._misfits:
            found.problem(ProblemCode.WRONG_TYPE, span[0])
        return Call(self._name, self._values, "", span)


def _value_end(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    """Where the value at `at` ends. Without an end the rest of the text is the value, cut off."""
    end = pattern.search(text, at)
    if end is None:
        raise Unreadable(ProblemCode.TRUNCATED, len(text))
    return end


def _without_line_ends(value: str) -> str:
    """Without the line break that the template puts on either side of a value."""
    value = value.removeprefix("\r\n") if value.startswith("\r\n") else value.removeprefix("\n")
    return value.removesuffix("\r\n") if value.endswith("\r\n") else value.removesuffix("\n")
