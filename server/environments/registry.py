"""Which environments there are, and how settings make them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from rolloutgym.models import EnvironmentName
from rolloutgym.server.environments.base import Environment
from rolloutgym.server.settings import Settings

AnyEnvironment = Environment[Any, Any, Any, Any]

# Imported when asked for: a service of one environment does not pay for the others' libraries.
_FACTORIES: dict[EnvironmentName, str] = {
    "sql": "rolloutgym.server.environments.sql.environment",
    "toolcall": "rolloutgym.server.environments.toolcall.environment",
    "code": "rolloutgym.server.environments.code.environment",
}


def build_environments(settings: Settings) -> dict[str, AnyEnvironment]:
    """The environments that `settings.environments` names, not started yet, in that order."""
    environments: dict[str, AnyEnvironment] = {}
    for name in settings.environments:
        from_settings: Callable[[Settings], AnyEnvironment] = import_module(_FACTORIES[name]).from_settings
        environments[name] = from_settings(settings)
    return environments
