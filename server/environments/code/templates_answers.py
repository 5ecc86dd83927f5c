"""Templates of problems with a final answer. Each draws its numbers, computes the answer exactly, and says it in words.

Answers come from integer and rational arithmetic or from plain counting, never from rounding twice. A template belongs
to one split, so that no split shares a shape with another. No question can be answered by writing it down again.
"""

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import permutations, product
from typing import NamedTuple

AnswerKind = str
"""integer, fraction, decimal, set, expression, tuple or interval."""


class Problem(NamedTuple):
    prompt: str
    answer: str
    kind: AnswerKind


Template = Callable[[random.Random], Problem]


def fraction_text(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def decimal_text(value: Fraction, places: int) -> str:
    """Rounded half up to so many places, as written on paper."""
    scaled = math.floor(value * 10**places + Fraction(1, 2))
    sign = "-" if scaled < 0 else ""
    whole, rest = divmod(abs(scaled), 10**places)
    return f"{sign}{whole}.{rest:0{places}d}"


def polynomial_text(coefficients: list[int]) -> str:
    """`[c, b, a]` (lowest power first) as `a*x^2 + b*x + c`."""
    terms: list[str] = []
    for power in range(len(coefficients) - 1, -1, -1):
        coefficient = coefficients[power]
        if coefficient == 0:
            continue
        factor = "" if abs(coefficient) == 1 and power else str(abs(coefficient))
        variable = "" if power == 0 else "x" if power == 1 else f"x^{power}"
        term = "*".join(part for part in (factor, variable) if part)
        sign = "-" if coefficient < 0 else "+"
        terms.append(f" {sign} {term}" if terms else f"-{term}" if sign == "-" else term)
    return "".join(terms) or "0"


def polynomial_product(left: list[int], right: list[int]) -> list[int]:
    result = [0] * (len(left) + len(right) - 1)
    for (i, a), (j, b) in product(enumerate(left), enumerate(right)):
        result[i + j] += a * b
    return result


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def digit_sum(number: int) -> int:
    return sum(map(int, str(number)))


def set_text(numbers: list[int]) -> str:
    return "{" + ", ".join(map(str, numbers)) + "}"


# ---- integers -------------------------------------------------------------------------------------------------------


def multiples_below(rng: random.Random) -> Problem:
    limit, first, second = rng.randrange(400, 4000), rng.randrange(3, 9), rng.randrange(10, 17)
    answer = sum(n for n in range(1, limit) if n % first == 0 or n % second == 0)
    ask = rng.choice(("Find the sum of all", "What do you get when you add up all"))
    return Problem(f"{ask} positive integers below {limit} that {first} or {second} divides?", str(answer), "integer")


def primes_between(rng: random.Random) -> Problem:
    low = rng.randrange(100, 3000)
    high = low + rng.randrange(200, 900)
    count = sum(is_prime(n) for n in range(low, high + 1))
    return Problem(f"How many prime numbers are there from {low} to {high}, both included?", str(count), "integer")


def modular_power(rng: random.Random) -> Problem:
    base, power, modulus = rng.randrange(3, 90), rng.randrange(200, 4000), rng.randrange(500, 10_000)
    ask = rng.choice(("What is the remainder of {b}^{p} on division by {m}?", "Compute {b}^{p} modulo {m}."))
    return Problem(ask.format(b=base, p=power, m=modulus), str(pow(base, power, modulus)), "integer")


def factorial_digits(rng: random.Random) -> Problem:
    number = rng.randrange(20, 160)
    return Problem(
        f"Add up the decimal digits of {number}! (the factorial). What is the sum?",
        str(digit_sum(math.factorial(number))),
        "integer",
    )


def power_digits(rng: random.Random) -> Problem:
    base, power = rng.choice((2, 3, 5, 7)), rng.randrange(60, 400)
    answer = digit_sum(base**power)
    return Problem(f"What is the sum of the decimal digits of {base}^{power}?", str(answer), "integer")


def divisor_count(rng: random.Random) -> Problem:
    number = rng.randrange(2, 60) * rng.randrange(20, 400)
    return Problem(f"How many positive divisors has {number}?", str(len(divisors(number))), "integer")


def least_common_multiple(rng: random.Random) -> Problem:
    numbers = rng.sample(range(12, 120), 4)
    listed = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    return Problem(f"Find the least common multiple of {listed}.", str(math.lcm(*numbers)), "integer")


def coin_ways(rng: random.Random) -> Problem:
    coins = sorted(rng.sample((1, 2, 3, 5, 8, 10, 20, 25), 4))
    total = rng.randrange(40, 160)
    ways = [1] + [0] * total
    for coin in coins:
        for amount in range(coin, total + 1):
            ways[amount] += ways[amount - coin]
    listed = ", ".join(map(str, coins))
    return Problem(
        f"A machine takes coins worth {listed} cents, as many of each as you like. In how many ways can you pay "
        f"exactly {total} cents, if the order of the coins does not count?",
        str(ways[total]),
        "integer",
    )


def distinct_partitions(rng: random.Random) -> Problem:
    number = rng.randrange(18, 70)
    ways = [1] + [0] * number
    for part in range(1, number + 1):
        for amount in range(number, part - 1, -1):
            ways[amount] += ways[amount - part]
    return Problem(
        f"In how many ways can {number} be written as a sum of different positive integers, the order of the summands "
        "being of no account?",
        str(ways[number]),
        "integer",
    )


def collatz_steps(rng: random.Random) -> Problem:
    start = rng.randrange(50, 5000)
    steps, number = 0, start
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return Problem(
        f"Start with {start}. Halve an even number; replace an odd number n by 3n + 1. After how many steps do you "
        "reach 1 for the first time?",
        str(steps),
        "integer",
    )


def recurrence_term(rng: random.Random) -> Problem:
    p, q, a, b = rng.randrange(1, 5), rng.randrange(1, 5), rng.randrange(0, 4), rng.randrange(1, 5)
    index, modulus = rng.randrange(20, 60), rng.randrange(50, 1000)
    terms = [a, b]
    while len(terms) <= index:
        terms.append(p * terms[-1] + q * terms[-2])
    return Problem(
        f"A sequence begins a_0 = {a}, a_1 = {b} and goes on by a_n = {p} a_(n-1) + {q} a_(n-2). "
        f"What is the remainder of a_{index} on division by {modulus}?",
        str(terms[index] % modulus),
        "integer",
    )


def fixed_points(rng: random.Random) -> Problem:
    size = rng.randrange(5, 8)
    fixed = rng.randrange(0, size - 1)
    count = sum(sum(i == value for i, value in enumerate(order)) == fixed for order in permutations(range(size)))
    return Problem(
        f"{size} guests hang up their coats and take one each at random when they go. In how many of the {size}! "
        f"possible outcomes do exactly {fixed} guests have their own coat?",
        str(count),
        "integer",
    )


def digit_sum_count(rng: random.Random) -> Problem:
    limit, wanted = rng.randrange(500, 9000), rng.randrange(4, 20)
    count = sum(digit_sum(n) == wanted for n in range(1, limit + 1))
    return Problem(
        f"How many integers from 1 to {limit} have decimal digits that add up to {wanted}?", str(count), "integer"
    )


def blocked_paths(rng: random.Random) -> Problem:
    width, height = rng.randrange(4, 10), rng.randrange(4, 10)
    blocked = (rng.randrange(1, width), rng.randrange(1, height))
    ways: dict[tuple[int, int], int] = {}
    for x, y in product(range(width + 1), range(height + 1)):
        if (x, y) == blocked:
            ways[x, y] = 0
        elif (x, y) == (0, 0):
            ways[x, y] = 1
        else:
            ways[x, y] = ways.get((x - 1, y), 0) + ways.get((x, y - 1), 0)
    return Problem(
        f"On a grid you walk from (0, 0) to ({width}, {height}), one unit right or up at each step, and never through "
        f"({blocked[0]}, {blocked[1]}). How many ways are there?",
        str(ways[width, height]),
        "integer",
    )


def knight_moves(rng: random.Random) -> Problem:
    size = rng.randrange(6, 12)
    target = (rng.randrange(1, size), rng.randrange(1, size))
    distance = {(0, 0): 0}
    queue = [(0, 0)]
    for x, y in queue:
        for dx, dy in ((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1)):
            square = (x + dx, y + dy)
            if 0 <= square[0] < size and 0 <= square[1] < size and square not in distance:
                distance[square] = distance[x, y] + 1
                queue.append(square)
    return Problem(
        f"On a board of {size} by {size} squares a knight stands at (0, 0), a corner. What is the least number of "
        f"moves that take it to ({target[0]}, {target[1]})?",
        str(distance[target]),
        "integer",
    )


def trailing_zeros(rng: random.Random) -> Problem:
    number, base = rng.randrange(100, 2000), rng.choice((6, 10, 12, 14, 15))
    factorial, zeros = math.factorial(number), 0
    while factorial % base == 0:
        factorial //= base
        zeros += 1
    return Problem(f"With how many zeros does {number}! end when it is written in base {base}?", str(zeros), "integer")


# ---- fractions and decimals -----------------------------------------------------------------------------------------


def dice_sum(rng: random.Random) -> Problem:
    dice, sides = rng.choice((2, 3, 4)), rng.choice((4, 6, 8))
    wanted = rng.randrange(dice + 1, dice * sides)
    hits = sum(sum(roll) == wanted for roll in product(range(1, sides + 1), repeat=dice))
    return Problem(
        f"You roll {dice} fair dice with {sides} sides each (numbered from 1). What is the probability that the sum is "
        f"{wanted}? Give a fraction in lowest terms.",
        fraction_text(Fraction(hits, sides**dice)),
        "fraction",
    )


def same_colour(rng: random.Random) -> Problem:
    red, blue, green = (rng.randrange(2, 12) for _ in range(3))
    total = red + blue + green
    pairs = sum(math.comb(count, 2) for count in (red, blue, green))
    return Problem(
        f"A bag holds {red} red, {blue} blue and {green} green marbles. Two are drawn without putting the first back. "
        "What is the probability that they have the same colour? Give a fraction in lowest terms.",
        fraction_text(Fraction(pairs, math.comb(total, 2))),
        "fraction",
    )


def telescoping_sum(rng: random.Random) -> Problem:
    start, gap = rng.randrange(1, 6), rng.randrange(1, 5)
    end = start + rng.randrange(6, 30)
    value = sum((Fraction(1, k * (k + gap)) for k in range(start, end + 1)), Fraction(0))
    return Problem(
        f"Add 1/(k(k+{gap})) for every integer k from {start} to {end}. Give the sum as a fraction in lowest terms.",
        fraction_text(value),
        "fraction",
    )


def expected_maximum(rng: random.Random) -> Problem:
    first, second = rng.randrange(4, 13), rng.randrange(4, 13)
    total = sum(max(pair) for pair in product(range(1, first + 1), range(1, second + 1)))
    return Problem(
        f"A fair die with {first} sides and a fair die with {second} sides (both numbered from 1) are rolled. What is "
        "the expected value of the larger of the two numbers? Give a fraction in lowest terms.",
        fraction_text(Fraction(total, first * second)),
        "fraction",
    )


def continued_fraction(rng: random.Random) -> Problem:
    terms = [rng.randrange(1, 9) for _ in range(rng.randrange(4, 7))]
    value = Fraction(terms[-1])
    for term in reversed(terms[:-1]):
        value = term + 1 / value
    return Problem(
        f"What is the value of the continued fraction [{terms[0]}; {', '.join(map(str, terms[1:]))}]? "
        "Give a fraction in lowest terms.",
        fraction_text(value),
        "fraction",
    )


def compound_interest(rng: random.Random) -> Problem:
    amount, rate, years = rng.randrange(5, 90) * 100, Fraction(rng.randrange(4, 30), 400), rng.randrange(3, 13)
    percent = decimal_text(rate * 100, 2)
    return Problem(
        f"{amount} is put into an account that pays {percent}% interest once a year, and the interest stays in the "
        f"account. How much is in it after {years} years? Round once, at the end, to two decimal places.",
        decimal_text(amount * (1 + rate) ** years, 2),
        "decimal",
    )


def weighted_mean(rng: random.Random) -> Problem:
    values = [rng.randrange(10, 100) for _ in range(4)]
    weights = [rng.randrange(1, 9) for _ in range(4)]
    mean = Fraction(sum(v * w for v, w in zip(values, weights, strict=True)), sum(weights))
    pairs = ", ".join(f"{v} (weight {w})" for v, w in zip(values, weights, strict=True))
    return Problem(
        f"Find the weighted mean of {pairs}. Round to three decimal places.", decimal_text(mean, 3), "decimal"
    )


def variance(rng: random.Random) -> Problem:
    values = [rng.randrange(-20, 60) for _ in range(rng.randrange(5, 9))]
    mean = Fraction(sum(values), len(values))
    spread = sum(((value - mean) ** 2 for value in values), Fraction(0)) / len(values)
    return Problem(
        f"What is the population variance of {', '.join(map(str, values))}? Round to two decimal places.",
        decimal_text(spread, 2),
        "decimal",
    )


# ---- sets, tuples, intervals, expressions ---------------------------------------------------------------------------


def prime_factors(rng: random.Random) -> Problem:
    number = math.prod(rng.sample((2, 3, 5, 7, 11, 13, 17, 19, 23), 4)) * rng.choice((1, 2, 3, 4))
    found = [p for p in divisors(number) if is_prime(p)]
    return Problem(f"Which primes divide {number}? Give the set, as {{a, b, …}}.", set_text(found), "set")


def square_residues(rng: random.Random) -> Problem:
    modulus = rng.randrange(20, 120)
    square = rng.randrange(2, modulus) ** 2 % modulus
    found = [x for x in range(modulus) if x * x % modulus == square]
    return Problem(
        f"Find all integers x with 0 <= x < {modulus} whose square leaves the remainder {square} on division by "
        f"{modulus}. "
        "Give the set, as {a, b, …}.",
        set_text(found),
        "set",
    )


def integer_roots(rng: random.Random) -> Problem:
    roots = sorted(rng.sample([n for n in range(-9, 10) if n], 3))
    coefficients = [1]
    for root in roots:
        coefficients = polynomial_product(coefficients, [-root, 1])
    return Problem(
        f"Find all real solutions of {polynomial_text(coefficients)} = 0. Give the set, as {{a, b, …}}.",
        set_text(roots),
        "set",
    )


def linear_system(rng: random.Random) -> Problem:
    x, y = Fraction(rng.randrange(-9, 10), rng.choice((1, 2))), Fraction(rng.randrange(-9, 10))
    a, b, c = rng.randrange(1, 7), rng.randrange(1, 7), rng.randrange(1, 7)
    d = next(n for n in (b, b + 1) if a * n != b * c)
    left, right = 2 * (a * x + b * y), 2 * (c * x + d * y)
    return Problem(
        f"Solve {2 * a}x + {2 * b}y = {left}, {2 * c}x + {2 * d}y = {right}. Give the ordered pair (x, y).",
        f"({fraction_text(x)}, {fraction_text(y)})",
        "tuple",
    )


def quadratic_inequality(rng: random.Random) -> Problem:
    low = rng.randrange(-9, 6)
    high = low + rng.randrange(1, 9)
    strict = rng.random() < 0.5
    quadratic = polynomial_text([low * high, -(low + high), 1])
    answer = f"({low}, {high})" if strict else f"[{low}, {high}]"
    relation = "< 0" if strict else "<= 0"
    return Problem(f"For which real x is {quadratic} {relation}? Give an interval.", answer, "interval")


def derivative(rng: random.Random) -> Problem:
    coefficients = [rng.randrange(-9, 10) for _ in range(rng.randrange(3, 6))] + [rng.randrange(1, 8)]
    result = [power * coefficient for power, coefficient in enumerate(coefficients)][1:]
    return Problem(
        f"Differentiate {polynomial_text(coefficients)} with respect to x.", polynomial_text(result), "expression"
    )


def antiderivative(rng: random.Random) -> Problem:
    coefficients = [rng.randrange(-9, 10) for _ in range(rng.randrange(3, 6))] + [rng.randrange(1, 8)]
    rate = [power * coefficient for power, coefficient in enumerate(coefficients)][1:]
    return Problem(
        f"A polynomial F has the derivative {polynomial_text(rate)}, and F(0) = {coefficients[0]}. Find F(x).",
        polynomial_text(coefficients),
        "expression",
    )


def hypotenuse(rng: random.Random) -> Problem:
    first, second = rng.sample(range(2, 40), 2)
    square = first**2 + second**2
    outside = next(n for n in range(math.isqrt(square), 0, -1) if square % n**2 == 0)
    inside = square // outside**2
    root = f"\\sqrt{{{inside}}}" if inside > 1 else ""
    factor = str(outside) if outside > 1 or not root else ""
    return Problem(
        f"The legs of a right triangle are {first} and {second} long. What is the exact length of the third side?",
        factor + root,
        "expression" if root else "integer",
    )


def sector_area(rng: random.Random) -> Problem:
    radius, angle = rng.randrange(3, 20), rng.choice((30, 45, 60, 72, 90, 120, 135, 150))
    area = Fraction(angle, 360) * radius**2
    answer = (
        f"{fraction_text(area)}\\pi"
        if area.denominator == 1
        else f"\\frac{{{area.numerator}\\pi}}{{{area.denominator}}}"
    )
    return Problem(
        f"A sector of a circle of radius {radius} has an angle of {angle} degrees. What is its area, as a multiple of "
        "pi?",
        answer,
        "expression",
    )


TEMPLATES: dict[str, tuple[Template, ...]] = {
    "train": (
        multiples_below,
        primes_between,
        modular_power,
        factorial_digits,
        divisor_count,
        least_common_multiple,
        coin_ways,
        collatz_steps,
        recurrence_term,
        digit_sum_count,
        blocked_paths,
        trailing_zeros,
        dice_sum,
        same_colour,
        telescoping_sum,
        compound_interest,
        weighted_mean,
        prime_factors,
        integer_roots,
        linear_system,
        derivative,
        hypotenuse,
    ),
    "validation": (power_digits, fixed_points, expected_maximum, variance, square_residues, antiderivative),
    "test": (distinct_partitions, knight_moves, continued_fraction, quadratic_inequality, sector_area),
}


def draw_problems(template: Template, rng: random.Random, count: int) -> Iterator[Problem]:
    """So many problems of one template, no two with the same text."""
    seen: set[str] = set()
    while len(seen) < count:
        problem = template(rng)
        if problem.prompt not in seen:
            seen.add(problem.prompt)
            yield problem
