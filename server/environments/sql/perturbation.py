"""Smaller copies of a database, on which SQL that only happens to give the right result gives a wrong one.

A copy loses rows, and then the rows whose foreign keys pointed to lost ones: so keys, uniqueness and references hold as
before, and two queries that mean the same still agree (the test suites of Zhong, Yu & Klein, 2020, in a cautious form:
no value is changed). Some copies lose rows here and there. The others come in pairs, of which one loses what the other
keeps: half of the rows, or half of the values of a column with all their rows. So whatever a result rests on, a row or
a value that most rows have, is gone from one copy or the other.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.sql.database import DatabaseBroken, Schema, quote_identifier
from rolloutgym.server.environments.sql.text_database import as_sqlite

SHARES = (0.9, 0.7)
"""The share of a table's rows that each of the first copies keeps before references are followed."""
PAIRS = 4
"""Pairs of copies that share out: the first a table's rows, each of the others the values of one of its columns."""
COPIES = len(SHARES) + 2 * PAIRS
MAX_BYTES = 32 * 2**20
"""Larger databases are not copied: their queries are judged on the original alone."""
MAX_BYTES_KEPT = 2**28
"""Of the copies that are on the disk at once."""


class Copies:
    """The copies of the databases that were asked for last, in a temporary folder."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._paths: dict[Path, tuple[Path, ...]] = {}
        self._size = 0
        self._number = 0

    def of(self, path: Path, schema: Schema) -> tuple[Path, ...]:
        """Paths of the copies of one database. No path is used twice. Raises `DatabaseBroken`."""
        if path not in self._paths:
            written = self._write(path, schema) if path.stat().st_size <= MAX_BYTES else ()
            size = sum(copy.stat().st_size for copy in written)
            while self._paths and self._size + size > MAX_BYTES_KEPT:
                self._remove(next(iter(self._paths)))
            self._paths[path] = written
            self._size += size
        return self._paths[path]

    def close(self) -> None:
        """Remove them all."""
        self._paths.clear()
        self._size = 0
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _remove(self, path: Path) -> None:
        for copy in self._paths.pop(path):
            self._size -= copy.stat().st_size
            copy.unlink()

    def _write(self, path: Path, schema: Schema) -> tuple[Path, ...]:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rolloutgym-sql-")
        self._number += 1
        targets = tuple(Path(self._folder.name) / f"{self._number}-{copy}.sqlite" for copy in range(COPIES))
        try:
            with as_sqlite(path) as source:
                facts = facts_of(source, schema)
                for copy, target in enumerate(targets):
                    write_copy(source, facts, target, copy)
        except (sqlite3.Error, OSError) as error:
            raise DatabaseBroken(f"the database cannot be copied: {error}") from None
        return targets


class Facts(NamedTuple):
    """What is found out once of a database, for all of its copies."""

    recurring: dict[str, list[str]]
    """For each ordinary table the columns, quoted, in which values recur; those with the fewest different ones first.
    A virtual table, and those in which it keeps its data, do not stand row by row."""
    references: "list[_Reference]"


def facts_of(source: Path, schema: Schema) -> Facts:
    """Raises `sqlite3.Error`."""
    with closing(sqlite3.connect(":memory:", uri=True)) as connection:
        _attach(connection, source)
        tables = connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'source' AND type = 'table'"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        ).fetchall()
        recurring = {name: _recurring(connection, name) for (name,) in tables}
        return Facts(recurring, [*_declared(schema), *_evident(connection, schema)])


def _attach(connection: sqlite3.Connection, source: Path) -> None:
    connection.execute("ATTACH ? AS source", (f"file:{quote(str(source.absolute()))}?mode=ro&immutable=1",))


def _recurring(connection: sqlite3.Connection, table: str) -> list[str]:
    name = quote_identifier(table)
    found: list[tuple[int, str]] = []
    for row in connection.execute(f"PRAGMA source.table_info({name})").fetchall():
        column = quote_identifier(row[1])
        counts = f"SELECT count(DISTINCT {column}), count({column}) FROM source.{name}"
        different, all_ = connection.execute(counts).fetchone()
        if 1 < different < all_:
            found.append((different, column))
    return [column for _, column in sorted(found, key=itemgetter(0))]


def write_copy(source: Path, facts: Facts, target: Path, number: int) -> None:
    """Write the copy of that number, the same rows on every machine. Raises `sqlite3.Error`, `OSError`."""
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(f"file:{quote(str(target))}", uri=True, isolation_level=None)) as connection:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY", "foreign_keys = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        _attach(connection, source)
        connection.execute("BEGIN")
        for (trigger,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER main.{quote_identifier(trigger)}")
        for table, recurring in facts.recurring.items():
            _thin(connection, table, recurring, number)
        # A row that is lost may leave others without their reference: until no more are.
        while sum([_follow(connection, reference) for reference in facts.references]):
            pass
        connection.execute("COMMIT")


def _thin(connection: sqlite3.Connection, table: str, recurring: Sequence[str], number: int) -> None:
    """Take rows from a table as the copy of that number does."""
    pair, half = divmod(number - len(SHARES), 2)
    condition = "lost()"
    if pair < 0:
        rng = seeded_random(number, "perturbation", table)
        connection.create_function("lost", 0, lambda: rng.random() >= SHARES[number])
    elif pair == 0 or not recurring:
        sides = _sides_of_rows(connection, table, pair)
        connection.create_function("lost", 0, lambda: next(sides) == half)
    else:
        column = recurring[(pair - 1) % len(recurring)]
        # The commonest values first, so that each half has a like number of rows.
        condition = (
            f"{column} IN (SELECT value FROM (SELECT {column} AS value, row_number() OVER"
            f" (ORDER BY count(*) DESC, {column}) AS place FROM source.{quote_identifier(table)} GROUP BY {column})"
            f" WHERE place % 2 = {half})"
        )
    connection.execute(f"DELETE FROM main.{quote_identifier(table)} WHERE {condition}")


def _sides_of_rows(connection: sqlite3.Connection, table: str, pair: int) -> Iterator[int]:
    """0 or 1 for each row, drawn by the pair; as many of the one as of the other."""
    count = connection.execute(f"SELECT count(*) FROM source.{quote_identifier(table)}").fetchone()[0]
    sides = [row % 2 for row in range(count)]
    seeded_random(pair, "halves", table).shuffle(sides)
    return iter(sides)


# ---- references -----------------------------------------------------------------------------------------------------


class _Reference(NamedTuple):
    """Columns of a table that name a row of another, by columns of that."""

    table: str
    columns: tuple[str, ...]
    parent: str
    key: tuple[str, ...]


def _declared(schema: Schema) -> list[_Reference]:
    found = [
        _Reference(table.name, key.columns, key.table, key.references or _primary_key(schema, key.table))
        for table in schema.tables
        for key in table.foreign_keys
        if schema.find(key.table) is not None  # SQLite lets a key refer to a table that is not there
    ]
    return [reference for reference in found if len(reference.columns) == len(reference.key)]


def _evident(connection: sqlite3.Connection, schema: Schema) -> list[_Reference]:
    """References that are not declared, as published databases often leave them: a column that is named after the key
    of another table, and has no value but that key's."""
    tables = [table for table in schema.tables if table.kind == "table"]
    keys = [(table.name, key) for table in tables if len(key := _primary_key(schema, table.name)) == 1]
    found = []
    for table in tables:
        declared = {column for key in table.foreign_keys for column in key.columns}
        for column in table.columns:
            for parent, own in keys:
                reference = _Reference(table.name, (column.name,), parent, own)
                if column.name not in declared and _is_named_after(reference) and _holds(connection, reference):
                    found.append(reference)
    return found


def _is_named_after(reference: _Reference) -> bool:
    """`writes.aid` after `author.aid`, `albums.artist_id` after `artists.id`."""
    column, parent, key = reference.columns[0].lower(), reference.parent.lower(), reference.key[0].lower()
    if reference.table.lower() == parent:
        return False
    stem = column.removesuffix(key).rstrip("_")
    is_singular = parent.startswith(stem.removesuffix("y")) and 0 <= len(parent) - len(stem) <= 2
    return column == key != "id" or (column != stem != "" and is_singular)


def _holds(connection: sqlite3.Connection, reference: _Reference) -> bool:
    column, key = quote_identifier(reference.columns[0]), quote_identifier(reference.key[0])
    keys = f"SELECT {key} FROM source.{quote_identifier(reference.parent)} WHERE {key} IS NOT NULL"
    dangling, some = connection.execute(
        f"SELECT count({column} NOT IN ({keys}) OR NULL), count({column})"
        f" FROM source.{quote_identifier(reference.table)}"
    ).fetchone()
    return bool(some > 0 and dangling == 0)


def _primary_key(schema: Schema, name: str) -> tuple[str, ...]:
    table = schema.find(name)
    columns = [] if table is None else [column for column in table.columns if column.primary_key]
    return tuple(column.name for column in sorted(columns, key=lambda column: column.primary_key))


def _follow(connection: sqlite3.Connection, reference: _Reference) -> int:
    """Delete the rows whose reference is lost; how many there were. A reference that never held is left alone."""
    own = ", ".join(map(quote_identifier, reference.columns))
    theirs = ", ".join(map(quote_identifier, reference.key))
    present = " AND ".join(f"{quote_identifier(name)} IS NOT NULL" for name in reference.key)
    parent = quote_identifier(reference.parent)
    deleted = connection.execute(
        f"DELETE FROM main.{quote_identifier(reference.table)}"
        f" WHERE ({own}) NOT IN (SELECT {theirs} FROM main.{parent} WHERE {present})"
        f" AND ({own}) IN (SELECT {theirs} FROM source.{parent} WHERE {present})"
    )
    return deleted.rowcount
