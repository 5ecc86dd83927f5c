"""The action parser: every spelling that counts, every text that does not, and hostile ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutgym.models import FunctionCall, SqlVerb, ToolCall
from rolloutgym.server.environments.sql.actions import (
    Command,
    Invalid,
    parse_calls,
    parse_fields,
    parse_text,
    sample_request,
    table_name,
)

VERBS: tuple[SqlVerb, ...] = ("DESCRIBE", "SAMPLE", "QUERY", "ANSWER")


@pytest.mark.parametrize(
    ("text", "verb", "argument"),
    [
        # the plain forms
        ("DESCRIBE: singer", "DESCRIBE", "singer"),
        ("DESCRIBE singer", "DESCRIBE", "singer"),
        ("describe singer", "DESCRIBE", "singer"),
        ("Sample: singer", "SAMPLE", "singer"),
        ("sample singer 10", "SAMPLE", "singer 10"),
        ("SAMPLE singer LIMIT 10", "SAMPLE", "singer LIMIT 10"),
        ("QUERY: SELECT 1", "QUERY", "SELECT 1"),
        ("QUERY SELECT 1", "QUERY", "SELECT 1"),
        ("query select 1", "QUERY", "select 1"),
        ("QUERY:SELECT 1", "QUERY", "SELECT 1"),
        ("QUERY : SELECT 1", "QUERY", "SELECT 1"),
        ("ANSWER: 42", "ANSWER", "42"),
        ("ANSWER 42", "ANSWER", "42"),
        ("answer -3.5", "ANSWER", "-3.5"),
        ("Answer Joe Sharp", "ANSWER", "Joe Sharp"),
        ("ANSWER the thing", "ANSWER", "the thing"),
        ("ANSWER：42", "ANSWER", "42"),
        # names in quotes, of two words, with a schema
        ('DESCRIBE "order details"', "DESCRIBE", '"order details"'),
        ("DESCRIBE: order details", "DESCRIBE", "order details"),
        ("SAMPLE [order details] 3", "SAMPLE", "[order details] 3"),
        ("DESCRIBE main.singer", "DESCRIBE", "main.singer"),
        ("DESCRIBE singer;", "DESCRIBE", "singer"),
        # several lines
        ("QUERY: SELECT name\nFROM singer\nWHERE age>3", "QUERY", "SELECT name\nFROM singer\nWHERE age>3"),
        ("QUERY:\nSELECT 1\n\nFROM t", "QUERY", "SELECT 1\n\nFROM t"),
        ("ANSWER: a | b\nc | d", "ANSWER", "a | b\nc | d"),
        ("ANSWER\n42", "ANSWER", "42"),
        ("QUERY: SELECT 1\r\nFROM t\r\n", "QUERY", "SELECT 1\r\nFROM t"),
        # the last action counts, up to the next action line
        ("QUERY: SELECT 1\nANSWER: 3", "ANSWER", "3"),
        ("ANSWER: 3\nQUERY: SELECT 1", "QUERY", "SELECT 1"),
        ("DESCRIBE a\nDESCRIBE b\n", "DESCRIBE", "b"),
        ("Sample rows look odd.\nQUERY SELECT 1", "QUERY", "SELECT 1"),
        ("QUERY: SELECT 1;\nDESCRIBE singer\nANSWER", "DESCRIBE", "singer"),
        # lines of SQL that begin with a keyword
        ("QUERY: SELECT id,\nanswer\nFROM faq", "QUERY", "SELECT id,\nanswer\nFROM faq"),
        ("QUERY: SELECT ID,\nANSWER FROM FAQ", "QUERY", "SELECT ID,\nANSWER FROM FAQ"),
        ("QUERY:\n```sql\nSELECT\nANSWER: x\n```", "QUERY", "SELECT\nANSWER: x"),
        # fences
        ("QUERY:\n```sql\nSELECT 1\n```", "QUERY", "SELECT 1"),
        ("QUERY: ```sql\nSELECT 1\n```\nThat should do.", "QUERY", "SELECT 1"),
        ("QUERY ```sql\nSELECT 1\n```", "QUERY", "SELECT 1"),
        ("QUERY:\n~~~\nSELECT 1\n~~~", "QUERY", "SELECT 1"),
        ("QUERY:\n```sql\nSELECT 1", "QUERY", "SELECT 1"),
        ("```\nQUERY: SELECT 1\n```", "QUERY", "SELECT 1"),
        ("```sql\nQUERY: SELECT 1\n```\nSo.", "QUERY", "SELECT 1"),
        ("ANSWER:\n```json\n[[1, 2]]\n```", "ANSWER", "[[1, 2]]"),
        # marks
        ("**ANSWER:** 42", "ANSWER", "42"),
        ("**ANSWER**: 42", "ANSWER", "42"),
        ("**ANSWER: 42**", "ANSWER", "42"),
        ("**ANSWER**: **42**", "ANSWER", "42"),
        ("***ANSWER: 42***", "ANSWER", "42"),
        ("__ANSWER__: 42", "ANSWER", "42"),
        ("* **ANSWER:** x", "ANSWER", "x"),
        ("`DESCRIBE singer`", "DESCRIBE", "singer"),
        ("DESCRIBE **singer**", "DESCRIBE", "singer"),
        ("QUERY: `SELECT 1`", "QUERY", "SELECT 1"),
        ("QUERY: SELECT '`'", "QUERY", "SELECT '`'"),
        ("QUERY: SELECT `a`, `b` FROM t", "QUERY", "SELECT `a`, `b` FROM t"),
        ("**QUERY: SELECT a * b FROM t**", "QUERY", "SELECT a * b FROM t"),
        # list numbers, bullets, quotes, headings, labels
        ("1. DESCRIBE singer", "DESCRIBE", "singer"),
        ("2) QUERY: SELECT 1", "QUERY", "SELECT 1"),
        ("- QUERY: SELECT 1", "QUERY", "SELECT 1"),
        ("> ANSWER: 3", "ANSWER", "3"),
        ("### ANSWER: 3", "ANSWER", "3"),
        ("  \t1. **QUERY**: SELECT 1", "QUERY", "SELECT 1"),
        ("Action: QUERY: SELECT 1", "QUERY", "SELECT 1"),
        ("Final answer: 42", "ANSWER", "42"),
        # thought
        ("<think>QUERY: SELECT 1</think>ANSWER: 3", "ANSWER", "3"),
        ("ANSWER: 3\n<think>QUERY: SELECT 1", "ANSWER", "3"),
        ("I could QUERY: SELECT 1\n</think>\nANSWER: 3", "ANSWER", "3"),
        ("ANSWER: 1</think>ANSWER: 2", "ANSWER", "2"),
        ("<think>a <think>b</think> ANSWER: 1</think>\nANSWER: 2", "ANSWER", "2"),
        ("<THINKING>ANSWER: 1</THINKING> DESCRIBE t", "DESCRIBE", "t"),
        # JSON
        ('{"action_type": "QUERY", "argument": "SELECT 1"}', "QUERY", "SELECT 1"),
        ('{"action": "query", "sql": "SELECT 1"}', "QUERY", "SELECT 1"),
        ('So:\n```json\n{"name": "answer", "arguments": {"value": 42}}\n```', "ANSWER", "42"),
        ('{"name": "answer", "arguments": {"value": [[1, "a"], [2, null]]}}', "ANSWER", '[[1, "a"], [2, null]]'),
        ('{"name": "query", "arguments": {"sql": "SELECT 1\nANSWER: 3"}}', "QUERY", "SELECT 1\nANSWER: 3"),
        ('{"name": "sample", "arguments": {"table": "order details", "rows": 3}}', "SAMPLE", '"order details" 3'),
        # tool calls
        ('<tool_call>\n{"name": "query", "arguments": {"sql": "SELECT 1"}}\n</tool_call>', "QUERY", "SELECT 1"),
        ('<tool_call>{"name": "describe", "arguments": "{\\"table\\": \\"t\\"}"}', "DESCRIBE", "t"),
        (
            '{"tool_calls": [{"id": "a", "type": "function", "function": {"name": "describe", "arguments": '
            '"{\\"table\\": \\"singer\\"}"}}]}',
            "DESCRIBE",
            "singer",
        ),
        (
            '<tool_call>{"name": "describe", "arguments": {"table": "a"}}</tool_call>\n'
            '<tool_call>{"name": "sample", "arguments": {"table": "b"}}</tool_call>',
            "SAMPLE",
            "b",
        ),
        ('{"name": "describe", "arguments": {"table": "a"}}\nANSWER: 3', "ANSWER", "3"),
    ],
)
def test_understood(text: str, verb: str, argument: str) -> None:
    command = parse_text(text)
    assert isinstance(command, Command), command
    assert (command.verb, command.argument) == (verb, argument)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Expected one action"),
        ("   \n", "Expected one action"),
        ("I do not know.", "No action was found"),
        ("ANSWERING: 42", "No action was found"),
        ("ANSWER_KEY: 42", "No action was found"),
        ("ANSWERS: 42", "No action was found"),
        ("Sample rows look odd.", "No action was found"),
        ("Sample singer.", "No action was found"),
        ("Describe it to me", "No action was found"),
        ("Query the table for names", "No action was found"),
        ("Answer will be given later", "No action was found"),
        ("I will QUERY: SELECT 1", "No action was found"),
        ("```sql\nSELECT 1\n```", "No action was found"),
        ("DESCRİBE: x", "No action was found"),
        ("QUERY", "QUERY needs an argument"),
        ("ANSWER:", "ANSWER needs an argument"),
        ("ANSWER:\n```\n\n```", "ANSWER needs an argument"),
        ("<think>QUERY: SELECT 1", "outside the reasoning"),
        ("QUERY: SELECT 1</think>", "outside the reasoning"),
        ("QUERY: SELECT 1\n<think>a</think>\nQUERY: SELECT 2\n</think>", "outside the reasoning"),
        ('{"name": "drop_table", "arguments": {"table": "t"}}', "No action was found"),
        ('{"name": "query", "arguments": {"sql": ""}}', "No action was found"),
        ('{"name": "query", "arguments"', "No action was found"),
        ("[1, 2, 3]", "No action was found"),
    ],
)
def test_not_understood(text: str, says: str) -> None:
    result = parse_text(text)
    assert isinstance(result, Invalid), result
    assert says in result.reason
    assert "Expected one action: DESCRIBE" in result.reason


def test_a_text_that_is_too_long_is_not_read() -> None:
    filler = "x" * (2**20 - len("\nANSWER: 3"))
    assert parse_text(f"{filler}\nANSWER: 3") == Command("ANSWER", "3")
    result = parse_text(f"{filler}x\nANSWER: 3")
    assert isinstance(result, Invalid)
    assert "longer than 1048576" in result.reason


def test_a_call_keeps_its_id_and_text_has_none() -> None:
    call = {"id": "call_7", "function": {"name": "query", "arguments": {"sql": "SELECT 1"}}}
    assert parse_text(json.dumps({"tool_calls": [call]})) == Command("QUERY", "SELECT 1", "call_7")
    hermes = parse_text('<tool_call>{"name": "query", "arguments": {"sql": "SELECT 1"}}</tool_call>')
    assert hermes == Command("QUERY", "SELECT 1", "")
    assert parse_text("QUERY: SELECT 1") == Command("QUERY", "SELECT 1", None)


def _call(name: str, arguments: str, call_id: str = "c") -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=arguments))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([_call("query", '{"sql": "SELECT 1"}')], Command("QUERY", "SELECT 1", "c")),
        ([_call("Answer", '{"answer": true}')], Command("ANSWER", "true", "c")),
        (
            [_call("describe", '{"table": "a"}', "1"), _call("sample", '{"table": "b"}', "2")],
            Command("SAMPLE", "b", "2"),
        ),
        ([_call("describe", '{"table": "a"}', "1"), _call("fly", "{}", "2")], Command("DESCRIBE", "a", "1")),
    ],
)
def test_tool_calls(calls: list[ToolCall], expected: Command) -> None:
    assert parse_calls(calls) == expected


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        ([], "no tool call"),
        ([_call("fly", "{}")], "no tool 'fly'"),
        ([_call("query", "{")], "not a JSON object"),
        ([_call("query", "[1]")], "not a JSON object"),
        ([_call("query", "{}")], "needs the argument 'sql'"),
        ([_call("query", "")], "needs the argument 'sql'"),
        ([_call("query", "[" * 100_000)], "not a JSON object"),
    ],
)
def test_bad_tool_calls(calls: list[ToolCall], says: str) -> None:
    result = parse_calls(calls)
    assert isinstance(result, Invalid)
    assert says in result.reason
    assert result.call_id == ("c" if calls else None)


def test_fields_need_no_parser() -> None:
    assert parse_fields("ANSWER", " ANSWER: 3 ") == Command("ANSWER", "ANSWER: 3")
    assert isinstance(parse_fields("QUERY", " \n"), Invalid)


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("singer", "singer"),
        (' "order ""x"" details"; ', 'order "x" details'),
        ("[order details]", "order details"),
        ("`a`", "a"),
        ("'a'", "a"),
        ("main.singer", "singer"),
        ('main."a b"', "a b"),
        ('"', '"'),
    ],
)
def test_table_names(argument: str, name: str) -> None:
    assert table_name(argument) == name


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("singer", ("singer", None)),
        ("singer 10", ("singer", 10)),
        ("singer, 10", ("singer", 10)),
        ("singer limit 10", ("singer", 10)),
        ("singer 10 rows", ("singer", 10)),
        ('"my table" 3', ('"my table"', 3)),
        ("order details", ("order details", None)),
        ("t 99999999999999999999", ("t 99999999999999999999", None)),
    ],
)
def test_sample_requests(argument: str, expected: tuple[str, int | None]) -> None:
    assert sample_request(argument) == expected


@given(st.text())
def test_never_raises(text: str) -> None:
    assert isinstance(parse_text(text), Command | Invalid)


_PIECES = st.sampled_from(
    (
        *(*VERBS, "query", "answer", "singer", "SELECT 1", ":", " ", "\n", "```", "```sql", "**", "`", "1. ", "_", "-"),
        *("<think>", "</think>", "<tool_call>", '{"name": "query", "arguments": {"sql": "x"}}', "{", "[", '"', "|"),
    )
)


@given(st.lists(_PIECES, max_size=30).map("".join))
def test_never_raises_near_the_grammar(text: str) -> None:
    result = parse_text(text)
    if isinstance(result, Command):
        assert result.argument == result.argument.strip() != ""


_PROSE = st.text(st.characters(codec="utf-8", exclude_characters="<{[`~"), max_size=80).filter(
    lambda text: isinstance(parse_text(text), Invalid)
)
_SQL = st.lists(
    st.sampled_from(["SELECT a", "FROM t", "WHERE b = 'ANSWER'", "-- note", "ORDER BY 1", ""]), min_size=1
).map(lambda lines: "SELECT 1 " + "\n".join(lines))
_ARGUMENTS = {
    "DESCRIBE": st.from_regex(r"[A-Za-z_]\w{0,20}", fullmatch=True),
    "SAMPLE": st.from_regex(r"[A-Za-z_]\w{0,20}", fullmatch=True),
    "QUERY": _SQL,
    "ANSWER": st.from_regex(r"[0-9]{1,5}(\.[0-9]{1,3})?", fullmatch=True),
}


@given(prose=_PROSE, data=st.data(), verb=st.sampled_from(VERBS), colon=st.sampled_from([":", ""]), lower=st.booleans())
def test_a_well_formed_action_is_never_dropped(
    prose: str, data: st.DataObject, verb: SqlVerb, colon: str, lower: bool
) -> None:
    argument = data.draw(_ARGUMENTS[verb]).strip()
    keyword = verb.lower() if lower else verb
    command = parse_text(f"{prose}\n{keyword}{colon} {argument}")
    assert command == Command(verb, argument)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "unit",
    [
        *('{"x":[', "[\n", '{"a":"\n', '{"x":[\n', "<tool_call>{", "<tool_call> ", "<think>", "</think>"),
        *("QUERY\n", "QUERY: a\n", "QUERY: ```\n", "QUERY: SELECT\nANSWER 1\n", "ANSWER: `", "ANSWER 1.", "answer (\n"),
        *("* ", "1. ", " ", "\t", "`", "```\n", '"', "'", "a", "\n", "'a'", '"a".', "SAMPLE ", "sample 'a'", "- " * 3),
    ],
)
def test_a_megabyte_of_it_takes_no_time(unit: str) -> None:
    text = unit * (2**20 // len(unit))
    for prefix in ("", "answer ", "QUERY:"):
        parse_text(prefix + text)
