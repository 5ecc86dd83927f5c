"""Choosing tasks: filters, splits, order, empty golds, block lists; and what of a task is public."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from rolloutgym.server.environments.sql.audit import audit, write_block_list
from rolloutgym.server.environments.sql.environment import from_settings
from rolloutgym.server.environments.sql.loaders import read_tasks
from rolloutgym.server.environments.sql.selection import Form, form_of, in_order, in_splits
from rolloutgym.server.environments.sql.tasks import DataError, SqlTask, TaskFilter, load_tasks
from rolloutgym.server.settings import Settings

PACK = Path(__file__).resolve().parents[2] / "shared" / "data" / "sql"
needs_pack = pytest.mark.skipif(not PACK.is_dir(), reason="the real question pack is not beside the checkout")

QUERIES = {
    "count": "SELECT count(*) FROM a",
    "list": "SELECT name FROM a",
    "row": "SELECT id, name FROM a WHERE id = 1",
    "join": "SELECT a.name, b.name FROM a JOIN b ON a.id = b.a_id",
    "empty": "SELECT name FROM a WHERE id = 99",
    "broken": "SELECT nothing FROM a",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "ab.db")) as connection:
        connection.executescript(
            "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO a VALUES (1, 'x'), (2, 'y');"
            "CREATE TABLE b (a_id INTEGER, name TEXT); INSERT INTO b VALUES (1, 'p'), (1, 'q'), (2, 'r');"
        )
    file = tmp_path / "questions.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for task_id, sql in QUERIES.items():
            record = {
                "id": task_id,
                "database": "ab.db",
                "question": f"{task_id}?",
                "gold_sql": sql,
                "hardness": "easy",
            }
            lines.write(json.dumps(record) + "\n")
    return file


def ids(data: Path, **options: object) -> set[str]:
    tasks = load_tasks(data, **options)  # type: ignore[arg-type]
    return {task.id for split in tasks.splits() for task in tasks.of_split(split)}


def test_golds_that_fail_or_are_empty_are_left_out(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert ids(data) == {"count", "list", "row", "join"}
    assert "left out 1 of 6" in caplog.text
    assert ids(data, empty_golds=True) == {"count", "list", "row", "join", "empty"}


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (TaskFilter(rows=(2, 3)), {"list", "join"}),
        (TaskFilter(rows=(3, 3)), {"join"}),
        (TaskFilter(shapes=frozenset({"scalar"})), {"count"}),
        (TaskFilter(shapes=frozenset({"row", "list"})), {"row", "list"}),
        (TaskFilter(shapes=frozenset({"table"})), {"join"}),
        (TaskFilter(joins=(1, 5)), {"join"}),
        (TaskFilter(tables=(1, 1)), {"count", "list", "row"}),
        (TaskFilter(databases=frozenset({"ab"}), hardness=frozenset({"easy"}), joins=(1, 1)), {"join"}),
    ],
)
def test_filters(data: Path, where: TaskFilter, left: set[str]) -> None:
    assert ids(data, where=where) == left


def test_facts_that_the_data_states_in_part_are_found_out(data: Path) -> None:
    records = [json.loads(line) | {"n_rows": 1} for line in data.read_text(encoding="utf-8").splitlines()[:3]]
    data.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert ids(data, where=TaskFilter(shapes=frozenset({"list"}))) == {"list"}


def test_settings_choose_tasks(data: Path) -> None:
    def served(**fields: object) -> set[str]:
        tasks = from_settings(Settings(sql_data=data, sql_workers=0, **fields)).tasks  # type: ignore[arg-type]
        return {task.id for task in tasks.of_split("train")}

    assert served() == {"count", "list", "row", "join"}
    assert served(sql_joins="1") == {"join"}
    assert served(sql_tables="1-1") == {"count", "list", "row"}
    assert served(sql_rows="2-3") == {"list", "join"}
    assert served(sql_shapes="scalar, row", sql_hardness="easy,hard", sql_databases="ab") == {"count", "row"}
    for wrong in ("x", "1-", "-1", "1-2-3"):
        with pytest.raises(ValidationError, match="sql_rows"):
            Settings(sql_rows=wrong)


def test_a_filter_that_leaves_nothing_is_an_error(data: Path) -> None:
    with pytest.raises(DataError, match="no SQL task is left"):
        load_tasks(data, where=TaskFilter(sources=frozenset({"elsewhere"})))


def test_a_block_list_stands_in_for_running_the_golds(data: Path, tmp_path: Path) -> None:
    tasks = read_tasks(data)
    reports = list(audit(tasks))
    block_list = tmp_path / "blocked.json"
    assert write_block_list(block_list, tasks, reports) == 2
    assert ids(data, block_list=block_list) == {"count", "list", "row", "join"}
    assert ids(data, block_list=block_list, empty_golds=True) == {"count", "list", "row", "join", "empty"}
    assert ids(data, block_list=block_list, where=TaskFilter(rows=(2, 9))) == {"list", "join"}
    # What an audit found empty stays out unless it is asked for, whatever else is blocked.
    assert write_block_list(block_list, tasks, reports, ["fails", "row_order"]) == 3  # broken, list, join
    assert ids(data, block_list=block_list) == {"count", "row"}
    # It holds for these gold queries alone.
    changed = data.read_text(encoding="utf-8").replace("count(*)", "count(1)")
    data.write_text(changed, encoding="utf-8")
    with pytest.raises(DataError, match="other data"):
        load_tasks(data, block_list=block_list)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "blocked.json: not a block list"),
        ("[]", "blocked.json: not a block list"),
        ('{"data_sha256": "0", "blocks": [], "findings": {}}', "blocked.json: this block list is of other data"),
    ],
)
def test_a_block_list_that_does_not_fit(data: Path, tmp_path: Path, content: str, message: str) -> None:
    block_list = tmp_path / "blocked.json"
    block_list.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_tasks(data, block_list=block_list)


def test_what_is_public_of_a_task_tells_nothing_of_its_answer(data: Path) -> None:
    tasks = load_tasks(data)
    for task in tasks.of_split("train"):
        assert task.info().model_dump() == {
            "id": task.id, "split": "train", "tags": {"db_id": "ab", "hardness": "easy"},
        }  # fmt: skip


def test_a_fingerprint_changes_with_question_gold_and_data(data: Path) -> None:
    task = load_tasks(data).get("count")
    changed = [replace(task, question="Else?"), replace(task, gold_sql="SELECT 2"), replace(task, split="test")]
    other = data.parent / "other.db"
    other.write_bytes(task.database.read_bytes() + b"\0")
    changed.append(replace(task, database=other))
    assert len({each.fingerprint() for each in (task, *changed)}) == 5
    moved = data.parent / "moved.db"
    moved.write_bytes(task.database.read_bytes())
    assert replace(task, database=moved).fingerprint() == task.fingerprint()


@pytest.mark.parametrize(
    ("sql", "form"),
    [
        ("SELECT count(*) FROM a", Form(joins=0, tables=1, subqueries=0, clauses=1)),
        ("SELECT x FROM a, b WHERE a.id = b.id", Form(joins=1, tables=2, subqueries=0, clauses=1)),
        ("SELECT x FROM a WHERE id IN (SELECT id FROM A)", Form(joins=0, tables=1, subqueries=1, clauses=1)),
        ("WITH c AS (SELECT * FROM a) SELECT x FROM c ORDER BY 1 LIMIT 1", Form(0, 1, 1, 2)),
        ("SELECT FROM (", Form(0, 0, 0, 0)),
    ],
)
def test_the_form_of_a_query(sql: str, form: Form) -> None:
    assert form_of(sql) == form


def make_tasks(count: int) -> list[SqlTask]:
    return [SqlTask(f"t{n}", "own", "d", Path("d"), "?", "SELECT 1") for n in range(count)]


def test_a_hash_split_holds_out_a_tenth_each_and_never_moves_a_task() -> None:
    tasks = in_splits(make_tasks(2000), "hash")
    shares = Counter(task.split for task in tasks)
    assert 150 < shares["validation"] < 250
    assert 150 < shares["test"] < 250
    before = {task.id: task.split for task in tasks}
    assert all(before[task.id] == task.split for task in in_splits(make_tasks(500), "hash"))


def test_a_database_split_keeps_copies_of_the_same_data_together(tmp_path: Path) -> None:
    tasks = []
    for number in range(24):
        name = f"{'first' if number % 2 else 'second'}{number // 2}"
        file = tmp_path / f"{name}.db"
        with closing(sqlite3.connect(file)) as connection:
            table = f"t{number}"  # the same sizes under other names
            connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
            connection.executemany(f"INSERT INTO {table} VALUES (?)", [(i,) for i in range(number // 2 + 1)])
            connection.commit()
        tasks += [SqlTask(f"{name}-{i}", "own", name, file, "?", "SELECT 1") for i in range(5)]
    split_of = {task.db_id: task.split for task in in_splits(tasks, "database")}
    assert len(split_of) == 24
    assert all(split_of[f"first{n}"] == split_of[f"second{n}"] for n in range(12))
    shares = Counter(split_of.values())
    assert shares == {"train": 16, "validation": 4, "test": 4}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_database_split_leaves_something_to_train_on(tmp_path: Path, count: int) -> None:
    tasks = []
    for number in range(count):
        file = tmp_path / f"{number}.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript("CREATE TABLE t (id INT);" + "INSERT INTO t VALUES (1);" * number)
        tasks.append(SqlTask(f"{number}", "own", f"{number}", file, "?", "SELECT 1"))
    splits = [task.split for task in in_splits(tasks, "database")]
    assert sorted(splits) == sorted(["train", "validation", "test"][:count])


def test_a_curriculum_goes_from_easy_to_hard() -> None:
    base = make_tasks(1)[0]
    hard = replace(base, id="hard", hardness="hard")
    joined = replace(base, id="joined", hardness="easy", gold_sql="SELECT 1 FROM a JOIN b")
    plain = replace(base, id="plain", hardness="easy")
    unstated = replace(base, id="unstated", gold_sql="SELECT max(x) FROM a JOIN b WHERE x GROUP BY y")
    extra = replace(base, id="extra", hardness="extra")
    tasks = [extra, hard, joined, unstated, plain]
    assert [task.id for task in in_order(tasks, "file")] == ["extra", "hard", "joined", "unstated", "plain"]
    assert [task.id for task in in_order(tasks, "curriculum")] == ["plain", "joined", "hard", "unstated", "extra"]


@needs_pack
def test_splits_of_the_real_pack() -> None:
    official = load_tasks(PACK)
    assert {split: len(official.of_split(split)) for split in official.splits()} == {"validation": 935, "train": 382}
    assert len(load_tasks(PACK, empty_golds=True)) == 1374

    by_database = load_tasks(PACK, split_by="database")
    where = {task.db_id: split for split in by_database.splits() for task in by_database.of_split(split)}
    sizes = {split: len(by_database.of_split(split)) for split in by_database.splits()}
    assert set(sizes) == {"train", "validation", "test"}
    assert min(sizes.values()) >= 0.1 * len(by_database)
    assert where["chinook_1"] == where["store_1"]  # the same data under other names
    owners: dict[str, set[str]] = {}
    for split in by_database.splits():
        for task in by_database.of_split(split):
            owners.setdefault(task.db_id, set()).add(split)
    assert all(len(splits) == 1 for splits in owners.values())
    assert by_database.sha256() == load_tasks(PACK, split_by="database").sha256()


@needs_pack
def test_filters_on_the_real_pack() -> None:
    no_join = load_tasks(PACK, where=TaskFilter(joins=(0, 0)), empty_golds=True)
    one = load_tasks(PACK, where=TaskFilter(joins=(1, 1)), empty_golds=True)
    more = load_tasks(PACK, where=TaskFilter(joins=(2, 99)), empty_golds=True)
    assert len(no_join) + len(one) + len(more) == 1374
    assert len(more) > 100
    assert len(load_tasks(PACK, where=TaskFilter(shapes=frozenset({"scalar"})))) == 510
    assert len(load_tasks(PACK, where=TaskFilter(hardness=frozenset({"extra"})), empty_golds=True)) == 164
