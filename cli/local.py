"""Settings and environments in this process, for commands; what is wrong with them ends the command in one line."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

if TYPE_CHECKING:
    from rolloutgym.server.environments.registry import AnyEnvironment
    from rolloutgym.server.settings import Settings


def read_settings(flags: Mapping[str, Any] | None = None) -> "Settings":
    """From `ROLLOUTGYM_` variables, and flags, which win. Values that do not fit end the process with one line."""
    from rolloutgym.server.settings import Settings

    try:
        return Settings(**flags or {})
    except ValidationError as error:
        sys.exit(f"rolloutgym: {_complaint(error)}")


def build(settings: "Settings") -> "dict[str, AnyEnvironment]":
    """The environments that the settings name. Data that is missing or malformed ends the process with one line."""
    from rolloutgym.server.environments.registry import build_environments

    try:
        return build_environments(settings)
    except (OSError, ValueError) as error:
        sys.exit(f"rolloutgym: {error}")


def _complaint(error: ValidationError) -> str:
    """What is wrong with the settings, in one line, in the words that the user typed."""
    parts: list[str] = []
    for detail in error.errors(include_url=False, include_input=False):
        field = str(detail["loc"][0]) if detail["loc"] else ""
        name = f"--{field.replace('_', '-')} (ROLLOUTGYM_{field.upper()}): " if field else ""
        parts.append(f"{name}{detail['msg'].removeprefix('Value error, ')}")
    return "; ".join(parts)
