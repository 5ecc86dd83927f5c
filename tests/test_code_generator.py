"""The shipped problems."""

import math
import re
from collections import defaultdict
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import sympy

from rolloutgym.server.environments.code.generator import FILE_NAME, generate
from rolloutgym.server.environments.code.loaders import shipped_tasks
from rolloutgym.server.environments.code.tasks import CodeTask

TASKS = shipped_tasks()
ALL = [task for split in TASKS.splits() for task in TASKS.of_split(split)]


def _of_template(name: str) -> list[CodeTask]:
    found = [task for task in ALL if task.tags["template"] == name]
    assert found, name
    return found


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def test_what_ships_is_what_the_generator_makes(tmp_path: Path) -> None:
    generate(tmp_path)
    shipped = files("rolloutgym.server.environments.code") / "data" / FILE_NAME
    assert (tmp_path / FILE_NAME).read_bytes() == shipped.read_bytes()


def test_there_are_enough_of_every_kind() -> None:
    kinds: defaultdict[object, int] = defaultdict(int)
    for task in ALL:
        kinds[task.tags["answer"]] += 1
    assert len(ALL) >= 400
    assert {"integer", "fraction", "decimal", "set", "expression", "tuple", "interval", "program"} <= kinds.keys()


def test_the_page_gives_the_right_numbers() -> None:
    page = (Path(__file__).parents[1] / "docs" / "code.md").read_text(encoding="utf-8")
    programs = {str(task.tags["template"]) for task in ALL if task.tags["answer"] == "program"}
    templates = {str(task.tags["template"]) for task in ALL} - programs
    assert f"{len(templates)} templates with exact answers and {len(programs)} with programs" in " ".join(page.split())


def test_splits_share_neither_template_nor_text() -> None:
    templates = {split: {task.tags["template"] for task in TASKS.of_split(split)} for split in TASKS.splits()}
    assert templates.keys() == {"train", "validation", "test"}
    assert sum(map(len, templates.values())) == len(set().union(*templates.values()))
    assert len({task.prompt for task in ALL}) == len(ALL)


def test_answers_agree_with_computer_algebra() -> None:
    for task in _of_template("modular_power"):
        base, power, modulus = _numbers(task.prompt)
        assert int(task.answer) == sympy.Mod(sympy.Integer(base) ** power, modulus)
    for task in _of_template("divisor_count"):
        assert int(task.answer) == sympy.divisor_count(_numbers(task.prompt)[0])
    for task in _of_template("primes_between"):
        low, high = _numbers(task.prompt)
        assert int(task.answer) == sympy.primepi(high) - sympy.primepi(low - 1)
    for task in _of_template("least_common_multiple"):
        assert int(task.answer) == math.lcm(*_numbers(task.prompt))
    for task in _of_template("fixed_points"):
        size, _, fixed = _numbers(task.prompt)
        assert int(task.answer) == math.comb(size, fixed) * sympy.subfactorial(size - fixed)
    for task in _of_template("continued_fraction"):
        assert Fraction(task.answer) == Fraction(str(sympy.continued_fraction_reduce(_numbers(task.prompt))))
    for task in _of_template("distinct_partitions"):
        number = _numbers(task.prompt)[0]
        x = sympy.symbols("x")
        ways = sympy.Poly(1, x)
        for part in range(1, number + 1):
            ways *= sympy.Poly(1 + x**part, x)
        assert int(task.answer) == ways.coeff_monomial(x**number)


def test_expressions_agree_with_computer_algebra() -> None:
    x = sympy.symbols("x")
    for task in _of_template("derivative"):
        shown = task.prompt.removeprefix("Differentiate ").removesuffix(" with respect to x.")
        assert sympy.expand(sympy.diff(sympy.sympify(shown), x) - sympy.sympify(task.answer)) == 0
    for task in _of_template("antiderivative"):
        rate = task.prompt.split("the derivative ")[1].split(", and")[0]
        assert sympy.expand(sympy.diff(sympy.sympify(task.answer), x) - sympy.sympify(rate)) == 0
    for task in _of_template("integer_roots"):
        equation = sympy.sympify(task.prompt.split("solutions of ")[1].split(" = 0")[0])
        assert {int(root) for root in sympy.roots(equation, x)} == set(_numbers(task.answer))
