"""Writing the generated data set: databases and questions, the same bytes on every machine."""

import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.sql.comparison import Group, rows_match
from rolloutgym.server.environments.sql.database import Database
from rolloutgym.server.environments.sql.generator.domains_held_out import held_out_domains
from rolloutgym.server.environments.sql.generator.domains_train import train_domains
from rolloutgym.server.environments.sql.generator.drafts import Draft, Registry, Template, sentence
from rolloutgym.server.environments.sql.generator.schema import Domain
from rolloutgym.server.environments.sql.generator.templates_test import TEST
from rolloutgym.server.environments.sql.generator.templates_train import TRAIN
from rolloutgym.server.environments.sql.generator.templates_validation import VALIDATION
from rolloutgym.server.environments.sql.gold import compute_gold
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.text_database import SUFFIX, write_text

SEED = 20260
PER_TEMPLATE = {"train": 4, "validation": 4, "test": 4}
"""Questions that each template should give per database."""
TRIES = 60
MAX_ROWS = 25
MAX_QUESTION = 320

_TEMPLATES: dict[str, Registry] = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


class GeneratorError(AssertionError):
    """A template's SQL and its Python do not agree, or a question is open: a bug here, never published."""


def generate(out: Path) -> None:
    """Write `questions.jsonl` and `databases/<name>/<name>.jsonl` below `out`, which need not exist."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "questions.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for domain in (*train_domains(), *held_out_domains()):
            domain.fill(seeded_random(SEED, domain.name, "rows"))
            path = out / "databases" / domain.name / f"{domain.name}{SUFFIX}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tables(domain, path)
            for record in _questions(domain, path):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_tables(domain: Domain, path: Path) -> None:
    """Write the domain's rows as a database of text."""
    write_text(path, ((table.ddl(), [tuple(record.values()) for record in table.records]) for table in domain.tables))


# ---- questions ------------------------------------------------------------------------------------------------------


def _questions(domain: Domain, path: Path) -> Iterator[dict[str, str | int]]:
    seen: set[str] = set()
    number = 0
    with closing(Database(path)) as database:
        for template in _TEMPLATES[domain.split].templates:
            rng = seeded_random(SEED, domain.name, template.name)
            for draft in _drafts(domain, template, rng, PER_TEMPLATE[domain.split]):
                if draft.sql in seen or draft.question in seen:
                    continue
                task = SqlTask("draft", domain.split, domain.name, path, sentence(draft.question), draft.sql)
                _check(database, task, draft)
                seen |= {draft.sql, draft.question}
                number += 1
                yield {
                    "id": f"{domain.name}-{number:03d}",
                    "split": domain.split,
                    "db_id": domain.name,
                    "question": task.question,
                    "gold_sql": draft.sql,
                    "hardness": template.hardness,
                    "source": "generated",
                    "template": template.name,
                    "form": template.shape,
                    "n_rows": len(draft.rows),
                    "n_cols": len(draft.rows[0]),
                }


def _drafts(domain: Domain, template: Template, rng: random.Random, wanted: int) -> Iterator[Draft]:
    """Up to `wanted` drafts whose answer is neither empty, nor nothing but NULL or zero, nor long."""
    for _ in range(TRIES):
        draft = template.make(domain, rng)
        if draft is None or not 0 < len(draft.rows) <= MAX_ROWS or len(draft.question) > MAX_QUESTION:
            continue
        if all(not cell for row in draft.rows for cell in row):
            continue
        yield draft
        wanted -= 1
        if wanted == 0:
            return


def _check(database: Database, task: SqlTask, draft: Draft) -> None:
    """Raises `GeneratorError` where the gold is not what Python found, or leaves anything open."""
    gold = compute_gold(database, task.gold_sql)
    rows = tuple(draft.rows)
    expected = tuple(Group((row,), 1) for row in rows) if gold.ordered else (Group(rows, len(rows)),)
    if not rows_match(gold.rows, expected):
        raise GeneratorError(f"{task.db_id}: {task.question}\n{task.gold_sql}\n{gold.rows[:5]} is not {rows[:5]}")
    if gold.tie or gold.row_dependent or gold.row_order or gold.float_order:
        raise GeneratorError(f"{task.db_id}: {task.question}\n{task.gold_sql}\nleaves its answer open")
