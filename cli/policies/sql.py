"""Reference policies of the SQL environment. They read the gold query from the data set, never from the wire."""

from collections.abc import Callable
from contextlib import closing

from rolloutgym.models import Observation, SqlAction
from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.sql.answers import spell
from rolloutgym.server.environments.sql.database import Database
from rolloutgym.server.environments.sql.gold import run_gold
from rolloutgym.server.environments.sql.questions import SqlTask


class _Script:
    """Plays actions made from the task, one a step; the last one is repeated."""

    def __init__(self, actions_of: Callable[[SqlTask], list[SqlAction]]) -> None:
        self._actions_of = actions_of
        self._actions: list[SqlAction] = []

    def start(self, task: SqlTask, observation: Observation) -> None:
        self._actions = self._actions_of(task)

    def act(self, observation: Observation) -> SqlAction:
        return self._actions.pop(0) if len(self._actions) > 1 else self._actions[0]


def oracle() -> _Script:
    """Runs the gold query, then answers with its rows."""

    def actions(task: SqlTask) -> list[SqlAction]:
        with closing(Database(task.database)) as database:
            rows = run_gold(database, task.gold_sql).rows
        return [SqlAction(text=f"QUERY: {task.gold_sql}"), SqlAction(text=f"ANSWER: {spell(rows)}")]

    return _Script(actions)


def sql_oracle() -> _Script:
    """Answers with the gold query itself, for episodes with the option `answer="sql"`."""
    return _Script(lambda task: [SqlAction(text=f"ANSWER: {task.gold_sql}")])


def do_nothing() -> _Script:
    """Says nothing until its steps are over."""
    return _Script(lambda task: [SqlAction(text="")])


def random(seed: int) -> _Script:
    """Looks at tables, drawn by the seed, then guesses a small number."""

    def actions(task: SqlTask) -> list[SqlAction]:
        rng = seeded_random(seed, task.id)
        with closing(Database(task.database)) as database:
            names = database.schema().names
        looks = [f"{rng.choice(('DESCRIBE', 'SAMPLE'))}: {rng.choice(names)}" for _ in range(rng.randint(1, 4))]
        return [SqlAction(text=text) for text in (*looks, f"ANSWER: {rng.randrange(100)}")]

    return _Script(actions)
