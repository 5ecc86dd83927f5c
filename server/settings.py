"""The service's settings: one field per environment variable, all prefixed `ROLLOUTGYM_`.

An unknown `ROLLOUTGYM_` variable is an error, so that a misspelt limit does not silently stay at its default.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from rolloutgym.models import EnvironmentName


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="ROLLOUTGYM_", extra="forbid", frozen=True, use_attribute_docstrings=True, env_ignore_empty=True
    )

    # -- service
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    environments: Annotated[tuple[EnvironmentName, ...], NoDecode] = ("sql", "toolcall", "code")
    """Which environments to serve, comma-separated."""
    default_env: EnvironmentName = "sql"
    """Served at the root too."""
    api_key: SecretStr | None = None
    """Bearer token that every route but `/health` and `/ready` then asks for."""
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins whose browser pages may call, comma-separated, beside the service's own."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 8 * 2**20
    """Largest request body or WebSocket message, bytes."""

    # -- sessions
    capacity: Annotated[int, Field(gt=0)] = 1024
    """Live episodes at once."""
    idle_timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """An episode without a request for this long is ended, seconds."""
    grace_s: Annotated[float, Field(ge=0)] = 60.0
    """How long the episode of a dropped WebSocket waits to be resumed, seconds."""
    step_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Longest time a step may take, seconds."""
    drain_s: Annotated[float, Field(ge=0)] = 8.0
    """How long shutdown waits for what is in flight, seconds."""
    store: str = "memory"
    """`memory`, or `redis://…`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    # -- sql
    sql_data: Path | None = None
    """A pack, Spider or BIRD folder, or a JSONL file; null serves the shipped tasks."""
    sql_workers: Annotated[int, Field(ge=0)] = 2
    """Processes that run SQL; 0 runs it in the service's own process."""

    # -- toolcall
    toolcall_data: Path | None = None
    """A JSONL file or folder of dialogues; null serves the shipped tasks."""

    # -- code
    code_data: str | None = None
    """A JSONL file of problems, or `reasoning-gym:NAME,NAME`; null serves the shipped tasks."""
    sandbox_python: Path | None = None
    """Interpreter for the model's code; null uses the service's own, cut down."""
    sandbox_level: Literal["sealed", "landlock", "namespaces"] = "sealed"
    """Least isolation that the code environment starts with."""
    allow_unsafe_sandbox: bool = False
    """Start the code environment even without isolation. Every result then says so."""
