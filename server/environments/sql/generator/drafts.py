"""What templates are made of: conditions and links that exist as words, as SQL and as Python alike.

A template draws its parts from these and gives a draft: a question, its SQL, and the rows that Python finds without
SQL. It gives nothing where the data leaves the question open (a tie, no match, a rounding on the edge).
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal, NamedTuple

from rolloutgym.server.environments.sql.generator.schema import Column, Domain, Kind, Record, Table, Value

Shape = Literal["single", "order", "group", "join", "subquery", "set"]


class Draft(NamedTuple):
    question: str
    sql: str
    rows: Sequence[tuple[Value, ...]]


Make = Callable[[Domain, random.Random], Draft | None]


class Template(NamedTuple):
    name: str
    shape: Shape
    hardness: str
    make: Make


class Registry:
    """The templates of one split."""

    def __init__(self) -> None:
        self.templates: list[Template] = []

    def add(self, shape: Shape, hardness: str) -> Callable[[Make], Make]:
        def register(make: Make) -> Make:
            self.templates.append(Template(make.__name__, shape, hardness, make))
            return make

        return register


# ---- values ---------------------------------------------------------------------------------------------------------


def literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


def numbers(records: Iterable[Record], column: Column) -> list[int | float]:
    return [value for record in records if isinstance(value := record[column.name], int | float)]


def present(records: Iterable[Record], column: Column) -> list[Value]:
    return [value for record in records if (value := record[column.name]) is not None]


def total(values: Sequence[int | float]) -> Fraction:
    return sum((Fraction(Decimal(repr(value))) for value in values), Fraction())


def mean(values: Sequence[int | float]) -> Fraction | None:
    return total(values) / len(values) if values else None


def to_decimals(value: Fraction | None, digits: int) -> float | None:
    """Rounded; none where the value is so near a half that floats could go either way."""
    if value is None:
        return None
    scaled = value * 10**digits
    if abs(scaled - (scaled // 1) - Fraction(1, 2)) < Fraction(1, 10**4):
        return None
    return float(round(scaled) / 10**digits)


def ranked(records: Iterable[Record], column: Column, *, descending: bool) -> list[Record]:
    """The records that have a value, in the order of it."""
    having = [record for record in records if record[column.name] is not None]
    return sorted(having, key=lambda record: record[column.name], reverse=descending)  # type: ignore[arg-type,return-value]


def is_tied(values: Sequence[object], cut: int) -> bool:
    """Whether the first `cut` values, in order, are not all different, or the next one equals the last of them."""
    head = values[: cut + 1]
    return len(values) < cut or len(set(head)) != len(head)


def text_order(rows: Iterable[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """In the order of SQLite's binary collation, by the first column."""
    return sorted(rows, key=lambda row: str(row[0]).encode())


# ---- parts of a question --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    words: str
    column: Column
    operator: str
    """SQL after the column."""
    test: Callable[[Record], bool]

    def sql(self, alias: str = "") -> str:
        return f"{alias}{self.column.name} {self.operator}"


def some(rng: random.Random, table: Table, *kinds: Kind) -> Column | None:
    columns = table.of_kind(*kinds)
    return rng.choice(columns) if columns else None


def some_table(rng: random.Random, domain: Domain, *kinds: Kind, labelled: bool = False) -> Table | None:
    """A table with a column of each kind, drawn by its number of columns."""
    fits = [
        table
        for table in domain.tables
        if all(table.of_kind(kind) for kind in kinds) and (table.label is not None or not labelled)
    ]
    return rng.choices(fits, [len(table.columns) for table in fits])[0] if fits else None


def measure(rng: random.Random, table: Table) -> Column | None:
    """A number to compare and to rank by."""
    return some(rng, table, "integer", "real")


def amount(rng: random.Random, table: Table, *kinds: Kind) -> Column | None:
    """A number to add up and to average."""
    columns = [column for column in table.of_kind(*(kinds or ("integer", "real"))) if column.additive]
    return rng.choice(columns) if columns else None


def condition(rng: random.Random, table: Table, *, without: Sequence[Column | None] = ()) -> Condition | None:
    """A condition on one column that some of the rows meet and some do not."""
    columns = [column for column in table.of_kind("category", "integer", "real", "date") if column not in without]
    if not columns:
        return None
    column = rng.choice(columns)
    if column.kind == "category":
        made = category_condition(rng, table, column)
    elif column.kind == "date":
        made = _date_condition(rng, table, column)
    else:
        made = _number_condition(rng, table, column)
    met = sum(map(made.test, table.records)) if made is not None else 0
    return made if 0 < met < len(table.records) else None


def category_condition(rng: random.Random, table: Table, column: Column) -> Condition:
    value = rng.choice(present(table.records, column))
    return Condition(
        column.where.format(value), column, f"= {literal(value)}", lambda record: record[column.name] == value
    )


def _number_condition(rng: random.Random, table: Table, column: Column) -> Condition:
    values = sorted(numbers(table.records, column))
    value = values[int(len(values) * rng.uniform(0.15, 0.85))]
    if rng.random() < 0.5:
        words = rng.choice(("whose {} is above {}", "whose {} is greater than {}", "whose {} is more than {}"))
        return Condition(
            words.format(column.phrase, value), column, f"> {value!r}", lambda r: _number(r, column, value) > value
        )
    words = rng.choice(("whose {} is below {}", "whose {} is less than {}", "whose {} is under {}"))
    return Condition(
        words.format(column.phrase, value), column, f"< {value!r}", lambda r: _number(r, column, value) < value
    )


def _number(record: Record, column: Column, if_missing: float) -> float:
    value = record[column.name]
    return value if isinstance(value, int | float) else if_missing


def _date_condition(rng: random.Random, table: Table, column: Column) -> Condition:
    day = str(rng.choice(present(table.records, column)))
    style = rng.randrange(3)
    if style == 0:
        year = day[:4]
        operator = f"BETWEEN '{year}-01-01' AND '{year}-12-31'"
        return Condition(
            f"whose {column.phrase} falls in {year}", column, operator, lambda r: str(r[column.name]).startswith(year)
        )
    if style == 1:
        return Condition(
            f"whose {column.phrase} is after {day}", column, f"> '{day}'", lambda r: str(r[column.name] or "") > day
        )
    return Condition(
        f"whose {column.phrase} is before {day}", column, f"< '{day}'", lambda r: str(r[column.name] or "9") < day
    )


class Link(NamedTuple):
    """A reference from many rows of one table to one row of another."""

    child: Table
    column: Column
    parent: Table

    @property
    def parent_label(self) -> Column:
        label = self.parent.label
        assert label is not None
        return label

    def join(self, child: str = "T1", parent: str = "T2") -> str:
        """`child AS T1 JOIN parent AS T2 ON …`."""
        on = f"{child}.{self.column.name} = {parent}.{self.parent.key.name}"
        return f"{self.child.name} AS {child} JOIN {self.parent.name} AS {parent} ON {on}"

    def pairs(self) -> list[tuple[Record, Record]]:
        """Each child with its parent; children without one are left out, as by the join."""
        parents = {record[self.parent.key.name]: record for record in self.parent.records}
        return [
            (record, parents[record[self.column.name]])
            for record in self.child.records
            if record[self.column.name] is not None
        ]

    def children(self) -> dict[Value, list[Record]]:
        """By the parent's key; every parent is there."""
        groups: dict[Value, list[Record]] = {record[self.parent.key.name]: [] for record in self.parent.records}
        for child, parent in self.pairs():
            groups[parent[self.parent.key.name]].append(child)
        return groups


def some_link(rng: random.Random, domain: Domain, *kinds: Kind, child: Table | None = None) -> Link | None:
    """A link to a labelled parent, from any table that has a column of each kind, or from that child."""
    links = [
        Link(table, column, domain.table(column.parent))
        for table in domain.tables
        for column in table.of_kind("ref")
        if all(table.of_kind(kind) for kind in kinds) and column.parent != table.name and child in (None, table)
    ]
    links = [link for link in links if link.parent.label is not None]
    return rng.choice(links) if links else None


def unique_parent(rng: random.Random, link: Link) -> tuple[Record, str] | None:
    """A parent whose label no other parent has, and that label."""
    name = link.parent_label.name
    labels = [record[name] for record in link.parent.records]
    record = rng.choice(link.parent.records)
    return (record, str(record[name])) if labels.count(record[name]) == 1 else None


def sentence(text: str) -> str:
    return text[0].upper() + text[1:]
