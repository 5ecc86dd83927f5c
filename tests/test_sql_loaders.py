"""Reading questions: Spider, BIRD, packs and JSONL, and what is said of a file that does not fit."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rolloutgym.server.environments.sql.loaders import DataError, read_tasks

PACK = Path(__file__).resolve().parents[2] / "shared" / "data" / "sql"
needs_pack = pytest.mark.skipif(not PACK.is_dir(), reason="the real question pack is not beside the checkout")


def add_database(file: Path, rows: int = 3) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO t (name) VALUES (?)", [(f"n{number}",) for number in range(rows)])
        connection.commit()


def write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")


def write_lines(file: Path, records: Sequence[Mapping[str, Any] | str]) -> None:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def spider(tmp_path: Path) -> Path:
    for name in ("pets", "cars"):
        add_database(tmp_path / "database" / name / f"{name}.sqlite")
    question = {
        "question": "How many?",
        "query": "SELECT count(*) FROM t",
        "query_toks": ["SELECT"],
        "sql": {"from": []},
    }
    write_json(tmp_path / "train_spider.json", [{"db_id": "pets", **question}])
    write_json(tmp_path / "dev.json", [{"db_id": "cars", **question}, {"db_id": "pets", **question}])
    write_json(tmp_path / "tables.json", [{"db_id": "pets"}, {"db_id": "cars"}])
    return tmp_path


def test_a_spider_folder(spider: Path) -> None:
    tasks = read_tasks(spider)
    assert [(task.id, task.split, task.db_id) for task in tasks] == [
        ("spider-train_spider-00000", "train", "pets"),
        ("spider-dev-00000", "validation", "cars"),
        ("spider-dev-00001", "validation", "pets"),
    ]
    assert tasks[1].database == spider / "database/cars/cars.sqlite"
    # The same question in two databases: told apart by id.
    assert tasks[1].question == tasks[2].question
    assert tasks[1].gold_sql == "SELECT count(*) FROM t"


def test_a_bird_folder(tmp_path: Path) -> None:
    add_database(tmp_path / "dev_databases" / "schools" / "schools.sqlite")
    record = {"db_id": "schools", "question": "How many?", "SQL": "SELECT 1", "difficulty": "challenging"}
    write_json(tmp_path / "dev.json", [{**record, "question_id": 7, "evidence": "A school is a t"}, record])
    first, second = read_tasks(tmp_path)
    assert (first.id, first.evidence, first.hardness) == ("bird-dev-00007", "A school is a t", "challenging")
    assert (second.id, second.evidence, second.split) == ("bird-dev-00001", "", "validation")


def test_plain_jsonl_names_its_database_by_path_or_by_id(tmp_path: Path) -> None:
    add_database(tmp_path / "own.db")
    add_database(tmp_path / "databases" / "shop" / "shop.sqlite")
    write_lines(
        tmp_path / "mine.jsonl",
        [
            {"id": "a", "database": "own.db", "question": "?", "gold_sql": "SELECT 1", "split": "test", "extra": [1]},
            "",
            {"db_id": "shop", "question": " ? ", "gold_sql": "SELECT 2;", "hardness": "Easy", "evidence": None},
        ],
    )
    first, second = read_tasks(tmp_path / "mine.jsonl")
    assert (first.id, first.db_id, first.split, first.database) == ("a", "own", "test", tmp_path / "own.db")
    assert (second.id, second.question, second.hardness, second.split) == ("mine-00003", "?", "easy", "train")


@pytest.mark.parametrize(
    ("given", "split"),
    [("dev", "validation"), ("val", "validation"), ("train", "train"), ("test", "test"), ("fold-3", "fold-3")],
)
def test_names_of_splits(tmp_path: Path, given: str, split: str) -> None:
    add_database(tmp_path / "own.db")
    write_lines(tmp_path / "q.jsonl", [{"database": "own.db", "question": "?", "gold_sql": "SELECT 1", "split": given}])
    assert read_tasks(tmp_path / "q.jsonl")[0].split == split


GOOD = {"id": "a", "database": "own.db", "question": "?", "gold_sql": "SELECT 1"}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([GOOD, "{"], "q.jsonl, line 2: not JSON"),
        (
            [GOOD, "", {**GOOD, "id": "b", "question": None}],
            "q.jsonl, line 3: question: Input should be",
        ),
        ([{key: GOOD[key] for key in ("id", "database", "question")}], "q.jsonl, line 1: gold_sql: Field required"),
        ([{**GOOD, "question": ""}], "q.jsonl, line 1: question: String should have at least 1 character"),
        ([{**GOOD, "n_rows": -1}], "q.jsonl, line 1: n_rows: "),
        ([[1]], "q.jsonl, line 1: record: Input should be a valid dictionary"),
        ([GOOD, {**GOOD, "question": "other"}], "q.jsonl, line 2: the id 'a' is also that of q.jsonl, line 1"),
        ([{**GOOD, "database": "none.db"}], "q.jsonl, line 1: there is no database none.db"),
        ([{**GOOD, "database": "", "db_id": "x"}], "q.jsonl, line 1: there is no database database/x/x.sqlite"),
        ([{**GOOD, "database": ""}], "q.jsonl, line 1: neither db_id nor database"),
        ([{**GOOD, "database": "q.txt"}], "q.txt: the database cannot be read: file is not a database"),
        ([{**GOOD, "database": "q.jsonl"}], "q.jsonl: the database does not open: line 1: neither a row nor a CREATE"),
        ([], "there are no questions"),
    ],
)
def test_faults_are_named_with_file_and_line(tmp_path: Path, records: list[Any], message: str) -> None:
    add_database(tmp_path / "own.db")
    (tmp_path / "q.txt").write_text("no database")
    write_lines(tmp_path / "q.jsonl", records)
    with pytest.raises(DataError) as error:
        read_tasks(tmp_path / "q.jsonl")
    assert message in str(error.value)


def test_faults_of_a_folder(spider: Path) -> None:
    write_json(spider / "tables.json", [{"db_id": "pets"}])
    with pytest.raises(DataError, match=r"tables\.json: no schema of 'cars'"):
        read_tasks(spider)
    write_json(spider / "dev.json", [{"db_id": "cars", "question": "?"}])
    with pytest.raises(DataError, match=r"dev\.json, entry 0: gold_sql: Field required"):
        read_tasks(spider)
    write_json(spider / "dev.json", {"db_id": "cars"})
    with pytest.raises(DataError, match=r"dev\.json: expected a JSON array"):
        read_tasks(spider)
    (spider / "dev.json").write_text("[{]", encoding="utf-8")
    with pytest.raises(DataError, match=r"dev\.json: not JSON: .*line 1"):
        read_tasks(spider)


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_bytes('{"question": "Où?"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"q\.jsonl: not UTF-8"):
        read_tasks(tmp_path / "q.jsonl")


def test_a_folder_without_questions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither a JSONL file nor a folder"):
        read_tasks(tmp_path)
    with pytest.raises(DataError, match=r"neither a JSONL file nor a folder"):
        read_tasks(tmp_path / "none")


@needs_pack
def test_the_real_pack() -> None:
    tasks = read_tasks(PACK)
    assert len(tasks) == 1374
    assert sum(task.split == "train" for task in tasks) == 402
    assert {task.split for task in tasks} == {"train", "validation"}
    assert len({task.database for task in tasks}) == 23
    texts = [task.question for task in tasks]
    assert len(set(texts)) < len(texts)
    assert len({task.id for task in tasks}) == len(tasks)
