"""Questions from files: Spider and BIRD folders, packs, plain JSONL. All is checked at load.

A fault names the file and the line (in a JSON array: the entry), because a data set is repaired by hand. Nothing is
skipped silently: a question without its database stops the load.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from rolloutgym.server.environments.sql import text_database
from rolloutgym.server.environments.sql.database import Database, DatabaseBroken
from rolloutgym.server.environments.sql.questions import SqlTask, Tags

SHIPPED = Path(__file__).parent / "data"
"""The pack that comes with the package."""

_FOLDER_FILES = ("train_spider.json", "train_others.json", "train.json", "dev.json", "test.json")
_DATABASE_FOLDERS = ("database", "databases", "train_databases", "dev_databases", "test_databases", "test_database")
_SUFFIXES = (".sqlite", text_database.SUFFIX)
_SPLITS = {"dev": "validation", "val": "validation", "eval": "validation", "valid": "validation"}


class DataError(ValueError):
    """The data cannot be loaded; the message names file, line and field."""


class _Record(BaseModel):
    """A question as files write it: Spider's, BIRD's and our own names for the same fields. Others are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    question: str = Field(min_length=1)
    gold_sql: str = Field(min_length=1, validation_alias=AliasChoices("gold_sql", "query", "SQL"))
    db_id: str = ""
    database: str = ""
    id: str = Field(default="", validation_alias=AliasChoices("id", "question_id"))
    split: str = ""
    source: str = ""
    evidence: str = ""
    hardness: str = Field(default="", validation_alias=AliasChoices("hardness", "difficulty"))
    shape: str | None = None
    n_rows: int | None = Field(default=None, ge=0)
    n_cols: int | None = Field(default=None, ge=0)

    @field_validator("evidence", "hardness", mode="before")
    @classmethod
    def _null_is_blank(cls, value: object) -> object:
        return "" if value is None else value

    def tags(self) -> Tags:
        facts = {"shape": self.shape, "n_rows": self.n_rows, "n_cols": self.n_cols}
        return {name: value for name, value in facts.items() if value is not None}


class _Place(NamedTuple):
    """Where a record stands, as a person looks for it."""

    file: Path
    unit: str
    number: int

    def __str__(self) -> str:
        return f"{self.file.name}, {self.unit} {self.number}"


def read_tasks(path: Path | None) -> list[SqlTask]:
    """The questions of a Spider or BIRD folder, a pack (a folder with `questions.jsonl`), or a JSONL file; of the
    shipped pack where the path is None. Raises `DataError`.

    Each task's split is the data's own: `train`, `validation` (their dev sets) or `test`.
    """
    path = SHIPPED if path is None else path
    if path.is_file():
        return _tasks(_lines(path), path.parent)
    if (path / "questions.jsonl").is_file():
        return _tasks(_lines(path / "questions.jsonl"), path)
    files = [path / name for name in _FOLDER_FILES if (path / name).is_file()]
    if not files:
        expected = ", ".join(("questions.jsonl", *_FOLDER_FILES))
        raise DataError(f"{path}: neither a JSONL file nor a folder with one of {expected}")
    tasks = _tasks((entry for file in files for entry in _entries(file)), path)
    _check_schemas(path / "tables.json", tasks)
    return tasks


def _tasks(records: Iterable[tuple[_Place, Any]], root: Path) -> list[SqlTask]:
    tasks: dict[str, SqlTask] = {}
    places: dict[str, _Place] = {}
    databases: dict[str, Path] = {}
    for place, raw in records:
        task = _task(place, raw, root, databases)
        if task.id in tasks:
            raise DataError(f"{place}: the id {task.id!r} is also that of {places[task.id]}")
        tasks[task.id], places[task.id] = task, place
    if not tasks:
        raise DataError(f"{root}: there are no questions")
    return list(tasks.values())


def _task(place: _Place, raw: object, root: Path, databases: dict[str, Path]) -> SqlTask:
    try:
        record = _Record.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "record"
        raise DataError(f"{place}: {field}: {first['msg']}") from None
    name = record.database or record.db_id
    if not name:
        raise DataError(f"{place}: neither db_id nor database says which database is meant")
    if name not in databases:
        databases[name] = _find_database(place, record, root)
    stem = place.file.stem
    is_bird = isinstance(raw, dict) and "SQL" in raw
    source = record.source or ("" if place.unit == "line" else f"{'bird' if is_bird else 'spider'}-{stem}")
    task_id = record.id if place.unit == "line" and record.id else f"{source or stem}-{record.id or place.number:0>5}"
    return SqlTask(
        id=task_id,
        split=_split(record.split, source, stem),
        db_id=record.db_id or databases[name].stem,
        database=databases[name],
        question=record.question.strip(),
        gold_sql=record.gold_sql.strip(),
        evidence=record.evidence.strip(),
        hardness=record.hardness.strip().lower(),
        source=source,
        tags=record.tags(),
    )


def _split(given: str, source: str, stem: str) -> str:
    """The split that the record names, else the one that its source or file is named after, else train."""
    if given:
        return _SPLITS.get(given.lower(), given)
    for word in (*source.lower().replace("_", "-").split("-"), *stem.lower().split("_")):
        if word in ("train", "test", "validation") or word in _SPLITS:
            return _SPLITS.get(word, word)
    return "train"


def _find_database(place: _Place, record: _Record, root: Path) -> Path:
    """The record's own file (relative to the data), or `<folder>/<db_id>/<db_id>` with either ending."""
    if record.database:
        candidates = [root / record.database]
    else:
        stem = Path(record.db_id) / record.db_id
        candidates = [root / folder / f"{stem}{suffix}" for folder in _DATABASE_FOLDERS for suffix in _SUFFIXES]
    found = next((candidate for candidate in candidates if candidate.is_file()), None)
    if found is None:
        where = record.database or f"{_DATABASE_FOLDERS[0]}/{record.db_id}/{record.db_id}.sqlite"
        raise DataError(f"{place}: there is no database {where} in {root}")
    try:
        Database(found).close()
    except DatabaseBroken as error:
        raise DataError(f"{place}: {found}: {error}") from None
    return found


def _lines(file: Path) -> Iterator[tuple[_Place, Any]]:
    with file.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    place = _Place(file, "line", number)
                    yield place, _parse(place, line)
        except UnicodeDecodeError as error:
            raise DataError(f"{file.name}: not UTF-8: {error.reason}") from None


def _entries(file: Path) -> Iterator[tuple[_Place, Any]]:
    entries = _load_json(file)
    if not isinstance(entries, list):
        raise DataError(f"{file.name}: expected a JSON array of questions")
    for number, entry in enumerate(entries):
        yield _Place(file, "entry", number), entry


def _parse(place: _Place, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{place}: not JSON: {error}") from None


def _load_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file.name}: not JSON: {error}") from None


def _check_schemas(file: Path, tasks: list[SqlTask]) -> None:
    """Where a `tables.json` stands beside the questions, it knows each of their databases."""
    if not file.is_file():
        return
    known = {entry.get("db_id") for entry in _load_json(file) if isinstance(entry, dict)}
    for task in tasks:
        if task.db_id not in known:
            raise DataError(f"{file.name}: no schema of {task.db_id!r}, the database of {task.id}")
