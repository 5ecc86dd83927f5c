"""One question over one database, with its gold query."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from rolloutgym.models import TaskInfo

Tags = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class SqlTask:
    """One question over one database."""

    id: str
    split: str
    db_id: str
    database: Path
    """The SQLite file."""
    question: str
    gold_sql: str
    evidence: str = ""
    """What the question presumes to be known (BIRD's external knowledge)."""
    hardness: str = ""
    source: str = ""
    tags: Tags = field(default_factory=dict)
    """Facts for filters, such as `n_rows` and `shape`. Not public."""

    def info(self) -> TaskInfo:
        public = {"db_id": self.db_id, "source": self.source, "hardness": self.hardness}
        return TaskInfo(id=self.id, split=self.split, tags={name: value for name, value in public.items() if value})

    def fingerprint(self) -> bytes:
        content = (self.id, self.split, self.db_id, self.question, self.gold_sql, self.evidence)
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass") + _file_sha256(self.database)


@lru_cache(maxsize=1024)
def _file_sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def content_sha256(tasks: Iterable[SqlTask]) -> str:
    """Of ids, databases' names and gold queries: what an audit's findings hold for."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(json.dumps((task.id, task.db_id, task.gold_sql)).encode())
    return digest.hexdigest()
