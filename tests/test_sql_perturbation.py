"""Perturbed copies: fewer rows, whole references, the same everywhere."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rolloutgym.server.environments.sql import perturbation
from rolloutgym.server.environments.sql.database import Database, DatabaseBroken
from rolloutgym.server.environments.sql.perturbation import COPIES, PAIRS, SHARES, Copies, facts_of, write_copy

SCRIPT = """
CREATE TABLE city (code TEXT PRIMARY KEY, name TEXT) WITHOUT ROWID;
CREATE TABLE team (id INTEGER PRIMARY KEY, city TEXT REFERENCES city, rival INT REFERENCES team (id));
CREATE TABLE pair (a INT, b INT, PRIMARY KEY (a, b));
CREATE TABLE match (id INTEGER PRIMARY KEY, team INT REFERENCES team, a INT, b INT, FOREIGN KEY (a, b) REFERENCES pair);
CREATE TABLE log (line TEXT);
CREATE TABLE shirt (id INTEGER PRIMARY KEY, colour TEXT, size INT, maker INT REFERENCES nowhere (id));
CREATE VIRTUAL TABLE box USING rtree (id, low, high);
CREATE TRIGGER noted AFTER DELETE ON team BEGIN INSERT INTO log VALUES ('gone'); END;
CREATE VIEW big AS SELECT * FROM team WHERE id > 50;
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100) INSERT INTO city SELECT 'c' || x, x FROM n;
INSERT INTO team SELECT name, code, CASE WHEN name % 5 > 1 THEN name - 1 END FROM city;
INSERT INTO team VALUES (1000, NULL, NULL), (1001, 'no such city', NULL);
INSERT INTO pair SELECT a.id, b.id FROM team a, team b WHERE a.id < 20 AND b.id < 20;
INSERT INTO shirt SELECT id, substr('rrrrrrrrgb', id % 10 + 1, 1), id % 3, 7 FROM team;
INSERT INTO box SELECT id, id, id + 1 FROM team;
INSERT INTO match SELECT NULL, a.id, p.a, p.b FROM team a, pair p WHERE a.id % 10 = p.a % 10;
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source?.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCRIPT)
    return path


def _rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def _copy(source: Path, target: Path, number: int) -> dict[str, list[tuple[object, ...]]]:
    with closing(Database(source)) as database:
        write_copy(source, facts_of(source, database.schema()), target, number)
    return _rows(target)


@pytest.mark.parametrize("number", range(COPIES))
def test_a_copy_has_fewer_rows_and_whole_references(source: Path, tmp_path: Path, number: int) -> None:
    before, after = _rows(source), _copy(source, tmp_path / "copy.sqlite", number)
    for table, rows in after.items():
        assert set(rows) <= set(before[table])
        assert table == "log" or table.startswith("box") or len(rows) < len(before[table])
    assert after["match"] or number >= len(SHARES) + 2
    share = SHARES[number] if number < len(SHARES) else 0.5
    assert len(after["city"]) == pytest.approx(share * 100, abs=15)
    assert after["log"] == []
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as connection:
        broken = connection.execute("PRAGMA foreign_key_check(team)").fetchall()
        broken += connection.execute("PRAGMA foreign_key_check(match)").fetchall()
    # What never held is not repaired: that row stays or goes like any other.
    assert [(table, row) for table, row, _, _ in broken] in ([], [("team", 1001)])


@pytest.mark.parametrize("pair", range(PAIRS))
def test_what_one_copy_of_a_pair_loses_the_other_keeps(source: Path, tmp_path: Path, pair: int) -> None:
    first, second = [
        _copy(source, tmp_path / f"{half}.sqlite", len(SHARES) + 2 * pair + half)["shirt"] for half in (0, 1)
    ]
    assert first
    assert second
    assert sorted(first + second, key=repr) == sorted(_rows(source)["shirt"], key=repr)
    # The first pair shares out rows, the others the values of a column in which they recur: colour, size, colour.
    if pair:
        column = 2 - pair % 2
        assert not {row[column] for row in first} & {row[column] for row in second}


UNDECLARED = """
CREATE TABLE artists (id INTEGER PRIMARY KEY, bird INT);
CREATE TABLE albums (id INTEGER PRIMARY KEY, artist_id INT, label_id INT);
CREATE TABLE labels (id TEXT PRIMARY KEY, said INT);
CREATE TABLE author (aid INT PRIMARY KEY);
CREATE TABLE writes (aid INT, pid INT);
CREATE TABLE venue (pid INT PRIMARY KEY);
CREATE VIEW by_artist AS SELECT artist_id, count(*) AS albums FROM albums GROUP BY artist_id;
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 60) INSERT INTO artists SELECT x, x FROM n;
INSERT INTO author SELECT id FROM artists;
INSERT INTO venue SELECT id FROM artists;
INSERT INTO labels SELECT id, id FROM artists;
INSERT INTO labels VALUES (NULL, 1);
INSERT INTO albums SELECT id, 61 - id, CASE id WHEN 7 THEN 99 ELSE id END FROM artists;
INSERT INTO writes SELECT a.aid, b.aid + 40 FROM author a, author b WHERE (a.aid + b.aid) % 9 = 0;
"""


@pytest.mark.parametrize("number", range(COPIES))
def test_references_that_are_evident_are_kept_whole_too(tmp_path: Path, number: int) -> None:
    """A query that leaves out a join which changes nothing is right there too."""
    source = tmp_path / "source.sqlite"
    with closing(sqlite3.connect(source)) as connection:
        connection.executescript(UNDECLARED)
    after = _copy(source, tmp_path / "copy.sqlite", number)
    assert {artist for _, artist, _ in after["albums"]} <= {id_ for id_, _ in after["artists"]}
    assert {author for author, _ in after["writes"]} <= {id_ for (id_,) in after["author"]}
    # Not all of these values are keys of the other table: they only look like references.
    assert not {str(label) for _, _, label in after["albums"]} <= {id_ for id_, _ in after["labels"]}
    assert not {paper for _, paper in after["writes"]} <= {id_ for (id_,) in after["venue"]}
    # And these do not even look like it.
    assert not {bird for _, bird in after["artists"]} <= {id_ for (id_,) in after["author"]}


def test_the_rows_of_virtual_tables_are_left_alone(source: Path, tmp_path: Path) -> None:
    _copy(source, tmp_path / "copy.sqlite", COPIES - 1)
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as connection:
        assert connection.execute("SELECT rtreecheck('box')").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM box").fetchone() == (102,)


def test_copies_are_the_same_each_time(source: Path) -> None:
    digests = []
    for _ in range(2):
        copies = Copies()
        with closing(Database(source)) as database:
            paths = copies.of(source, database.schema())
            assert copies.of(source, database.schema()) == paths
        digests.append([hashlib.sha256(str(_rows(path)).encode()).hexdigest() for path in paths])
        copies.close()
        assert not any(path.exists() or path.parent.exists() for path in paths)
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == COPIES


def test_copies_of_old_databases_are_removed(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "MAX_BYTES_KEPT", 2.5 * COPIES * source.stat().st_size)
    copies = Copies()
    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(source.read_bytes())
        with closing(Database(path)) as database:
            paths.append(copies.of(path, database.schema()))
    assert [all(path.exists() for path in group) for group in paths] == [False, True, True]
    assert len({path for group in paths for path in group}) == 3 * COPIES
    copies.close()


def test_large_databases_are_not_copied(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "MAX_BYTES", 100)
    copies = Copies()
    with closing(Database(source)) as database:
        assert copies.of(source, database.schema()) == ()


def test_a_database_that_cannot_be_copied_is_broken(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    copies = Copies()
    with closing(Database(source)) as database:
        monkeypatch.setattr(perturbation, "write_copy", fails)
        with pytest.raises(DatabaseBroken, match="disk is full"):
            copies.of(source, database.schema())
    copies.close()
