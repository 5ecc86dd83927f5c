"""The audit of gold queries, as a library and as a command."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rolloutgym.cli.commands import app
from rolloutgym.server.environments.sql import perturbation
from rolloutgym.server.environments.sql.audit import Report, audit, count
from rolloutgym.server.environments.sql.database import Limits
from rolloutgym.server.environments.sql.loaders import read_tasks
from rolloutgym.server.environments.sql.questions import SqlTask

PACK = Path(__file__).resolve().parents[2] / "shared" / "data" / "sql"
needs_pack = pytest.mark.skipif(not PACK.is_dir(), reason="the real question pack is not beside the checkout")

QUERIES = {
    "fine": "SELECT count(*) FROM t",
    "fails": "SELECT nothing FROM t",
    "times_out": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "empty": "SELECT name FROM t WHERE name = 'nobody'",
    "constant": "SELECT count(*) FROM t WHERE name = 'A'",
    "tie": "SELECT name FROM t ORDER BY score DESC LIMIT 1",
    "row_values": "SELECT name FROM t GROUP BY score",
    "row_order": "SELECT name FROM t",
    "float_order": "SELECT sum(weight) FROM t",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.executescript(
            "CREATE TABLE t (name TEXT, score INTEGER, weight REAL);"
            "INSERT INTO t VALUES ('a', 9, 0.1), ('b', 9, 0.2), ('c', 1, 0.3);"
        )
    records = [{"id": i, "database": "t.db", "question": "?", "gold_sql": sql} for i, sql in QUERIES.items()]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return file


def test_each_fault_is_found_and_named(data: Path) -> None:
    reports = list(audit(read_tasks(data), Limits(steps=1_000_000)))
    assert {report.task_id: report.findings for report in reports} == {
        name: () if name == "fine" else (name,) for name in QUERIES
    }
    notes = {report.task_id: report.note for report in reports if report.note}
    assert notes.keys() == {"fails", "times_out"}
    assert "nothing" in notes["fails"]
    assert count([*reports, Report("x", ("tie",))])["tie"] == 2


def test_where_no_copy_can_tell_a_constant_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies on which the gold hangs on the order of rows are not asked."""
    file = tmp_path / "many.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (name TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(f"name {number}",) for number in range(40)])
        connection.commit()
    task = SqlTask("t", "train", "many", file, "?", "SELECT group_concat(name) FROM t")
    (report,) = audit([task])
    assert report.findings == ("constant", "row_values")
    monkeypatch.setattr(perturbation, "MAX_BYTES", 100)
    (report,) = audit([task])  # a large database has no copies
    assert report.findings == ("row_values",)


def test_the_command_prints_counts_and_writes_what_the_service_reads(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUTGYM_SQL_STEPS", "1000000")
    block_list = tmp_path / "blocked.json"
    flags = ["--block-list", str(block_list), "--block", "tie", "--block", "fails", "--show", "tie"]
    result = CliRunner().invoke(app, ["audit", "sql", str(data), *flags])
    assert result.exit_code == 0, result.output
    assert "9 gold queries" in result.output
    assert "tie (tie) SELECT name FROM t ORDER BY score DESC LIMIT 1" in result.output
    assert "2 tasks blocked" in result.output
    written = json.loads(block_list.read_text(encoding="utf-8"))
    assert written["blocks"] == ["fails", "tie"]
    assert written["findings"].keys() == QUERIES.keys() - {"fine"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--show", "ties"], "'ties' is not one of fails, times_out"),
        (["--block", "x"], "'x' is not one of"),
        (["/no/such/folder"], "does not exist"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["audit", "sql", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_data_that_cannot_be_read_ends_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["audit", "sql", str(tmp_path)])
    assert result.exit_code == 1
    assert "neither a JSONL file nor a folder" in result.output
    assert "Traceback" not in result.output


@needs_pack
def test_the_real_pack() -> None:
    found = count(audit(read_tasks(PACK)))
    assert found == {"empty": 57, "constant": 26, "tie": 58, "row_values": 8, "row_order": 262, "float_order": 20}
