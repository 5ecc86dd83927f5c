"""`rolloutgym serve`: every field of `Settings` is a flag, which wins over its `ROLLOUTGYM_` variable."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from rolloutgym.cli.local import read_settings
from rolloutgym.cli.service import READY
from rolloutgym.cli.terminal import console


def serve(**flags: Any) -> None:
    """Run the service. Every flag can also be given as an environment variable.

    With --port 0 a free port is taken. Once the service takes requests it prints one line:
    listening on http://HOST:PORT
    """
    from rolloutgym.server import app

    settings = read_settings({name: value for name, value in flags.items() if value is not None})
    try:
        app.run(settings, _announce)
    except (OSError, ValueError) as error:
        # A port that is taken, a data set that is missing or malformed.
        if settings.log_level == "debug":
            raise
        sys.exit(f"rolloutgym: {error}")


def _announce(address: str) -> None:
    console.print(f"{READY}{address}", markup=False, soft_wrap=True)
    console.file.flush()


def _flags_of_settings(command: Callable[..., None]) -> None:
    """Give `command` a parameter for each setting, for typer to read. Pydantic checks the values, not typer."""
    from rolloutgym.server.settings import Settings

    parameters: list[inspect.Parameter] = []
    for name, field in Settings.model_fields.items():
        kind = bool if field.annotation is bool else str
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            metavar=None if kind is bool else metavar(field.annotation),
            envvar=f"ROLLOUTGYM_{name.upper()}",
            help=field.description,
            show_default=_shown(field.default),
        )
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def metavar(annotation: object) -> str:
    """What a value looks like, for `--help`."""
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"{metavar(get_args(annotation)[0])},…"
    kinds = {int: "INTEGER", float: "NUMBER", Path: "PATH"}
    return next((name for kind, name in kinds.items() if kind in (annotation, *get_args(annotation))), "TEXT")


def _shown(default: object) -> str | bool:
    if default is None or default == () or default is False:
        return False
    return ",".join(default) if isinstance(default, tuple) else str(default)


_flags_of_settings(serve)
