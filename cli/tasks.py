"""`rolloutgym tasks`: what there is to play, and making the shipped tasks again."""

import tempfile
from importlib import import_module
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rolloutgym.cli.local import build, read_settings
from rolloutgym.cli.terminal import console, printable

if TYPE_CHECKING:
    from rolloutgym.server.environments.registry import AnyEnvironment

tasks = typer.Typer(name="tasks", help="List, show and generate tasks.", no_args_is_help=True)

EnvironmentArgument = Annotated[str, typer.Argument(help="sql, toolcall or code.", show_default=False)]

_ENVIRONMENTS = "rolloutgym.server.environments"
# Each has `generate(folder)`, which draws from fixed seeds only.
_GENERATORS = {
    "sql": f"{_ENVIRONMENTS}.sql.generator.build",
    "toolcall": f"{_ENVIRONMENTS}.toolcall.generator",
    "code": f"{_ENVIRONMENTS}.code.generator",
}


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
def show_task(
    environment: EnvironmentArgument,
    task_id: Annotated[str, typer.Argument(help="As `tasks list` gives it.", show_default=False)],
) -> None:
    """Show what is public of one task. Its answer is not."""
    console.print(printable(_environment(environment).tasks.get(task_id).info().model_dump_json(indent=2)))


@tasks.command("generate")
def generate_tasks(
    environment: EnvironmentArgument,
    out: Annotated[Path | None, typer.Option(help="Folder to write to.", file_okay=False)] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare with the shipped files, byte for byte.")] = False,
) -> None:
    """Make the tasks that an environment ships with. The same files come out every time."""
    if environment not in _GENERATORS:
        raise typer.BadParameter(f"{environment!r} is not one of {', '.join(_GENERATORS)}")
    if out is None and not check:
        raise typer.BadParameter("say where to write (--out), or what to compare with (--check)")
    with tempfile.TemporaryDirectory() as scratch:
        folder = out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        import_module(_GENERATORS[environment]).generate(folder)
        if not check:
            console.print(f"{len(_contents(folder))} files in {folder}", markup=False)
            return
        with as_file(files(f"{_ENVIRONMENTS}.{environment}").joinpath("data")) as shipped:
            differing = _differences(_contents(folder), _contents(shipped))
    for name in differing:
        console.print(f"differs from what is shipped: {name}", markup=False)
    if differing:
        raise typer.Exit(1)
    console.print("the same, byte for byte")


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _differences(made: dict[str, bytes], shipped: dict[str, bytes]) -> list[str]:
    return sorted(name for name in made.keys() | shipped.keys() if made.get(name) != shipped.get(name))


def _environment(name: str) -> "AnyEnvironment":
    return build(read_settings({"environments": name}))[name]
