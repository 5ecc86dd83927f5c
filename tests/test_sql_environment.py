"""Episodes: what is shown, what costs a step, how they end, and that a replay is the same to the byte."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rolloutgym.cli.policies import sql as policies
from rolloutgym.models import FunctionCall, SqlAction, SqlInfo, SqlObservation, StopReason, ToolCall
from rolloutgym.server.environments.base import Outcome
from rolloutgym.server.environments.sql.database import Limits
from rolloutgym.server.environments.sql.environment import SqlEnvironment, from_settings
from rolloutgym.server.environments.sql.episode import SqlEpisode
from rolloutgym.server.environments.sql.options import SqlOptions
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.errors import InvalidRequest
from rolloutgym.server.settings import Settings

pytestmark = pytest.mark.anyio

SCRIPT = """
CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INT);
CREATE TABLE "order details" (id INT REFERENCES singer (id), note TEXT);
INSERT INTO singer VALUES (1, 'Joe', 52), (2, 'Ann', 32), (3, 'Lee, Kim', 29);
INSERT INTO "order details" VALUES (1, 'a | b'), (1, 'two
lines'), (2, NULL);
"""
SINGER = {"table": "singer"}
QUESTION = "Who are the singers, oldest first?"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[SqlEnvironment]:
    databases = []
    for name in ("one", "two"):
        databases.append(tmp_path / f"{name}.sqlite")
        with closing(sqlite3.connect(databases[-1])) as connection:
            connection.executescript(SCRIPT if name == "one" else SCRIPT.replace("Joe", "Eve"))
    gold = "SELECT name FROM singer ORDER BY age DESC"
    tasks = [
        SqlTask("a", "train", "one", databases[0], QUESTION, gold, evidence="Old is high age."),
        SqlTask("b", "train", "two", databases[1], QUESTION, gold),
        SqlTask("count", "train", "one", databases[0], "How many singers?", "SELECT count(*) FROM singer"),
        SqlTask("empty", "train", "one", databases[0], "Who is 99?", "SELECT name FROM singer WHERE age = 99"),
    ]
    environment = SqlEnvironment(TaskSet(tasks))
    yield environment
    for database in environment._executor._engine._databases._values.values():  # type: ignore[attr-defined]
        database.close()


async def _start(environment: SqlEnvironment, task: str = "a", **options: Any) -> tuple[SqlEpisode, SqlObservation]:
    episode = environment.episode(environment.tasks.get(task), 0, SqlOptions(**options))
    return episode, await episode.reset()


async def _say(episode: SqlEpisode, text: str) -> Outcome:
    return await episode.step(SqlAction(text=text))


def _content(outcome: Outcome) -> str:
    (message,) = outcome.observation.messages
    return message.content


def _info(outcome: Outcome) -> SqlInfo:
    info = outcome.observation.info
    assert isinstance(info, SqlInfo)
    assert outcome.reward == pytest.approx(sum(info.reward_components.values()), abs=1e-12)
    assert outcome.done == (info.terminated or info.truncated) == (info.stop_reason is not None)
    return info


async def test_a_reset_shows_the_question_and_table_names_alone(environment: SqlEnvironment) -> None:
    _, observation = await _start(environment)
    system, user = observation.messages
    assert (system.role, user.role) == ("system", "user")
    assert "15 steps" in system.content
    assert user.content == f"Question: {QUESTION}\nHint: Old is high age.\nTables: singer, order details"
    assert "age" not in user.content.replace("high age", "")
    assert observation.info == SqlInfo(budget_remaining=15)
    assert [tool.function.name for tool in observation.tools] == ["describe", "sample", "query", "answer"]
    assert "Hint" not in (await _start(environment, evidence=False))[1].messages[1].content


async def test_the_four_actions(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment)
    described = await _say(episode, "DESCRIBE: [Order Details]")
    assert _content(described) == (
        "Table order details (3 rows):\n- id INT, references singer(id)\n- note TEXT\n\n14 steps left."
    )
    sampled = await _say(episode, "SAMPLE order")
    assert 'There is no table \'order\'. Tables: singer, order details.' in _content(sampled)  # fmt: skip
    sampled = await _say(episode, 'SAMPLE "order details" 2')
    assert _content(sampled) == "id | note\n1 | a | b\n1 | two\\nlines\n(2 rows)\n\n12 steps left."
    queried = await _say(episode, "QUERY: SELECT age, name, age FROM singer WHERE age > 30 ORDER BY age")
    assert _content(queried) == "age | name | age\n32 | Ann | 32\n52 | Joe | 52\n(2 rows)\n\n11 steps left."
    answered = await _say(episode, "ANSWER: Joe\nAnn\nLee, Kim")
    assert _content(answered) == "The answer was recorded."
    info = _info(answered)
    assert (info.terminated, info.success, info.stop_reason) == (True, True, StopReason.ANSWERED)
    assert (info.turn, info.budget_remaining) == (5, 10)


async def test_a_sample_has_as_many_rows_as_are_asked_for_within_the_cap(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment, max_rows=2)
    for text, shown in (("SAMPLE singer", "(2 rows)"), ("SAMPLE singer 1", "(1 row)"), ("SAMPLE singer 0", "(1 row)")):
        assert shown in _content(await _say(episode, text))
    assert "(2 rows)" in _content(await _say(episode, "SAMPLE: singer LIMIT 999999999"))


async def test_questions_with_the_same_text_are_told_apart_by_task(environment: SqlEnvironment) -> None:
    for task, right in (("a", '["Joe", "Ann", "Lee, Kim"]'), ("b", '["Eve", "Ann", "Lee, Kim"]')):
        episode, observation = await _start(environment, task)
        assert observation.question == QUESTION
        assert _info(await _say(episode, f"ANSWER: {right}")).success is True
    assert _info(await _say((await _start(environment, "a"))[0], f"ANSWER: {right}")).success is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("DESCRIBE singr", "There is no table 'singr'. Did you mean singer? Tables: singer, order details."),
        ("DESCRIBE sqlite_master", "There is no table 'sqlite_master'. Tables:"),
        ("DESCRIBE: " + "x" * 5_000, "There is no table 'xxx"),
        ("QUERY: SELECT * FROM singerr", "no such table: singerr. Did you mean singer? Tables: singer, order details."),
        ("QUERY: SELECT nmae FROM singer", "no such column: nmae\n"),
        ("QUERY: DROP TABLE singer", "only SELECT is allowed"),
        ("QUERY: SELECT name FROM sqlite_master", "sqlite_master is hidden"),
        ("I do not know", "No action was found. Expected one action: DESCRIBE"),
        ("ANSWERING: 42", "No action was found."),
        ("ANSWER:", "ANSWER needs an argument."),
    ],
)
async def test_a_mistake_is_an_observation_that_costs_a_step(environment: SqlEnvironment, text: str, says: str) -> None:
    episode, _ = await _start(environment)
    outcome = await _say(episode, text)
    assert says in _content(outcome)
    assert len(_content(outcome)) < 600
    info = _info(outcome)
    assert (info.turn, info.budget_remaining, info.execution_ok) == (1, 14, False)
    assert info.invalid_action == ("Expected one action" in _content(outcome))
    assert isinstance(outcome.observation, SqlObservation)
    assert outcome.observation.result is None
    assert outcome.observation.error is not None
    assert _content(outcome).startswith(outcome.observation.error)
    assert outcome.reward < 0


async def test_column_hints_come_only_from_tables_that_were_shown(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment)
    assert "Did you mean" not in _content(await _say(episode, "QUERY: SELECT nmae FROM singer"))
    await _say(episode, "DESCRIBE singer")
    assert "no such column: nmae. Did you mean name?" in _content(await _say(episode, "QUERY: SELECT nmae FROM singer"))
    assert "Did you mean" not in _content(await _say(episode, "QUERY: SELECT noet FROM 'order details'"))


async def test_the_budget_ends_an_episode_and_the_answer_counts(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment, budget=2)
    first = await _say(episode, "DESCRIBE singer")
    assert _content(first).endswith("1 step left: answer now.")
    last = await _say(episode, "DESCRIBE singer")
    assert _content(last).endswith("No steps are left: the episode ended without an answer.")
    info = _info(last)
    assert (info.truncated, info.success, info.stop_reason) == (True, False, StopReason.BUDGET_EXHAUSTED)
    episode, _ = await _start(environment, "count", budget=1)
    assert _info(await _say(episode, "ANSWER: 3")).success is True


async def test_a_trainers_limit_is_graded_as_a_budget_that_ran_out(environment: SqlEnvironment) -> None:
    for steps in range(4):
        cut, _ = await _start(environment, budget=4)
        spent, _ = await _start(environment, budget=4)
        texts = ["QUERY: SELECT name FROM singer", "DESCRIBE singer", "SAMPLE singer", "QUERY: SELECT 1"]
        rewards = [sum([(await _say(episode, text)).reward for text in texts[:steps]]) for episode in (cut, spent)]
        end = await cut.truncate(StopReason.MAX_TOKENS)
        info = _info(end)
        assert (info.truncated, info.stop_reason, info.turn) == (True, StopReason.MAX_TOKENS, steps)
        rest = sum([(await _say(spent, text)).reward for text in texts[steps:]])
        assert rewards[0] + end.reward == pytest.approx(rewards[1] + rest)


@pytest.mark.parametrize(
    ("action", "role", "ids"),
    [
        ({"text": "DESCRIBE singer"}, "user", [None]),
        ({"text": '{"action_type": "DESCRIBE", "argument": "singer"}'}, "user", [None]),
        ({"text": '<tool_call>{"name": "describe", "arguments": {"table": "singer"}}</tool_call>'}, "tool", [None]),
        ({"action_type": "DESCRIBE", "argument": "singer"}, "user", [None]),
        ({"tool_calls": [{"id": "x", "function": {"name": "describe", "arguments": SINGER}}]}, "tool", ["x"]),
        ({"tool_calls": [{"id": "x", "function": {"name": "fly"}}]}, "tool", ["x"]),
        (
            {
                "tool_calls": [
                    {"id": "x", "function": {"name": "sample", "arguments": {"table": "singer"}}},
                    {"id": "y", "function": {"name": "describe", "arguments": '{"table": "singer"}'}},
                ]
            },
            "tool",
            ["x", "y"],
        ),
    ],
)  # fmt: skip
async def test_an_action_is_answered_in_its_own_form(
    environment: SqlEnvironment, action: dict[str, Any], role: str, ids: list[str | None]
) -> None:
    episode, _ = await _start(environment)
    outcome = await episode.step(SqlAction.model_validate(action))
    messages = outcome.observation.messages
    assert [(message.role, message.tool_call_id) for message in messages] == [(role, name) for name in ids]
    assert "14 steps left." in messages[-1].content
    assert all("Not run" in message.content for message in messages[:-1])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "ANSWER: 1", "action_type": "ANSWER", "argument": "1"},
        {"action_type": "ANSWER"},
        {"argument": "1"},
        {"action_type": "answer", "argument": "1"},
        {"action_type": "ANSWER", "argument": "1", "tool_calls": []},
        {"text": 1},
    ],
)
def test_actions_of_no_form_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SqlAction.model_validate(body)


async def test_calls_by_name(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment, "count")
    outcome = await episode.step(episode.action_of_call("query", {"sql": "SELECT count(*) FROM singer"}))
    assert "3\n(1 row)" in _content(outcome)
    for name, arguments in (("reset", {}), ("query", {}), ("query", {"sql": ""})):
        with pytest.raises(InvalidRequest):
            episode.action_of_call(name, arguments)
    assert _info(await episode.step(episode.action_of_call("answer", {"value": 3}))).success is True


async def test_repeats_are_the_same_action_in_other_clothes(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment)
    for text, repeat in [
        ("QUERY: SELECT name FROM singer WHERE name = 'Joe'", False),
        ("QUERY: select  name\nfrom SINGER -- again\nwhere name = 'Joe' ;", True),
        ("QUERY: SELECT name FROM singer WHERE name = 'joe'", False),
        ("DESCRIBE singer", False),
        ('describe "SINGER"', True),
        ("SAMPLE singer", False),
        ("SAMPLE singer 5", True),
        ("SAMPLE singer 2", False),
        ("nonsense", False),
        ("nonsense", False),
    ]:
        assert _info(await _say(episode, text)).repeat is repeat, text


async def test_signals_over_the_episode(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment)
    seen = []
    for text in (
        "DESCRIBE singer",  # runs, new
        "DESCRIBE singer",  # runs, repeats
        "QUERY: SELECT nmae FROM singer",  # fails
        "QUERY: SELECT 42",  # runs, shows nothing of the database
        "QUERY: SELECT name FROM singer",  # new, and the right rows
        "QUERY: SELECT id FROM singer",  # new, and no nearer
    ):
        info = _info(await _say(episode, text))
        seen.append((info.execution_ok, info.new_information, info.repeat, info.operational, round(info.progress, 2)))
    assert seen[:4] == [
        (True, True, False, 1.0, 0.0),
        (True, False, True, 1.0, 0.0),
        (False, False, False, 1.0, 0.0),
        (True, False, False, 2.0, 0.0),
    ]
    progress = seen[4][4]
    assert progress > 0.8
    assert seen[4:] == [(True, True, False, 3.0, progress), (True, True, False, 4.0, progress)]


async def test_an_empty_gold_is_refused_unless_asked_for(environment: SqlEnvironment) -> None:
    with pytest.raises(InvalidRequest, match="include_empty"):
        await _start(environment, "empty")
    for text, right in (("ANSWER: []", True), ("ANSWER: nothing", False)):
        episode, _ = await _start(environment, "empty", include_empty=True)
        assert _info(await _say(episode, "QUERY: SELECT name FROM singer WHERE age = 99")).progress == 0
        assert _info(await _say(episode, text)).success is right


@pytest.mark.parametrize(
    ("sql", "right"),
    [
        ("SELECT count(*) FROM singer", True),
        ("SELECT count(id) FROM singer;", True),
        ("SELECT sum(1) FROM singer", True),
        ("SELECT 3", False),
        ("SELECT 3 FROM singer LIMIT 1", False),
        ("SELECT count(*) FROM 'order details'", False),
        ("WITH singer AS (VALUES (1), (2), (3)) SELECT count(*) FROM singer", False),
        ("SELECT count(*), 1 FROM singer", False),
        ("nonsense", False),
    ],
)
async def test_answers_in_sql_are_judged_on_copies_too(environment: SqlEnvironment, sql: str, right: bool) -> None:
    episode, observation = await _start(environment, "count", answer="sql")
    assert "one SELECT statement" in observation.messages[0].content
    assert _info(await _say(episode, f"ANSWER: {sql}")).success is right
    await environment.stop()


async def test_sql_that_costs_its_process_is_a_step_like_others(environment: SqlEnvironment) -> None:
    """No error that a trainer would mask: the query failed, and as an answer it is wrong."""
    stuck = "SELECT trim(replace(x, '0', 'z'), substr(x, 1, 50000) || 'z') FROM (SELECT hex(zeroblob(240000)) AS x)"
    isolated = SqlEnvironment(environment.tasks, workers=1, limits=Limits(cpu_s=0.1))
    await isolated.start()
    episode, _ = await _start(isolated, answer="sql")
    for repeat in (False, True):
        outcome = await _say(episode, f"QUERY: {stuck}")
        assert "too expensive" in _content(outcome)
        assert (_info(outcome).execution_ok, _info(outcome).repeat) == (False, repeat)
    answered = await _say(episode, f"ANSWER: {stuck}")
    assert (_info(answered).success, _info(answered).stop_reason) == (False, StopReason.ANSWERED)
    await isolated.stop()


async def test_what_is_shown_is_capped(environment: SqlEnvironment) -> None:
    episode, _ = await _start(environment, max_rows=2, max_cell_characters=10)
    numbers = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {}) SELECT x, hex(zeroblob(30)) FROM n"
    )
    shown = _content(await _say(episode, "QUERY: " + numbers.format(50)))
    assert shown.startswith("x | hex(zerobl…\n1 | 0000000000…\n2 | 0000000000…\n(2 of 50 rows shown; 2 cells cut to 10")
    assert "(2 of more than 1000 rows shown" in _content(await _say(episode, "QUERY: " + numbers.format(5000)))


@pytest.mark.parametrize("unit", ["[", "'", '"', "`", "/*", "--", "--\n", "a'", "(", "*/"])
async def test_a_query_of_a_megabyte_is_refused_at_once(environment: SqlEnvironment, unit: str) -> None:
    episode, _ = await _start(environment)
    outcome = await _say(episode, "QUERY: SELECT " + unit * (2**20 // len(unit)))
    assert _info(outcome).execution_ok is False
    assert len(_content(outcome)) < 300


TEXTS = [
    "DESCRIBE singer", "nonsense", "SAMPLE 'order details'", "QUERY: SELECT * FROM singer", "QUERY: SELECT date('now')",
    "QUERY: WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
    "QUERY: SELECT random()", "QUERY: SELECT nmae FROM singer", "ANSWER: Joe",
]  # fmt: skip


async def test_a_replay_is_the_same_to_the_byte(environment: SqlEnvironment) -> None:
    records = []
    for seed in (0, 0, 7):
        episode = environment.episode(environment.tasks.get("a"), seed, SqlOptions())
        record = [(await episode.reset()).model_dump_json()]
        for text in TEXTS:
            outcome = await _say(episode, text)
            record.append(f"{outcome.observation.model_dump_json()} {outcome.reward!r} {episode.state()!r}")
        records.append(record)
    assert records[0] == records[1] == records[2]


async def test_nothing_tells_the_answer(environment: SqlEnvironment) -> None:
    """Neither what the policy may read nor the public views hold the gold query, its rows or any reward."""
    for task in ("a", "count"):
        episode, observation = await _start(environment, task)
        read = [message.content for message in observation.messages]
        for text in ["QUERY: SELECT 42", "DESCRIBE singer", "QUERY: SELECT age FROM singer", "ANSWER: wrong"]:
            outcome = await _say(episode, text)
            read += [message.content for message in outcome.observation.messages]
        public = environment.tasks.get(task)
        everything = json.dumps([read, dict(episode.state()), public.info().model_dump(), environment.details()])
        for secret in ("Joe", "SELECT name FROM singer", "count(*)", "reward", "right", "wrong", "correct"):
            assert secret not in everything, secret


async def test_reference_policies(environment: SqlEnvironment) -> None:
    returns = {}
    for name, policy, options in (
        ("oracle", policies.oracle(), SqlOptions()),
        ("sql oracle", policies.sql_oracle(), SqlOptions(answer="sql")),
        ("random", policies.random(1), SqlOptions()),
        ("do nothing", policies.do_nothing(), SqlOptions()),
    ):
        task = environment.tasks.get("a")
        episode = environment.episode(task, 0, options)
        observation = await episode.reset()
        policy.start(task, observation)
        total, done = 0.0, False
        while not done:
            outcome = await episode.step(policy.act(observation))
            total, done = total + outcome.reward, outcome.done
        returns[name] = total
    assert returns["oracle"] == pytest.approx(1 - 2 * 0.05 / 15)
    assert returns["sql oracle"] == pytest.approx(1 - 0.05 / 15)
    assert returns["oracle"] > returns["random"] > returns["do nothing"]
    await environment.stop()


async def test_settings_make_an_environment() -> None:
    environment = from_settings(Settings(sql_workers=1, sql_steps=1_000, sql_hardness=("easy",)))
    assert {task.hardness for task in environment.tasks.of_split("train")} == {"easy"}
    await environment.start()
    episode = environment.episode(environment.tasks.of_split("train")[0], 0, SqlOptions())
    assert environment.details()["limits"]["steps"] == 1_000
    assert environment.details()["isolation"] == "process"
    assert environment.health() == {"workers": 1, "alive": 1, "lost": 0}
    assert "too expensive" in _content(
        await _say(
            episode, "QUERY: WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
        )
    )
    await environment.stop()


@pytest.mark.parametrize("options", [{"budget": 0}, {"budgets": 3}, {"reward": "dense"}, {"answer": "json"}])
def test_options_that_do_not_exist_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SqlOptions.model_validate(options)


def test_every_option_is_documented() -> None:
    schema = SqlOptions.model_json_schema()["properties"]
    assert [name for name, field in schema.items() if not field.get("description")] == []


def test_tool_calls_of_the_wire_are_understood() -> None:
    call = ToolCall(function=FunctionCall(name="answer", arguments='{"value": "3"}'))
    assert SqlAction(tool_calls=(call,)).tool_calls == (call,)
