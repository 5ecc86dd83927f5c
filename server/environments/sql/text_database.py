"""A database as text, for where only text may be stored: JSON lines, each table's `CREATE`, then its rows.

    {"create": "CREATE TABLE owners (id INTEGER PRIMARY KEY, name TEXT)"}
    [1, "Ada"]

SQLite's file is made anew wherever one is opened. Tables and rows keep their order, numbers their exact value.
"""

import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

SUFFIX = ".jsonl"
"""What the name of such a file ends with."""


class TextDatabaseError(ValueError):
    """The text is not that of a database; the message names the line."""


def write_text(path: Path, tables: Iterable[tuple[str, Iterable[Sequence[int | float | str | None]]]]) -> None:
    """Write tables, each its `CREATE` statement and its rows. Raises `ValueError` where a number is not finite."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for create, rows in tables:
            for line in ({"create": create}, *rows):
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def as_sqlite(path: Path) -> Iterator[Path]:
    """The SQLite file of a database: the path itself, or a file made of the text, which is removed at the end. Whoever
    has it open then keeps it. Raises `TextDatabaseError`, `OSError`."""
    if path.suffix != SUFFIX:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="rolloutgym-sql-", suffix=".sqlite") as file:
        with closing(sqlite3.connect(file.name, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            _fill(connection, path)
            connection.execute("COMMIT")
        yield Path(file.name)


def _fill(connection: sqlite3.Connection, path: Path) -> None:
    decode = json.JSONDecoder(parse_constant=_refuse).decode
    number = 1
    insert = ""
    try:
        with path.open(encoding="utf-8") as lines:
            for text in lines:
                line = decode(text)
                if isinstance(line, list):
                    insert = insert or _insert(connection, len(line))
                    connection.execute(insert, line)
                else:
                    insert = ""
                    _create(connection, line)
                number += 1
    except (ValueError, OverflowError, sqlite3.Error) as error:
        raise TextDatabaseError(f"line {number}: {error}") from None


def _create(connection: sqlite3.Connection, line: object) -> None:
    match line:
        case {"create": str(statement)} if statement.startswith("CREATE "):
            connection.execute(statement)
        case _:
            raise ValueError("neither a row nor a CREATE statement")


def _insert(connection: sqlite3.Connection, width: int) -> str:
    """The statement for rows of the table that was created last."""
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " ORDER BY rowid DESC LIMIT 1"
    ).fetchone()
    if found is None:
        raise ValueError("a row before any table")
    name = found[0].replace('"', '""')
    return f'INSERT INTO "{name}" VALUES ({", ".join("?" * width)})'


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
