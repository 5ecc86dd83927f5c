"""All commands together. A command's module is imported here, so it imports its heavy libraries when it runs."""

import logging

import typer

from rolloutgym.cli.audit import audit
from rolloutgym.cli.demo import demo
from rolloutgym.cli.evaluate import evaluate
from rolloutgym.cli.play import play
from rolloutgym.cli.retool_demo import retool_demo
from rolloutgym.cli.serve import serve
from rolloutgym.cli.tasks import tasks
from rolloutgym.cli.terminal import errors
from rolloutgym.cli.train_demo import train_demo
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
app.command("eval")(evaluate)
app.command("train-demo")(train_demo)
app.command("retool-demo")(retool_demo)
app.add_typer(tasks)
app.add_typer(audit)


def run() -> int:
    """The exit status. Wrong flags and faults end in one line; a traceback is a defect of ours."""
    # The client's retries: a fault that they do not end is told by whoever asked.
    logging.getLogger("stamina").setLevel(logging.ERROR)
    try:
        return app(prog_name="rolloutgym", standalone_mode=False) or 0
    except typer.TyperException as error:
        # Without arguments there is help instead, which is printed already, and no message.
        if message := error.format_message():
            errors.print(f"rolloutgym: {message}", markup=False, soft_wrap=True)
        return 2
    except typer.Abort:
        return 130
    except (RolloutGymError, ServiceError) as error:
        errors.print(f"rolloutgym: {error}", markup=False, soft_wrap=True)
        return 1
