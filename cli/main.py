"""All commands together. A command's module is imported here, so it imports its heavy libraries when it runs."""

import sys

import typer

from rolloutgym.cli.demo import demo
from rolloutgym.cli.play import play
from rolloutgym.cli.serve import serve
from rolloutgym.cli.tasks import tasks
from rolloutgym.client.errors import RolloutGymError
from rolloutgym.server.errors import ServiceError

app = typer.Typer(
    name="rolloutgym",
    help="Verifiable-reward environments for language models over HTTP: SQL exploration, tool-call matching, code.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(demo)
app.command()(play)
app.add_typer(tasks)


def run() -> None:
    """Faults end in one line; a traceback is a defect of ours."""
    try:
        app()
    except (RolloutGymError, ServiceError) as error:
        sys.exit(f"rolloutgym: {error}")
