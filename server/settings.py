"""The service's settings: one field per environment variable, all prefixed `ROLLOUTGYM_`.

An unknown `ROLLOUTGYM_` variable is an error, so that a misspelt limit does not silently stay at its default.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from rolloutgym.models import EnvironmentName

_PREFIX = "ROLLOUTGYM_"
_RANGE = r"^\d{1,9}(-\d{1,9})?$"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        env_ignore_empty=True,
        allow_inf_nan=False,
    )

    # -- service
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` is every one of the machine's."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one."""
    workers: Annotated[int, Field(gt=0)] = 1
    """Processes that serve the port; more than one share their episodes through a Redis store."""
    worker_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """With several workers, each also listens on a port of its own, from this one on, for metrics; 0 is none."""
    environments: Annotated[tuple[EnvironmentName, ...], NoDecode, Field(min_length=1)] = ("sql", "toolcall", "code")
    """Which environments to serve, comma-separated."""
    default_env: EnvironmentName = "sql"
    """Served at the root too; where it is not served, the first one is."""
    api_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    """Bearer token that every route but `/health`, `/ready` and the page then asks for."""
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
    drain_s: Annotated[float, Field(ge=0)] = 5.0
    """How long shutdown waits for what is in flight, seconds."""
    store: Annotated[str, Field(pattern=r"^(memory|rediss?://[^/?]+(/\d*)?(\?.+)?|unix://.+)$", repr=False)] = "memory"
    """`memory`, or a Redis: `redis://:PASSWORD@HOST:PORT/NUMBER`, `rediss://…` by TLS, `unix://PATH`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged, to standard error."""

    # -- sql
    sql_data: Path | None = None
    """A pack, Spider or BIRD folder, or a JSONL file; null serves the shipped tasks."""
    sql_split_by: Literal["official", "database", "hash"] = "official"
    """The data's own splits, or splits of ours by whole databases, or by a hash of the task id."""
    sql_order: Literal["file", "curriculum"] = "file"
    """Order of the tasks in a split: as in the data, or from easy to hard."""
    sql_databases: Annotated[tuple[str, ...], NoDecode] = ()
    """Serve only the tasks over these databases, comma-separated."""
    sql_hardness: Annotated[tuple[str, ...], NoDecode] = ()
    """Serve only the tasks of these grades, comma-separated."""
    sql_shapes: Annotated[tuple[Literal["scalar", "row", "list", "table"], ...], NoDecode] = ()
    """Serve only the tasks whose gold result has these shapes, comma-separated."""
    sql_rows: Annotated[str | None, Field(pattern=_RANGE)] = None
    """Serve only the tasks whose gold result has so many rows: a number, or least and greatest as `1-20`."""
    sql_joins: Annotated[str | None, Field(pattern=_RANGE)] = None
    """Serve only the tasks whose gold query has so many joins: a number or a range."""
    sql_tables: Annotated[str | None, Field(pattern=_RANGE)] = None
    """Serve only the tasks whose gold query reads so many tables: a number or a range."""
    sql_block_list: Path | None = None
    """What `rolloutgym audit sql` wrote: tasks that are not served."""
    sql_empty_golds: bool = False
    """Serve tasks whose gold result has no rows too; their reset asks for the option `include_empty`."""
    sql_workers: Annotated[int, Field(ge=0)] = 2
    """Processes that run SQL; 0 runs it in the service's own process."""
    sql_steps: Annotated[int, Field(gt=0)] = 50_000_000
    """What one query may cost, in SQLite's virtual-machine instructions: the same on every machine."""
    sql_cpu_s: Annotated[float, Field(gt=0)] = 5.0
    """Most of the processor's time for one query, seconds; a backstop for instructions that are slow themselves."""

    # -- toolcall
    toolcall_data: Path | None = None
    """A JSONL file or folder of dialogues, or `bfcl`, or `bfcl:` and categories; null serves the shipped tasks."""
    toolcall_skip: Path | None = None
    """A text file of tasks to leave out, one a line: task ids or first user messages."""

    # -- code
    code_data: str | None = None
    """A JSONL file of problems, or `reasoning-gym:NAME,NAME`; null serves the shipped tasks."""
    sandbox_backend: Literal["process", "docker"] = "process"
    """What runs the model's code: confined processes, or a container for each interpreter."""
    sandbox_image: str = "python:3.11-slim"
    """Image of the docker backend's containers: a Python with the packages that the code may use."""
    sandbox_python: Path | None = None
    """Interpreter for the model's code; null uses the service's own, cut down."""
    sandbox_level: Literal["sealed", "landlock", "namespaces"] = "sealed"
    """Least isolation that the code environment starts with."""
    allow_unsafe_sandbox: bool = False
    """Start the code environment even without isolation. Every result then says so."""
    sandbox_cpu_s: Annotated[float, Field(gt=0)] = 4.0
    """CPU time of one run of the model's code, seconds."""
    sandbox_wall_s: Annotated[float, Field(gt=0)] = 10.0
    """Wall clock of one run, seconds; a backstop for code that sleeps."""
    sandbox_memory_mb: Annotated[int, Field(gt=0)] = 512
    """Memory of one run or session, MiB."""
    sandbox_disk_mb: Annotated[int, Field(gt=0)] = 64
    """Scratch files of one run or session, MiB."""
    sandbox_running: Annotated[int, Field(ge=0)] = 0
    """Runs at once; 0 takes twice the CPUs."""
    sandbox_sessions: Annotated[int, Field(gt=0)] = 256
    """Open interpreters at once; the longest idle one gives way."""
    sandbox_idle_s: Annotated[float, Field(gt=0)] = 1800.0
    """An interpreter without a run for this long is closed, seconds."""

    @field_validator("environments")
    @classmethod
    def _each_once(cls, names: tuple[EnvironmentName, ...]) -> tuple[EnvironmentName, ...]:
        if len(set(names)) < len(names):
            raise ValueError("an environment is named twice")
        return names

    @model_validator(mode="after")
    def _workers_share_a_store(self) -> Self:
        if self.workers > 1 and self.store == "memory":
            raise ValueError("several workers need a store that they share: --store redis://HOST:PORT/0")
        return self

    @model_validator(mode="before")
    @classmethod
    def _know_all_variables(cls, values: dict[str, Any]) -> dict[str, Any]:
        unknown = sorted(
            name
            for name in os.environ
            if name.upper().startswith(_PREFIX) and name.upper().removeprefix(_PREFIX).lower() not in cls.model_fields
        )
        if unknown:
            raise ValueError(f"unknown variable {', '.join(unknown)}")
        return values

    @field_validator("api_key", mode="before")
    @classmethod
    def _strip(cls, key: object) -> object:
        # A file that a secret is read from ends in a newline more often than not, and a header cannot.
        return key.strip() if isinstance(key, str) else key

    @field_validator("environments", "allowed_origins", "sql_databases", "sql_hardness", "sql_shapes", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value
