"""One guarded, read-only SQLite database: what a model's SQL can reach, and for how long.

Everything is refused by the engine, never by a look at the text: an authorizer that knows only reading, SQLite's own
limits, a heap limit, and a progress handler. The handler counts virtual-machine instructions, so a query that is too
expensive is too expensive on every machine; the thread's own time stands behind it for instructions that are slow
themselves, and not the wall clock, by which a busy machine would turn right answers into wrong ones.
The file is opened immutable: no lock, no journal, no write. A query's error is `QueryFailed`, the model's to read; a
file that cannot be read is `DatabaseBroken`, a fault of ours.
"""

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from rolloutgym.server.environments.sql.clock import StandingClock
from rolloutgym.server.environments.sql.text_database import TextDatabaseError, as_sqlite

Cell = None | int | float | str | bytes
Row = tuple[Cell, ...]
FailureKind = Literal["syntax", "denied", "limit", "timeout", "memory", "other"]

TOO_EXPENSIVE = "the query is too expensive: it was stopped"
STEPS_PER_TICK = 1000
_OPEN_MODE = "mode=ro&immutable=1"
_CHUNK_CELLS = 64
"""How much is fetched at once: few cells, for each may be as long as `Limits.length` allows."""
_HIDDEN = 1
"""How SQLite marks a column that `*` leaves out, which a virtual table may have."""
_OK, _READ = sqlite3.SQLITE_OK, sqlite3.SQLITE_READ
_ALLOWED_ACTIONS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE})
DENIED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "fts5", "sqlite_log", "random", "randomblob"})
"""Functions that load code, hand out or take pointers, write to the process's log, or draw random numbers."""

_LIMIT_MARKS = ("too big", "too large", "too many", "too long", "stack overflow", "too complex")
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


@dataclass(frozen=True)
class Limits:
    """What one query may use. Sizes in bytes, steps in virtual-machine instructions, processor time in seconds."""

    steps: int = 50_000_000
    """Instructions; deterministic."""
    cpu_s: float = 5.0
    """Several times what `steps` need, so that it decides only where single instructions are slow."""
    heap: int = 64 * 2**20
    """SQLite's heap, for the whole process: it can be lowered, never raised again."""
    length: int = 1_000_000
    """Longest string, blob or row."""
    sql_length: int = 20_000
    expression_depth: int = 200
    compound_selects: int = 30
    columns: int = 200
    program: int = 50_000
    """Longest compiled program, instructions."""
    function_arguments: int = 32
    like_pattern: int = 1_000
    mmap: int = 2**28
    """How much of the file is mapped instead of copied into the page cache."""


class QueryResult(NamedTuple):
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    truncated: bool
    """Whether there were more rows than the caps let through."""
    read: frozenset[tuple[str, str]]
    """(table, column) pairs that the query read, lower-case; the column is empty where only rows were counted."""


class QueryFailed(Exception):
    """A query that did not run to its end, in words for whoever wrote it: no path, no stack."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message


class DatabaseBroken(Exception):
    """The file is missing, not a database, or damaged."""


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    not_null: bool
    primary_key: int
    """Position in the primary key from 1; 0 where the column is not part of it."""


@dataclass(frozen=True)
class ForeignKey:
    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]
    """Columns of `table`; empty where the declaration leaves them to its primary key."""


@dataclass(frozen=True)
class Table:
    name: str
    kind: Literal["table", "view"]
    columns: tuple[Column, ...]
    foreign_keys: tuple[ForeignKey, ...]


@dataclass(frozen=True)
class Schema:
    """Tables and views in the order of the file, SQLite's own left out."""

    tables: tuple[Table, ...]
    _by_name: dict[str, Table] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {table.name.lower(): table for table in self.tables})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(table.name for table in self.tables)

    def find(self, name: str) -> Table | None:
        """The table of that name, in any case."""
        return self._by_name.get(name.lower())


class Database:
    """One guarded connection to one file, of SQLite's or of text. `DatabaseBroken` where the file cannot be read."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._read: set[tuple[str, str]] = set()
        self._denied: str | None = None
        self._ticks = 0
        self._deadline = 0.0
        """Processor time of the thread at which a query ends; and the clock before which that cannot be."""
        self._not_before = 0.0
        self._timed_out = False
        try:
            with as_sqlite(path) as file:
                self._connection = _connect(file)
        except (sqlite3.Error, TextDatabaseError) as error:
            raise DatabaseBroken(f"the database does not open: {error}") from None
        try:
            self._configure()
            self._schema = self._load_schema()
            self._tables = frozenset([name.lower() for name in self._schema.names])
            self._tables_by_page = self._load_pages()
        except sqlite3.Error as error:
            self._connection.close()
            raise DatabaseBroken(f"the database cannot be read: {error}") from None
        self._fix_clock()
        self._set_limits()
        self._set_authorizer()
        self._set_progress_handler()

    def close(self) -> None:
        self._connection.close()
        self._clock.close()

    def schema(self) -> Schema:
        return self._schema

    @contextmanager
    def scanned_backwards(self) -> Iterator[None]:
        """Meanwhile tables are scanned backwards wherever a query leaves the order open."""
        self._set_backwards(True)
        try:
            yield
        finally:
            self._set_backwards(False)

    @property
    def last_steps(self) -> int:
        """What the last query cost, in virtual-machine instructions, cut to thousands."""
        return self._ticks * STEPS_PER_TICK

    def query(
        self, sql: str, *, max_rows: int = 1_000, max_cells: int = 100_000, max_bytes: int = 4 * 2**20
    ) -> QueryResult:
        """Run one statement and fetch its rows up to the caps. Raises `QueryFailed`, `DatabaseBroken`."""
        try:
            return self._run(sql, max_rows, max_cells, max_bytes)
        except sqlite3.OperationalError as error:
            if not str(error).startswith("Could not decode"):
                raise self._failure(error) from None
        except (sqlite3.Error, sqlite3.Warning, MemoryError, ValueError) as error:
            raise self._failure(error) from None
        # Bytes that are not UTF-8 are shown with replacement marks. Decoding in Python is slow, so only here.
        self._connection.text_factory = _decode
        try:
            return self._run(sql, max_rows, max_cells, max_bytes)
        except (sqlite3.Error, MemoryError) as error:
            raise self._failure(error) from None
        finally:
            self._connection.text_factory = str

    def _run(self, sql: str, max_rows: int, max_cells: int, max_bytes: int) -> QueryResult:
        self._read.clear()
        self._denied = None
        self._ticks = 0
        self._timed_out = False
        self._deadline = time.thread_time() + self.limits.cpu_s
        self._not_before = time.monotonic() + self.limits.cpu_s
        cursor = self._connection.execute(sql)
        try:
            if cursor.description is None:
                raise QueryFailed("syntax", "there is no statement to run")
            columns = tuple([entry[0] for entry in cursor.description])
            cap = min(max_rows, max_cells // len(columns))
            rows, truncated = _fetch(cursor, max(1, _CHUNK_CELLS // len(columns)), cap, max_bytes)
        finally:
            cursor.close()
        read = frozenset(self._read)
        if "with" in sql.lower() and not all(column for _, column in read):
            # The name alone, without a column, may be that of a common table expression.
            opened = self._opened(sql)
            read = frozenset([(table, column) for table, column in read if column or table in opened])
        return QueryResult(columns, tuple(rows), truncated, read)

    def _opened(self, sql: str) -> frozenset[str]:
        """The tables, lower-case, that a statement opens, as its compiled program has it; none where that cannot be
        asked for (the statement is an EXPLAIN itself)."""
        try:
            program = self._connection.execute(f"EXPLAIN {sql}").fetchall()
        except sqlite3.Error:
            return frozenset()
        pages = [root for _, opcode, _, root, database, *_ in program if opcode == "OpenRead" and database == 0]
        return frozenset([self._tables_by_page[page] for page in pages if page in self._tables_by_page])

    # -- the controls, each one method

    def _configure(self) -> None:
        connection, limits = self._connection, self.limits
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA hard_heap_limit = {limits.heap}")
        connection.execute(f"PRAGMA mmap_size = {limits.mmap}")
        # These two compile a declaration of their own when first used, which the authorizer would refuse.
        connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchall()
        if sys.version_info >= (3, 12):
            # Published queries write text in double quotes; some builds of SQLite refuse that by default.
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, True)

    def _fix_clock(self) -> None:
        self._clock = StandingClock(self._connection)

    def _set_limits(self) -> None:
        limits = self.limits
        for category, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, limits.length),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits.sql_length),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, limits.expression_depth),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, limits.compound_selects),
            (sqlite3.SQLITE_LIMIT_COLUMN, limits.columns),
            (sqlite3.SQLITE_LIMIT_VDBE_OP, limits.program),
            (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, limits.function_arguments),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, limits.like_pattern),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        ):
            self._connection.setlimit(category, value)

    def _set_authorizer(self) -> None:
        self._connection.set_authorizer(self._authorize)

    def _set_backwards(self, on: bool) -> None:
        self._connection.set_authorizer(None)
        self._connection.execute(f"PRAGMA reverse_unordered_selects = {int(on)}")
        self._set_authorizer()

    def _set_progress_handler(self) -> None:
        self._connection.set_progress_handler(self._on_tick, STEPS_PER_TICK)

    def _authorize(
        self, action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None
    ) -> int:
        # Asked for every column and function of a query: the commonest case first.
        if action == _READ and first is not None and second is not None:
            table = first.lower()
            if table in self._tables:
                self._read.add((table, second.lower()))
                return _OK
            if not table.startswith("sqlite_"):
                return _OK
            self._denied = f"{table} is hidden: DESCRIBE shows a table's columns"
        elif action in _ALLOWED_ACTIONS:
            return _OK
        elif action == sqlite3.SQLITE_FUNCTION and second is not None:
            if second.lower() not in DENIED_FUNCTIONS:
                return _OK
            self._denied = f"the function {second.lower()} is not allowed"
        elif action == sqlite3.SQLITE_PRAGMA and self._read:
            # No SELECT holds a pragma: this is FTS5's own, before it reads. It stays refused: the numbers of its
            # cursors, which a query can see, count what the process did before, and it calls a file damaged whose
            # content table lacks a row.
            self._denied = "full-text tables of FTS5 cannot be read"
        else:
            self._denied = "only SELECT is allowed: the database is read-only"
        return sqlite3.SQLITE_DENY

    def _on_tick(self) -> bool:
        self._ticks += 1
        # Processor time is not spent faster than the clock goes, and the clock is much quicker to read.
        self._timed_out = self._ticks * STEPS_PER_TICK >= self.limits.steps or (
            time.monotonic() > self._not_before and time.thread_time() > self._deadline
        )
        return self._timed_out

    # --

    def _failure(self, error: Exception) -> QueryFailed | DatabaseBroken:
        message = str(error)
        if self._timed_out:
            return QueryFailed("timeout", TOO_EXPENSIVE)
        if isinstance(error, MemoryError):
            return QueryFailed("memory", "the query needs too much memory: it was stopped")
        if self._denied is not None:
            return QueryFailed("denied", self._denied)
        if isinstance(error, sqlite3.Warning) or "one statement at a time" in message:
            return QueryFailed("denied", "only one statement at a time is allowed")
        if isinstance(error, ValueError) or "null character" in message:
            return QueryFailed("syntax", "the query contains a character that SQL text cannot hold")
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
            return DatabaseBroken(message)
        if isinstance(error, sqlite3.DataError) or any(mark in message for mark in _LIMIT_MARKS):
            return QueryFailed("limit", f"a limit was exceeded: {message}")
        if isinstance(error, sqlite3.ProgrammingError):
            return QueryFailed("syntax", "the query has parameters without values")
        if isinstance(error, sqlite3.OperationalError):
            return QueryFailed("syntax", message)
        return QueryFailed("other", message)

    def _load_schema(self) -> Schema:
        rows = self._connection.execute(
            "SELECT name, type FROM sqlite_master"
            " WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            # Not those in which virtual tables keep their data.
            " AND name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow') ORDER BY rowid"
        ).fetchall()
        return Schema(tuple(self._load_table(name, kind) for name, kind in rows))

    def _load_pages(self) -> dict[int, str]:
        """The table, lower-case, to which the tree that begins on a page belongs: its rows or one of its indexes."""
        pages = self._connection.execute("SELECT rootpage, lower(tbl_name) FROM sqlite_master WHERE rootpage > 0")
        return dict(pages.fetchall())

    def _load_table(self, name: str, kind: Literal["table", "view"]) -> Table:
        quoted = quote_identifier(name)
        try:
            columns = tuple(
                Column(column, type_, bool(not_null), key)
                for _, column, type_, not_null, _, key, hidden in self._connection.execute(
                    f"PRAGMA table_xinfo({quoted})"
                )
                if hidden != _HIDDEN
            )
        except sqlite3.OperationalError:  # a view over a table that is gone
            columns = ()
        keys: dict[int, list[tuple[str, str, str | None]]] = {}
        for number, _, table, column, target, *_ in self._connection.execute(f"PRAGMA foreign_key_list({quoted})"):
            keys.setdefault(number, []).append((table, column, target))
        foreign = tuple(
            ForeignKey(
                columns=tuple(column for _, column, _ in parts),
                table=parts[0][0],
                references=tuple(target for _, _, target in parts if target is not None),
            )
            for _, parts in sorted(keys.items(), reverse=True)  # SQLite lists the last declared first
        )
        return Table(name, kind, columns, foreign)


def _connect(file: Path) -> sqlite3.Connection:
    # No statement cache: the authorizer, which sees what is read, is asked only when a statement is compiled.
    return sqlite3.connect(
        f"file:{quote(str(file.absolute()))}?{_OPEN_MODE}",
        uri=True,
        isolation_level=None,
        cached_statements=0,
        check_same_thread=False,
    )


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _fetch(cursor: sqlite3.Cursor, chunk_rows: int, cap: int, max_bytes: int) -> tuple[list[Row], bool]:
    """Rows up to the caps, a few at a time, so that what lies beyond them is never held."""
    rows: list[Row] = []
    size = 0
    while True:
        asked = min(chunk_rows, cap + 1 - len(rows))
        chunk = cursor.fetchmany(asked)
        size += _text_size(chunk)
        if size > max_bytes:
            return _within(rows, chunk, max_bytes), True
        rows += chunk
        if len(rows) > cap:
            return rows[:cap], True
        if len(chunk) < asked:
            return rows, False


def _within(rows: list[Row], chunk: list[Row], max_bytes: int) -> list[Row]:
    left = max_bytes - _text_size(rows)
    for row in chunk:
        left -= _text_size([row])
        if left < 0:
            break
        rows.append(row)
    return rows


def _text_size(rows: list[Row]) -> int:
    """Length of all texts and blobs; only they can be large."""
    return sum([len(cell) for row in rows for cell in row if type(cell) is str or type(cell) is bytes])
