"""What the model reads: the rules, the question, and what follows each action. `PROMPT_VERSION` changes with any of
it."""

from collections.abc import Sequence
from typing import Literal

from rolloutgym.models import FunctionSpec, ToolSpec
from rolloutgym.server.environments.sql.formatting import list_tables

PROMPT_VERSION = "1"

ActionFormat = Literal["text", "tools"]
AnswerMode = Literal["value", "sql"]
Dialect = Literal[
    "sqlite", "postgres", "mysql", "duckdb", "snowflake", "tsql", "bigquery", "oracle", "redshift", "spark"
]

_DIALECT_NAMES: dict[Dialect, str] = {
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "mysql": "MySQL",
    "duckdb": "DuckDB",
    "tsql": "T-SQL",
    "bigquery": "BigQuery",
}

_TEXT_ACTIONS = """\
Each of your messages ends with exactly one action:
DESCRIBE: <table> shows a table's columns, types, keys and number of rows.
SAMPLE: <table> shows its first rows; SAMPLE: <table> <n> shows n of them.
QUERY: <SQL> runs one {dialect} SELECT statement and shows its rows.
ANSWER: <answer> gives your final answer and ends the episode."""

_TOOL_ACTIONS = """\
Call exactly one of your tools at a time: describe, sample, query ({dialect} SELECT statements), and at last answer, \
which ends the episode."""

_ANSWER_VALUE = """\
The answer is the value that was asked for, and nothing else:
- one value: 42
- one value in each of several rows: one value a line
- several columns: values separated by " | ", one row a line
A JSON list, or a JSON list of rows, is understood too. Order matters only where the question asks for one.
Do not round numbers unless the question asks for it."""

_ANSWER_SQL = "The answer is one SELECT statement whose result answers the question. It is run and its rows are judged."


def system_prompt(*, action_format: ActionFormat, answer: AnswerMode, budget: int, dialect: Dialect = "sqlite") -> str:
    actions = _TEXT_ACTIONS if action_format == "text" else _TOOL_ACTIONS
    dialect_name = _DIALECT_NAMES.get(dialect, dialect.capitalize())
    return "\n\n".join(
        (
            "You answer a question from a database that you cannot see. You know only the names of its tables; "
            "explore it step by step, then answer.",
            actions.format(dialect=dialect_name),
            _ANSWER_VALUE if answer == "value" else _ANSWER_SQL,
            f"The database is read-only. You have {budget} steps in all; the answer is one of them.",
        )
    )


def question_prompt(question: str, tables: Sequence[str], evidence: str) -> str:
    lines = [f"Question: {question}"]
    if evidence:
        lines.append(f"Hint: {evidence}")
    lines.append(f"Tables: {list_tables(tables)}")
    return "\n".join(lines)


def step_prompt(shown: str, steps_left: int) -> str:
    """What an action showed, and how many steps are left."""
    left = "1 step left: answer now." if steps_left == 1 else f"{steps_left} steps left."
    return f"{shown}\n\n{left}"


def _tool(name: str, description: str, properties: dict[str, dict[str, str]], required: list[str]) -> ToolSpec:
    return ToolSpec(
        function=FunctionSpec(
            name=name,
            description=description,
            parameters={
                "type": "object",
                "properties": {key: dict(value) for key, value in properties.items()},
                "required": list(required),
                "additionalProperties": False,
            },
        )
    )


_TABLE = {"type": "string", "description": "Name of the table."}

TOOLS: tuple[ToolSpec, ...] = (
    _tool("describe", "Show a table's columns, types, keys and number of rows.", {"table": _TABLE}, ["table"]),
    _tool(
        "sample",
        "Show the first rows of a table.",
        {"table": _TABLE, "rows": {"type": "integer", "description": "How many; 5 if not given."}},
        ["table"],
    ),
    _tool(
        "query",
        "Run one SELECT statement and show its rows.",
        {"sql": {"type": "string", "description": "The statement."}},
        ["sql"],
    ),
    _tool(
        "answer",
        "Give the final answer. It ends the episode.",
        {"value": {"type": "string", "description": "The answer, in the form that was described."}},
        ["value"],
    ),
)
