"""What untrusted SQL can do to the process, the disk and other databases: nothing. Each attack is played twice, in a
process of its own: under all controls, and without the one that stops it, where it must succeed."""

import json
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MIB = 2**20

# Opens a database with some controls switched off, runs statements, and reports what came of each.
ATTACKER = textwrap.dedent(
    """
    import json, os, sqlite3, sys, threading
    from pathlib import Path
    from rolloutgym.server.environments.sql import database as module
    from rolloutgym.server.environments.sql.database import Database, Limits, QueryFailed

    def peak():  # of this program alone: a process's usage begins with that of the one which started it
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

    path, off, statements = Path(sys.argv[1]), sys.argv[2].split(","), json.loads(sys.argv[3])
    patience_s = float(sys.argv[4])
    for control in off:
        if control == "read_only":
            module._OPEN_MODE = "mode=rw"
        elif control:
            setattr(Database, f"_{control}", lambda self: None)
    os.chdir(path.parent)
    database = Database(path, Limits(cpu_s=30.0, steps=5_000_000))
    outcomes = []
    before = peak()
    for statement in statements:
        watchdog = threading.Timer(patience_s, database._connection.interrupt)
        if off != [""]:
            watchdog.start()
        try:
            rows = database.query(statement).rows
            shown = [[cell if isinstance(cell, int) else str(cell)[:80] for cell in row] for row in rows[:3]]
            outcomes.append(["ran", shown])
        except QueryFailed as error:
            outcomes.append([error.kind, error.message])
        watchdog.cancel()
    grown = (peak() - before) * 1024
    print(json.dumps({"outcomes": outcomes, "grown": grown, "files": sorted(os.listdir("."))}))
    """
)

DATA = """
CREATE TABLE t (a INT, b TEXT);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000) INSERT INTO t SELECT x, 'text ' || x FROM n;
"""
GOLD = "CREATE TABLE gold (a); INSERT INTO gold VALUES ('secret');"
NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


@dataclass(frozen=True)
class Report:
    outcomes: list[tuple[str, Any]]
    """For each statement: `ran` and its first rows, or the kind of failure and its message."""
    grown: int
    """Bytes by which the process's peak memory grew."""
    files: list[str]

    @property
    def last(self) -> tuple[str, Any]:
        return self.outcomes[-1]


@pytest.fixture
def attack(tmp_path: Path) -> Any:
    for name, script in (("data.sqlite", DATA), ("gold.sqlite", GOLD)):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.executescript(script)

    def run(statements: list[str], *off: str, patience_s: float = 60.0) -> Report:
        command = [sys.executable, "-c", ATTACKER, str(tmp_path / "data.sqlite"), ",".join(off), json.dumps(statements)]
        command.append(str(patience_s))
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        return Report([(kind, what) for kind, what in report["outcomes"]], report["grown"], report["files"])

    return run


@dataclass(frozen=True)
class Attack:
    name: str
    statements: list[str]
    controls: tuple[str, ...]
    """Without these, and only without all of them, it succeeds."""
    refused: str
    """How its first statement fails under all controls."""
    harm: Any
    """From the report without the controls: whether the harm was done."""


def _ran(report: Report) -> bool:
    return report.last[0] == "ran"


def _endless(report: Report) -> bool:
    """Only the watchdog ended it."""
    return report.last == ("syntax", "interrupted")


def _one(report: Report) -> bool:
    return report.last == ("ran", [[1]])


def _no_row(report: Report) -> bool:
    return report.last == ("syntax", "there is no statement to run")  # it ran, and has no result


def _in_transaction(report: Report) -> bool:
    return "within a transaction" in report.last[1]


def _unauthorized(report: Report) -> bool:
    return report.last == ("syntax", "not authorized")  # Python's own default, which is not ours to rely on


ATTACH = ("set_authorizer", "set_limits")

ATTACKS = [
    Attack("attach a new file", ["ATTACH 'new.db' AS x", "SELECT 1"], ATTACH, "denied", lambda r: "new.db" in r.files),
    Attack(
        "read another database",
        ["ATTACH 'gold.sqlite' AS x", "SELECT a FROM x.gold"],
        ATTACH,
        "denied",
        lambda r: r.last == ("ran", [["secret"]]),
    ),
    Attack("copy the database out", ["VACUUM INTO 'copy.db'"], ATTACH, "denied", lambda r: "copy.db" in r.files),
    Attack("switch query_only off", ["PRAGMA query_only = OFF"], ("set_authorizer",), "denied", _no_row),
    Attack(
        "move temporary files of the process",
        ["PRAGMA temp_store_directory = '/var/tmp'", "PRAGMA temp_store_directory"],
        ("set_authorizer",),
        "denied",
        lambda r: r.last == ("ran", [["/var/tmp"]]),
    ),
    Attack(
        "take a large cache",
        ["PRAGMA cache_size = -8000000", "PRAGMA cache_size"],
        ("set_authorizer",),
        "denied",
        lambda r: r.last == ("ran", [[-8000000]]),
    ),
    Attack(
        "keep state in a temporary table",
        ["CREATE TEMP TABLE x (a)", "INSERT INTO x VALUES (7)", "SELECT a FROM temp.x"],
        ("set_authorizer",),
        "denied",
        lambda r: r.last == ("ran", [[7]]),
    ),
    Attack(
        "make a virtual table",
        ["CREATE VIRTUAL TABLE temp.x USING fts5(a)", "SELECT count(*) FROM temp.x"],
        ("set_authorizer",),
        "denied",
        _ran,
    ),
    Attack("hold a transaction", ["BEGIN", "BEGIN"], ("set_authorizer",), "denied", _in_transaction),
    Attack(
        "delete behind a WITH",
        ["WITH x AS (SELECT 1) DELETE FROM t", "SELECT count(*) FROM t"],
        ("set_authorizer", "read_only"),
        "denied",
        lambda r: r.last == ("ran", [[0]]),
    ),
    Attack(
        "insert",
        ["INSERT INTO t VALUES (1, 'x')", "SELECT count(*) FROM t"],
        ("set_authorizer", "read_only"),
        "denied",
        lambda r: r.last == ("ran", [[2001]]),
    ),
    Attack("read the schema for nothing", ["SELECT sql FROM sqlite_master"], ("set_authorizer",), "denied", _ran),
    Attack("count the schema", ["SELECT count(*) FROM SQLITE_SCHEMA"], ("set_authorizer",), "denied", _ran),
    Attack("learn the path", ["SELECT file FROM pragma_database_list"], ("set_authorizer",), "denied", _ran),
    Attack("read pages", ["SELECT * FROM dbstat"], ("set_authorizer",), "denied", _ran),
    Attack("take a pointer", ["SELECT fts3_tokenizer('simple')"], ("set_authorizer",), "denied", _ran),
    Attack("load code", ["SELECT load_extension('x')"], ("set_authorizer",), "denied", _unauthorized),
    Attack("draw a number", ["SELECT random()"], ("set_authorizer",), "denied", _ran),
    Attack("draw bytes", ["SELECT hex(randomblob(8))"], ("set_authorizer",), "denied", _ran),
    Attack("read the clock", ["SELECT date('now') > '2025-06-01'"], ("fix_clock",), "ran", _one),
    Attack("read the clock by a blob", ["SELECT date(x'6e6f77') > '2025-06-01'"], ("fix_clock",), "ran", _one),
    Attack("recurse for ever", [f"{NUMBERS} SELECT count(*) FROM n"], ("set_progress_handler",), "timeout", _endless),
    Attack(
        "recurse for ever by UNION",
        ["WITH RECURSIVE n(x) AS (SELECT 1 UNION SELECT x % 1000000007 + 1 FROM n) SELECT count(*) FROM n LIMIT 1"],
        ("set_progress_handler", "configure"),
        "timeout",
        _endless,
    ),
    Attack("cross join", ["SELECT count(*) FROM t a, t b, t c, t d"], ("set_progress_handler",), "timeout", _endless),
    Attack(
        "sort an endless source",
        [f"{NUMBERS} SELECT x FROM n ORDER BY x DESC"],
        ("set_progress_handler", "configure"),
        "timeout",
        _endless,
    ),
    Attack(
        "sort a cross join of texts",
        ["SELECT a.b FROM t a, t b, t c ORDER BY hex(zeroblob(5000 + a.a + b.a))"],
        ("set_progress_handler", "configure"),
        "memory",
        _endless,
    ),
    Attack(
        "one huge string",
        ["SELECT length(hex(zeroblob(4e8)))"],
        ("set_limits", "configure"),
        "limit",
        lambda r: r.grown > 300 * MIB,
    ),
    Attack(
        "one wide number",
        ["SELECT length(printf('%*d', 300000000, 1))"],
        ("set_limits", "configure"),
        "ran",
        lambda r: r.grown > 100 * MIB,
    ),
    Attack(
        "amplify by replace()",
        ["SELECT length(replace(replace(hex(zeroblob(20000)), '0', '0000000000'), '0', '00000000000000000000'))"],
        ("set_limits", "configure"),
        "limit",
        lambda r: r.last == ("ran", [[8_000_000]]),
    ),
    Attack(
        "collect twenty million texts",
        ["SELECT length(group_concat(a.b || b.b)) FROM t a, t b, t c LIMIT 20000000"],
        ("set_progress_handler", "set_limits", "configure"),
        "timeout",
        _endless,
    ),
    Attack("deep sums", ["SELECT " + "+".join(["1"] * 900)], ("set_limits",), "limit", _ran),
    Attack("deep calls", ["SELECT " + "-(" * 45 + "1" + ")" * 45 + "+1" * 250], ("set_limits",), "limit", _ran),
    Attack("many selects", [" UNION ALL ".join(["SELECT 1"] * 200)], ("set_limits",), "limit", _ran),
    Attack("many columns", ["SELECT " + ",".join(["1"] * 1000)], ("set_limits",), "limit", _ran),
    Attack("a long text", ["SELECT '" + "x" * 50_000 + "'"], ("set_limits",), "limit", _ran),
    Attack("a slow pattern", ["SELECT 'x' LIKE '" + "%x" * 5_000 + "'"], ("set_limits",), "limit", _ran),
]  # fmt: skip


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case.name)
def test_an_attack_fails_under_the_controls_and_only_there(case: Attack, attack: Any) -> None:
    guarded = attack(case.statements)
    assert guarded.outcomes[0][0] == case.refused, guarded.outcomes
    assert not case.harm(guarded)
    assert guarded.files == ["data.sqlite", "gold.sqlite"]
    assert guarded.grown < 150 * MIB
    # Without the controls, what runs for half a second is counted as running for ever, if that is the harm.
    bare = attack(case.statements, *case.controls, patience_s=0.5 if case.harm is _endless else 60.0)
    assert case.harm(bare), bare.last


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        # legal reads stay legal
        ("SELECT count(*) FROM t", "ran"),
        ("  -- a comment\nSELECT 1", "ran"),
        ("/* a comment */ SELECT 1", "ran"),
        ("SELECT 1;", "ran"),
        ("SELECT 1; -- and no more", "ran"),
        ("WITH x AS (SELECT a FROM t) SELECT max(a) FROM x", "ran"),
        ("VALUES (1, 2), (3, 4)", "ran"),
        ("EXPLAIN QUERY PLAN SELECT * FROM t", "ran"),
        ("EXPLAIN SELECT * FROM t", "ran"),
        ("SELECT * FROM (SELECT a FROM t LIMIT 1)", "ran"),
        ("SELECT value FROM json_each('[1, 2]')", "ran"),
        ("SELECT key FROM json_tree('{\"a\": [1]}')", "ran"),
        ("SELECT row_number() OVER (ORDER BY a) FROM t LIMIT 3", "ran"),
        (f"{NUMBERS} SELECT x FROM n LIMIT 5", "ran"),
        ("SELECT \"text 1\" FROM t WHERE b = \"text 1\"", "ran"),
        ("SELECT printf('%.2f', a), group_concat(b) FROM t", "ran"),
        # what the engine itself refuses
        ("SELECT 1; DROP TABLE t", "denied"),
        ("SELECT 1; SELECT 2", "denied"),
        ("(SELECT 1)", "syntax"),
        ("SELECT 1\0; DROP TABLE t", "syntax"),
        ("ＳＥＬＥＣＴ 1", "syntax"),
        ("ЅELECT 1", "syntax"),
        # statements that are not reads
        *[
            (sql, "denied")
            for sql in (
                "DROP TABLE t", "ALTER TABLE t ADD COLUMN x", "CREATE INDEX i ON t (a)", "REPLACE INTO t VALUES (1, 2)",
                "UPDATE t SET a = 1", "DETACH main", "ANALYZE", "SAVEPOINT x", "COMMIT", "ROLLBACK",
                "PRAGMA writable_schema = ON", "PRAGMA journal_mode", "pragma table_info(t)", "EXPLAIN DELETE FROM t",
                "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END", "CREATE VIEW v AS SELECT 1", "VACUUM",
                "SELECT * FROM pragma_table_info('t')", "SELECT * FROM sqlite_stmt", "SELECT sqlite_log(1, 'x')",
                "SELECT fts5(1)", "SELECT FTS3_TOKENIZER('simple')", "SELECT * FROM pragma_function_list",
                "SELECT * FROM fts3tokenize", "SELECT rtreecheck('t')",
            )
        ],
    ],
)  # fmt: skip
def test_what_runs_and_what_does_not(attack: Any, statement: str, kind: str) -> None:
    report = attack([statement, "SELECT count(*) FROM t"])
    assert report.outcomes[0][0] == kind, report.outcomes[0]
    assert report.last == ("ran", [[2000]])
    assert report.files == ["data.sqlite", "gold.sqlite"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        pytest.param(20, [], id="more bytes than the cap already with the first row"),
        pytest.param(1, [["0" * 80]] * 3, id="many rows of one cell"),
    ],
)
def test_long_texts_are_never_held_together(attack: Any, width: int, shown: list[list[str]]) -> None:
    columns = ", ".join(["x"] * width)
    statement = f"WITH b(x) AS MATERIALIZED (SELECT hex(zeroblob(499990))) SELECT {columns} FROM t, b"
    report = attack([statement])
    assert report.last == ("ran", shown)
    assert report.grown < 200 * MIB


def test_json_functions_need_the_first_touch(attack: Any) -> None:
    touched = ["SELECT value FROM json_each('[1]')", "SELECT value FROM json_tree('[1]')"]
    assert [kind for kind, _ in attack(touched).outcomes] == ["ran", "ran"]
    assert [kind for kind, _ in attack(touched, "configure").outcomes] == ["denied", "denied"]
