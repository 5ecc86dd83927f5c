"""Engines: golds are computed once, old ones let go, and scoring sees what the model read."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rolloutgym.server.environments.sql import engine as module
from rolloutgym.server.environments.sql import gold
from rolloutgym.server.environments.sql.answers import AnswerOptions
from rolloutgym.server.environments.sql.database import Database, Limits, QueryResult
from rolloutgym.server.environments.sql.engine import Engine, Subject
from rolloutgym.server.environments.sql.formatting import Caps
from rolloutgym.server.environments.sql.loaders import read_tasks
from rolloutgym.server.environments.sql.perturbation import COPIES

MANY = """
CREATE TABLE t (a INT);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 3000) INSERT INTO t SELECT x FROM n;
"""
GOLD = "SELECT name, age FROM singer WHERE age > 30 ORDER BY age DESC"


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    path = tmp_path / "data.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, age INT, country TEXT);"
            "INSERT INTO singer VALUES (1, 'Joe', 52, 'NL'), (2, 'Ann', 32, 'US'), (3, 'Kim', 29, 'KR'),"
            " (4, 'Ida', 41, 'FR');"
            "CREATE TABLE other (name TEXT, age INT); INSERT INTO other SELECT name, age FROM singer;"
            "CREATE TABLE lives (name TEXT, city TEXT, years INT);"
            "INSERT INTO lives VALUES ('Ada', 'Rome', 1), ('Ben', 'Rome', 2), ('Cat', 'Rome', 3), ('Dan', 'Rome', 4),"
            " ('Eve', 'Rome', 9), ('Flo', 'Rome', 8), ('Gus', 'Oslo', 9), ('Hal', 'Bern', 10);"
        )
    return Subject(str(path), GOLD)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(Limits())
    yield engine
    engine.close()


def _potential(engine: Engine, subject: Subject, sql: str) -> float:
    return engine.query(subject, sql, "sqlite", Caps(), ()).potential


def test_the_potential_grows_towards_the_gold(engine: Engine, subject: Subject) -> None:
    steps = [
        _potential(engine, subject, sql)
        for sql in (
            "SELECT country FROM singer LIMIT 1",
            "SELECT age FROM singer LIMIT 1",
            "SELECT name, age FROM singer LIMIT 1",
            "SELECT name, age FROM singer",
            "SELECT name, age FROM singer WHERE age > 30",
        )
    ]
    assert steps == sorted(steps)
    assert len(set(steps)) == len(steps)
    assert steps[-1] == pytest.approx(1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 42",
        "VALUES ('Joe', 52), ('Ida', 41), ('Ann', 32)",
        "SELECT name, age FROM other WHERE age > 30 ORDER BY age DESC",
        "WITH singer (name, age) AS (VALUES ('Joe', 52), ('Ida', 41), ('Ann', 32)) SELECT * FROM singer",
        "SELECT nme FROM singer",
    ],
)
def test_rows_from_elsewhere_are_worth_nothing(engine: Engine, subject: Subject, sql: str) -> None:
    assert _potential(engine, subject, sql) == 0


def test_a_dump_is_worth_less_than_the_right_columns(engine: Engine, subject: Subject) -> None:
    dump = _potential(engine, subject, "SELECT * FROM singer, other")
    assert dump < _potential(engine, subject, "SELECT name, age FROM singer LIMIT 1") / 2


def test_a_result_of_more_than_twice_the_golds_rows_is_a_dump(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "many.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(MANY)
    subject = Subject(str(path), "SELECT a FROM t WHERE a <= 600")
    assert _potential(engine, subject, "SELECT a FROM t WHERE a <= 1200") > 0.7
    assert _potential(engine, subject, "SELECT a FROM t") < 0.41


@pytest.mark.parametrize(
    ("sql", "right"),
    [
        ("SELECT count(*) FROM singer WHERE age > 99", True),
        ("SELECT sum(age > 99) FROM singer", True),
        ("SELECT 0", False),
        ("SELECT 0 FROM other LIMIT 1", False),
        ("SELECT count(*) FROM other WHERE 0", False),
    ],
)
def test_a_right_constant_from_nowhere_is_wrong(engine: Engine, subject: Subject, sql: str, right: bool) -> None:
    """Zero stays zero on every copy: what tells these apart is what they read."""
    zero = subject._replace(gold_sql="SELECT count(*) FROM singer WHERE age > 99")
    assert engine.grade_sql(zero, sql, "sqlite", AnswerOptions()) is right


@pytest.mark.parametrize(
    ("gold_sql", "sql"),
    [
        ("SELECT max(age) FROM singer WHERE country = 'FR'", "SELECT age FROM singer WHERE country = 'FR' LIMIT 1"),
        ("SELECT age FROM singer WHERE country = 'FR' LIMIT 1", "SELECT min(age) FROM singer WHERE country = 'FR'"),
        ("SELECT count(*) FROM singer WHERE age > 50", "SELECT sum(age > 50) FROM singer"),
        (
            "SELECT count(*) FROM singer WHERE country = 'FR'",
            "SELECT count(*) FROM singer WHERE country = 'FR' GROUP BY country",
        ),
        ("SELECT sum(age) FROM singer WHERE age > 50", "SELECT total(age) FROM singer WHERE age > 50"),
        (
            "SELECT city FROM lives GROUP BY city ORDER BY count(*) DESC LIMIT 1",
            "SELECT city FROM lives GROUP BY city HAVING count(*) ="
            " (SELECT max(n) FROM (SELECT count(*) AS n FROM lives GROUP BY city))",
        ),
        (
            "SELECT name FROM lives ORDER BY years DESC LIMIT 1",
            "SELECT name FROM lives WHERE years = (SELECT max(years) FROM lives)",
        ),
        (
            "SELECT name FROM lives WHERE city IN"
            " (SELECT city FROM lives GROUP BY city ORDER BY count(*) DESC LIMIT 1) AND years > 5",
            "SELECT name FROM lives WHERE years > 5 AND city IN (SELECT city FROM lives GROUP BY city HAVING count(*) ="
            " (SELECT max(n) FROM (SELECT count(*) AS n FROM lives GROUP BY city)))",
        ),
    ],
)
def test_queries_of_one_meaning_agree_on_copies(engine: Engine, subject: Subject, gold_sql: str, sql: str) -> None:
    """Where nothing is left, and where what is left ties, they say so each in its way."""
    asked = subject._replace(gold_sql=gold_sql)
    assert len(list(engine._perturbed(asked))) == COPIES
    assert engine.grade_sql(asked, sql, "sqlite", AnswerOptions()) is True


PACK = Path(__file__).resolve().parents[2] / "shared" / "data" / "sql"


@pytest.mark.skipif(not PACK.is_dir(), reason="the real question pack is not beside the checkout")
def test_real_golds_written_otherwise_are_right(engine: Engine) -> None:
    """In a sub-query, beside a common table expression, and where they can be, with NULL and 0 said in another way."""
    single = re.compile(r"select ((?:max|min|sum)\(\w+\)) from (?!.*group by)", re.IGNORECASE | re.DOTALL)
    refused = []
    for task in (
        task for number, task in enumerate(read_tasks(PACK)) if number % 15 == 0 or single.match(task.gold_sql)
    ):
        sql = task.gold_sql.rstrip("; ")
        forms = [sql, f"WITH x AS (SELECT 1) {sql}"]
        if "order by" not in sql.lower():
            forms.append(f"SELECT * FROM ({sql})")
        if match := single.match(sql):
            forms.append(
                f"SELECT value FROM (SELECT {match[1]} AS value FROM {sql[match.end() :]}) WHERE value NOTNULL"
            )
        asked = Subject(str(task.database), task.gold_sql)
        refused += [
            form for form in forms if not engine.grade_sql(asked, form, "sqlite", AnswerOptions(accept_empty=True))
        ]
    assert refused == []


def test_a_copy_on_which_the_gold_does_not_work_is_not_asked(
    engine: Engine, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(database: Database, sql: str) -> gold.Gold:
        if database.query("SELECT count(*) FROM singer").rows != ((4,),):
            raise gold.GoldFailed("timeout", "too expensive")
        return gold.compute_gold(database, sql)

    monkeypatch.setattr(module, "compute_gold", compute)
    assert engine.grade_sql(subject, GOLD, "sqlite", AnswerOptions())


def test_a_copy_on_which_the_gold_hangs_on_the_order_of_rows_is_not_asked(engine: Engine, subject: Subject) -> None:
    """The first or the last row of a group gives its value, the greatest: not so where that row is lost."""
    with closing(sqlite3.connect(subject.database)) as connection:
        connection.executescript(
            "CREATE TABLE picks (g TEXT, name TEXT);"
            "INSERT INTO picks VALUES ('x', 'a'), ('x', 'c'), ('x', 'b'), ('x', 'd');"
        )
    picked = subject._replace(gold_sql="SELECT name FROM picks GROUP BY g")
    assert engine.grade_sql(picked, "SELECT max(name) FROM picks GROUP BY g", "sqlite", AnswerOptions())


@pytest.mark.parametrize(
    ("gold_sql", "constant"),
    [
        ("SELECT max(age) FROM singer", "52"),
        ("SELECT name FROM singer ORDER BY age LIMIT 1", "'Kim'"),
        ("SELECT city FROM lives GROUP BY city ORDER BY count(*) DESC LIMIT 1", "'Rome'"),
        ("SELECT city FROM lives GROUP BY city HAVING count(*) > 3", "'Rome'"),
        ("SELECT count(DISTINCT city) FROM lives", "3"),
        ("SELECT city, count(*) FROM lives GROUP BY city ORDER BY 2 DESC LIMIT 1", "'Rome', 6"),
    ],
)
def test_a_constant_is_wrong_on_some_copy(engine: Engine, subject: Subject, gold_sql: str, constant: str) -> None:
    """Even where one value is so common that losing rows here and there would change nothing."""
    sql = f"SELECT {constant} WHERE (SELECT count(*) FROM singer, lives) >= 0"
    asked = subject._replace(gold_sql=gold_sql)
    assert engine.grade_sql(asked, gold_sql, "sqlite", AnswerOptions())
    assert not engine.grade_sql(asked, sql, "sqlite", AnswerOptions())


def test_a_gold_is_computed_once(engine: Engine, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    compute = gold.compute_gold

    def counting(*arguments: Any) -> Any:
        computed.append(arguments)
        return compute(*arguments)

    monkeypatch.setattr(module, "compute_gold", counting)
    for _ in range(3):
        engine.open(subject)
        engine.query(subject, "SELECT 1", "sqlite", Caps(), ())
        assert engine.grade(subject, "Joe | 52\nIda | 41\nAnn | 32", AnswerOptions())
    assert len(computed) == 1


def test_only_the_models_sql_is_watched(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gold query that is expensive is not the model's doing."""
    watched: list[bool] = []
    seen: list[tuple[str, bool]] = []
    query = Database.query

    @contextmanager
    def watch() -> Iterator[None]:
        watched.append(True)
        yield
        watched.clear()

    def noting(self: Database, sql: str, **caps: int) -> QueryResult:
        seen.append((sql, bool(watched)))
        return query(self, sql, **caps)

    monkeypatch.setattr(Database, "query", noting)
    engine = Engine(Limits(), watch)
    mine = "SELECT name, age FROM singer WHERE age >= 31 ORDER BY age DESC"
    engine.query(subject, mine, "sqlite", Caps(), ())
    assert engine.grade_sql(subject, mine, "sqlite", AnswerOptions())
    engine.close()
    assert {sql for sql, is_watched in seen if is_watched} == {mine}
    assert len([sql for sql, _ in seen if sql == mine]) == 2 + COPIES
    assert mine not in {sql for sql, is_watched in seen if not is_watched}


def test_old_databases_are_closed(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DATABASES", 2)
    engine = Engine(Limits())
    for number in range(5):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(Path(subject.database).read_bytes())
        engine.open(Subject(str(path), GOLD))
    assert list(engine._databases._values) == [str(tmp_path / "3.sqlite"), str(tmp_path / "4.sqlite")]
    assert engine.describe(str(tmp_path / "0.sqlite"), "singer").seen == {"singer"}
    engine.close()


def test_what_is_used_stays_and_what_is_large_drives_out_more() -> None:
    dropped: list[str] = []
    kept: module._Kept[str, str] = module._Kept(6, weigh=len, discard=dropped.append)
    for text in ("a", "bb", "ccc"):
        kept.get(text, lambda text=text: text)  # type: ignore[misc]
    kept.get("a", pytest.fail)
    assert kept.get("dd", lambda: "dd") == "dd"
    assert dropped == ["bb"]
    kept.get("a", pytest.fail)
    assert kept.get("eeeeeeeee", lambda: "eeeeeeeee") == "eeeeeeeee"
    assert dropped == ["bb", "ccc", "dd", "a"]
    kept.get("eeeeeeeee", pytest.fail)
    kept.clear()
    assert dropped[-1] == "eeeeeeeee"


def test_large_golds_are_not_all_kept(engine: Engine, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GOLD_CELLS", 1)
    monkeypatch.setattr(engine._golds, "_size", 25)
    for gold_sql in ("SELECT 1", "SELECT name, city, years FROM lives", "SELECT 2"):
        engine.open(subject._replace(gold_sql=gold_sql))
    assert len(engine._golds._values) == 2


def test_what_was_seen(engine: Engine, subject: Subject) -> None:
    assert engine.describe(subject.database, "SINGER").seen == {"singer"}
    assert engine.sample(subject.database, "other", 2, Caps()).seen == {"other.age", "other.name"}
    assert engine.query(subject, "SELECT count(*), max(AGE) FROM singer", "sqlite", Caps(), ()).seen == {"singer.age"}
    assert engine.query(subject, "SELECT 1", "sqlite", Caps(), ()).seen == set()


def test_counts_say_nothing_of_the_golds_size(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "many.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(MANY)
    texts = {
        engine.query(Subject(str(path), gold_sql), "SELECT a FROM t LIMIT 2500", "sqlite", Caps(), ()).text
        for gold_sql in ("SELECT a FROM t", "SELECT max(a) FROM t")
    }
    assert len(texts) == 1
    assert "20 of more than 1000 rows" in texts.pop()
