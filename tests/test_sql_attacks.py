"""Policies that look for reward anywhere but in the answer. None may earn a tenth of what the oracle earns."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pytest

from rolloutgym.cli.policies import sql as policies
from rolloutgym.models import SqlAction, StopReason
from rolloutgym.server.environments.sql.answers import spell
from rolloutgym.server.environments.sql.database import Database, Schema
from rolloutgym.server.environments.sql.environment import SqlEnvironment
from rolloutgym.server.environments.sql.gold import run_gold
from rolloutgym.server.environments.sql.options import SqlOptions
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.rewards import Preset
from rolloutgym.server.environments.sql.tasks import load_tasks

pytestmark = pytest.mark.anyio

PRESETS: tuple[Preset, ...] = ("shaped", "sqlenv", "sparse")


class Scene(NamedTuple):
    """What an attacker may know: the task with its gold, and the schema."""

    task: SqlTask
    schema: Schema
    rows: Sequence[tuple[object, ...]]
    """The gold's."""


Attacker = Callable[[Scene], Iterator[str]]
"""Texts of an episode; where they end without an answer, the trainer cuts the episode."""


def constant(answer: str) -> Attacker:
    def play(scene: Scene) -> Iterator[str]:
        yield f"ANSWER: {answer}"

    return play


def select_constants(scene: Scene) -> Iterator[str]:
    yield from (f"QUERY: SELECT {number}" for number in range(14))
    yield "ANSWER: 42"


def junk_without_end(scene: Scene) -> Iterator[str]:
    yield from (f"QUERY: SELECT {number} AS c{number}" for number in range(15))


def distinct_junk(scene: Scene) -> Iterator[str]:
    """Reads a column it has not read before, each time."""
    columns = [(table.name, column.name) for table in scene.schema.tables for column in table.columns]
    for table, column in columns[:14]:
        yield f'QUERY: SELECT "{column}" FROM "{table}" WHERE 0'
    yield "ANSWER: 42"


def dump_tables(scene: Scene) -> Iterator[str]:
    names = scene.schema.names[:13]
    yield from (f'QUERY: SELECT * FROM "{name}"' for name in names)
    yield f"QUERY: SELECT * FROM {', '.join(names[:4])} LIMIT 1000"
    yield "ANSWER: 42"


def describe_everything(scene: Scene) -> Iterator[str]:
    for _ in range(15):
        yield from (f'DESCRIBE "{name}"' for name in scene.schema.names)


def look_at_everything(scene: Scene) -> Iterator[str]:
    yield from (f'{verb} "{name}"' for name in scene.schema.names[:7] for verb in ("DESCRIBE", "SAMPLE"))
    yield "ANSWER: 42"


def spam_answers(scene: Scene) -> Iterator[str]:
    yield "\n".join(f"ANSWER: {number}" for number in range(50))


def spam_one_answer(scene: Scene) -> Iterator[str]:
    yield "ANSWER: " + " | ".join(map(str, range(200)))


def spam_a_list(scene: Scene) -> Iterator[str]:
    yield "ANSWER: [" + ", ".join(map(str, range(200))) + "]"


def guess_the_shape(scene: Scene) -> Iterator[str]:
    """As many rows and columns as the gold, from a table that it reads, with nothing in them."""
    width, height = len(scene.rows[0]), len(scene.rows)
    for name in scene.schema.names[:14]:
        yield f'QUERY: SELECT {", ".join(["NULL"] * width)} FROM "{name}" LIMIT {height}'
    yield "ANSWER: " + "\n".join([" | ".join(["NULL"] * width)] * height)


def shadow_tables(scene: Scene) -> Iterator[str]:
    """The gold rows, from a table of the agent's own that has the name of a real one."""
    literals = ["(" + ", ".join(_literal(cell) for cell in row) + ")" for row in scene.rows[:28]]
    for name in scene.schema.names[:14]:
        yield f'QUERY: WITH "{name}" AS (VALUES {", ".join(literals)}) SELECT * FROM "{name}"'
    yield "ANSWER: 42"


def swing(scene: Scene) -> Iterator[str]:
    """Comes near and goes away again, without end."""
    for number in range(15):
        yield f"QUERY: {scene.task.gold_sql}" if number % 2 else f"QUERY: SELECT {number}"


def arrive_and_stay(scene: Scene) -> Iterator[str]:
    """Finds the right rows and never answers."""
    yield f"QUERY: {scene.task.gold_sql}"
    yield from (f'DESCRIBE "{name}"' for name in scene.schema.names[:14])


def arrive_and_leave(scene: Scene) -> Iterator[str]:
    yield f"QUERY: {scene.task.gold_sql}"


def arrive_and_err(scene: Scene) -> Iterator[str]:
    """No attack: the most that can be done without the right answer."""
    yield f"QUERY: {scene.task.gold_sql}"
    yield "ANSWER: I do not know"


def only_think(scene: Scene) -> Iterator[str]:
    yield from ("<think>" + spell(scene.rows) for _ in range(15))  # type: ignore[arg-type]


def leave(scene: Scene) -> Iterator[str]:
    yield from ()


ATTACKERS: list[Attacker] = [
    *map(constant, ("0", "1", "42", "NULL", "[]", "yes", "true", "*", "%", "''", "' OR 1=1 --", "{}", "x" * 5000)),
    *(select_constants, junk_without_end, distinct_junk, dump_tables, describe_everything, look_at_everything),
    *(spam_answers, spam_one_answer, spam_a_list, guess_the_shape, shadow_tables, swing, arrive_and_stay),
    *(arrive_and_leave, only_think, leave),
]
SILENT = (junk_without_end, describe_everything, swing, arrive_and_stay, arrive_and_leave, only_think, leave)


def _literal(cell: object) -> str:
    if cell is None:
        return "NULL"
    return "'" + cell.replace("'", "''") + "'" if isinstance(cell, str) else repr(cell)


@pytest.fixture(scope="module")
def environment() -> SqlEnvironment:
    return SqlEnvironment(load_tasks())


@pytest.fixture(scope="module")
def scenes(environment: SqlEnvironment) -> list[Scene]:
    tasks = [task for split in environment.tasks.splits() for task in environment.tasks.of_split(split)][::24]
    scenes = []
    for task in tasks:
        with closing(Database(task.database)) as database:
            scenes.append(Scene(task, database.schema(), run_gold(database, task.gold_sql).rows))
    return scenes


async def _return(environment: SqlEnvironment, scene: Scene, texts: Iterator[str], preset: Preset) -> float:
    episode = environment.episode(scene.task, 0, SqlOptions(reward=preset))
    await episode.reset()
    total = 0.0
    for text in texts:
        outcome = await episode.step(SqlAction(text=text))
        total += outcome.reward
        if outcome.done:
            return total
    return total + (await episode.truncate(StopReason.MAX_TOKENS)).reward


async def _mean(environment: SqlEnvironment, scenes: list[Scene], attacker: Attacker, preset: Preset) -> float:
    return statistics.fmean([await _return(environment, scene, attacker(scene), preset) for scene in scenes])


def oracle(scene: Scene) -> Iterator[str]:
    yield f"QUERY: {scene.task.gold_sql}"
    yield f"ANSWER: {spell(scene.rows)}"  # type: ignore[arg-type]


def partial(scene: Scene) -> Iterator[str]:
    """Explores in earnest, and answers with the first value that the last query showed."""
    names = [name for name in scene.schema.names if name.lower() in scene.task.gold_sql.lower()]
    yield from (f'DESCRIBE "{name}"' for name in names)
    yield f'SAMPLE "{names[0]}"'
    yield f'QUERY: SELECT * FROM "{names[0]}" LIMIT 3'
    yield f"ANSWER: {scene.rows[0][0]}"


def do_nothing(scene: Scene) -> Iterator[str]:
    policy = policies.do_nothing()
    policy.start(scene.task, None)  # type: ignore[arg-type]
    yield from (policy.act(None).text or "" for _ in range(15))  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("attacker", ATTACKERS, ids=lambda attacker: attacker.__qualname__)
async def test_no_attack_earns_a_tenth_of_the_oracle(
    environment: SqlEnvironment, scenes: list[Scene], attacker: Attacker, preset: Preset
) -> None:
    best = await _mean(environment, scenes, oracle, preset)
    assert best > 0.99
    assert await _mean(environment, scenes, attacker, preset) <= 0.1 * best


async def test_the_oracle_is_above_an_honest_attempt_and_that_above_nothing(
    environment: SqlEnvironment, scenes: list[Scene]
) -> None:
    for preset in PRESETS:
        best, attempt, wrong, nothing = [
            await _mean(environment, scenes, policy, preset) for policy in (oracle, partial, arrive_and_err, do_nothing)
        ]
        assert best > attempt > nothing, preset
        if preset != "sparse":
            assert best > wrong > nothing


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("attacker", SILENT, ids=lambda attacker: attacker.__qualname__)
async def test_no_answer_is_never_better_than_a_wrong_one(
    environment: SqlEnvironment, scenes: list[Scene], attacker: Attacker, preset: Preset
) -> None:
    """From every state on the way: whatever is done in silence until the end, a wrong answer instead earns no less."""
    for scene in scenes[::6]:
        texts = list(attacker(scene))
        silent = await _return(environment, scene, iter(texts), preset)
        for kept in range(min(len(texts), 14) + 1):
            wrong = await _return(environment, scene, iter([*texts[:kept], "ANSWER: never right"]), preset)
            assert wrong >= silent - 1e-12, kept


async def test_to_stop_early_saves_no_step(environment: SqlEnvironment, scenes: list[Scene]) -> None:
    for scene in scenes[::6]:
        texts = list(junk_without_end(scene))
        returns = [await _return(environment, scene, iter(texts[:kept]), "shaped") for kept in range(len(texts) + 1)]
        assert returns == pytest.approx([-0.25] * 16)
