"""Every family: what its models write is read, and whatever call is written in its form comes back as it was."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rolloutgym.models import FunctionCall, ToolCall
from rolloutgym.server.environments.toolcall.equality import equal
from rolloutgym.server.environments.toolcall.parsing import ParseOptions, parse, parse_structured

Pair = tuple[str, dict[str, Any]]
Schemas = dict[str, dict[str, Any]]

WEATHER: Pair = ("get_weather", {"city": "Paris", "days": 3})
TIME: Pair = ("get_time", {"zone": "Europe/Paris"})
SCHEMAS: Schemas = {
    "get_weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "get_time": {"properties": {"zone": {"type": "string"}}},
    "now": {"properties": {}},
}

# (family, reasoning, calls, text): replies in the shapes that the families' chat templates prescribe.
SAMPLES: list[tuple[str, str | None, list[Pair], str]] = [
    (
        "hermes",
        "\nI need the weather.\n",
        [WEATHER, TIME],
        "<think>\nI need the weather.\n</think>\n\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_time", "arguments": {"zone": "Europe/Paris"}}\n</tool_call><|im_end|>',
    ),
    (
        "qwen3_coder",
        None,
        [WEATHER, TIME],
        "I'll look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n<parameter=zone>\nEurope/Paris\n"
        "</parameter>\n</function>\n</tool_call>",
    ),
    ("qwen3_coder", None, [TIME], "<function=get_time>\n<parameter=zone>\nEurope/Paris\n</parameter>\n</function>"),
    ("qwen3_coder", None, [TIME], '<function=get_time>{"zone": "Europe/Paris"}</function>'),
    ("llama", None, [WEATHER], '{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}<|eot_id|>'),
    (
        "llama",
        None,
        [WEATHER, TIME],
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}; '
        '{"name": "get_time", "parameters": {"zone": "Europe/Paris"}}<|eom_id|>',
    ),
    ("llama", None, [("brave_search", {"query": "who won"})], '<|python_tag|>brave_search.call(query="who won")'),
    ("llama", None, [TIME], '[{"name": "get_time", "arguments": {"zone": "Europe/Paris"}}]'),
    ("llama", None, [("now", {})], '{"name": "now"}'),
    ("pythonic", None, [WEATHER, TIME], "[get_weather(city='Paris', days=3), get_time(zone=\"Europe/Paris\")]"),
    ("pythonic", None, [TIME], '<|tool_call_start|>[get_time(zone="Europe/Paris")]<|tool_call_end|>Let me see.'),
    ("pythonic", None, [TIME], '<|python_start|>[get_time(zone="Europe/Paris")]<|python_end|><|eom|>'),
    ("pythonic", None, [("math.sqrt", {"x": -2.5e-3})], "[math.sqrt(x=-2.5e-3)]"),
    (
        "mistral",
        "so",
        [WEATHER, TIME],
        '[THINK]so[/THINK][TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}, '
        '{"name": "get_time", "arguments": {"zone": "Europe/Paris"}}]</s>',
    ),
    (
        "mistral",
        None,
        [WEATHER, TIME],
        '[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Paris", "days": 3}'
        '[TOOL_CALLS]get_time[CALL_ID]f5g6h7i8j[ARGS]{"zone": "Europe/Paris"}</s>',
    ),
    (
        "mistral",
        None,
        [WEATHER, TIME],
        'Sure.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 3}[TOOL_CALLS]get_time{"zone": "Europe/Paris"}',
    ),
    (
        "deepseek",
        None,
        [WEATHER, TIME],
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Paris", "days": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n'
        '```json\n{"zone": "Europe/Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
    ),
    (
        "deepseek",
        "hm",
        [WEATHER, TIME],
        "hm</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris", "days": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>'
        '{"zone": "Europe/Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
    ),
    (
        "dsml",
        "hm",
        [WEATHER, TIME],
        'hm</think>\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="get_time">\n<｜DSML｜parameter name="zone">Europe/Paris</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        "minimax",
        "hm\n",
        [WEATHER, TIME],
        '<think>hm\n</think>\n\n<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">Paris</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="get_time">\n'
        '<parameter name="zone">Europe/Paris</parameter>\n</invoke>\n</minimax:tool_call>[e~[\n',
    ),
    (
        "glm",
        "\nhm",
        [WEATHER, TIME, ("now", {})],
        "<think>\nhm</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n"
        "<tool_call>get_time<arg_key>zone</arg_key><arg_value>Europe/Paris</arg_value></tool_call>"
        "<tool_call>now</tool_call><|observation|>",
    ),
    (
        "kimi",
        None,
        [WEATHER, TIME],
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Paris", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.get_time:1'
        '<|tool_call_argument_begin|>{"zone": "Europe/Paris"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>',
    ),
    (
        "kimi",
        "hm",
        [WEATHER, TIME, ("now", {})],
        "<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>On it.<|close|>response<|sep|>"
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
        '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>'
        '<|open|>call tool="get_time" index="2"<|sep|><|open|>json type="object"<|sep|>{"zone": "Europe/Paris"}'
        '<|close|>json<|sep|><|close|>call<|sep|><|open|>call tool="now" index="3"<|sep|><|close|>call<|sep|>'
        "<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
    ),
    (
        "kimi",
        "hm",
        [WEATHER],
        'hm<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool="get_weather"<|sep|>'
        '<|open|>argument key="city"<|sep|>Paris<|close|>argument<|sep|>'
        '<|open|>argument key="days"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
    ),
    (
        "harmony",
        "hm",
        [WEATHER],
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        '<|constrain|>json<|message|>{"city": "Paris", "days": 3}<|call|>',
    ),
    (
        "harmony",
        None,
        [WEATHER, TIME],
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris", "days": 3}'
        "<|call|><|start|>assistant<|channel|>commentary to=functions.get_time<|message|>"
        '{"zone": "Europe/Paris"}',
    ),
    ("harmony", None, [("now", {})], " to=functions.now<|channel|>commentary<|message|><|call|>"),
    (
        "gemma",
        "\nhm\n",
        [WEATHER, TIME],
        '<|channel>thought\nhm\n<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>'
        '<|tool_call>call:get_time{zone:<|"|>Europe/Paris<|"|>}<tool_call|>',
    ),
    (
        "gemma",
        None,
        [WEATHER],
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>",
    ),
]


@pytest.mark.parametrize(("family", "reasoning", "calls", "text"), SAMPLES)
@pytest.mark.parametrize("fixed", [False, True])
def test_samples(family: Any, reasoning: str | None, calls: list[Pair], text: str, fixed: bool) -> None:
    reply = parse(text, SCHEMAS, ParseOptions(family=family if fixed else "auto"))
    assert [(call.name, call.arguments) for call in reply.calls] == calls
    assert reply.reasoning == reasoning
    assert reply.problems == ()
    assert reply.family == family


def test_escaped_names_in_attributes() -> None:
    call = '<|open|>call tool="a&amp;quot;&quot;"<|sep|><|open|>argument key="&lt;" type="string"<|sep|>&amp;'
    reply = parse(call + "<|close|>argument<|sep|><|close|>call<|sep|>", {})
    assert [(found.name, found.arguments) for found in reply.calls] == [('a&quot;"', {"&lt;": "&amp;"})]


@pytest.mark.parametrize(
    "text",
    [
        "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
        "<|tool_calls_section_begin|><|tool_calls_section_end|><|im_end|>",
        "<|open|>response<|sep|><|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>",
        "<|im_end|>\n<|im_end|> <|endoftext|>",
        "<|channel|>final<|message|><|return|>",
    ],
)
def test_marks_alone_say_nothing(text: str) -> None:
    assert (parse(text, {}).content, parse(text, {}).attempts) == ("", 0)


@pytest.mark.parametrize("closer", ["</think>", "[/THINK]", "◁/think▷", "<channel|>", "<|close|>think<|sep|>"])
def test_reasoning_that_the_prompt_opened_ends_with_any_family_s_tag(closer: str) -> None:
    for prefilled in (True, False):
        reply = parse(
            f'so {closer}<tool_call>{{"name": "now"}}</tool_call></think>', {}, ParseOptions(prefilled_think=prefilled)
        )
        assert (reply.reasoning, len(reply.calls)) == ("so ", 1)


def test_ids_of_the_model_are_kept() -> None:
    mistral = parse("[TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{}", {})
    kimi = parse("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>", {})
    wrapped = parse('<tool_call>{"id": "c1", "function": {"name": "f"}}</tool_call>', {})
    assert [reply.calls[0].id for reply in (mistral, kimi, wrapped)] == ["a1b2c3d4e", "functions.f:0", "c1"]


def test_harmony_without_calls_and_with_broken_ones() -> None:
    final = parse(
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi!<|return|>", {}
    )
    assert (final.reasoning, final.content, final.attempts) == ("hm", "Hi!", 0)
    draft = parse('<|channel|>analysis<|message|>to=functions.f {"a": 1}<|end|>', {})
    assert (draft.calls, draft.content) == ((), "")
    broken = "<|channel|>commentary to=functions.f<|message|>{oops}<|call|>"
    cut_off = '<|channel|>commentary to=functions.f<|message|>{"a": "b'
    tail = '<|channel|>commentary to=functions.f<|message|>{"a": 1} and more<|call|>'
    header = "<|channel|>commentary to=functions.f"
    call = "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
    response = call + "<|start|>functions.f to=assistant<|channel|>commentary<|message|>{}<|end|>"
    texts = (broken, cut_off, tail, header, header + "<|message|>", broken + header, response * 2)
    assert [[problem.code for problem in parse(text, {}).problems] for text in texts] == [
        ["invalid_json"],
        ["truncated"],
        ["trailing_data"],
        ["truncated"],
        ["truncated"],
        ["invalid_json", "truncated"],
        ["invented_response"],
    ]
    assert [found.name for found in parse(response, {}).calls] == ["f"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[TOOL_CALLS]", "truncated"),
        ("[TOOL_CALLS]f[ARGS]", "truncated"),
        ("[TOOL_CALLS]f[ARGS]{oops}[TOOL_CALLS]g[ARGS]{}", "invalid_json"),
        ("[TOOL_CALLS]f[ARGS][1]", "arguments_not_object"),
        ("<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>", "missing_name"),
        ("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{} more<｜tool▁call▁end｜>", "trailing_data"),
        ('<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a', "truncated"),
        ("<|tool_call_begin|>f:0{}<|tool_call_end|>", "missing_name"),
        ('<|open|>call index="1"<|sep|><|close|>call<|sep|>', "missing_name"),
        ('<|open|>call tool="f"<|sep|>text<|close|>call<|sep|>', "trailing_data"),
        (
            '<|open|>call tool="f"<|sep|><|open|>json<|sep|>{oops}<|close|>json<|sep|><|close|>call<|sep|>',
            "invalid_json",
        ),
        ('<|open|>call tool="f"<|sep|><|open|>json<|sep|>{}<|close|>call<|sep|>', "invalid_json"),
        (
            '<|open|>call tool="f"<|sep|><|open|>argument key="a" type="number"<|sep|>x<|close|>argument<|sep|>'
            "<|close|>call<|sep|>",
            "invalid_json",
        ),
        ('<|open|>call tool="f"<|sep|><|open|>argument key="a" type="string"<|sep|>x', "truncated"),
        ("<|tool_call>f{}<tool_call|>", "missing_name"),
        ('<|tool_call>call:f{a:<|"|>b}<tool_call|>', "invalid_json"),
        ("<|tool_call>call:f{a:1", "truncated"),
        ("<|tool_call>call:f{a:1,a:2}<tool_call|>", "duplicate_key"),
        ("<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value> more</tool_call>", "invalid_json"),
        ("<tool_call>f<arg_key>a</arg_key><arg_value>1", "truncated"),
        ("<tool_call>two words</tool_call>", "invalid_json"),
        ("<function=></function>", "missing_name"),
        ("<function=f><parameter=a>1</parameter> text</function>", "invalid_json"),
        ("<tool_call><function=f>text</function></tool_call>", "invalid_json"),
        ('<｜DSML｜invoke name="f">text</｜DSML｜invoke>', "trailing_data"),
        (
            '<｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="false">x</｜DSML｜parameter>'
            "</｜DSML｜invoke>",
            "invalid_json",
        ),
        ("<｜DSML｜invoke f>", "missing_name"),
        ('<｜DSML｜invoke name="f">', "truncated"),
        ('<｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>', "truncated"),
        ('<|open|>call tool="f"<|sep|>', "truncated"),
        ("<function=f>", "truncated"),
        ("<function=f><parameter=a>1</parameter>", "truncated"),
        ("<minimax:tool_call></minimax:tool_call>", "missing_name"),
        ('<minimax:tool_call><invoke name="f">text</invoke></minimax:tool_call>', "invalid_json"),
        ('<minimax:tool_call><invoke name="f"></invoke>text</minimax:tool_call>', "trailing_data"),
        ('<minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></minimax:tool_call>', "invalid_json"),
        ('<minimax:tool_call><invoke name="f"><parameter name="a">1', "truncated"),
        ("<|python_tag|>print(1)", "invalid_json"),
        ('<|python_tag|>f.call(a="b") + 1', "trailing_data"),
        ("<|python_tag|>", "truncated"),
        ("<|tool_call_start|>[f(a=1<|tool_call_end|>", "invalid_json"),
    ],
)
def test_broken_calls_are_attempts(text: str, code: str) -> None:
    reply = parse(text, SCHEMAS)
    assert code in [problem.code for problem in reply.problems]
    assert reply.attempts >= 1


# ---- round trips ----------------------------------------------------------------------------------------------------

TAGS = [
    "</tool_call>",
    "<tool_call>",
    "</parameter>",
    "</arg_value>",
    "```",
    "[TOOL_CALLS]",
    "<|call|>",
    "'",
    '"',
    "\\",
    "\n",
    "{",
    "]",
    "é",
    "😀",
]
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.lists(st.sampled_from(TAGS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=4).map(
    "".join
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FINITE | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
CALLS = st.lists(st.tuples(NAMES.map("f_".__add__), st.dictionaries(NAMES, VALUES, max_size=3)), min_size=1, max_size=3)


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_hermes(calls: Sequence[Pair]) -> str:
    return "\n".join(f"<tool_call>\n{dumps({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls)


def as_llama(calls: Sequence[Pair]) -> str:
    return "; ".join(dumps({"name": n, "parameters": a}) for n, a in calls)


def as_pythonic(calls: Sequence[Pair]) -> str:
    return "[" + ", ".join(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in calls) + "]"


def as_mistral_v3(calls: Sequence[Pair]) -> str:
    return "[TOOL_CALLS] " + dumps([{"name": n, "arguments": a} for n, a in calls])


def as_mistral_v11(calls: Sequence[Pair]) -> str:
    return "".join(f"[TOOL_CALLS]{n}[CALL_ID]x{i}[ARGS]{dumps(a)}" for i, (n, a) in enumerate(calls))


def as_mistral_v13(calls: Sequence[Pair]) -> str:
    return "".join(f"[TOOL_CALLS]{n}[ARGS]{dumps(a)}" for n, a in calls)


def as_deepseek_v3(calls: Sequence[Pair]) -> str:
    blocks = (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{dumps(a)}\n```<｜tool▁call▁end｜>" for n, a in calls
    )
    return "<｜tool▁calls▁begin｜>" + "\n".join(blocks) + "<｜tool▁calls▁end｜>"


def as_deepseek_v31(calls: Sequence[Pair]) -> str:
    blocks = (f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{dumps(a)}<｜tool▁call▁end｜>" for n, a in calls)
    return "<｜tool▁calls▁begin｜>" + "".join(blocks) + "<｜tool▁calls▁end｜>"


def as_kimi(calls: Sequence[Pair]) -> str:
    blocks = (
        f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{dumps(a)}<|tool_call_end|>"
        for i, (n, a) in enumerate(calls)
    )
    return "<|tool_calls_section_begin|>" + "".join(blocks) + "<|tool_calls_section_end|>"


def as_kimi_k3(calls: Sequence[Pair]) -> str:
    blocks = []
    for i, (name, arguments) in enumerate(calls):
        given = "".join(
            f'<|open|>argument key="{k}" type="{_JSON_TYPES[type(v)]}"<|sep|>{untyped(v)}<|close|>argument<|sep|>'
            for k, v in arguments.items()
        )
        blocks.append(f'<|open|>call tool="{name}" index="{i + 1}"<|sep|>{given}<|close|>call<|sep|>')
    return f"<|open|>tools<|sep|>{''.join(blocks)}<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>"


def as_harmony(calls: Sequence[Pair]) -> str:
    messages = (
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{dumps(a)}<|call|>" for n, a in calls
    )
    return "<|start|>assistant".join(messages)


def as_dsml(calls: Sequence[Pair]) -> str:
    blocks = []
    for name, arguments in calls:
        parameters = "".join(
            f'<｜DSML｜parameter name="{k}" string="{str(isinstance(v, str)).lower()}">'
            f"{v if isinstance(v, str) else dumps(v)}</｜DSML｜parameter>\n"
            for k, v in arguments.items()
        )
        blocks.append(f'<｜DSML｜invoke name="{name}">\n{parameters}</｜DSML｜invoke>')
    return "<｜DSML｜function_calls>\n" + "\n".join(blocks) + "\n</｜DSML｜function_calls>"


def as_minimax(calls: Sequence[Pair]) -> str:
    blocks = []
    for name, arguments in calls:
        parameters = "".join(f'<parameter name="{k}">{untyped(v)}</parameter>\n' for k, v in arguments.items())
        blocks.append(f'<invoke name="{name}">\n{parameters}</invoke>')
    return "<minimax:tool_call>\n" + "\n".join(blocks) + "\n</minimax:tool_call>"


def as_gemma(calls: Sequence[Pair]) -> str:
    def value(v: Any) -> str:
        if isinstance(v, str):
            return f'<|"|>{v}<|"|>'
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{value(x)}" for k, x in v.items()) + "}"
        return f"[{','.join(map(value, v))}]" if isinstance(v, list) else dumps(v)

    return "".join(f"<|tool_call>call:{n}{value(a)}<tool_call|>" for n, a in calls)


def untyped(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def as_qwen3_coder(calls: Sequence[Pair]) -> str:
    blocks = []
    for name, arguments in calls:
        parameters = "".join(f"<parameter={k}>\n{untyped(v)}\n</parameter>\n" for k, v in arguments.items())
        blocks.append(f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
    return "\n".join(blocks)


def as_glm(calls: Sequence[Pair]) -> str:
    blocks = []
    for name, arguments in calls:
        pairs = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{untyped(v)}</arg_value>\n" for k, v in arguments.items())
        blocks.append(f"<tool_call>{name}\n{pairs}</tool_call>")
    return "\n".join(blocks)


RENDERERS: list[Callable[[Sequence[Pair]], str]] = [
    as_hermes, as_llama, as_pythonic, as_mistral_v3, as_mistral_v11, as_mistral_v13, as_deepseek_v3, as_deepseek_v31,
    as_kimi, as_kimi_k3, as_harmony, as_dsml, as_minimax, as_gemma, as_qwen3_coder, as_glm,
]  # fmt: skip

_JSON_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def schemas_for(calls: Sequence[Pair]) -> Schemas:
    """Schemas under which the untyped text of every argument can only mean its value."""
    return {
        name: {"properties": {key: {"type": _JSON_TYPES[type(value)]} for key, value in arguments.items()}}
        for name, arguments in calls
    }


def same(calls: Sequence[Any], expected: Sequence[Pair]) -> bool:
    return equal([[c.name, c.arguments] for c in calls], [[n, a] for n, a in expected])


@pytest.mark.parametrize("render", RENDERERS)
@settings(max_examples=80, deadline=None)
@given(calls=CALLS, prefix=st.sampled_from(["", "<think>\nmaybe {\n</think>\n\n", "Let me see. "]))
def test_round_trip(render: Callable[[Sequence[Pair]], str], calls: list[Pair], prefix: str) -> None:
    """What a family's template writes for a call is read as that call, whatever the values hold."""
    calls = list({name: (name, arguments) for name, arguments in calls}.values())  # one schema a name
    # A value that holds the mark of its own end cannot be told apart in a form without quotes.
    assume(render is not as_glm or "</arg_value>" not in dumps(calls))
    if render in (as_llama, as_pythonic, as_harmony) and not prefix.startswith("<think>"):
        prefix = ""  # forms that are the whole text
    if render is as_harmony:
        prefix = ""
    reply = parse(prefix + render(calls), schemas_for(calls))
    assert same(reply.calls, calls)
    assert reply.problems == ()


@settings(max_examples=80, deadline=None)
@given(calls=CALLS)
def test_structured_round_trip(calls: list[Pair]) -> None:
    for encode in (dumps, json.dumps, lambda arguments: arguments):
        tool_calls = [ToolCall(id="x", function=FunctionCall(name=n, arguments=encode(a))) for n, a in calls]
        reply = parse_structured(tool_calls, "")
        assert same(reply.calls, calls)
        assert reply.problems == ()


@pytest.mark.parametrize("render", RENDERERS)
@settings(max_examples=40, deadline=None)
@given(calls=CALLS, share=st.floats(0, 1, exclude_max=True))
def test_a_cut_off_reply_never_gains_a_call(
    render: Callable[[Sequence[Pair]], str], calls: list[Pair], share: float
) -> None:
    """Cutting a reply anywhere leaves a beginning of its calls, and at most a note that the rest is broken."""
    calls = list({name: (name, arguments) for name, arguments in calls}.values())
    text = render(calls)
    reply = parse(text[: int(len(text) * share)], schemas_for(calls))
    kept = len(reply.calls)
    assert kept <= len(calls)
    assert same(reply.calls, calls[:kept])
