"""gpt-oss's harmony: a reply is several messages, each with a channel and perhaps a recipient.

    <|channel|>analysis<|message|>…<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>

The analysis channel is reasoning. A message to a recipient is a call; its JSON ends where JSON ends. The last end token
may be missing, since it is the stop token.
"""

import re
from typing import NamedTuple

from rolloutgym.server.environments.toolcall.parsing.reply import Call, Found, ProblemCode, Unreadable
from rolloutgym.server.environments.toolcall.parsing.shapes import arguments_of
from rolloutgym.server.environments.toolcall.parsing.values import read_value, skip_space

STARTS = re.compile(r"\s*+(?:<\|start\|>\s*+assistant|<\|channel\|>|to=[^\s<]++\s*+(?:<\|channel\|>|<\|message\|>))")
_MESSAGE = "<|message|>"
_BODY_END = re.compile(r"<\|(?:end|call|return|start|channel)\|>")
_END_TOKENS = ("<|end|>", "<|call|>", "<|return|>")
_ROLE = re.compile(r"<\|start\|>\s*+([^\s<]++)")
_RECIPIENT = re.compile(r"\bto=([^\s<]++)")
_CHANNEL = re.compile(r"<\|channel\|>\s*+(\w++)")


class Harmony(NamedTuple):
    reasoning: str | None
    content: str


def read_harmony(text: str, found: Found) -> Harmony:
    """All messages of the reply; calls go to `found`."""
    reasoning: list[str] = []
    content: list[str] = []
    invented = -1
    at = 0
    while (body := text.find(_MESSAGE, at)) >= 0:
        header = text[at:body]
        body += len(_MESSAGE)
        role, recipient = _ROLE.search(header), _RECIPIENT.search(header)
        ours = role is None or role[1] == "assistant"
        if recipient and ours:
            if found.full(at):
                break
            at = _read_call(text, at, body, recipient[1], found)
            continue
        end = _BODY_END.search(text, body)
        if ours:
            channel = _CHANNEL.search(header)
            said = reasoning if channel and channel[1] == "analysis" else content
            said.append(text[body : end.start() if end else len(text)])
        elif invented < 0:
            invented = at
        at = len(text) if end is None else end.end() if end[0] in _END_TOKENS else end.start()
    if _RECIPIENT.search(text, at):  # a call whose body never came
        found.problem(ProblemCode.TRUNCATED, at)
    if invented >= 0:
        found.problem(ProblemCode.INVENTED_RESPONSE, invented)
    return Harmony("\n".join(reasoning) if reasoning else None, "\n".join(content).strip())


def _read_call(text: str, start: int, body: int, recipient: str, found: Found) -> int:
    found.family = "harmony"
    name = recipient.removeprefix("functions.")
    try:
        end = skip_space(text, body)
        arguments, literal = {}, False
        if not _BODY_END.match(text, end):  # an empty body counts only if something ends it
            value = read_value(text, end)
            arguments, literal = arguments_of(value.value, start), value.literal
            end = skip_space(text, value.end)
        if end < len(text) and not _BODY_END.match(text, end):
            raise Unreadable(ProblemCode.TRAILING_DATA, end)
    except Unreadable as error:
        closing = _BODY_END.search(text, max(error.at, body))
        code = error.code
        if code in (ProblemCode.INVALID_JSON, ProblemCode.TRUNCATED):
            code = ProblemCode.INVALID_JSON if closing else ProblemCode.TRUNCATED
        found.problem(code, start)
        return _behind(text, closing.start() if closing else len(text))
    found.calls.append(Call(name, arguments, "", (start, end), literal))
    return _behind(text, end)


def _behind(text: str, at: int) -> int:
    """Behind the end token at `at`, if there is one."""
    return next((at + len(token) for token in _END_TOKENS if text.startswith(token, at)), at)
