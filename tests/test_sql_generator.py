"""The shipped tasks: the same bytes again, right, clean, varied, and disjoint between splits."""

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.sql.answers import grade, spell
from rolloutgym.server.environments.sql.audit import audit
from rolloutgym.server.environments.sql.database import Database
from rolloutgym.server.environments.sql.generator import build, generate
from rolloutgym.server.environments.sql.generator.build import GeneratorError
from rolloutgym.server.environments.sql.generator.domains_train import train_domains
from rolloutgym.server.environments.sql.generator.drafts import Draft, to_decimals
from rolloutgym.server.environments.sql.gold import compute_gold
from rolloutgym.server.environments.sql.loaders import SHIPPED, read_tasks
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.tasks import load_tasks
from rolloutgym.server.environments.sql.text_database import as_sqlite


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SHIPPED / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_generating_again_gives_what_ships(tmp_path: Path) -> None:
    generate(tmp_path / "again")
    made, shipped = contents(tmp_path / "again"), contents(SHIPPED)
    assert made.keys() == shipped.keys()
    assert [name for name in made if made[name] != shipped[name]] == []


def test_what_ships_is_small_and_of_many_shapes(records: list[dict[str, Any]]) -> None:
    assert sum(map(len, contents(SHIPPED).values())) < 4 * 2**20
    assert len(records) >= 500
    forms = Counter(record["form"] for record in records)
    assert set(forms) == {"single", "order", "group", "join", "subquery", "set"}
    assert min(forms.values()) >= 60
    assert min(Counter(record["split"] for record in records).values()) >= 80
    shapes = Counter((record["n_rows"] > 1, record["n_cols"] > 1) for record in records)
    assert min(shapes[key] for key in ((False, False), (True, False), (False, True), (True, True))) >= 25


def test_databases_are_as_the_page_says_and_hold_what_real_ones_hold(records: list[dict[str, Any]]) -> None:
    sizes = {}
    beyond_ascii = set()
    for file in (SHIPPED / "databases").glob("*/*.jsonl"):
        with as_sqlite(file) as path, closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
            sizes[file.stem] = (len(tables), max(rows.values()))
            cells = [cell for name in tables for row in connection.execute(f"SELECT * FROM {name}") for cell in row]
            assert None in cells
            assert any(isinstance(cell, float) for cell in cells)
            if any(isinstance(cell, str) and not cell.isascii() for cell in cells):
                beyond_ascii.add(file.stem)
            assert any(isinstance(cell, str) and cell[4:5] == "-" == cell[7:8] for cell in cells)
    assert len(sizes) == 9
    assert len(beyond_ascii) >= 8
    page = " ".join((Path(__file__).parents[1] / "docs" / "sql.md").read_text(encoding="utf-8").split())
    counts = [count for count, _ in sizes.values()]
    most = max(most for _, most in sizes.values())
    assert f"nine generated databases ({min(counts)} to {max(counts)} tables, up to {most:,} rows)" in page
    assert f"and {len(records)} questions" in page


def test_splits_share_neither_database_nor_template_nor_question(records: list[dict[str, Any]]) -> None:
    for key in ("db_id", "template", "question", "gold_sql"):
        owners = defaultdict(set)
        for record in records:
            owners[record[key]].add(record["split"])
        assert all(len(splits) == 1 for splits in owners.values()), key
    assert len({record["question"] for record in records}) == len(records)


def test_no_shipped_gold_fails_is_empty_or_constant_ties_or_depends_on_order() -> None:
    tasks = read_tasks(None)
    reports = list(audit(tasks))
    assert [report for report in reports if report.findings] == []
    assert len(reports) == len(load_tasks())


def test_every_shipped_gold_answers_its_question_and_not_the_next_one() -> None:
    by_database = defaultdict(list)
    for task in read_tasks(None):
        by_database[task.database].append(task)
    for path, tasks in by_database.items():
        with closing(Database(path)) as database:
            golds = [compute_gold(database, task.gold_sql) for task in tasks]
        for gold, task in zip(golds, tasks, strict=True):
            assert (len(gold.rows), len(gold.columns)) == (task.tags["n_rows"], task.tags["n_cols"])
            assert grade(spell(gold.rows), gold), task.id
        for gold, following in pairwise(golds):
            if len(gold.rows) != len(following.rows):
                assert not grade(spell(gold.rows), following)


def test_a_template_that_is_wrong_or_open_stops_the_generator(tmp_path: Path) -> None:
    domain = train_domains()[0]
    domain.fill(seeded_random(1, "rows"))
    path = tmp_path / "library.jsonl"
    build.write_tables(domain, path)
    task = SqlTask("draft", "train", "library", path, "?", "SELECT count(*) FROM branches")
    with closing(Database(path)) as database:
        build._check(database, task, Draft("?", task.gold_sql, [(7,)]))
        with pytest.raises(GeneratorError, match="is not"):
            build._check(database, task, Draft("?", task.gold_sql, [(8,)]))
        tied = replace(task, gold_sql="SELECT tier FROM members ORDER BY tier LIMIT 1 OFFSET 1")
        tier = min(str(record["tier"]) for record in domain.table("members").records)
        build._check(database, tied, Draft("?", tied.gold_sql, [(tier,)]))  # a tie of equal rows
        tied = replace(task, gold_sql="SELECT member_id FROM members ORDER BY tier LIMIT 1")
        member = database.query(tied.gold_sql).rows[0][0]
        assert isinstance(member, int)
        with pytest.raises(GeneratorError, match="leaves its answer open"):
            build._check(database, tied, Draft("?", tied.gold_sql, [(member,)]))


@pytest.mark.parametrize(
    ("numerator", "denominator", "digits", "expected"),
    [(1, 3, 2, 0.33), (2, 3, 1, 0.7), (1, 8, 2, None), (5, 1, 2, 5.0), (-1, 3, 2, -0.33), (25, 1000, 2, None)],
)
def test_means_on_the_edge_of_rounding_are_not_asked_for(
    numerator: int, denominator: int, digits: int, expected: float | None
) -> None:
    assert to_decimals(Fraction(numerator, denominator), digits) == expected
