"""The parser's rules, whatever the family: reasoning, values, problems, limits. Families: test_toolcall_formats."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutgym.models import FunctionCall, ToolCall
from rolloutgym.server.environments.toolcall.equality import equal
from rolloutgym.server.environments.toolcall.parsing import (
    MAX_CALLS,
    MAX_CHARS,
    MAX_DEPTH,
    ParseOptions,
    Reply,
    parse,
    parse_structured,
)

Calls = list[tuple[str, dict[str, Any]]]

SCHEMAS: dict[str, dict[str, Any]] = {
    "f": {
        "type": "object",
        "properties": {
            "day": {"type": "integer"},
            "mode": {"type": "string", "enum": ["none", "all"]},
            "note": {"type": "string"},
            "maybe": {"type": ["string", "null"]},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "tags": {"type": "array"},
            "place": {"$ref": "#/$defs/place"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "free": {},
        },
        "$defs": {"place": {"type": "object"}},
    },
    "pwd": {"type": "object", "properties": {}},
}


def calls_of(reply: Reply) -> Calls:
    return [(call.name, call.arguments) for call in reply.calls]


def codes_of(reply: Reply) -> list[str]:
    return [problem.code.value for problem in reply.problems]


def hermes(text: str) -> str:
    return f"<tool_call>{text}</tool_call>"


def f(**arguments: Any) -> Calls:
    return [("f", arguments)]


def xml(key: str, value: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"


# Inputs that other parsers are known to get wrong.
REGRESSIONS: list[tuple[str, str, Calls, list[str]]] = [
    ("apostrophe", hermes('{"name":"f","arguments":{"q":"what\'s the weather"}}'), f(q="what's the weather"), []),
    (
        "closing tag in a string",
        hermes('{"name":"f","arguments":{"c":"print(\'</tool_call>\')"}}'),
        f(c="print('</tool_call>')"),
        [],
    ),
    ("closing tag in a value", xml("note", "a</parameter>b"), f(note="a</parameter>b"), []),
    (
        "whole closing sequence inline",
        xml("note", "x</parameter>\n</function> y"),
        f(note="x</parameter>\n</function> y"),
        [],
    ),
    (
        "draft in the reasoning",
        '<think>maybe <tool_call>{"name":"a"}</tool_call></think><tool_call>{"name":"b"}</tool_call>',
        [("b", {})],
        [],
    ),
    (
        "draft in reasoning that the prompt opened",
        'maybe <tool_call>{"name":"a"}</tool_call> no </think><tool_call>{"name":"b"}</tool_call>',
        [("b", {})],
        [],
    ),
    (
        "closing tag of reasoning after the only call",
        '<tool_call>{"name":"a"}</tool_call></think>',
        [("a", {})],
        ["think_repeated"],
    ),
    (
        "python literals",
        hermes("{'name':'f','arguments':{'ok':True,'x':None,'s':\"it's\"}}"),
        f(ok=True, x=None, s="it's"),
        [],
    ),
    (
        "comma in a string",
        "[write(p='/a', content='# Hello, world!')]",
        [("write", {"p": "/a", "content": "# Hello, world!"})],
        [],
    ),
    ("None for a string", xml("note", "None"), f(note="None"), []),
    ("None where null may be", xml("maybe", "None"), f(maybe=None), []),
    ("null where null may be", xml("either", "null"), f(either=None), []),
    ("an enum's word", xml("mode", "none"), f(mode="none"), []),
    ("text for an integer", xml("day", "2026-01-15"), f(day="2026-01-15"), ["wrong_type"]),
    ("digits for an integer", xml("day", "5"), f(day=5), []),
    ("digits for a string", xml("note", "5"), f(note="5"), []),
    ("a typed format is not coerced", hermes('{"name":"f","arguments":{"day":"5"}}'), f(day="5"), []),
    ("empty arguments", hermes('{"name":"f","arguments":""}'), f(), []),
    ("no arguments key", hermes('{"name":"pwd"}'), [("pwd", {})], []),
    ("a function without parameters", "<function=pwd></function>", [("pwd", {})], []),
    ("line break in a string", hermes('{"name":"f","arguments":{"code":"a\n\tb"}}'), f(code="a\n\tb"), []),
    ("bare quotes in a string", hermes('{"name":"f","arguments":{"s":"say "hi" now"}}'), [], ["invalid_json"]),
    (
        "HTML entities in JSON",
        hermes('{"name":"f","arguments":{"s":"a &lt; b &amp;&amp; c"}}'),
        f(s="a &lt; b &amp;&amp; c"),
        [],
    ),
    ("HTML entities between tags", xml("note", "a &lt; b &amp;&amp; c"), f(note="a &lt; b &amp;&amp; c"), []),
    ("trailing commas", hermes('{"name":"f","arguments":{"n":1,},}'), f(n=1), []),
    ("two objects in a block", hermes('{"name":"f","arguments":{}}{"name":"f","arguments":{}}'), [], ["trailing_data"]),
    ("two bare objects", '{"name":"f","parameters":{}}{"name":"f","parameters":{}}', [], ["trailing_data"]),
    ("escaped characters", hermes('{"name":"f","arguments":{"s":"caf\\u00e9 \\ud83d\\ude00"}}'), f(s="café 😀"), []),
    ("plain characters", hermes('{"name":"f","arguments":{"s":"café 😀"}}'), f(s="café 😀"), []),
    ("duplicate key", hermes('{"name":"f","arguments":{"n":1,"n":2}}'), [], ["duplicate_key"]),
    ("duplicate key in a literal", hermes("{'name':'f','arguments':{'n':1,'n':2}}"), [], ["duplicate_key"]),
    (
        "duplicate parameter",
        "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        [],
        ["duplicate_key"],
    ),
    ("duplicate keyword", "[f(a=1, a=2)]", [], ["duplicate_key"]),
    ("NaN", hermes('{"name":"f","arguments":{"n":NaN}}'), [], ["nan"]),
    ("infinity", hermes('{"name":"f","arguments":{"n":-Infinity}}'), [], ["nan"]),
    ("beyond a double", hermes('{"name":"f","arguments":{"n":1e999}}'), [], ["nan"]),
    ("NaN in a literal", "[f(n=nan)]", [], ["nan"]),
    ("beyond a double in a literal", "[f(n=1e999)]", [], ["nan"]),
    ("a list of calls and prose", "[f(n=1)] is what I would call", [], ["trailing_data"]),
    ("cut off in a string", '<tool_call>{"name":"sh","arguments":{"cmd":"mkdir {a,b', [], ["truncated"]),
    ("cut off between tags", "<tool_call>\n<function=f>\n<parameter=note>\nabc", [], ["truncated"]),
    ("cut off in a list", "[f(a=1), g(b=", f(a=1), ["truncated"]),
    ("cut off, bare", '{"name": "f", "parameters": {"a": "x', [], ["truncated"]),
    ("cut off after a whole call", hermes('{"name":"f","arguments":{}}') + '<tool_call>{"name":"g', f(), ["truncated"]),
    ("valid escape of a slash", hermes('{"name":"f","arguments":{"u":"http:\\/\\/x"}}'), f(u="http://x"), []),
    (
        "Python and JSON words mixed",
        hermes('{"name":"f","arguments":{"l":[\'a\',"b"],"t":true,"n":None}}'),
        f(l=["a", "b"], t=True, n=None),
        [],
    ),
    ("no closing tag at the end", '<tool_call>{"name":"f","arguments":{}}', f(), ["unclosed"]),
    (
        "no closing tag before the next",
        '<tool_call>{"name":"f"}\n<tool_call>{"name":"f"}</tool_call>',
        [*f(), *f()],
        ["unclosed"],
    ),
    (
        "a list in a block",
        hermes('[{"name":"f","arguments":{"n":1}},{"name":"pwd"}]'),
        [("f", {"n": 1}), ("pwd", {})],
        [],
    ),
    ("arguments first", hermes('{"arguments":{"n":1},"name":"f"}'), f(n=1), []),
    ("OpenAI's wrapper", hermes('{"type":"function","function":{"name":"f","arguments":"{\\"n\\":1}"}}'), f(n=1), []),
    (
        "arguments encoded twice",
        hermes(json.dumps({"name": "f", "arguments": json.dumps(json.dumps({"n": 1}))})),
        f(n=1),
        [],
    ),
    ("no name", hermes('{"arguments":{}}'), [], ["missing_name"]),
    ("arguments are a list", hermes('{"name":"f","arguments":[1]}'), [], ["arguments_not_object"]),
    ("both spellings of arguments", hermes('{"name":"f","arguments":{},"parameters":{}}'), [], ["bad_shape"]),
    ("arguments beside the name", hermes('{"name":"f","n":1}'), [], ["bad_shape"]),
    ("not an object", hermes("[1, 2]"), [], ["bad_shape", "bad_shape"]),
    ("a lone surrogate", hermes('{"name":"f","arguments":{"s":"\\ud83d"}}'), [], ["bad_unicode"]),
    ("a lone surrogate in a literal", hermes("{'name':'f','arguments':{'s':'\\ud83d'}}"), [], ["bad_unicode"]),
    ("a broken block before a good one", hermes("{oops}") + hermes('{"name":"f"}'), f(), ["invalid_json"]),
    ("an empty block", hermes(""), [], ["invalid_json"]),
    ("prose around a call", "Let me look. " + hermes('{"name":"f"}') + " Done.", f(), []),
    ("a call in prose", 'You could call {"name":"f","arguments":{}} for that.', [], []),
    ("a bare call and prose", '{"name":"f","arguments":{}} is what I would call', [], ["trailing_data"]),
    ("a name that is no tool's", '{"name": "Ada"}', [], []),
    ("a name that is a tool's", '{"name": "pwd"}', [("pwd", {})], []),
    ("a JSON answer", '{"name": "Ada", "born": 1815}', [], []),
    ("a list answer", "[1, 2, 3]", [], []),
    ("a bracketed aside", "[see(1)] for that", [], ["invalid_json"]),
    ("an invented response", hermes('{"name":"f"}') + "<tool_response>{}</tool_response>", f(), ["invented_response"]),
    ("a word of responses without a call", "It would answer in <tool_response> tags.", [], []),
    ("code is not run", "[f(a=__import__('os').getcwd())]", [], ["invalid_json"]),
    ("a set is no value", hermes("{'name':'f','arguments':{'s':{1,2}}}"), [], ["invalid_json"]),
    ("a tuple is an array", "[f(t=(1, 2), u=(1,), v=(3), w=())]", f(t=[1, 2], u=[1], v=3, w=[]), []),
    ("a sum is no value", "[f(n=1+1)]", [], ["invalid_json"]),
    ("by position", "[f(1)]", [], ["invalid_json"]),
    ("stop token left on", hermes('{"name":"f"}') + "<|im_end|>\n", f(), []),
]


@pytest.mark.parametrize(
    ("text", "calls", "codes"), [case[1:] for case in REGRESSIONS], ids=[c[0] for c in REGRESSIONS]
)
def test_regressions(text: str, calls: Calls, codes: list[str]) -> None:
    reply = parse(text, SCHEMAS)
    assert equal([list(call) for call in calls_of(reply)], [list(call) for call in calls])
    assert codes_of(reply) == codes


COERCIONS = [
    ("day", " 5 ", 5, True), ("day", "5.0", 5.0, True), ("day", "5.5", "5.5", False), ("day", "1e3", 1000.0, True),
    ("day", "true", "true", False), ("ratio", "-0.5", -0.5, True), ("ratio", "7", 7, True),
    ("ratio", "7,5", "7,5", False), ("ratio", "NaN", "NaN", False), ("flag", "true", True, True),
    ("flag", "False", False, True), ("flag", "1", "1", False), ("tags", '["a", 1]', ["a", 1], True),
    ("tags", "['a', True]", ["a", True], True), ("tags", "a, b", "a, b", False),
    ("place", '{"x": 1}', {"x": 1}, True), ("place", "[1]", "[1]", False), ("note", " 5 ", " 5 ", True),
    ("note", '"quoted"', '"quoted"', True), ("maybe", "nothing", "nothing", True), ("maybe", "null", None, True),
    ("either", "3", 3, True), ("either", "three", "three", False), ("free", '{"a": [1]}', {"a": [1]}, True),
    ("free", "plain text", "plain text", True), ("free", "True", "True", True), ("unknown", "12", "12", True),
    ("mode", "none", "none", True), ("day", "9" * 5000, "9" * 5000, False),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text", "value", "fits"), COERCIONS)
def test_text_values_get_the_type_of_the_schema(key: str, text: str, value: Any, fits: bool) -> None:
    reply = parse(f"<function=f><parameter={key}>{text}</parameter></function>", SCHEMAS)
    assert equal(reply.calls[0].arguments[key], value)
    assert codes_of(reply) == ([] if fits else ["wrong_type"])
    assert reply.attempts == 1  # of the wrong type, and still a call


def test_a_schema_that_refers_to_itself_ends() -> None:
    circular: dict[str, Any] = {
        "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{"$ref": "#/$defs/b"}]}},
        "$defs": {"a": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{"$ref": "#/$defs/b"}]}},
    }
    text = "<function=f><parameter=a>1</parameter><parameter=b>x</parameter></function>"
    assert calls_of(parse(text, {"f": circular})) == f(a=1, b="x")


# ---- reasoning ------------------------------------------------------------------------------------------------------

CALL = hermes('{"name":"f"}')
A, B = hermes('{"name":"a"}'), hermes('{"name":"b"}')


@pytest.mark.parametrize(
    ("text", "options", "reasoning", "names", "codes", "spoilt"),
    [
        ("<think>r</think>" + CALL, {}, "r", ["f"], [], False),
        ("\n <think>r</think>\n\n" + CALL, {}, "r", ["f"], [], False),
        (CALL, {}, None, ["f"], [], False),
        ("<think>r " + CALL, {}, "r " + CALL, [], ["think_unclosed"], False),
        ("r</think>" + CALL, {}, "r", ["f"], [], False),
        (f"r {A}</think>{B}", {"prefilled_think": True}, f"r {A}", ["b"], [], False),
        ("r " + CALL, {"prefilled_think": True}, "r " + CALL, [], ["think_unclosed"], False),
        ("[THINK]r[/THINK][TOOL_CALLS]f[ARGS]{}", {}, "r", ["f"], [], False),
        ("◁think▷r◁/think▷" + CALL, {}, "r", ["f"], [], False),
        ("<|channel>thought\nr<channel|><|tool_call>call:f{}<tool_call|>", {}, "\nr", ["f"], [], False),
        ("<r>x</r>" + CALL, {"think_tags": ("<r>", "</r>")}, "x", ["f"], [], False),
        ("<think>x</think>" + CALL, {"think_tags": ("<r>", "</r>")}, None, ["f"], [], False),
        # a tag in an argument is text
        (
            hermes('{"name":"f","arguments":{"s":"<think>"}}'),
            {"think": "required"},
            None,
            ["f"],
            ["think_missing"],
            True,
        ),
        (
            "<think>r</think>" + hermes('{"name":"f","arguments":{"s":"<think></think>"}}'),
            {"think": "required"},
            "r",
            ["f"],
            [],
            False,
        ),
        (hermes('{"name":"f","arguments":{"s":"</think>"}}'), {}, None, ["f"], [], False),
        # policies
        ("<think>r</think>" + CALL, {"think": "required"}, "r", ["f"], [], False),
        (CALL, {"think": "required"}, None, ["f"], ["think_missing"], True),
        ("Sure. <think>r</think>", {"think": "required"}, "Sure. <think>r", [], ["think_missing"], True),
        ("Hm. <r>", {"think_tags": ("<r>", "</r>")}, None, [], ["think_repeated"], False),
        ("<think>r</think>" + CALL + "<think>s</think>", {"think": "required"}, "r", ["f"], ["think_repeated"], True),
        ("<think>r</think>" + CALL + "<think>s</think>", {}, "r", ["f"], ["think_repeated"], False),
        ("<think>r" + CALL, {"think": "required"}, "r" + CALL, [], ["think_unclosed"], True),
        ("<think>r</think>" + CALL, {"think": "forbidden"}, "r", ["f"], ["think_forbidden"], True),
        ("<think>\n\n</think>" + CALL, {"think": "forbidden"}, "\n\n", ["f"], [], False),
        (CALL, {"think": "forbidden"}, None, ["f"], [], False),
        # drafts
        (f"<think>{A}</think>{B}", {"calls_in_think": "ignore"}, A, ["b"], [], False),
        (f"<think>{A}</think>{B}", {"calls_in_think": "error"}, A, ["b"], ["call_in_think"], True),
        (f"<think>r</think>{B}", {"calls_in_think": "error"}, "r", ["b"], [], False),
        (f"<think>{A}</think>{B}", {"calls_in_think": "accept"}, A, ["b"], [], False),
        (f"<think>{A}</think>Done.", {"calls_in_think": "accept"}, A, ["a"], [], False),
        (f"<think>{A}", {"calls_in_think": "accept"}, A, ["a"], ["think_unclosed"], False),
        (f"<think>{A}</think>Done.", {}, A, [], [], False),
    ],
)
def test_reasoning(
    text: str, options: dict[str, Any], reasoning: str | None, names: list[str], codes: list[str], spoilt: bool
) -> None:
    reply = parse(text, SCHEMAS, ParseOptions(**options))
    assert reply.reasoning == reasoning
    assert [call.name for call in reply.calls] == names
    assert codes_of(reply) == codes
    assert reply.spoilt == spoilt


def test_where_a_block_is_required_somebody_must_have_opened_it() -> None:
    text = "Sure. </think>" + CALL
    assert codes_of(parse(text, SCHEMAS, ParseOptions(think="required"))) == ["think_missing"]
    assert codes_of(parse(text, SCHEMAS, ParseOptions(think="required", prefilled_think=True))) == []
    harmony = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi!"
    assert codes_of(parse(harmony, SCHEMAS, ParseOptions(think="required"))) == []
    assert codes_of(parse(harmony, SCHEMAS, ParseOptions(think="forbidden"))) == ["think_forbidden"]
    assert codes_of(parse(harmony[harmony.index("<|start|>") :], SCHEMAS, ParseOptions(think="required"))) == [
        "think_missing"
    ]


@pytest.mark.parametrize("token", ["<|im_end|>", "<|eot_id|>", "<|eot|>", "</s>", "<turn|>"])
def test_a_stop_token_is_no_content(token: str) -> None:
    assert parse(f"Hello. {token}\n", SCHEMAS).content == "Hello."
    assert parse(token, SCHEMAS).content == ""


def test_content_is_what_is_left() -> None:
    text = f"<think>r</think> Look: {CALL} and {CALL} done. "
    reply = parse(text, SCHEMAS)
    assert reply.content == "Look:  and  done."
    assert [text[slice(*found.span)] for found in reply.calls] == ['<tool_call>{"name":"f"}'] * 2
    assert (
        parse(
            "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
            SCHEMAS,
        ).content
        == ""
    )


@pytest.mark.parametrize("family", ["mistral", "llama", "glm", "harmony", "pythonic"])
def test_a_fixed_family_reads_no_other(family: Any) -> None:
    text = "[TOOL_CALLS]f[ARGS]{}" if family != "mistral" else hermes('{"name":"f"}') if family != "glm" else ""
    assert parse(text, SCHEMAS, ParseOptions(family=family)).calls == ()


# ---- structured calls -----------------------------------------------------------------------------------------------


def call(name: str, arguments: Any, id: str = "") -> ToolCall:
    return ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))


@pytest.mark.parametrize(
    ("arguments", "expected", "codes"),
    [
        ({"n": 1}, f(n=1), []),
        ('{"n": 1}', f(n=1), []),
        ("", f(), []),
        ("  ", f(), []),
        ('"{\\"n\\": 1}"', f(n=1), []),
        ("{'n': True}", f(n=True), []),
        ('{"n": 1', [], ["truncated"]),
        ('{"n": 1} {"n": 2}', [], ["trailing_data"]),
        ('{"n": 1, "n": 2}', [], ["duplicate_key"]),
        ('{"n": NaN}', [], ["nan"]),
        ("[1]", [], ["arguments_not_object"]),
        ("3", [], ["arguments_not_object"]),
    ],
)
def test_structured_arguments(arguments: Any, expected: Calls, codes: list[str]) -> None:
    reply = parse_structured([call("f", arguments, "c1")], "")
    assert calls_of(reply) == expected
    assert codes_of(reply) == codes
    assert reply.attempts == 1
    assert [c.id for c in reply.calls] + [p.id for p in reply.problems] == ["c1"]


def test_structured_content_is_not_searched_for_calls_and_keeps_the_think_policy() -> None:
    reply = parse_structured([], f"<think>r</think>{CALL}")
    assert (reply.reasoning, reply.content, reply.attempts) == ("r", CALL, 0)
    assert parse_structured([call("f", {})], "", ParseOptions(think="required")).spoilt
    assert not parse_structured([call("f", {})], "<think>r</think>", ParseOptions(think="required")).spoilt
    assert codes_of(parse_structured([call("", {})], "")) == ["missing_name"]


# ---- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bracket", ["[]", "{}"])
@pytest.mark.parametrize("template", ['<tool_call>{"name":"f","arguments":{"a":%s}}</tool_call>', "[f(a=%s)]"])
def test_depth(bracket: str, template: str) -> None:
    def nested(depth: int) -> str:
        if bracket == "[]":
            return "[" * depth + "]" * depth
        return '{"a":' * depth + "1" + "}" * depth

    around = template.count("{") + template.count("(")
    assert calls_of(parse(template % nested(MAX_DEPTH - around), SCHEMAS))
    assert codes_of(parse(template % nested(MAX_DEPTH - around + 1), SCHEMAS)) == ["too_deep"]
    assert codes_of(parse(template % nested(50_000), SCHEMAS)) == ["too_deep"]


def test_structured_arguments_are_held_against_the_same_limits() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH + 1):
        deep = {"a": deep}
    assert codes_of(parse_structured([call("f", json.dumps(deep))], "")) == ["too_deep"]
    assert calls_of(parse_structured([call("f", json.dumps(deep["a"]))], ""))
    unfit: list[tuple[Any, str]] = [(deep, "too_deep"), ({"n": float("nan")}, "nan"), ({"s": "\ud800"}, "bad_unicode")]
    for arguments, code in unfit:
        unchecked = FunctionCall.model_construct(name="f", arguments=arguments)
        assert codes_of(parse_structured([ToolCall.model_construct(id="", function=unchecked)], "")) == [code]


def test_a_deep_stack_is_no_reason_to_raise() -> None:
    def deeper(levels: int) -> Reply:
        return parse("[f(a=" + "[" * 190 + "]" * 190 + ")]", SCHEMAS) if levels == 0 else deeper(levels - 1)

    frames = 0
    frame: Any = sys._getframe()
    while frame:
        frame, frames = frame.f_back, frames + 1
    assert codes_of(deeper(sys.getrecursionlimit() - frames - 100)) == ["too_deep"]


def test_sizes() -> None:
    assert codes_of(parse("x" * MAX_CHARS, SCHEMAS)) == []
    assert codes_of(parse("x" * (MAX_CHARS + 1), SCHEMAS)) == ["too_long"]
    assert codes_of(parse_structured([call("f", " " * MAX_CHARS), call("f", " ")], "")) == ["too_long"]
    half = {"s": "x" * (MAX_CHARS // 2)}
    assert [codes_of(parse_structured([call("f", half)] * n, "")) for n in (1, 2)] == [[], ["too_long"]]
    assert codes_of(parse(hermes('{"name":"f","arguments":{"n":' + "9" * 5000 + "}}"), SCHEMAS)) == ["number_too_long"]
    assert codes_of(parse("[f(n=" + "9" * 5000 + ")]", SCHEMAS)) == ["number_too_long"]
    many = parse(CALL * (MAX_CALLS + 10), SCHEMAS)
    assert (len(many.calls), codes_of(many), many.attempts) == (MAX_CALLS, ["too_many_calls"], MAX_CALLS + 1)
    broken = parse("<tool_call>x" * (MAX_CALLS + 10), SCHEMAS)
    assert broken.attempts == MAX_CALLS + 1
    assert parse("\ud800" + CALL, SCHEMAS).spoilt


# Repeated to a million characters: each would be slow for a parser that rescans.
HOSTILE = [
    "<tool_call>", '<tool_call>{"', "<tool_call>{'", '<tool_call>["",', '<tool_call>[",', "<tool_call>['\"\"\"",
    "<tool_call>{", "<tool_call>[[[[", '<tool_call>{"name":"f"', '<tool_call>{"name":"f"}', '<tool_call>"\\"',
    "<tool_call>f<arg_key>", "<tool_call>f<arg_key>a</arg_key><arg_value>", "<function=", "<function=f>",
    "<function=f><parameter=a>", "<function=f><parameter=a></parameter>",
    "<function=f><parameter=a></parameter></function>", "</parameter>", "</parameter> ",
    "<function=f><parameter=a>x</parameter> </function> ", "<|python_tag|>", '<|python_tag|>{"name":"f"};',
    "[TOOL_CALLS]", "[TOOL_CALLS]f", "[TOOL_CALLS]f[ARGS]{", "[TOOL_CALLS]f ", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f", "<｜tool▁call▁begin｜>f\n", "<｜DSML｜invoke",
    "<minimax:tool_call>", '<minimax:tool_call><invoke name="f"><parameter name="a">',
    '<｜DSML｜invoke name="f">', '<｜DSML｜invoke name="f"><｜DSML｜parameter name="a">',
    "<|tool_call_begin|>", "<|tool_call_begin|>f ", "<|open|>call",
    '<|open|>call tool="f"<|sep|>', '<|open|>call a="" ',
    '<|open|>call tool="f"<|sep|><|open|>argument key="a"<|sep|>', "<|close|>argument<|sep|> ", "<|im_end|>",
    "<|tool_call>", "<|tool_call>call:f{", '<|tool_call>call:f{a:<|"|>', "<|channel|>",
    "<|channel|>commentary to=functions.f<|message|>", '<|channel|>commentary to=functions.f<|message|>{"', "to=f ",
    "<think>", "</think>", "<think></think>", "[", "{", "(", '"', "'", "\\", " ", "\n", "[f(", "[f(a=", "[f(a='",
    "f(", '{"name":', "<tool_response>", "1", "a", "é", "<|tool_call_start|>[f(", "<|python_start|>[",
    "<start_function_call>call:f{a:<escape>", "[f(a=((", "[f(a={'b':", "<tool_call>\n\n\n", "<tool_call>{'a':\"\\u",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.timeout(300)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """It takes a fraction of a second; a quadratic scan of a million characters would take hours."""
    parse(unit * (MAX_CHARS // len(unit)), SCHEMAS)
    parse("<tool_call>" + unit * (MAX_CHARS // len(unit) - 11), SCHEMAS)


class Searched(str):
    """A text that counts the characters passed by its searches."""

    passed = 0

    def find(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        found = super().find(sub, start, end)
        self.passed += (len(self) if found < 0 else found) - start
        return found


@pytest.mark.parametrize("unit", [*HOSTILE, "<tool_call>{</tool_call>"])
def test_marks_are_searched_for_in_a_few_passes(unit: str) -> None:
    """However many blocks are broken, and whichever of their marks never comes again."""
    text = Searched(unit * (MAX_CALLS + 1) + "a" * 100_000)
    parse(text, SCHEMAS)
    assert text.passed <= 10 * len(text)


FRAGMENTS = st.sampled_from([
    *HOSTILE,
    '{"name":"f","arguments":{}}', "</tool_call>", "</function>", "</arg_value>", "<|message|>", "<|end|>",
    "<|call|>", "<|start|>assistant", "[ARGS]", "[CALL_ID]", "name", "True", "null", ",", ":", "]", "}", ")", ";",
    "=", "<tool_call|>", "\ud800", "\x00",
])  # fmt: skip
OPTIONS = st.builds(
    ParseOptions,
    family=st.sampled_from(["auto", "hermes", "harmony", "pythonic", "llama"]),
    think=st.sampled_from(["required", "optional", "forbidden"]),
    prefilled_think=st.booleans(),
    calls_in_think=st.sampled_from(["ignore", "error", "accept"]),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=25).map("".join), OPTIONS)
def test_never_raises_and_answers_with_json(text: str, options: ParseOptions) -> None:
    reply = parse(text, SCHEMAS, options)
    for found in reply.calls:
        assert found.name
        assert 0 <= found.span[0] <= found.span[1] <= len(text)
        json.dumps(found.arguments, allow_nan=False, ensure_ascii=False).encode()
    assert all(0 <= problem.at <= len(text) for problem in reply.problems)
    assert reply == parse(text, SCHEMAS, options)
