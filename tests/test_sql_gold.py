"""What a gold query accepts: ties, cut ties, sub-queries, the order of rows and of sums; real golds too."""

import csv
import io
import itertools
import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from rolloutgym.server.environments.sql.answers import compare, grade, multiset_f1, spell
from rolloutgym.server.environments.sql.comparison import rows_match
from rolloutgym.server.environments.sql.database import Database, Limits, Row
from rolloutgym.server.environments.sql.gold import MAX_ROWS, Gold, GoldFailed, compute_gold, run_gold
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.tasks import load_tasks
from rolloutgym.server.environments.sql.ties import MAX_VARIANTS

PACK = Path(__file__).resolve().parents[2] / "shared" / "data" / "sql"
needs_pack = pytest.mark.skipif(not PACK.is_dir(), reason="the real question pack is not beside the checkout")

SCHEMA = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, city TEXT COLLATE NOCASE, weight REAL);
INSERT INTO people VALUES
  (1, 'Ann', 30, 'Oslo', 60.1), (2, 'Bo', 40, 'oslo', 70.2), (3, 'Cy', 40, 'Rome', 80.3),
  (4, 'Di', 20, 'Rome', 0.1), (5, 'Ed', NULL, 'Bonn', 0.2), (6, 'Fi', 40, 'Bonn', 0.3), (7, 'Ann', 25, 'Kiel', 9.5);
"""
COUNTING = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "people.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(SCHEMA)
    return file


def gold_of(path: Path, sql: str, limits: Limits | None = None) -> Gold:
    with closing(Database(path, limits)) as database:
        return compute_gold(database, sql)


def names(*texts: str) -> list[Row]:
    return [(text,) for text in texts]


@pytest.mark.parametrize(
    ("sql", "right", "wrong"),
    [
        # the order of tied rows is free, that of others is not
        ("SELECT name FROM people WHERE age > 20 ORDER BY age DESC",
         ["Fi Bo Cy Ann Ann", "Cy Fi Bo Ann Ann"], ["Ann Bo Cy Fi Ann"]),
        ("SELECT name FROM people WHERE age IS NOT NULL ORDER BY 1", ["Ann Ann Bo Cy Di Fi"], ["Ann Bo Ann Cy Di Fi"]),
        ("SELECT name AS n FROM people WHERE id < 4 ORDER BY n DESC", ["Cy Bo Ann"], ["Ann Bo Cy"]),
        ("SELECT name FROM people ORDER BY age IS NULL, age LIMIT 2", ["Di Ann"], ["Ann Di", "Ed Di"]),
        # a LIMIT that cuts a tie
        ("SELECT name FROM people ORDER BY age DESC LIMIT 1", ["Bo", "Cy", "Fi"], ["Ann", "Di", "Ed"]),
        ("SELECT name FROM people ORDER BY age DESC LIMIT 2", ["Bo Cy", "Fi Bo"], ["Bo Bo", "Bo Ann"]),
        ("SELECT name FROM people ORDER BY age DESC LIMIT 2 OFFSET 2", ["Bo Ann", "Fi Ann"], ["Ann Bo", "Bo Cy"]),
        ("SELECT name FROM people ORDER BY age DESC LIMIT 2, 1", ["Bo", "Fi"], ["Ann"]),
        ("SELECT name FROM people LIMIT 1", ["Ann", "Ed"], ["Zoe"]),
        ("SELECT name FROM people WHERE age = 40 ORDER BY length(name) LIMIT 1;", ["Bo", "Cy", "Fi"], ["Di"]),
        ("SELECT city FROM people GROUP BY city ORDER BY count(*) DESC LIMIT 1", ["Oslo", "Rome", "Bonn"], ["Kiel"]),
        ("SELECT DISTINCT city FROM people WHERE id < 5 ORDER BY city LIMIT 1", ["Oslo"], ["Rome"]),
        # equal under the column's own collation is a tie
        ("SELECT name FROM people WHERE id < 3 ORDER BY city", ["Ann Bo", "Bo Ann"], ["Ann Ann"]),
        ("SELECT name FROM people WHERE id < 3 ORDER BY city COLLATE BINARY", ["Ann Bo"], ["Bo Ann"]),
        # compounds
        ("SELECT name FROM people WHERE age = 40 UNION SELECT name FROM people WHERE age = 20 ORDER BY name LIMIT 1",
         ["Bo"], ["Cy"]),
        ("SELECT name, age FROM people WHERE id = 2 UNION ALL SELECT name, age FROM people WHERE id = 3 "
         "ORDER BY age LIMIT 1",
         ["Bo 40", "Cy 40"], ["Fi 40"]),
        # the top level alone says whether order counts
        ("SELECT name FROM people WHERE id IN (SELECT id FROM people ORDER BY age LIMIT 7) AND age = 40",
         ["Bo Cy Fi", "Fi Cy Bo"], ["Bo Cy"]),
        ("SELECT name FROM (SELECT name, age FROM people ORDER BY age) WHERE age = 40", ["Fi Cy Bo"], ["Bo"]),
        ("SELECT name FROM people WHERE age = 40 -- order by name", ["Fi Cy Bo"], ["Bo"]),
        ("SELECT name || ' order by limit' FROM people WHERE id = 1", ["Ann_order_by_limit"], ["Ann"]),
        # ties that a sub-query's LIMIT cuts
        ("SELECT count(*) FROM people WHERE id > 2 AND city = "
         "(SELECT city FROM people WHERE id IN (2, 3, 7) ORDER BY id = 7 LIMIT 1)", ["0", "2"], ["1", "3"]),
        ("SELECT name FROM people WHERE id IN (SELECT id FROM people ORDER BY age DESC LIMIT 2) ORDER BY name",
         ["Bo Cy", "Bo Fi", "Cy Fi"], ["Cy Bo", "Ann Bo"]),
        ("WITH old AS (SELECT id FROM people ORDER BY age DESC LIMIT 1) SELECT name FROM people JOIN old USING (id)",
         ["Bo", "Cy", "Fi"], ["Ann"]),
        # double-quoted text
        ('SELECT name FROM people WHERE name = "Ann" ORDER BY age LIMIT 1', ["Ann"], ["Bo"]),
    ],
)  # fmt: skip
def test_what_a_gold_accepts(path: Path, sql: str, right: list[str], wrong: list[str]) -> None:
    gold = gold_of(path, sql)

    def table(text: str) -> list[Row]:
        cells = [int(cell) if cell.isdigit() else cell.replace("_", " ") for cell in text.split()]
        return [tuple(cells[i : i + len(gold.columns)]) for i in range(0, len(cells), len(gold.columns))]

    assert any(rows_match(gold.rows, expected) for expected in gold.accepted)
    for text in right:
        assert grade(spell(table(text)), gold), text
    for text in wrong:
        assert not grade(spell(table(text)), gold), text


@pytest.mark.parametrize(
    ("sql", "flags"),
    [
        ("SELECT name FROM people WHERE id = 1", set()),
        ("SELECT name FROM people ORDER BY id", {"ordered"}),
        ("SELECT name FROM people", {"row_order"}),
        ("SELECT count(*) FROM people WHERE age > 100 GROUP BY age", {"empty"}),
        ("SELECT name FROM people ORDER BY age DESC LIMIT 1", {"ordered", "tie"}),
        ("SELECT age FROM people ORDER BY age DESC LIMIT 1", {"ordered"}),  # a tie of equal rows decides nothing
        ("SELECT name FROM people WHERE id = (SELECT id FROM people ORDER BY age DESC LIMIT 1)", {"tie"}),
        ("SELECT sum(weight) FROM people", {"float_order"}),
        ("SELECT round(sum(weight), 2) FROM people", set()),
        ("SELECT group_concat(name) FROM people", {"row_dependent"}),
        ("SELECT age, name FROM people WHERE age = 40 GROUP BY age", {"row_dependent"}),
        ("SELECT name, max(id) FROM people", set()),
    ],
)
def test_what_a_gold_leaves_open(path: Path, sql: str, flags: set[str]) -> None:
    gold = gold_of(path, sql)
    names_ = ("ordered", "empty", "tie", "row_order", "row_dependent", "float_order")
    assert {name for name in names_ if getattr(gold, name)} == flags


def test_both_orders_of_a_row_dependent_gold_are_accepted(path: Path) -> None:
    gold = gold_of(path, "SELECT group_concat(name) FROM people WHERE age = 40")
    assert grade("Bo,Cy,Fi", gold)
    assert grade("Fi,Cy,Bo", gold)
    assert not grade("Cy,Bo,Fi", gold)


def test_a_sort_key_outside_of_distinct_columns_makes_no_tie(tmp_path: Path) -> None:
    file = tmp_path / "distinct.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE t (name TEXT, score INTEGER); INSERT INTO t VALUES ('a', 1), ('b', 2), ('a', 2);"
        )
    gold = gold_of(file, "SELECT DISTINCT name FROM t ORDER BY score LIMIT 2")
    assert grade("a\nb", gold)
    assert not grade("a\na", gold)


def test_positions_behind_a_star_are_not_taken_for_those_of_the_text(path: Path) -> None:
    gold = gold_of(path, "SELECT *, age + 0 FROM people WHERE age = 40 ORDER BY 2")
    assert gold.rows[0][1] == "Bo"
    assert grade(spell(gold.rows), gold)
    assert not grade(spell(gold.rows[::-1]), gold)


def test_a_rewriting_that_the_result_does_not_fit_is_not_trusted(path: Path) -> None:
    # In an expression, SQLite takes `name` for the table's column; the rewriting takes it for the result's.
    gold = gold_of(path, "SELECT city AS name FROM people WHERE id > 2 AND id < 6 ORDER BY name || ''")
    assert gold.rows == (("Rome",), ("Rome",), ("Bonn",))
    assert grade("Rome\nRome\nBonn", gold)
    assert not grade("Bonn\nRome\nRome", gold)


def test_a_tie_too_large_to_fetch_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "large.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, same INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, 1)", [(number,) for number in range(MAX_ROWS + 10)])
        connection.commit()
    gold = gold_of(file, "SELECT id FROM t ORDER BY same LIMIT 1")
    assert all(group.take == len(group.rows) for expected in gold.accepted for group in expected)


def test_sums_that_differ_by_rounding_tie_as_sort_keys(tmp_path: Path) -> None:
    file = tmp_path / "sums.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (name TEXT, amount REAL)")
        sums = {"a": (0.1, 0.2, 0.3), "b": (0.3, 0.2, 0.1), "c": (0.6,)}
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, part) for n in sums for part in sums[n]])
        connection.commit()
    gold = gold_of(file, "SELECT name FROM t GROUP BY name ORDER BY sum(amount) DESC LIMIT 1")
    assert gold.tie
    assert all(grade(name, gold) for name in "abc")
    gold = gold_of(file, "SELECT name FROM t GROUP BY name ORDER BY name || sum(amount) LIMIT 1")
    assert [grade(name, gold) for name in "abc"] == [True, False, False]


def test_columns_read_come_from_the_engine(path: Path) -> None:
    gold = gold_of(path, "SELECT Name FROM People WHERE AGE > 20")
    assert gold.read == {("people", "name"), ("people", "age")}


def test_a_gold_survives_pickling_and_grades_the_same(path: Path) -> None:
    gold = gold_of(path, "SELECT name FROM people ORDER BY age DESC LIMIT 2")
    assert grade("Fi\nBo", gold)
    assert multiset_f1(names("Fi", "Bo"), gold) == 1.0
    copy = pickle.loads(pickle.dumps(gold))
    assert copy == gold
    assert grade("Fi\nBo", copy)
    assert not grade("Ann\nBo", copy)


def test_many_tied_sub_queries_are_tried_up_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "many.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, same INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, 1)", [(number,) for number in range(500)])
        connection.commit()
    gold = gold_of(file, "SELECT id FROM t WHERE id = (SELECT id FROM t ORDER BY same LIMIT 1)")
    assert 1 < len(gold.accepted) <= MAX_VARIANTS + 1
    # 500 over 20 is 10^35: what is tried is not first counted out.
    gold = gold_of(file, "SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY same LIMIT 20)")
    assert 1 < len(gold.accepted) <= MAX_VARIANTS + 1
    assert len(gold_of(file, "SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY same LIMIT 250)").accepted) == 1


def test_trying_tied_rows_costs_no_more_than_a_query_may(tmp_path: Path) -> None:
    file = tmp_path / "slow.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, same INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, 1)", [(number,) for number in range(300)])
        connection.commit()
    sql = (
        "SELECT count(*) + (SELECT id FROM t ORDER BY same LIMIT 1) FROM t AS a, t AS b "
        "WHERE a.id + b.id > (SELECT id FROM t ORDER BY same LIMIT 1)"
    )
    with closing(Database(file)) as database:
        database.query(sql)
        cost = database.last_steps
    assert cost > 200_000
    few, many = gold_of(file, sql, Limits(steps=4 * cost)), gold_of(file, sql)
    assert 1 < len(few.accepted) <= 6 < len(many.accepted)


@pytest.mark.parametrize(
    ("sql", "limits", "kind"),
    [
        ("SELECT nothing FROM people", None, "syntax"),
        ("DELETE FROM people", None, "denied"),
        ("SELECT 1; SELECT 2", None, "denied"),
        (f"{COUNTING}) SELECT max(i) FROM n", Limits(steps=100_000), "timeout"),
        (f"{COUNTING} LIMIT 200000) SELECT i FROM n", None, "limit"),
    ],
)  # fmt: skip
def test_a_gold_that_fails_says_why(path: Path, sql: str, limits: Limits | None, kind: str) -> None:
    with pytest.raises(GoldFailed) as failure:
        gold_of(path, sql, limits)
    assert failure.value.kind == kind
    assert str(path) not in failure.value.message


# ---- real golds -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> dict[str, tuple[SqlTask, Gold]]:
    tasks = load_tasks(PACK, empty_golds=True)
    golds = {}
    for _, group in itertools.groupby(
        (task for split in tasks.splits() for task in tasks.of_split(split)), key=lambda task: task.database
    ):
        members = list(group)
        with closing(Database(members[0].database)) as database:
            golds.update({task.id: (task, compute_gold(database, task.gold_sql)) for task in members})
    return golds


@pytest.fixture(scope="module")
def flagged() -> set[str]:
    lines = (PACK / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["id"] for record in map(json.loads, lines) if record["ambiguous_tie"]}


@needs_pack
def test_all_real_golds_compute(real: dict[str, tuple[SqlTask, Gold]], flagged: set[str]) -> None:
    assert len(real) == 1374
    ties = {task_id for task_id, (_, gold) in real.items() if gold.tie}
    # Those that the pack marks, and four where the LIMIT is in a sub-query.
    assert ties - flagged == {"spider-dev-0159", "spider-dev-0160", "spider-dev-0954", "spider-dev-0955"}
    assert len(ties & flagged) == len(flagged) == 54
    assert sum(gold.empty for _, gold in real.values()) == 57
    # Bare columns beside a GROUP BY: eight golds take them from whichever row comes last.
    numbers = {"dev-0641", "dev-0642", "dev-0816", "dev-0817", "train-1208", "train-1209", "train-1210", "train-1211"}
    assert {task_id for task_id, (_, gold) in real.items() if gold.row_dependent} == {f"spider-{n}" for n in numbers}
    assert sum(not gold.empty and task_id not in flagged for task_id, (_, gold) in real.items()) == 1263
    for task, gold in real.values():
        assert gold.empty == (task.tags["n_rows"] == 0)


@needs_pack
def test_a_real_gold_is_its_own_answer_in_each_form(real: dict[str, tuple[SqlTask, Gold]]) -> None:
    failed: dict[str, list[str]] = {"json": [], "bars": [], "csv": []}
    for task_id, (_, gold) in real.items():
        if gold.empty:
            continue
        plain = [["NULL" if cell is None else cell for cell in row] for row in gold.rows]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(plain)
        spelled = [[str(cell).replace("|", "\\|").replace("\n", "\\n") for cell in row] for row in plain]
        answers = {"json": spell(gold.rows), "bars": "\n".join(map(" | ".join, spelled)), "csv": out.getvalue()}
        for form, answer in answers.items():
            if not grade(answer, gold):
                failed[form].append(task_id)
        assert multiset_f1(gold.rows, gold) == 1.0
    # A blank cell alone is no answer where nothing marks it as text.
    blank = ["spider-train-1236", "spider-train-1237"]
    assert failed == {"json": [], "bars": blank, "csv": blank}


@needs_pack
def test_each_side_of_a_real_tie_is_right_and_nothing_else(
    real: dict[str, tuple[SqlTask, Gold]], flagged: set[str]
) -> None:
    for task_id in flagged:
        _, gold = real[task_id]
        (expected,) = gold.accepted
        cut = next(group for group in expected if group.take < len(group.rows))
        start = sum(group.take for group in expected[: expected.index(cut)])
        for choice in itertools.islice(itertools.combinations(cut.rows, cut.take), 20):
            answer = [*gold.rows[:start], *choice, *gold.rows[start + cut.take :]]
            assert grade(spell(answer), gold), task_id
        stranger: Row = ("nobody",) * len(gold.columns)
        assert not grade(spell([*gold.rows[:start], stranger, *gold.rows[start + 1 :]]), gold), task_id
        if cut.take > 1:
            twice = [gold.rows[start]] * cut.take
            assert not grade(spell([*gold.rows[:start], *twice, *gold.rows[start + cut.take :]]), gold)


@needs_pack
def test_a_real_gold_is_not_the_answer_to_other_questions(real: dict[str, tuple[SqlTask, Gold]]) -> None:
    by_database: dict[Path, list[Gold]] = {}
    for task, gold in real.values():
        by_database.setdefault(task.database, []).append(gold)
    for golds in by_database.values():
        for one, other in itertools.combinations(golds[:30], 2):
            if not one.empty and len(one.rows) != len(other.rows):
                assert not grade(spell(one.rows), other)


def shuffle(source: Path, target: Path) -> None:
    """Copy a database with the rows of each table in random order, and without the keys that would put them back."""
    random = Random(7)
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.text_factory = bytes  # not all of the text is UTF-8
        connection.create_function("shuffled", 0, random.random)
        connection.execute("ATTACH ? AS source", (str(source),))
        listed = "SELECT name FROM source.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        for (raw,) in connection.execute(listed).fetchall():
            table = raw.decode()
            info = connection.execute(f'PRAGMA source.table_info("{table}")').fetchall()
            columns = ", ".join(f'"{name.decode()}" {kind.decode()}' for _, name, kind, *_ in info)
            connection.execute(f'CREATE TABLE main."{table}" ({columns})')
            connection.execute(f'INSERT INTO main."{table}" SELECT * FROM source."{table}" ORDER BY shuffled()')


@needs_pack
def test_a_real_gold_accepts_its_result_on_shuffled_tables(
    real: dict[str, tuple[SqlTask, Gold]], tmp_path: Path
) -> None:
    """The same data in another physical order: whatever comes out of it is as right."""
    wrong = []
    databases: dict[Path, Database] = {}
    for task, gold in real.values():
        if task.database not in databases:
            target = tmp_path / task.database.name
            shuffle(task.database, target)
            databases[task.database] = Database(target)
        result = run_gold(databases[task.database], task.gold_sql)
        if not (gold.empty or gold.row_dependent or compare(result, gold)):
            wrong.append(task.id)
    for database in databases.values():
        database.close()
    assert wrong == []


@needs_pack
def test_a_sum_in_another_order_is_accepted(real: dict[str, tuple[SqlTask, Gold]]) -> None:
    _, gold = real["spider-train-1064"]
    assert gold.float_order
    with closing(Database(PACK / "databases/store_1/store_1.sqlite")) as database:
        other = database.query(
            "SELECT billing_state, count(*), sum(total) FROM (SELECT * FROM invoices ORDER BY id DESC) "
            "WHERE billing_state = 'CA'"
        )
        assert other.rows != gold.rows
        assert compare(other, gold)
