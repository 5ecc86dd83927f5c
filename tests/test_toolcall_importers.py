"""ShareGPT and OpenAI rows, made by hand: each oddity of real data sets, and what becomes of it."""

import json
from typing import Any

import pytest

from rolloutgym.models import Message
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable
from rolloutgym.server.environments.toolcall.items import Item
from rolloutgym.server.environments.toolcall.tasks import read_row


def tool(name: str, parameter: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("weather", "city"), tool("clock", "zone")]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def raw(arguments: str, name: str = "clock") -> str:
    """A call whose arguments are this text."""
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def response(name: str, content: Any) -> str:
    return f"<tool_response>\n{json.dumps({'name': name, 'content': content})}\n</tool_response>"


def sharegpt(*said: tuple[str, str], **columns: Any) -> Item:
    row = {"tools": TOOLS, "conversations": [{"from": who, "value": text} for who, text in said], **columns}
    return read_row(row, "row")


def openai(*messages: dict[str, Any], **columns: Any) -> Item:
    return read_row({"tools": TOOLS, "messages": list(messages), **columns}, "row")


def texts(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


# ---- ShareGPT -------------------------------------------------------------------------------------------------------


def test_gold_is_neither_in_history_nor_in_then() -> None:
    item = sharegpt(
        ("system", "Help."),
        ("human", "Hi"),
        ("gpt", "Hello! Which city?"),
        ("human", "Oslo"),
        ("gpt", "One moment."),
        ("gpt", call("weather", city="Oslo")),
        ("tool", response("weather", 3)),
        ("gpt", "3 degrees."),
        ("human", "And the time?"),
        ("gpt", call("clock", zone="CET")),
        ("tool", response("clock", "12:00")),
        ("gpt", "Noon."),
    )
    assert item.scenario == "multiturn"
    assert texts(item.history) == [
        ("system", "Help."),
        ("user", "Hi"),
        ("assistant", "Hello! Which city?"),
        ("user", "Oslo"),
    ]
    assert [turn.expect for turn in item.steps] == ["calls", "none", "calls", "none"]
    assert [turn.narration for turn in item.steps] == [False, True, False, True]
    assert [turn.reply for turn in item.steps] == ["One moment.", "3 degrees.", "", "Noon."]
    assert [texts(turn.then) for turn in item.steps] == [
        [("tool", '{"name": "weather", "content": 3}')],
        [("user", "And the time?")],
        [("tool", '{"name": "clock", "content": "12:00"}')],
        [],
    ]
    assert item.steps[0].calls[0].arguments == {"city": "Oslo"}


def test_parallel_calls_keep_all_their_responses() -> None:
    in_one = sharegpt(
        ("user", "Both?"),
        ("assistant", call("weather", city="Rome") + "\n" + call("clock", zone="CET")),
        ("observation", response("weather", 20) + "\n" + response("clock", "9")),
        ("assistant", "Done."),
    )
    apart = sharegpt(
        ("user", "Both?"),
        ("assistant", call("weather", city="Rome")),
        ("assistant", call("clock", zone="CET")),
        ("function", response("weather", 20)),
        ("function", response("clock", "9")),
        ("assistant", "Done."),
    )
    assert in_one.steps == apart.steps
    assert in_one.scenario == "single"
    assert [expected.name for expected in in_one.steps[0].calls] == ["weather", "clock"]
    assert [message.name for message in in_one.steps[0].then] == ["weather", "clock"]


def test_responses_stand_in_the_order_of_the_calls() -> None:
    item = sharegpt(
        ("human", "All?"),
        ("gpt", call("weather", city="Rome") + call("clock", zone="CET") + call("clock", zone="EET")),
        ("tool", response("clock", "9")),
        ("tool", "twenty degrees"),
        ("tool", response("clock", "10")),
    )
    assert [(message.name, message.content) for message in item.steps[0].then] == [
        ("weather", "twenty degrees"),
        ("clock", '{"name": "clock", "content": "9"}'),
        ("clock", '{"name": "clock", "content": "10"}'),
    ]


def test_responses_that_are_more_or_fewer_than_the_calls_stay_as_they_are() -> None:
    for responses in (["9"], ["9", "10", "11"]):
        item = sharegpt(
            ("human", "Both?"),
            ("gpt", call("weather", city="Rome") + call("clock", zone="CET")),
            *[("tool", text) for text in responses],
        )
        assert [(message.name, message.content) for message in item.steps[0].then] == [(None, r) for r in responses]


def test_nameless_responses_answer_the_calls_in_order() -> None:
    item = sharegpt(
        ("human", "Both?"),
        ("gpt", call("weather", city="Rome") + call("clock", zone="CET")),
        ("tool", "<tool_response>\n20 degrees\n</tool_response>\n<tool_response>9</tool_response>"),
    )
    assert [(message.name, message.content) for message in item.steps[0].then] == [
        ("weather", "20 degrees"),
        ("clock", "9"),
    ]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (" <tool_response> 9 </tool_response>\n<TOOL_RESPONSE>\n10\n</TOOL_RESPONSE> ", ["9", "10"]),
        ("<tool_response>9</tool_response> and more", ["<tool_response>9</tool_response> and more"]),
        ("<tool_response>9", ["<tool_response>9"]),
        ("<tool_response>a" + " " * 200_000 + "b</tool_response>", ["a" + " " * 200_000 + "b"]),
        ("plain", ["plain"]),
    ],
    ids=["two", "more", "unclosed", "blanks", "plain"],
)
def test_responses_in_a_tool_message(text: str, read: list[str]) -> None:
    item = sharegpt(("human", "Hi"), ("gpt", call("clock")), ("tool", text))
    assert [message.content for message in item.steps[0].then] == read


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (raw('{"city": "a </tool_call> b"}', "weather"), {"city": "a </tool_call> b"}),
        (raw("{'city': \"it's\", 'ok': True, 'x': None}", "weather"), {"city": "it's", "ok": True, "x": None}),
        ("<tool_call>{'name': 'weather', 'arguments': {'city': 'x'}}</tool_call>", {"city": "x"}),
        (raw('"{\\"city\\": \\"x\\"}"', "weather"), {"city": "x"}),
        (raw('""', "weather"), {}),
        (f"<think>Not {raw('{}')}</think>" + call("weather", city="x"), {"city": "x"}),
    ],
)
def test_forms_of_a_gold_call(text: str, arguments: dict[str, Any]) -> None:
    item = sharegpt(("human", "Hi"), ("gpt", text), ("tool", "ok"))
    assert [(expected.name, expected.arguments) for expected in item.steps[0].calls] == [("weather", arguments)]


@pytest.mark.parametrize("listed", [json.dumps(TOOLS), json.dumps(TOOLS, indent=2), "\n".join(map(json.dumps, TOOLS))])
def test_tools_in_the_system_message(listed: str) -> None:
    system = f"Functions are within <tools></tools> tags. <tools>\n{listed}\n</tools>"
    item = sharegpt(("system", system), ("human", "Hi"), ("gpt", call("clock", zone="x")), tools=None)
    assert [tool.function.name for tool in item.tools] == ["weather", "clock"]
    assert item.history[0].content == system


def test_null_in_a_tool_is_not_given() -> None:
    bare = [{"name": "clock", "description": None, "parameters": None, "strict": True}]
    item = sharegpt(("human", "Hi"), ("gpt", call("clock")), tools=bare)
    assert (item.tools[0].function.description, item.tools[0].function.parameters) == ("", {})


def test_bare_functions_and_tools_as_text() -> None:
    bare = json.dumps([tool["function"] for tool in TOOLS])
    item = sharegpt(("human", "Hi"), ("gpt", call("clock", zone="x")), tools=bare)
    assert [tool.function.name for tool in item.tools] == ["weather", "clock"]


def test_dialogue_without_calls_judges_every_turn() -> None:
    item = sharegpt(("human", "Hi"), ("gpt", "Hello"), ("human", "Bye"), ("gpt", "Bye"))
    assert item.scenario == "relevance"
    assert [(turn.expect, turn.narration) for turn in item.steps] == [("none", False), ("none", False)]
    assert texts(item.history) == [("user", "Hi")]


def test_the_users_last_word_stays() -> None:
    item = sharegpt(("human", "Hi"), ("gpt", call("clock", zone="x")), ("tool", "1"), ("human", "Thanks"))
    assert item.scenario == "multiturn"
    assert [message.role for message in item.steps[-1].then] == ["tool", "user"]


def test_calls_and_responses_under_names_of_their_own() -> None:
    """As LLaMA-Factory has them, with the system message in a column."""
    gold = {"name": "clock", "arguments": {"zone": "x"}}
    for text in (json.dumps(gold), json.dumps([gold])):
        item = sharegpt(
            ("human", "Hi"), ("function_call", text), ("observation", "9"), ("gpt", "It is 9."), system="Be brief."
        )
        assert [(expected.name, expected.arguments) for expected in item.steps[0].calls] == [("clock", {"zone": "x"})]
        assert [message.content for message in item.history] == ["Be brief.", "Hi"]
        assert [turn.narration for turn in item.steps] == [False, True]


def test_a_system_message_is_not_said_twice() -> None:
    item = sharegpt(("system", "A"), ("human", "Hi"), ("gpt", call("clock")), system="B")
    assert [message.content for message in item.history] == ["A", "Hi"]


UNREAD = ['[clock(zone="x") and more]', "Action: clock(zone='x')", '{"name": "clock", "input": {"zone": "x"}}']


@pytest.mark.parametrize("text", UNREAD)
def test_a_call_that_is_not_read_is_not_taken_for_talk(text: str) -> None:
    for said in ([("gpt", text)], [("gpt", text), ("human", "And now?"), ("gpt", call("clock"))]):
        with pytest.raises(Unplayable):
            sharegpt(("human", "Hi"), *said)
        with pytest.raises(Unplayable):
            openai(
                {"role": "user", "content": "Hi"},
                *({"role": "user" if who == "human" else "assistant", "content": words} for who, words in said),
            )
    for talk in (
        "I have no clock (sorry).",
        f"<think>Perhaps {text}? No.</think>Hello!",
        "alarm-clock(s)",
        'name: "x"',
    ):
        assert sharegpt(("human", "Hi"), ("gpt", talk)).scenario == "relevance"


@pytest.mark.parametrize(
    ("said", "columns", "reason"),
    [
        ([("human", "Hi"), ("gpt", "Hm"), ("tool", "9"), ("gpt", "It is 9.")], {}, "a tool answers message 1"),
        ([("human", "Hi"), ("function_call", "the clock"), ("observation", "9")], {}, "holds no call"),
        ([("human", "Hi"), ("gpt", "Hello")], {"tools": []}, "nothing to call"),
        ([("human", "Hi")], {}, "says nothing"),
        ([], {}, "says nothing"),
        ([("gpt", call("clock"))], {}, "nobody speaks"),
        ([("system", "S"), ("gpt", call("clock"))], {}, "nobody speaks"),
        ([("human", "Hi"), ("gpt", call("launch"))], {}, "not among the tools"),
        ([("human", "Hi"), ("gpt", call("clock"))], {"tools": []}, "not among the tools"),
        ([("human", "Hi"), ("gpt", call("clock"))], {"tools": TOOLS + TOOLS}, "two tools"),
        ([("human", "Hi"), ("gpt", call("clock"))], {"tools": "[{]"}, "not JSON"),
        ([("human", "Hi"), ("gpt", call("clock"))], {"tools": [{"description": "x"}]}, "not well formed"),
        ([("human", "Hi"), ("gpt", raw('{"a": 1'))], {}, "cannot be read"),
        ([("human", "Hi"), ("gpt", raw('{"a": NaN}'))], {}, "nan"),
        ([("human", "Hi"), ("gpt", raw('{"a": 1, "a": 2}'))], {}, "duplicate"),
        ([("human", "Hi"), ("gpt", raw("[1]"))], {}, "arguments"),
        ([("human", "Hi"), ("gpt", '<tool_call>{"name": "clock"')], {}, "cannot be read"),
        ([("human", "Hi"), ("wizard", "Hm")], {}, "unknown role"),
        ([("human", "Hi"), ("gpt", call("clock")), ("system", "x"), ("gpt", "y")], {}, "followed by nobody"),
        ([("human", "\ud800"), ("gpt", call("clock"))], {}, "not Unicode"),
        ([("human", "Hi"), ("gpt", call("clock"))], {"split": "training"}, "unknown split"),
    ],
)
def test_what_cannot_be_played_says_why(said: list[tuple[str, str]], columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unplayable, match=reason):
        sharegpt(*said, **columns)


def test_a_deep_call_is_refused_and_not_a_crash() -> None:
    deep = raw('{"a": ' + "[" * 50_000 + "]" * 50_000 + "}")
    with pytest.raises(Unplayable, match="too_deep"):
        sharegpt(("human", "Hi"), ("gpt", deep))


# ---- OpenAI ---------------------------------------------------------------------------------------------------------


def test_openai_messages() -> None:
    item = openai(
        {"role": "developer", "content": "Help."},
        {"role": "user", "content": [{"type": "text", "text": "Rome "}, {"type": "text", "text": "and time?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
                {"id": "b", "type": "function", "function": {"name": "clock", "arguments": {"zone": "CET"}}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "9"},
        {"role": "tool", "tool_call_id": "a", "content": "20"},
        {"role": "assistant", "content": "20 degrees, 9 o'clock."},
        id=None,
    )
    assert texts(item.history) == [("system", "Help."), ("user", "Rome and time?")]
    assert [(e.name, e.arguments) for e in item.steps[0].calls] == [
        ("weather", {"city": "Rome"}),
        ("clock", {"zone": "CET"}),
    ]
    assert [(m.name, m.content, m.tool_call_id) for m in item.steps[0].then] == [
        ("weather", "20", None),
        ("clock", "9", None),
    ]
    assert item.steps[1].narration


@pytest.mark.parametrize(
    ("arguments", "read"), [("", {}), ("{}", {}), ({}, {}), ('"{\\"zone\\": \\"x\\"}"', {"zone": "x"})]
)
def test_openai_arguments(arguments: Any, read: dict[str, Any]) -> None:
    item = openai(
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "clock", "arguments": arguments}}]},
    )
    assert item.steps[0].calls[0].arguments == read


def test_openai_responses_belong_to_the_call_of_their_id() -> None:
    function = {"name": "clock", "arguments": "{}"}
    item = openai(
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": function}, {"id": "b", "function": function}]},
        {"role": "tool", "tool_call_id": "b", "content": "second"},
        {"role": "tool", "tool_call_id": "a", "content": "first"},
    )
    assert texts(item.steps[0].then) == [("tool", "first"), ("tool", "second")]


def test_an_openai_response_has_the_name_of_the_call_it_answers() -> None:
    made = [
        {"id": id, "function": {"name": name, "arguments": "{}"}} for id, name in (("a", "weather"), ("b", "clock"))
    ]
    item = openai(
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": made},
        {"role": "tool", "tool_call_id": "b", "content": "9"},
    )
    assert [(message.name, message.content) for message in item.steps[0].then] == [("clock", "9")]


def test_openai_legacy_function_call() -> None:
    item = openai(
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "function_call": {"name": "clock", "arguments": '{"zone": "x"}'}},
        {"role": "function", "name": "clock", "content": "9"},
    )
    assert item.steps[0].calls[0].name == item.steps[0].then[0].name == "clock"


@pytest.mark.parametrize("column", ["messages", "conversations"])
def test_openai_messages_with_tools_and_calls_in_their_text(column: str) -> None:
    row = {
        column: [
            {"role": "system", "content": f"You may call <tools>{json.dumps(TOOLS)}</tools>"},
            {"role": "user", "content": "Both?"},
            {"role": "assistant", "content": call("weather", city="Rome") + call("clock", zone="x")},
            {"role": "tool", "content": "20"},
            {"role": "tool", "content": "9"},
            {"role": "assistant", "content": "20 degrees, 9 o'clock."},
        ]
    }
    item = read_row(row, "row")
    assert [tool.function.name for tool in item.tools] == ["weather", "clock"]
    assert [(e.name, e.arguments) for e in item.steps[0].calls] == [
        ("weather", {"city": "Rome"}),
        ("clock", {"zone": "x"}),
    ]
    assert [message.name for message in item.steps[0].then] == ["weather", "clock"]
    assert item.scenario == "single"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}, "not well formed"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "clock", "arguments": "{,}"}}]}, "cannot be read"),
        ({"role": "assistant", "tool_calls": "clock()"}, "not well formed|not a list"),
        ({"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "not text"),
        ("Hello", "not an object"),
    ],
)
def test_openai_rows_that_cannot_be_played(message: Any, reason: str) -> None:
    with pytest.raises(Unplayable, match=reason):
        openai({"role": "user", "content": "?"}, message)


# ---- columns --------------------------------------------------------------------------------------------------------


def test_columns_are_kept() -> None:
    item = sharegpt(
        ("human", "Hi"),
        ("gpt", call("clock")),
        id="mine-1",
        group="g",
        split="dev",
        license="MIT",
        source="somewhere",
        tags={"hard": True},
    )
    assert (item.id, item.group, item.split, item.license) == ("mine-1", "g", "validation", "MIT")
    assert item.info().tags == {"hard": True, "source": "somewhere", "scenario": "single"}


def test_same_first_request_same_group() -> None:
    one = sharegpt(("human", "What time is it?"), ("gpt", call("clock", zone="x")))
    two = sharegpt(("human", "what TIME is it? "), ("gpt", call("clock", zone="y")))
    assert one.group == two.group
    assert one.split == two.split
