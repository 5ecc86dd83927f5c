"""`rolloutgym audit`: what is wrong with a data set before a model is trained on it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress
from rich.table import Table

from rolloutgym.cli.local import read_settings
from rolloutgym.cli.terminal import console, errors, printable

if TYPE_CHECKING:
    from rolloutgym.server.environments.sql.audit import Finding

audit = typer.Typer(
    name="audit", help="Find tasks that cannot be graded by, and write block lists.", no_args_is_help=True
)


@audit.callback()
def _only_subcommands() -> None:
    """Keeps `audit sql` a sub-command while it is the only one."""


@audit.command("sql")
def audit_sql(
    data: Annotated[
        Path | None,
        typer.Argument(help="A Spider or BIRD folder, a pack, or a JSONL file; else ROLLOUTGYM_SQL_DATA.", exists=True),
    ] = None,
    block_list: Annotated[
        Path | None, typer.Option(help="Write a block list here, for ROLLOUTGYM_SQL_BLOCK_LIST.", dir_okay=False)
    ] = None,
    block: Annotated[
        list[str] | None, typer.Option(help="A finding that keeps a task out; may be given several times.")
    ] = None,
    show: Annotated[list[str] | None, typer.Option(help="List the tasks with this finding.")] = None,
) -> None:
    """Run every gold query, backwards too, and report what fails, is empty, ties, or depends on the order of rows."""
    from rolloutgym.server.environments.sql import audit as auditing
    from rolloutgym.server.environments.sql.database import DatabaseBroken, Limits
    from rolloutgym.server.environments.sql.loaders import DataError, read_tasks

    blocks, shown = _findings(block, auditing.FINDINGS), _findings(show, auditing.FINDINGS)
    settings = read_settings()
    limits = Limits(steps=settings.sql_steps, cpu_s=settings.sql_cpu_s)
    try:
        tasks = read_tasks(data or settings.sql_data)
        with Progress(console=errors, transient=True) as progress:
            reports = list(progress.track(auditing.audit(tasks, limits), total=len(tasks), description="running golds"))
    except (DataError, DatabaseBroken) as error:
        errors.print(f"rolloutgym: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None

    counts = auditing.count(reports)
    table = Table("finding", "tasks", "meaning", title=f"{len(tasks)} gold queries")
    for finding in auditing.FINDINGS:
        table.add_row(finding, str(counts[finding]), auditing.MEANINGS[finding])
    console.print(table)
    for task, report in zip(tasks, reports, strict=True):
        if not set(shown).isdisjoint(report.findings):
            console.print(printable(f"{task.id} ({', '.join(report.findings)}) {report.note or task.gold_sql}"))
    if block_list is not None:
        blocked = auditing.write_block_list(block_list, tasks, reports, blocks or auditing.BLOCKED)
        console.print(printable(f"{blocked} tasks blocked in {block_list}"))


def _findings(given: list[str] | None, known: "tuple[Finding, ...]") -> "list[Finding]":
    unknown = sorted(set(given or ()) - set(known))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return [finding for finding in known if finding in (given or ())]
