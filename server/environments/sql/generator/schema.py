"""The shape of a generated database: tables, columns, what they are called in a question, and how rows are drawn.

The rows are kept as Python dictionaries beside the file, so that a question's answer is also found without SQL.
"""

import datetime as dt
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rolloutgym.server.environments.sql.generator import words

Value = None | int | float | str
Record = dict[str, Value]
Kind = Literal["key", "ref", "label", "category", "integer", "real", "date", "text"]
Maker = Callable[[random.Random, int], Value]
"""Draws the value of the row with that number, from 0."""

_TYPES: dict[Kind, str] = {"key": "INTEGER", "ref": "INTEGER", "integer": "INTEGER", "real": "REAL", "date": "DATE"}


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    phrase: str
    """What a question calls it, in the singular."""
    make: Maker
    nulls: float = 0.0
    """Share of missing values."""
    where: str = ""
    """A category: words that choose rows by a value, such as `living in {}`."""
    plural: str = ""
    parent: str = ""
    """A reference: the table it points to."""
    additive: bool = True
    """A number: whether sums and means of it make sense (not of years)."""
    of: str = ""
    """A reference: words between the row and what it points to, such as `written by`."""

    @property
    def phrases(self) -> str:
        return self.plural or f"{self.phrase}s"


@dataclass(frozen=True)
class Table:
    name: str
    singular: str
    plural: str
    size: int
    columns: tuple[Column, ...]
    pairs: bool = False
    """The references are the primary key: each combination once."""
    records: list[Record] = field(default_factory=list, compare=False, repr=False)

    def of_kind(self, *kinds: Kind) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]

    @property
    def key(self) -> Column:
        return self.of_kind("key")[0]

    @property
    def label(self) -> Column | None:
        return next(iter(self.of_kind("label")), None)

    def ddl(self) -> str:
        refs = self.of_kind("ref")
        lines = [f"  {column.name} {self._type(column)}" for column in self.columns]
        if self.pairs:
            lines.append(f"  PRIMARY KEY ({', '.join(ref.name for ref in refs)})")
        lines += [f"  FOREIGN KEY ({ref.name}) REFERENCES {ref.parent}" for ref in refs]
        return f"CREATE TABLE {self.name} (\n" + ",\n".join(lines) + "\n)"

    def _type(self, column: Column) -> str:
        suffix = " PRIMARY KEY" if column.kind == "key" else "" if column.nulls else " NOT NULL"
        return _TYPES.get(column.kind, "TEXT") + suffix


@dataclass(frozen=True)
class Domain:
    """One database."""

    name: str
    split: Literal["train", "validation", "test"]
    tables: tuple[Table, ...]
    """Parents before children."""

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def fill(self, rng: random.Random) -> None:
        """Draw all rows. The same generator state gives the same rows."""
        for table in self.tables:
            table.records.clear()
            used: set[tuple[Value, ...]] = set()
            while len(table.records) < table.size:
                record = self._draw(table, rng)
                if table.pairs:
                    pair = tuple(record[ref.name] for ref in table.of_kind("ref"))
                    if pair in used:
                        continue
                    used.add(pair)
                table.records.append(record)

    def _draw(self, table: Table, rng: random.Random) -> Record:
        record: Record = {}
        for column in table.columns:
            if column.nulls and rng.random() < column.nulls:
                record[column.name] = None
            elif column.kind == "ref":
                record[column.name] = self._draw_reference(table, column, rng)
            else:
                record[column.name] = column.make(rng, len(table.records))
        return record

    def _draw_reference(self, table: Table, column: Column, rng: random.Random) -> Value:
        """A parent's key, the first ones more often; the last tenth of the parents are never pointed to."""
        if column.parent == table.name:
            return rng.randrange(len(table.records)) + 1 if table.records else None
        size = self.table(column.parent).size
        reach = max(1, size - size // 10)
        return int(reach * rng.random() ** 1.4) + 1


# ---- columns --------------------------------------------------------------------------------------------------------


def key(name: str) -> Column:
    return Column(name, "key", "id", lambda _, number: number + 1)


def ref(name: str, parent: str, of: str, nulls: float = 0.0) -> Column:
    return Column(name, "ref", "", lambda _rng, _number: None, nulls, parent=parent, of=of)


def label(name: str, phrase: str, make: Maker) -> Column:
    return Column(name, "label", phrase, make)


def category(
    name: str, phrase: str, values: Sequence[str], where: str = "", nulls: float = 0.0, plural: str = ""
) -> Column:
    """Text of few values, the first ones more often."""

    def make(rng: random.Random, _: int) -> str:
        return values[int(len(values) * rng.random() ** 1.3)]

    return Column(name, "category", phrase, make, nulls, where or f"whose {phrase} is {{}}", plural)


def integer(name: str, phrase: str, low: int, high: int, nulls: float = 0.0) -> Column:
    return Column(name, "integer", phrase, lambda rng, _: rng.randint(low, high), nulls)


def ordinal(name: str, phrase: str, low: int, high: int, nulls: float = 0.0) -> Column:
    """A number that is compared but never added up, such as a year."""
    return Column(name, "integer", phrase, lambda rng, _: rng.randint(low, high), nulls, additive=False)


def real(name: str, phrase: str, low: float, high: float, decimals: int = 2, nulls: float = 0.0) -> Column:
    def make(rng: random.Random, _: int) -> float:
        unit = 10**decimals
        return float(rng.randint(round(low * unit), round(high * unit)) / unit)

    return Column(name, "real", phrase, make, nulls)


def date(name: str, phrase: str, first: str, last: str, nulls: float = 0.0) -> Column:
    start = dt.date.fromisoformat(first)
    days = (dt.date.fromisoformat(last) - start).days

    def make(rng: random.Random, _: int) -> str:
        return (start + dt.timedelta(days=rng.randint(0, days))).isoformat()

    return Column(name, "date", phrase, make, nulls)


def text(name: str, phrase: str, make: Maker, nulls: float = 0.0) -> Column:
    return Column(name, "text", phrase, make, nulls)


# ---- names ----------------------------------------------------------------------------------------------------------


def people(rng: random.Random, _: int) -> str:
    return f"{rng.choice(words.GIVEN_NAMES)} {rng.choice(words.SURNAMES)}"


def email(rng: random.Random, number: int) -> str:
    return f"{rng.choice(words.NOUNS).lower()}.{number + 11}@{rng.choice(words.ADJECTIVES).lower()}.example"


def titles(rng: random.Random, _: int) -> str:
    adjective, noun = rng.choice(words.ADJECTIVES), rng.choice(words.NOUNS)
    other = rng.choice(words.NOUNS)
    return rng.choice((f"The {adjective} {noun}", f"{noun} and {other}", f"{adjective} {noun}", f"{noun}, {adjective}"))


def made_of(*parts: Sequence[str], joint: str = " ") -> Maker:
    """A word of each part."""
    return lambda rng, _: joint.join(rng.choice(part) for part in parts)


def each_of(values: Sequence[str]) -> Maker:
    """The values one after the other: unique as long as there are enough."""
    return lambda _, number: values[number]


def code(prefix: str, digits: int) -> Maker:
    """Unique codes with a gap after each."""
    return lambda _, number: f"{prefix}{7 * number + 13:0{digits}d}"
