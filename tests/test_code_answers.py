"""Final answers: found in a reply, and compared."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutgym.server.environments.code.answers import Verdict, compare, extract_boxed, parse_number
from rolloutgym.server.environments.code.typesetting import as_latex
from rolloutgym.server.environments.code.units import split_unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} and then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{ \{1, 2\} }", r"\{1, 2\}"),
        (r"\boxed{1} but \boxed{2", "1"),
        (r"\boxed 7.", "7"),
        (r"\fbox{3} \boxed{ 4 }", "4"),
        (r"$\boxed{x=\boxed{5}}$", "5"),
        (r"nothing here", None),
        (r"\boxed{", None),
        ("```python\nprint('\\boxed{3}')\n```\nno answer", None),
        ("\\boxed{1}\n```\n\\boxed{3}\n```", "1"),
        (r"\boxed{}", ""),
        (r"\boxed{a\}b}", r"a\}b"),
    ],
)
def test_last_balanced_box_outside_code_is_the_answer(text: str, expected: str | None) -> None:
    assert extract_boxed(text) == expected


def test_hostile_boxes_end_soon() -> None:
    assert extract_boxed(r"\boxed{" * 150_000) is None
    assert extract_boxed(r"\boxed{1}" + r"\boxed{{" * 50) == "1"


EQUAL = [
    ("42", "42"),
    ("42", " 42. "),
    ("42", "$42$"),
    ("42", "42.0"),
    ("42", "x = 42"),
    ("1234", "1,234"),
    ("-3", "−3"),
    ("0.5", "1/2"),
    ("0.5", ".5"),
    ("1/2", r"\dfrac{1}{2}"),
    ("1/2", r"\frac12"),
    ("3/2", r"1\frac{1}{2}"),
    ("-1/2", r"-\frac{1}{2}"),
    ("6020", r"6.02 \times 10^{3}"),
    ("6020", "6.02e3"),
    ("1/3", "0.333333"),
    ("1/3", "0.33333333333"),
    (r"50\%", "50%"),
    (r"50\%", "0.5"),
    (r"50\%", "50"),
    (r"90^\circ", "90"),
    (r"\{1, 2, 3\}", "{3, 2, 1}"),
    (r"\{1, 2\}", r"\left\{ 2, 1 \right\}"),
    ("{1/2, 2}", "{2, 0.5}"),
    ("1, 2", "2, 1"),
    ("1, 2", "1 and 2"),
    ("(1, 2)", "(1,2.0)"),
    ("[1, 2)", r"\left[1, 2\right)"),
    ("Monday", r"\text{monday}"),
    (r"x^2+1", "x^2 + 1".replace(" ", "")),
    ("3/2", "1 1/2"),
    ("-7/3", "-2 1/3"),
    ("1.5", "1½"),
    ("1/4", "¼"),
    ("5000", r"5\,000"),
    ("1234567", "1 234 567"),
    ("5", "= 5"),
    ("5", "€5"),
    ("5", "5 dollars"),
    ("12", r"12\text{ cm}"),
    ("12 cm", "12 centimeters"),
    (r"12\text{ hours}", "12 hr"),
    (r"30\,\text{m}", "30.0 metres"),
    (r"\emptyset", r"\varnothing"),
    (r"\text{ice cream}", "Icecream"),
    (r"x\le 3", "x≤3"),
]
DIFFERENT = [
    ("42", "43"),
    ("42", ""),
    ("1/3", "0.333"),
    ("3.14", "3.15"),
    ("100", "100.5"),
    ("0.1", "0.10001"),
    ("(1, 2)", "(2, 1)"),
    ("[1, 2)", "(1, 2)"),
    ("(1, 2)", "(1, 2, 3)"),
    (r"\{1, 2\}", "{1, 2, 3}"),
    (r"\{1, 2, 3\}", "{1, 2}"),
    ("1, 2", "1, 2, 2"),
    ("1, 1, 2", "1, 2"),
    (r"50\%", "5"),
    ("7", "7" * 3000),
    ("1941", r"6^{1066} \bmod 2145"),
    ("5", r"\sum_{k=1}^{2} k + 2"),
    ("120", "5!"),
    ("3", "1/2+1/3+1/4+1/5+103/60"),
    ("12", r"\operatorname{lcm}(3, 4)"),
    ("120", "binomial(10, 3)"),
    ("11/2", "1 1/2"),
    ("12 cm", "12 m"),
    ("5 hours", "5 minutes"),
    ("12 cm", "13 cm"),
    ("12", "13 cm"),
    ("left", "felt"),
    ("east", "seat"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_same_answers_in_other_spellings(gold: str, answer: str) -> None:
    assert compare(gold, answer) is Verdict.EQUAL


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_other_answers(gold: str, answer: str) -> None:
    assert compare(gold, answer) is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("gold", "answer"), [("x^2+2x", "x(x+2)"), ("2", r"\sqrt{4}"), ("12", "12 furlongs"), ("ab", "ba")]
)
def test_expressions_are_left_to_algebra(gold: str, answer: str) -> None:
    assert compare(gold, answer) is Verdict.UNDECIDED


@given(st.fractions())
def test_every_number_equals_itself_in_each_notation(number: object) -> None:
    text = str(number)
    assert compare(text, text) is Verdict.EQUAL
    numerator, _, denominator = text.partition("/")
    assert compare(text, rf"\frac{{{numerator}}}{{{denominator or 1}}}") is Verdict.EQUAL


@given(st.integers(), st.integers())
def test_integers_are_equal_only_to_themselves(left: int, right: int) -> None:
    assert (compare(str(left), str(right)) is Verdict.EQUAL) == (left == right)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=8), st.randoms())
def test_sets_ignore_order_and_tuples_do_not(numbers: list[int], rng: object) -> None:
    shuffled = list(numbers)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    joined, mixed = ", ".join(map(str, numbers)), ", ".join(map(str, shuffled))
    assert compare(f"{{{joined}}}", f"{{{mixed}}}") is Verdict.EQUAL
    assert (compare(f"({joined})", f"({mixed})") is Verdict.EQUAL) == (numbers == shuffled)


@given(st.text(alphabet=string.printable + "\\{}$%^_½π", max_size=200), st.text(max_size=100))
def test_no_text_breaks_the_comparison(gold: str, answer: str) -> None:
    assert compare(gold, answer) in Verdict
    extract_boxed(gold)
    parse_number(answer)
    assert compare(gold, gold) is not Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("2√3", r"2\sqrt{3}"),
        ("√12/2", r"\sqrt{12}/2"),
        ("√(x+1)", r"\sqrt{x+1}"),
        ("√{2}", r"\sqrt{2}"),
        ("√", r"\sqrt"),
        ("x² + 10⁻¹⁰", "x^{2} + 10^{-10}"),
        ("3⅝", r"3\frac{5}{8}"),
        ("⅟", "⅟"),
        ("e\u0301", "é"),
        ("plain √ascii only", r"plain \sqrt{a}scii only"),
    ],
)
def test_mathematics_of_unicode_becomes_latex(text: str, latex: str) -> None:
    assert as_latex(text) == latex


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12 cm", ("12", "cm")),
        ("12 Meters", ("12", "m")),
        (r"\frac{1}{2} hours", (r"\frac{1}{2}", "h")),
        ("12 apples", None),
        ("cm", None),
        ("12", None),
        ("x m", None),
    ],
)
def test_units(text: str, expected: tuple[str, str] | None) -> None:
    assert split_unit(text) == expected
