"""What a reply asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutgym.server.environments.code.fences import fences, without_fences
from rolloutgym.server.environments.code.parsing import FinalAnswer, Reply, RunCode, parse_reply

FENCED = "Try:\n```python\nprint(1)\n```\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<code>print(1)</code>", RunCode("print(1)")),
        ("think\n<code>\nprint(1)\n</code>\n", RunCode("print(1)")),
        ("<code>a</code> then <code>b</code>", RunCode("b")),
        ("<CODE>a</CODE>", RunCode("a")),
        ("<code>print(1)", RunCode("print(1)")),
        ("<code>\n```python\nprint(1)\n```\n</code>", RunCode("print(1)\n")),
        ("<code>if x:\n    y</code>", RunCode("if x:\n    y")),
        ("<code> 1 + 1 </code>", RunCode("1 + 1 ")),
        ("<code> if x:\n    y</code>", RunCode("if x:\n   y")),
        ("<code>\n    x = 1\n    if x:\n        y\n</code>", RunCode("x = 1\nif x:\n    y")),
        ("<code>a</code><interpreter>42</interpreter> so \\boxed{42}", RunCode("a")),
        ("<interpreter>42</interpreter> so \\boxed{42}", FinalAnswer("42")),
        ("\\boxed{42}", FinalAnswer("42")),
        ("the answer is 42", FinalAnswer(None)),
        (FENCED, FinalAnswer(None)),
        (FENCED + "\\boxed{1}", FinalAnswer("1")),
        ("", FinalAnswer(None)),
    ],
)
def test_reply_to_a_problem_with_an_answer(text: str, expected: Reply) -> None:
    assert parse_reply(text, program=False, fenced=False) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FENCED, RunCode("print(1)\n")),
        ("<code>a</code>\n" + FENCED, RunCode("a")),
        ("```json\n{}\n```\n\\boxed{2}", FinalAnswer("2")),
    ],
)
def test_fenced_blocks_run_by_option(text: str, expected: Reply) -> None:
    assert parse_reply(text, program=False, fenced=True) == expected


@pytest.mark.parametrize(
    ("text", "fenced", "expected"),
    [
        ("<answer>def f(): pass</answer>", False, FinalAnswer("def f(): pass")),
        ("<answer>\n```python\ndef f(): pass\n```\n</answer>", True, FinalAnswer("def f(): pass\n")),
        ("<answer>a</answer><answer>b</answer>", False, FinalAnswer("b")),
        (FENCED, False, FinalAnswer("print(1)\n")),
        (FENCED, True, RunCode("print(1)\n")),
        ("<code>f()</code>", False, RunCode("f()")),
        ("no program", False, FinalAnswer(None)),
    ],
)
def test_reply_to_a_programming_problem(text: str, fenced: bool, expected: Reply) -> None:
    assert parse_reply(text, program=True, fenced=fenced) == expected


@given(st.text(alphabet="<>/codeanswr`~ \n\\boxed{}1", max_size=400), st.booleans(), st.booleans())
def test_every_text_is_one_or_the_other(text: str, program: bool, fenced: bool) -> None:
    assert isinstance(parse_reply(text, program=program, fenced=fenced), (RunCode, FinalAnswer))


@pytest.mark.parametrize("piece", ["<code>", "<answer>", "```\n", "\\boxed{", "</code>", "<answer></"])
def test_a_million_characters_are_read_at_once(piece: str) -> None:
    parse_reply(piece * (1_000_000 // len(piece)), program=True, fenced=True)


@pytest.mark.parametrize(
    "text",
    [
        "`" * 300_000,
        "~" * 300_000,
        "```" + "a" * 300_000,
        "```" + " " * 300_000,
        "<answer>" + "`" * 300_000 + "</answer>",
        "<code>" + "`" * 300_000,
        "```\n" * 50_000,
        r"\boxed" + " " * 300_000,
        r"\boxed{" * 50_000,
        "<answer>" * 40_000,
        ("   \t" * 10 + "\n") * 10_000,
    ],
    ids=lambda text: str(text)[:12],
)
@pytest.mark.parametrize(("program", "fenced"), [(False, False), (False, True), (True, False)])
def test_reading_takes_time_in_proportion_to_the_text(text: str, program: bool, fenced: bool) -> None:
    """Quadratic time would be minutes: pytest's own limit would end it."""
    parse_reply(text, program=program, fenced=fenced)


@pytest.mark.parametrize(
    ("text", "blocks", "rest"),
    [
        ("a\n```python\nb\n```\nc", [("python", "b\n")], "a\n\n\nc"),
        ("```\nb", [("", "b")], "\n"),
        ("  ~~~ py x\nb\n~~~  \nc", [("py", "b\n")], "\n\nc"),
        ("````\n```\nb\n````\n", [("", "```\nb\n")], "\n\n"),
        ("```\r\nb\r\n```\r\nc", [("", "b\r\n")], "\n\nc"),
        ("```\na\n```\n```c\nd\n```", [("", "a\n"), ("c", "d\n")], "\n\n\n"),
        ("``\na\n``", [], "``\na\n``"),
        ("a ```\nb\n```", [], "a ```\nb\n```"),
        ("```", [], "```"),
    ],
)
def test_fenced_blocks(text: str, blocks: list[tuple[str, str]], rest: str) -> None:
    assert [(fence.language, fence.body) for fence in fences(text)] == blocks
    assert without_fences(text) == rest
