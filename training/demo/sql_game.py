"""Questions over databases of six rows: look at the table, query it, answer with what came back.

Every database has the same four tables and numbers of its own, and a question's answer depends on those numbers: it can
be looked up and not be known.
"""

import json
import random
import sqlite3
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

TABLES: Mapping[str, tuple[str, ...]] = {
    "staff": ("age", "pay", "rank"),
    "shop": ("size", "stock", "fee"),
    "car": ("speed", "weight", "doors"),
    "farm": ("cows", "acres", "pigs"),
}
CITIES = ("paris", "rome", "oslo")
ASKED: Mapping[str, str] = {"count": "how many", "max": "largest", "min": "smallest", "sum": "total"}

_ROWS = 6
_LARGEST = 12
_DATABASES = {"train": 60, "test": 20}
_QUESTIONS = {"train": 24, "test": 10}
"""Per database."""


@dataclass(frozen=True)
class Question:
    aggregate: str
    table: str
    column: str
    city: str

    @property
    def text(self) -> str:
        what = self.table if self.aggregate == "count" else f"{self.column} of {self.table}"
        return f"{ASKED[self.aggregate]} {what} in {self.city}"

    @property
    def sql(self) -> str:
        column = "*" if self.aggregate == "count" else self.column
        return f"SELECT {self.aggregate}( {column} ) FROM {self.table} WHERE city = '{self.city}'"


class SqlGame:
    environment = "sql"
    options: Mapping[str, JsonValue] = {"budget": 5, "reward": "sparse"}
    stop_tags: tuple[str, ...] = ()
    looked, look = "QUERY", "queries first"

    guesses = 0.6
    """Share of demonstrations that answer without a look."""
    slips = 0.35
    """Chance of each choice in the others to be a wrong one."""

    def __init__(self) -> None:
        self._questions: dict[str, Question] = {}

    def write(self, folder: Path, seed: int) -> dict[str, str]:
        draws = random.Random(seed)
        records = []
        for split, count in _DATABASES.items():
            for number in range(count):
                name = f"{split}_{number}"
                file = folder / f"{name}.sqlite"
                _write_database(file, draws)
                for question in draws.sample(_all_questions(), _QUESTIONS[split]):
                    task_id = f"{name}-{len(self._questions)}"
                    self._questions[task_id] = question
                    records.append(
                        {
                            "id": task_id,
                            "split": split,
                            "db_id": name,
                            "database": file.name,
                            "question": question.text,
                            "gold_sql": question.sql,
                            "hardness": question.aggregate,
                            "shape": "scalar",
                            "n_rows": 1,
                            "n_cols": 1,
                        }
                    )
        path = folder / "questions.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return {"ROLLOUTGYM_ENVIRONMENTS": "sql", "ROLLOUTGYM_SQL_DATA": str(path), "ROLLOUTGYM_SQL_WORKERS": "0"}

    def demonstrate(self, task_id: str, draws: random.Random) -> Generator[str, str, None]:
        right = self._questions[task_id]
        if draws.random() < self.guesses:
            yield f"ANSWER: {draws.randint(0, 30)}"
            return

        def choose(good: str, others: tuple[str, ...]) -> str:
            return draws.choice(others) if draws.random() < self.slips else good

        table = choose(right.table, tuple(TABLES))
        if draws.random() > self.slips:
            yield f"DESCRIBE: {table}"
        column = choose(right.column, TABLES[table])
        question = Question(choose(right.aggregate, tuple(ASKED)), table, column, choose(right.city, CITIES))
        shown = yield f"QUERY: {question.sql}"
        cells = shown.splitlines()
        found = cells[1] if len(cells) > 1 and cells[1].isdigit() and draws.random() > self.slips else None
        yield f"ANSWER: {found or draws.randint(0, 30)}"

    def words(self) -> list[str]:
        return [str(number) for number in range(_ROWS * _LARGEST + 1)]


def _all_questions() -> list[Question]:
    return [
        Question(aggregate, table, column, city)
        for table, columns in TABLES.items()
        for aggregate in ASKED
        for column in (columns[:1] if aggregate == "count" else columns)
        for city in CITIES
    ]


def _write_database(file: Path, draws: random.Random) -> None:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA synchronous = OFF")  # scratch files
    with connection:
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {table} (city TEXT, {', '.join(f'{name} INTEGER' for name in columns)})")
            cities = [*CITIES, *draws.choices(CITIES, k=_ROWS - len(CITIES))]  # no question is without rows
            connection.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?, ?)",
                [(city, *(draws.randint(0, _LARGEST) for _ in columns)) for city in cities],
            )
    connection.close()
