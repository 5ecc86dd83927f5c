"""Databases as text: what is written is what is read, and what is not a database says which line."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutgym.server.environments.sql.database import Database, DatabaseBroken
from rolloutgym.server.environments.sql.loaders import DataError, read_tasks
from rolloutgym.server.environments.sql.perturbation import Copies
from rolloutgym.server.environments.sql.text_database import TextDatabaseError, as_sqlite, write_text

CREATE = 'CREATE TABLE "odd ""name" (a, b)'
CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)


@given(st.lists(st.tuples(CELLS, CELLS)), st.lists(st.tuples(CELLS)))
def test_every_cell_comes_back_in_its_place(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[tuple[int | float | str | None, ...]],
    singles: list[tuple[int | float | str | None, ...]],
) -> None:
    path = tmp_path_factory.mktemp("text") / "one.jsonl"
    write_text(path, [(CREATE, pairs), ("CREATE TABLE second (a)", singles)])
    with as_sqlite(path) as file, closing(sqlite3.connect(file)) as connection:
        for table, rows in (('"odd ""name"', pairs), ("second", singles)):
            found = connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()
            assert list(map(repr, found)) == list(map(repr, rows))


def test_a_guarded_database_outlives_the_file_that_it_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    write_text(tmp_path / "one.jsonl", [("CREATE TABLE t (a INTEGER PRIMARY KEY)", [(n,) for n in range(5_000)])])
    with closing(Database(tmp_path / "one.jsonl")) as database:
        assert list((tmp_path / "scratch").iterdir()) == []
        assert database.schema().names == ("t",)
        assert database.query("SELECT sum(a) FROM t").rows == ((12_497_500,),)


def test_perturbed_copies_are_made_of_text_too(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    write_text(path, [("CREATE TABLE t (a)", [(n,) for n in range(100)])])
    copies = Copies()
    with closing(Database(path)) as database:
        paths = copies.of(path, database.schema())
    counts = []
    for copy in paths:
        with closing(Database(copy)) as database:
            counts.append(database.query("SELECT count(*) FROM t").rows[0][0])
    copies.close()
    assert all(isinstance(count, int) and 0 < count < 100 for count in counts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]\n", "line 1: a row before any table"),
        ('{"create": "CREATE TABLE t (a)"}\n[1]\n[1, 2]\n', "line 3: "),
        ('{"create": "CREATE TABLE t (a)"}\n[NaN]\n', "line 2: NaN is not a number"),
        ('{"create": "CREATE TABLE t (a)"}\n[[1]]\n', "line 2: "),
        ('{"create": "CREATE TABLE t (a)"}\n[9223372036854775808]\n', "line 2: "),
        ('{"create": "CREATE TABEL t (a)"}\n', 'line 1: near "TABEL"'),
        ('{"create": "ATTACH \'x\' AS x"}\n', "line 1: neither a row nor a CREATE statement"),
        ('{"create": "CREATE TABLE t (a INTEGER PRIMARY KEY)"}\n[1]\n[1]\n', "line 3: UNIQUE"),
        ('{"create": "CREATE TABLE t (a)"}\n3\n', "line 2: neither a row nor a CREATE statement"),
        ("nonsense\n", "line 1: "),
    ],
)
def test_what_is_no_database_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(text)
    with pytest.raises(TextDatabaseError) as caught, as_sqlite(path):
        pass
    assert str(caught.value).startswith(says)
    with pytest.raises(DatabaseBroken):
        Database(path)


def test_a_pack_may_hold_text_and_files(tmp_path: Path) -> None:
    for name, suffix in (("one", ".jsonl"), ("two", ".sqlite")):
        folder = tmp_path / "databases" / name
        folder.mkdir(parents=True)
        write_text(folder / "t.jsonl", [("CREATE TABLE t (a)", [(1,)])])
        with as_sqlite(folder / "t.jsonl") as file:
            source = folder / "t.jsonl" if suffix == ".jsonl" else file
            (folder / f"{name}{suffix}").write_bytes(source.read_bytes())
    lines = [f'{{"question": "?", "gold_sql": "SELECT a FROM t", "db_id": "{name}"}}\n' for name in ("one", "two")]
    (tmp_path / "questions.jsonl").write_text("".join(lines))
    assert [task.database.name for task in read_tasks(tmp_path)] == ["one.jsonl", "two.sqlite"]
    (tmp_path / "databases/one/one.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match=r"line 1: .*line 1: a row before any table"):
        read_tasks(tmp_path)
