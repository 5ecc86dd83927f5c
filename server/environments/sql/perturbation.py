"""Smaller copies of a database, on which SQL that only happens to give the right result gives a wrong one.

A copy loses rows, drawn by a seed, and then the rows whose foreign keys pointed to lost ones: so keys, uniqueness and
references hold as before, and two queries that mean the same still agree (the test suites of Zhong, Yu & Klein, 2020,
in a cautious form: no value is changed).
"""

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.sql.database import ForeignKey, Schema, quote_identifier
from rolloutgym.server.environments.sql.text_database import as_sqlite

KEPT = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""For each copy: the share of a table's rows that is kept before references are followed."""
MAX_DATABASES = 16
"""Databases whose copies are on the disk at once."""
MAX_BYTES = 32 * 2**20
"""Larger databases are not copied: their queries are judged on the original alone."""


class Copies:
    """The copies of the databases that were asked for last, in a temporary folder."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._paths: dict[Path, tuple[Path, ...]] = {}
        self._number = 0

    def of(self, path: Path, schema: Schema) -> tuple[Path, ...]:
        """Paths of the copies of one database. No path is used twice."""
        if path not in self._paths:
            self._paths[path] = self._write(path, schema) if path.stat().st_size <= MAX_BYTES else ()
            if len(self._paths) > MAX_DATABASES:
                for old in self._paths.pop(next(iter(self._paths))):
                    old.unlink()
        return self._paths[path]

    def close(self) -> None:
        """Remove them all."""
        self._paths.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _write(self, path: Path, schema: Schema) -> tuple[Path, ...]:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rolloutgym-sql-")
        self._number += 1
        targets = tuple(Path(self._folder.name) / f"{self._number}-{copy}.sqlite" for copy in range(len(KEPT)))
        with as_sqlite(path) as source:
            for copy, target in enumerate(targets):
                write_copy(source, schema, target, copy)
        return targets


def write_copy(source: Path, schema: Schema, target: Path, number: int) -> None:
    """Write the copy of that number, the same rows on every machine. Raises `sqlite3.Error`, `OSError`."""
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(f"file:{quote(str(target))}", uri=True, isolation_level=None)) as connection:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY", "foreign_keys = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("ATTACH ? AS source", (f"file:{quote(str(source.absolute()))}?mode=ro&immutable=1",))
        connection.execute("BEGIN")
        for name, kind in _objects(connection):
            if kind == "trigger":
                connection.execute(f"DROP TRIGGER {quote_identifier(name)}")
        for name, kind in _objects(connection):
            if kind == "table":
                _thin(connection, name, number)
        references = [
            (table.name, key, key.references or _primary_key(schema, key.table))
            for table in schema.tables
            for key in table.foreign_keys
        ]
        # A row that is lost may leave others without their reference: until no more are.
        while sum([_follow(connection, *reference) for reference in references]):
            pass
        connection.execute("COMMIT")


def _objects(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Triggers and ordinary tables."""
    return connection.execute(
        "SELECT name, type FROM main.sqlite_master WHERE type = 'trigger' OR"
        " type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()


def _thin(connection: sqlite3.Connection, table: str, number: int) -> None:
    rng = seeded_random(number, "perturbation", table)
    connection.create_function("lost", 0, lambda: rng.random() >= KEPT[number])
    connection.execute(f"DELETE FROM main.{quote_identifier(table)} WHERE lost()")


def _primary_key(schema: Schema, name: str) -> tuple[str, ...]:
    table = schema.find(name)
    columns = [] if table is None else [column for column in table.columns if column.primary_key]
    return tuple(column.name for column in sorted(columns, key=lambda column: column.primary_key))


def _follow(connection: sqlite3.Connection, table: str, key: ForeignKey, references: tuple[str, ...]) -> int:
    """Delete the rows whose reference is lost; how many there were. A reference that never held is left alone."""
    if len(references) != len(key.columns):
        return 0
    own = ", ".join(map(quote_identifier, key.columns))
    theirs = ", ".join(map(quote_identifier, references))
    present = " AND ".join(f"{quote_identifier(name)} IS NOT NULL" for name in references)
    parent = quote_identifier(key.table)
    deleted = connection.execute(
        f"DELETE FROM main.{quote_identifier(table)}"
        f" WHERE ({own}) NOT IN (SELECT {theirs} FROM main.{parent} WHERE {present})"
        f" AND ({own}) IN (SELECT {theirs} FROM source.{parent} WHERE {present})"
    )
    return deleted.rowcount
