"""What a model's text asks for: the last well-formed action outside think blocks.

Text (`QUERY: SELECT …`), JSON, Hermes `<tool_call>` blocks and OpenAI `tool_calls` are one grammar with four spellings.
Prose that begins with a keyword is not an action: without a colon the argument must look like one (a table name, SQL, a
value). The parser is pure, never raises, and takes time linear in the text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rolloutgym.models import SqlVerb, ToolCall

_MARK = r"(?:[>#*_`+\-]{1,6}+|\d{1,3}[.)](?=[ \t*_`]))"
_LINE = re.compile(
    rf"""
    \n (?P<lead> [ \t]*+ (?: {_MARK} [ \t]*+ ){{0,4}} )
    (?: (?:next[ \t]+)? action [ \t]*+ : [ \t]*+ [*_`]{{0,3}} | final [ \t]++ )?
    (?P<verb> DESCRIBE | SAMPLE | QUERY | ANSWER ) (?! [A-Za-z0-9] | _(?!_) )
    (?P<close> (?: \*{{1,3}} | __ | `(?!`) )? [ \t]*+ (?P<colon> [:：] )? (?: \*{{1,3}} | __ | `(?!`) )? )
    (?= [\r\n] | $ | (?<=[ \t:：*_`]) )
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE | re.ASCII,
)
_THINK = re.compile(r"<(?P<end>/?)think(?:ing)?>", re.IGNORECASE)
_MARKS = frozenset("*_`")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
_JSON_START = re.compile(r"<tool_call>\s*+(?=[{\[])|^[ \t]*+(?=[{\[])", re.MULTILINE)
_JSON_TRIES = 32
"""How many texts that begin like JSON and are not are read before giving up: what keeps the time linear."""

_PART = r"""(?: [\w$]+ | "(?:[^"\n]|"")+" | `[^`\n]+` | \[[^\]\n]+\] | '[^'\n]+' )"""
_TABLE = re.compile(rf"{_PART} (?: \. {_PART} )?", re.VERBOSE)
_SAMPLE = re.compile(
    rf"(?P<table> {_PART} (?: \. {_PART} )? ) "
    r"(?: [ \t,]+ (?:limit[ \t]+)? (?P<rows>\d{1,9}) (?:[ \t]+rows)? )?",
    re.VERBOSE | re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"(?:SELECT|WITH|VALUES|EXPLAIN|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|ATTACH|DETACH|PRAGMA|VACUUM|BEGIN)\b"
    r"|[(;]|--|/\*|```|~~~",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"""[-+]?[\d.][\w.,%:/-]* | "[^"\n]*" | '[^'\n]*' | [\[{(].* | [\w.$-]+
    | [A-Z\d][\w.'&-]* (?: [ ][A-Z\d][\w.'&-]* ){1,5}  # a name in capitals""",
    re.VERBOSE,
)
_SQL_GOES_ON = re.compile(r"(?:FROM|AS|IS|AND|OR|NOT|IN|LIKE|BETWEEN|ASC|DESC)\b|[=<>!,)+*/|]", re.IGNORECASE)

_ARGUMENT_NAMES: Mapping[SqlVerb, tuple[str, ...]] = {
    "DESCRIBE": ("argument", "table", "table_name", "name"),
    "SAMPLE": ("argument", "table", "table_name", "name"),
    "QUERY": ("argument", "sql", "query"),
    "ANSWER": ("argument", "value", "answer"),
}
_VERBS: Mapping[str, SqlVerb] = {verb: verb for verb in _ARGUMENT_NAMES}
MAX_TEXT = 2**20
"""Characters of model output that are read; parsing runs beside other episodes' steps."""
EXPECTED = (
    "Expected one action: DESCRIBE: <table>, SAMPLE: <table>, QUERY: <one SELECT statement>, or ANSWER: <the answer>."
)


class Command(NamedTuple):
    """One action, as understood."""

    verb: SqlVerb
    argument: str
    call_id: str | None = None
    """The tool call that asked for it; empty where a call has no id; null where it came as text."""


class Invalid(NamedTuple):
    """No action: `reason` tells the model what was expected."""

    reason: str
    call_id: str | None = None


def parse_text(text: str) -> Command | Invalid:
    """The last well-formed action of raw model output."""
    if len(text) > MAX_TEXT:
        return Invalid(f"The text is longer than {MAX_TEXT} characters. {EXPECTED}")
    visible = _without_thought(text)
    found: Command | None = None
    at = -1
    empty: SqlVerb | None = None
    for end, command in _calls(visible):
        found, at = command, end
    for start, verb, argument in _lines(visible):
        if start < at:  # a line inside a call's own text
            continue
        if argument:
            found, at = Command(verb, argument), start
        else:
            empty = verb
    if found is not None:
        return found
    if empty is not None:
        return Invalid(f"{empty} needs an argument. {EXPECTED}")
    if not visible.strip():
        return Invalid(f"There was no text outside the reasoning. {EXPECTED}" if text.strip() else EXPECTED)
    return Invalid(f"No action was found. {EXPECTED}")


def parse_calls(calls: Sequence[ToolCall]) -> Command | Invalid:
    """The last well-formed one of OpenAI tool calls."""
    reason = f"There was no tool call. {EXPECTED}"
    call_id = calls[-1].id if calls else None
    for call in reversed(calls):
        command = _command_of(call.function.name, call.function.arguments, call.id)
        if isinstance(command, Command):
            return command
        if call.id == call_id:
            reason = command.reason
    return Invalid(reason, call_id)


def parse_fields(verb: SqlVerb, argument: str) -> Command | Invalid:
    """The structured form, which needs no parser: only an empty argument is refused."""
    if not argument.strip():
        return Invalid(f"{verb} needs an argument. {EXPECTED}")
    return Command(verb, argument.strip())


def sample_request(argument: str) -> tuple[str, int | None]:
    """Table and number of rows of a SAMPLE argument: `singer`, `singer 10`, `"my table", 3`."""
    match = _SAMPLE.fullmatch(argument)
    if match is None or match["rows"] is None:
        return argument, None
    return match["table"], int(match["rows"])


def table_name(argument: str) -> str:
    """A table's bare name: quotes and the schema `main` taken off, an empty pair of brackets and a semicolon too."""
    name = argument.strip().rstrip(";").strip()
    if name.lower().startswith("main."):
        name = name[5:]
    for left, right in ('""', "''", "``", "[]"):
        if len(name) > 2 and name[0] == left and name[-1] == right:
            return name[1:-1].replace('""', '"') if left == '"' else name[1:-1]
    return name


# ---- text -----------------------------------------------------------------------------------------------------------


def _without_thought(text: str) -> str:
    """The text outside think blocks. One that never ends runs to the end; one that never began began before the text
    (templates that open it in the prompt)."""
    if "<" not in text:
        return text
    kept: list[str] = []
    depth, last = 0, 0
    for tag in _THINK.finditer(text):
        if not tag["end"]:
            if depth == 0:
                kept.append(text[last : tag.start()])
            depth += 1
        elif depth:
            depth -= 1
        else:
            kept.clear()
        last = tag.end()
    if depth == 0:
        kept.append(text[last:])
    # A line break stands for what was cut, so that text after a block begins a line.
    return "\n".join(kept)


def _lines(text: str) -> Iterator[tuple[int, SqlVerb, str]]:
    """Position, verb and argument of every action line; the argument is empty where it is missing."""
    text = "\n" + text  # every line begins after a break, which a search finds at once
    open_line: re.Match[str] | None = None
    fences = [match.span() for match in _FENCE.finditer(text)] if "```" in text or "~~~" in text else []
    fence = 0
    fenced_until = 0
    for line in _LINE.finditer(text):
        if line.start() < fenced_until or not _begins_action(text, line, inside_sql=_is_query(open_line)):
            continue
        if open_line is not None:
            yield open_line.start(), _verb(open_line), _argument(text, open_line, line.start())
        open_line = line
        # SQL in a fence that the action line itself opens is no place for another action.
        while fence < len(fences) and fences[fence][0] < line.end():
            fence += 1
        if fence < len(fences) and _is_query(line) and not text[line.end() : fences[fence][0]].strip():
            fenced_until = fences[fence + 1][1] if fence + 1 < len(fences) else len(text)
    if open_line is not None:
        yield open_line.start(), _verb(open_line), _argument(text, open_line, len(text))


def _verb(line: re.Match[str]) -> SqlVerb:
    return _VERBS[line["verb"].upper()]


def _is_query(line: re.Match[str] | None) -> bool:
    return line is not None and _verb(line) == "QUERY"


def _begins_action(text: str, line: re.Match[str], *, inside_sql: bool) -> bool:
    """Whether a line that begins with a keyword is an action and neither prose nor a line of the SQL above it."""
    if line["colon"]:
        return True
    shouted = line["verb"].isupper()
    end = text.find("\n", line.end())
    rest = text[line.end() : end if end >= 0 else len(text)].strip().rstrip("*_` \t")
    if inside_sql and (not shouted or not rest or _SQL_GOES_ON.match(rest)):
        return False
    if not rest:  # the argument, if any, is on the lines below
        return shouted
    verb = _verb(line)
    if verb == "QUERY":
        return _STATEMENT.match(rest) is not None or _STATEMENT.match(rest.lstrip("`*_ ")) is not None
    if verb == "ANSWER":
        return shouted or _VALUE.fullmatch(rest) is not None
    bare = rest.rstrip(";").rstrip()
    return (_SAMPLE if verb == "SAMPLE" else _TABLE).fullmatch(bare.lstrip("`*_ ")) is not None


def _argument(text: str, line: re.Match[str], end: int) -> str:
    """An action's argument: from its keyword to `end`, without fences and marks."""
    raw = text[line.end() : end]
    fence = _FENCE.search(raw) if "```" in raw or "~~~" in raw else None
    if fence is not None and not raw[: fence.start()].strip():
        closing = _FENCE.search(raw, fence.end())
        return raw[fence.end() : closing.start() if closing else len(raw)].strip()
    if fence is not None:  # the fence around the whole action ends here
        raw = raw[: fence.start()]
    argument = raw.strip()
    if not _MARKS.isdisjoint(line["lead"] + line["close"] + argument[:1]):
        argument = _unmarked(argument, line)
    return argument.rstrip(";").rstrip() if _verb(line) in ("DESCRIBE", "SAMPLE") else argument


def _unmarked(argument: str, line: re.Match[str]) -> str:
    for mark in ("***", "**", "__", "`"):
        # A mark that was opened before the argument and not closed again stands at its end; a pair stands around it.
        if (mark in line["lead"]) != (mark in line["close"]):
            argument = argument.removesuffix(mark).rstrip()
        if len(argument) > 2 * len(mark) and argument.startswith(mark) and argument.endswith(mark):
            inner = argument[len(mark) : -len(mark)]
            if mark not in inner:
                argument = inner.strip()
    return argument


# ---- calls ----------------------------------------------------------------------------------------------------------


def _calls(text: str) -> Iterator[tuple[int, Command]]:
    """End and command of every JSON action or tool call, in order."""
    if "{" not in text:
        return
    decoder = json.JSONDecoder(strict=False)  # models write line breaks inside JSON texts
    position = tries = 0
    while tries < _JSON_TRIES and (start := _JSON_START.search(text, position)):
        try:
            value, position = decoder.raw_decode(text, start.end())
        except (ValueError, RecursionError):
            tries += 1
            position = start.end() + 1
            continue
        for item in value if isinstance(value, list) else [value]:
            for command in _commands_of_json(item):
                yield position, command


def _commands_of_json(value: JsonValue) -> Iterator[Command]:
    """Commands of `{"action_type", "argument"}`, `{"name", "arguments"}`, or a message with `tool_calls`."""
    if not isinstance(value, dict):
        return
    nested = value.get("tool_calls")
    for item in nested if isinstance(nested, list) else [value]:
        if not isinstance(item, dict):
            continue
        call_id = item.get("id")
        function = item.get("function", item)
        if not isinstance(function, dict):
            continue
        verb = function.get("action_type", function.get("action"))
        if isinstance(verb, str):
            command = _command_of(verb, function, None)
        else:
            name = function.get("name")
            arguments = function.get("arguments", function.get("parameters", {}))
            if not isinstance(name, str) or not isinstance(arguments, str | dict):
                continue
            command = _command_of(name, arguments, call_id if isinstance(call_id, str) else "")
        if isinstance(command, Command):
            yield command


def _command_of(name: str, arguments: str | Mapping[str, JsonValue], call_id: str | None) -> Command | Invalid:
    verb = _VERBS.get(name.strip().upper())
    if verb is None:
        return Invalid(f"There is no tool {name[:64]!r}. The tools are describe, sample, query and answer.", call_id)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", strict=False)
        except (ValueError, RecursionError):
            return Invalid(f"The arguments of {verb.lower()} are not a JSON object.", call_id)
        if not isinstance(arguments, dict):
            return Invalid(f"The arguments of {verb.lower()} are not a JSON object.", call_id)
    names = _ARGUMENT_NAMES[verb]
    given = next((arguments[name] for name in names if name in arguments), None)
    argument = given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)
    rows = arguments.get("rows")
    if verb == "SAMPLE" and isinstance(rows, int) and not isinstance(rows, bool):
        argument = f"{quote_table(argument)} {rows}"
    if not argument.strip():
        return Invalid(f"{verb.lower()} needs the argument {names[1]!r}.", call_id)
    return Command(verb, argument.strip(), call_id)


def quote_table(name: str) -> str:
    """A table name as SAMPLE's argument takes it beside a number of rows."""
    return name if _TABLE.fullmatch(name) else '"' + name.replace('"', '""') + '"'
