"""The guarded database: what it shows, counts, caps and reports."""

import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutgym.server.environments.sql.clock import NOW, moment
from rolloutgym.server.environments.sql.database import (
    Cell,
    Column,
    Database,
    DatabaseBroken,
    ForeignKey,
    Limits,
    QueryFailed,
    quote_identifier,
)

SCHEMA = """
CREATE TABLE stadium (id INTEGER PRIMARY KEY, name TEXT NOT NULL, "seats, all" INT);
CREATE TABLE concert (
    id INTEGER, year INT, stadium_id INT REFERENCES stadium, home INT, away INT,
    PRIMARY KEY (id, year), FOREIGN KEY (home, away) REFERENCES pair (a, b)
);
CREATE TABLE pair (a INT, b INT, UNIQUE (a, b));
CREATE VIEW large AS SELECT name FROM stadium WHERE "seats, all" > 100;
CREATE INDEX by_year ON concert (year);
INSERT INTO stadium VALUES (1, 'North', 50), (2, 'South', 200), (3, 'East', 200);
INSERT INTO concert VALUES (1, 2014, 1, NULL, NULL), (2, 2014, 2, NULL, NULL), (3, 2015, 2, NULL, NULL);
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Database]]:
    """A database from a script."""
    opened: list[Database] = []

    def make(script: str = SCHEMA, **limits: float) -> Database:
        path = tmp_path / f"a folder? {len(opened)}.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
        opened.append(Database(path, Limits(**limits)))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for database in opened:
        database.close()


def _failure(database: Database, sql: str) -> QueryFailed:
    with pytest.raises(QueryFailed) as caught:
        database.query(sql)
    return caught.value


def test_rows_come_in_result_order_with_duplicates_and_names(make: Callable[..., Database]) -> None:
    result = make().query("SELECT \"seats, all\" AS seats, 1.5, NULL, x'00ff' FROM stadium ORDER BY id DESC")
    assert result.columns == ("seats", "1.5", "NULL", "x'00ff'")
    assert result.rows == ((200, 1.5, None, b"\x00\xff"), (200, 1.5, None, b"\x00\xff"), (50, 1.5, None, b"\x00\xff"))
    assert not result.truncated


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT Name FROM Stadium", {("stadium", "name")}),
        ("SELECT count(*) FROM stadium", {("stadium", "")}),
        ("SELECT 1", set()),
        ("SELECT 1 FROM stadium WHERE 0", {("stadium", "")}),
        ("SELECT a.name FROM stadium a, concert b", {("stadium", "name"), ("concert", "")}),
        ("WITH stadium AS (SELECT 1) SELECT count(*) FROM stadium", set()),
        ('WITH stadium(")") /* x */ AS (SELECT 1) SELECT count(*) FROM stadium', set()),
        ("WITH x AS (SELECT id FROM concert) SELECT * FROM x", {("concert", "id")}),
        ("WITH x AS (SELECT 1) SELECT count(*) FROM Stadium, x", {("stadium", "")}),
        ("WITH x AS (SELECT count(*) FROM stadium) SELECT * FROM x", {("stadium", "")}),
        ("SELECT count(*) FROM concert WHERE 'with' = 'with'", {("concert", "")}),
        ("SELECT count(*) FROM within", {("within", "")}),
        ("EXPLAIN WITH x AS (SELECT 1) SELECT count(*) FROM stadium, x", set()),
        ("SELECT * FROM large", {("large", "name"), ("stadium", "name"), ("stadium", "seats, all")}),
        ("SELECT value FROM json_each('[1]')", set()),
        ("SELECT count(*) FROM json_each('[1]')", set()),
    ],
)
def test_what_is_read_is_reported(make: Callable[..., Database], sql: str, read: set[tuple[str, str]]) -> None:
    database = make(SCHEMA + "CREATE TABLE within (a TEXT PRIMARY KEY) WITHOUT ROWID;")
    for _ in range(2):  # a statement that is run again is compiled again
        assert database.query(sql).read == read


def test_schema(make: Callable[..., Database]) -> None:
    schema = make(
        SCHEMA + "CREATE TABLE broken (x); CREATE VIEW v AS SELECT x FROM broken; DROP TABLE broken;"
    ).schema()
    assert schema.names == ("stadium", "concert", "pair", "large", "v")
    stadium, concert, large, v = (schema.find(name) for name in ("STADIUM", "concert", "Large", "v"))
    assert stadium is not None
    assert stadium.columns == (
        Column("id", "INTEGER", not_null=False, primary_key=1),
        Column("name", "TEXT", not_null=True, primary_key=0),
        Column("seats, all", "INT", not_null=False, primary_key=0),
    )
    assert concert is not None
    assert [column.primary_key for column in concert.columns] == [1, 2, 0, 0, 0]
    assert set(concert.foreign_keys) == {
        ForeignKey(("stadium_id",), "stadium", ()),
        ForeignKey(("home", "away"), "pair", ("a", "b")),
    }
    assert large is not None
    assert large.kind == "view"
    assert v is not None
    assert v.columns == ()
    assert schema.find("sqlite_master") is None


NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {}) SELECT {} FROM n"


@pytest.mark.parametrize("total", [0, 1, 31, 32, 33, 64, 99, 100, 101, 200])
def test_rows_are_capped_and_said_to_be(make: Callable[..., Database], total: int) -> None:
    result = make().query(NUMBERS.format(total, "x") if total else "SELECT 1 WHERE 0", max_rows=100)
    assert len(result.rows) == min(total, 100)
    assert result.truncated == (total > 100)


def test_cells_and_bytes_are_capped(make: Callable[..., Database]) -> None:
    database = make()
    assert len(database.query(NUMBERS.format(100, "x, x, x"), max_cells=90).rows) == 30
    wide = database.query(NUMBERS.format(100, "hex(zeroblob(50)), zeroblob(100)"), max_bytes=1000)
    assert len(wide.rows) == 5
    assert wide.truncated
    assert not database.query(NUMBERS.format(5, "hex(zeroblob(50)), zeroblob(100)"), max_bytes=1000).truncated


def test_rows_beyond_the_cap_are_not_computed(make: Callable[..., Database]) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    assert len(make(steps=1_000_000).query(endless, max_rows=50).rows) == 50


def test_bytes_that_are_not_utf8_are_replaced(make: Callable[..., Database]) -> None:
    database = make("CREATE TABLE t (a TEXT); INSERT INTO t VALUES (cast(x'416C62617272616363D34E' AS TEXT)), ('é');")
    assert database.query("SELECT a FROM t").rows == (("Albarracc\ufffdN",), ("é",))
    assert database.query("SELECT 'é'").rows == (("é",),)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("date('now')", NOW[:10]),
        ("date()", NOW[:10]),
        ("time('now')", NOW[11:]),
        ("datetime('NOW', '+1 day')", "2025-01-02 00:00:00"),
        ("datetime('now', 'localtime')", NOW),
        ("datetime('2020-02-29 10:00', 'utc')", "2020-02-29 10:00:00"),
        ("strftime('%Y-%m', 'now')", NOW[:7]),
        ("strftime('%s')", "1735689600"),
        # SQLite reads a C string: now may hide in a blob, or before a NUL
        ("datetime(x'6e6f77')", NOW),
        ("datetime(cast('now' AS BLOB))", NOW),
        ("datetime('now' || char(0) || '!')", NOW),
        ("strftime('%H', x'4e4f5700ff')", NOW[11:13]),
        ("datetime('now', x'6c6f63616c74696d65')", NOW),
        ("unixepoch()", 1735689600),
        ("julianday('now')", 2460676.5),
        ("current_timestamp", NOW),
        ("current_date", NOW[:10]),
        ("current_time", NOW[11:]),
        ("date('2012-12-31', '+1 month')", "2013-01-31"),
        ("strftime('%w', '2012-12-31')", "1"),
        ("date('nonsense')", None),
        ("date(NULL)", None),
        ("strftime('%H:%M', 2451545.0, 'auto')", "12:00"),
    ],
)
def test_the_clock_stands_still_in_utc(make: Callable[..., Database], expression: str, value: Cell) -> None:
    assert make().query(f"SELECT {expression}").rows == ((value,),)


def test_now_with_its_fraction_stands_still_too() -> None:
    """What SQLite 3.42 takes for now."""
    assert moment(("subsec",)) == [NOW, "subsec"]
    assert moment((b"SubSecond", "+1 day")) == [NOW, "SubSecond", "+1 day"]
    assert moment(("now", "subsec")) == [NOW, "subsec"]


def test_no_moment_is_converted_from_or_to_the_machines_zone() -> None:
    assert moment(("2020-01-01", b"LocalTime", "+1 day", "UTC")) == ["2020-01-01", "+1 day"]
    assert moment((2451545.0, "utc\0")) == [2451545.0]


@given(st.sampled_from(["date", "time", "datetime", "julianday"]), st.one_of(st.dates(), st.datetimes()).map(str))
def test_date_functions_are_sqlites_own_but_for_the_clock(name: str, moment: str) -> None:
    with closing(sqlite3.connect(":memory:")) as plain, closing(Database(_EMPTY.path())) as guarded:
        (expected,) = plain.execute(f"SELECT {name}(?)", (moment,)).fetchall()
        assert guarded.query(f"SELECT {name}('{moment}')").rows == (expected,)


class _EMPTY:
    """A database file that the property test can use without a fixture."""

    @staticmethod
    def path() -> Path:
        return Path(__file__).parents[1] / "server/environments/sql/data/databases/library/library.jsonl"


def test_text_in_double_quotes_stays_usable(make: Callable[..., Database]) -> None:
    assert make().query('SELECT name FROM stadium WHERE name = "South"').rows == (("South",),)


@pytest.mark.parametrize(
    ("sql", "kind", "says"),
    [
        ("SELECT nme FROM stadium", "syntax", "no such column: nme"),
        ("SELECT * FROM stadion", "syntax", "no such table: stadion"),
        ("SELEC 1", "syntax", "syntax error"),
        ("SELECT (", "syntax", "incomplete input"),
        ("SELECT nonsense(1)", "syntax", "no such function"),
        ("SELECT ?", "syntax", "parameters"),
        ("SELECT :x", "syntax", "parameters"),
        ("", "syntax", "no statement"),
        ("-- nothing", "syntax", "no statement"),
        ("SELECT '\0'", "syntax", "character"),
        ("SELECT '\ud800'", "syntax", "character"),
        ("ＳＥＬＥＣＴ 1", "syntax", "syntax error"),
        ("SELECT 1; SELECT 2", "denied", "one statement"),
        ("DELETE FROM stadium", "denied", "read-only"),
        ("SELECT abs(-9223372036854775808)", "syntax", "integer overflow"),
        ("SELECT json_extract('[', '$')", "syntax", "malformed JSON"),
    ],
)
def test_errors_say_what_is_wrong(make: Callable[..., Database], sql: str, kind: str, says: str) -> None:
    failure = _failure(make(), sql)
    assert failure.kind == kind
    assert says in failure.message
    assert "/" not in failure.message


def test_a_failed_query_leaves_no_trace(make: Callable[..., Database]) -> None:
    database = make(steps=100_000)
    for sql in ("DELETE FROM stadium", NUMBERS.format(10**9, "sum(x)"), "SELECT nme FROM stadium"):
        _failure(database, sql)
        assert database.query("SELECT count(*) FROM stadium").rows == ((3,),)
    assert _failure(database, "SELECT 1 FROM nothing").kind == "syntax"


def test_the_step_budget_is_deterministic(make: Callable[..., Database]) -> None:
    first, second = make(steps=200_000), make(steps=200_000)

    def runs(database: Database, rows: int) -> bool:
        try:
            return bool(database.query(NUMBERS.format(rows, "sum(x)")).rows)
        except QueryFailed as error:
            return error.kind != "timeout"

    enough = [rows for rows in range(5_000, 40_000, 500) if runs(first, rows)]
    assert enough == list(range(5_000, enough[-1] + 1, 500))
    assert enough[-1] < 39_000
    for _ in range(3):
        assert runs(second, enough[-1])
        assert not runs(second, enough[-1] + 500)


def test_the_processors_time_stops_what_steps_do_not(make: Callable[..., Database]) -> None:
    slow = "SELECT sum(length(replace(hex(zeroblob(200000 + a.id)), '0', '00'))) FROM " + ", ".join(
        f"stadium {name}" for name in "abcdef"
    )
    assert _failure(make(cpu_s=0.05), slow).kind == "timeout"


def test_a_busy_machine_stops_nothing(make: Callable[..., Database], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a query waits for the processor, what it costs is the same."""
    wall = itertools.count(step=100.0)
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: next(wall))
    assert make().query(NUMBERS.format(50_000, "sum(x)")).rows == ((1_250_025_000,),)


def test_tables_are_scanned_backwards_for_a_while(make: Callable[..., Database]) -> None:
    database = make()
    with database.scanned_backwards():
        assert [id_ for (id_,) in database.query("SELECT id FROM stadium").rows] == [3, 2, 1]
        assert _failure(database, "PRAGMA query_only = OFF").kind == "denied"
    assert [id_ for (id_,) in database.query("SELECT id FROM stadium").rows] == [1, 2, 3]
    assert _failure(database, "PRAGMA reverse_unordered_selects = ON").kind == "denied"


def test_what_is_described_is_what_is_sampled(make: Callable[..., Database]) -> None:
    """Computed columns too, but not what a virtual table hides."""
    database = make(
        "CREATE TABLE t (a INT, twice INT GENERATED ALWAYS AS (a * 2) VIRTUAL, next INT AS (a + 1) STORED);"
        "CREATE VIRTUAL TABLE f USING fts4 (a, b); CREATE VIEW v AS SELECT twice AS x, * FROM t;"
    )
    for table in database.schema().tables:
        names = database.query(f"SELECT * FROM {table.name}").columns
        assert tuple(column.name for column in table.columns) == names, table.name
    assert len(database.schema().tables) == 3


def test_where_virtual_tables_keep_their_data_is_no_table(make: Callable[..., Database]) -> None:
    assert make("CREATE VIRTUAL TABLE box USING rtree (id, low, high); CREATE TABLE t (a);").schema().names == (
        "box",
        "t",
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM words",
        "SELECT * FROM words",
        "SELECT body FROM words WHERE words MATCH 'red'",
        "SELECT highlight(words, 0, '[', ']') FROM words('red')",
        "SELECT words FROM words WHERE words MATCH '*reads'",
        "SELECT term FROM terms",
        "SELECT * FROM seen",
        "SELECT t.a FROM t JOIN words ON words.rowid = t.a",
    ],
)
def test_what_fts5_keeps_is_refused_and_told(make: Callable[..., Database], query: str) -> None:
    database = make(
        "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); CREATE VIRTUAL TABLE words USING fts5 (body);"
        "INSERT INTO words VALUES ('red blue'); CREATE VIRTUAL TABLE terms USING fts5vocab (words, row);"
        "CREATE VIEW seen AS SELECT body FROM words;"
    )
    failure = _failure(database, query)
    assert (failure.kind, failure.message) == ("denied", "full-text tables of FTS5 cannot be read")
    assert database.query("SELECT a FROM t").rows == ((1,),)


def test_other_virtual_tables_are_read(make: Callable[..., Database]) -> None:
    database = make(
        "CREATE VIRTUAL TABLE words USING fts4 (body); INSERT INTO words VALUES ('red blue'), ('blue');"
        "CREATE VIRTUAL TABLE box USING rtree (id, low, high); INSERT INTO box VALUES (1, 0, 2), (2, 5, 6);"
    )
    assert database.query("SELECT body FROM words WHERE words MATCH 'red'").rows == (("red blue",),)
    assert database.query("SELECT id FROM box WHERE high > 3").rows == ((2,),)
    for pragma in ("PRAGMA data_version", "SELECT * FROM box, pragma_data_version"):
        assert _failure(database, pragma).message == "only SELECT is allowed: the database is read-only"


def test_files_that_are_no_database(tmp_path: Path) -> None:
    with pytest.raises(DatabaseBroken):
        Database(tmp_path / "missing.sqlite")
    assert not (tmp_path / "missing.sqlite").exists()
    text = tmp_path / "text.sqlite"
    text.write_text("not a database" * 100)
    with pytest.raises(DatabaseBroken):
        Database(text)


def test_a_damaged_page_is_our_fault_not_the_models(tmp_path: Path) -> None:
    path = tmp_path / "damaged.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (hex(randomblob(3000)));")
        connection.executescript("INSERT INTO t SELECT a FROM t; INSERT INTO t SELECT a FROM t;")
    content = bytearray(path.read_bytes())
    content[4096:12288] = b"\xff" * 8192
    path.write_bytes(content)
    with closing(Database(path)) as database, pytest.raises(DatabaseBroken):
        database.query("SELECT * FROM t")


def test_published_queries_run_under_the_controls() -> None:
    """Every gold query of the data set, with as many rows as it has without controls."""
    pack = Path(__file__).parents[2] / "shared/data/sql"
    if not pack.is_dir():
        pytest.skip(f"there is no data set in {pack.parent}")
    questions = [json.loads(line) for line in (pack / "questions.jsonl").read_text().splitlines()]
    paths = {name: pack / "databases" / name / f"{name}.sqlite" for name in {entry["db_id"] for entry in questions}}
    databases = {name: Database(path) for name, path in paths.items()}
    counts = {
        entry["id"]: len(databases[entry["db_id"]].query(entry["gold_sql"], max_rows=10_000).rows)
        for entry in questions
    }
    for database in databases.values():
        database.close()
    assert len(counts) == 1_374
    assert counts == {entry["id"]: entry["n_rows"] for entry in questions}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_any_name_can_be_quoted(name: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert connection.execute(f"SELECT 1 AS {quote_identifier(name)}").description[0][0] == name
