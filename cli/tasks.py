"""`rolloutgym tasks`: what there is to play, and making it again."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rolloutgym.cli.terminal import console, printable

if TYPE_CHECKING:
    from rolloutgym.server.environments.registry import AnyEnvironment

tasks = typer.Typer(name="tasks", help="List, show and generate tasks.", no_args_is_help=True)

EnvironmentArgument = Annotated[str, typer.Argument(help="sql, toolcall or code.")]


@tasks.command("list")
def list_tasks(
    environment: EnvironmentArgument,
    split: Annotated[str | None, typer.Option(help="Only this split.")] = None,
) -> None:
    """List an environment's tasks: those shipped, or those that the ROLLOUTGYM_…_DATA variables name."""
    task_set = _environment(environment).tasks
    table = Table("task", "split", "tags")
    for name in task_set.splits() if split is None else (split,):
        for task in task_set.of_split(name):
            info = task.info()
            tags = ", ".join(f"{key}={value}" for key, value in info.tags.items())
            table.add_row(printable(info.id), printable(info.split), printable(tags))
    console.print(table)


@tasks.command("show")
def show_task(environment: EnvironmentArgument, task_id: str) -> None:
    """Show what is public of one task. Its answer is not."""
    console.print(printable(_environment(environment).tasks.get(task_id).info().model_dump_json(indent=2)))


def _environment(name: str) -> "AnyEnvironment":
    from pydantic import ValidationError

    from rolloutgym.cli.serve import complaint
    from rolloutgym.server.environments.registry import build_environments
    from rolloutgym.server.settings import Settings

    try:
        return build_environments(Settings.model_validate({"environments": (name,)}))[name]
    except ValidationError as error:
        sys.exit(f"rolloutgym tasks: {complaint(error)}")
