"""What a run may use, how isolated it must be, and what came of it. Plain data: no process, no kernel call.

Sizes are bytes, times seconds. The kernel enforces address space, file size and descriptors; the server samples CPU
time, wall clock, output and scratch use every few milliseconds, so those may overshoot by one sample."""

import os
import tempfile
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from rolloutgym.server.settings import Settings

Status = Literal[
    "ok",
    "error",
    "interrupted",
    "cpu_limit",
    "wall_limit",
    "memory_limit",
    "output_limit",
    "disk_limit",
    "thread_limit",
    "crashed",
    "exited",
]

MAX_CODE_BYTES = 1 << 20


class Level(IntEnum):
    """How isolated the model's code is, as the start-up self-test proved it."""

    UNSAFE = 0
    """Some layer is missing: the code could reach files, the network or other processes."""
    SEALED = 1
    """System-call filter; no path can be opened at all, modules come from memory."""
    LANDLOCK = 2
    """System-call filter; Landlock confines files to the standard library, the packages and an own scratch
    directory."""
    NAMESPACES = 3
    """As `LANDLOCK`, in a file tree, network, process table and IPC of its own."""


@dataclass(frozen=True)
class Limits:
    """Limits of one run or of one step of a session. The sizes of memory, files and threads hold for a whole
    session."""

    cpu_s: float = 4.0
    """CPU time of the step, all threads together: the main limit, independent of the machine's load."""
    wall_s: float = 10.0
    """Wall clock, from when the child runs (not from when it queued), without the time in which it had no CPU."""
    memory: int = 512 << 20
    """Address space beyond what the preloaded interpreter takes."""
    output: int = 64 << 10
    """Output kept of a step."""
    output_kill: int = 8 << 20
    """Output after which the run is killed."""
    file_size: int = 16 << 20
    """Largest single file."""
    disk: int = 64 << 20
    """Scratch in use, sampled."""
    files: int = 1000
    """Files and directories in the scratch, sampled."""
    descriptors: int = 64
    threads: int = 32
    """Counted by the kernel where the child has a uid of its own (one more cannot be started), else sampled (a child
    that has more is killed)."""
    stack: int = 64 << 20

    def __post_init__(self) -> None:
        if min(asdict(self).values()) <= 0:
            raise ValueError("every sandbox limit must be positive")


@dataclass(frozen=True)
class RunResult:
    """What one run or step did. A limit appears as its own status whether the step was interrupted or killed for it:
    `state_kept` tells the two apart."""

    status: Status
    """`interrupted`: a KeyboardInterrupt of the code's own making. `exited`: it left through SystemExit or
    `os._exit`."""
    output: str = ""
    """Standard output and error as printed, the first `Limits.output` bytes."""
    value: str | None = None
    """`repr` of the last expression, unless that is None."""
    traceback: str | None = None
    """Only frames of the code itself."""
    state_kept: bool = False
    """A session's variables survive. Always false for a stateless run."""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    """As `Limits.wall_s` counts it."""
    truncated_output: bool = False
    exit_signal: str | None = None
    """Such as `SIGSEGV`, when the child died of one."""
    unsafe: bool = False
    """The code ran without the required isolation, as `ROLLOUTGYM_ALLOW_UNSAFE_SANDBOX` permits."""


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@dataclass(frozen=True)
class SandboxConfig:
    """How to build the sandbox. The `use_…` switches exist for tests and for narrowing down: switching a layer off
    lowers the level that the self-test finds."""

    python: Path | None = None
    """Interpreter for the model's code; None takes the server's own, cut down to `packages`."""
    packages: tuple[str, ...] = ("numpy", "sympy", "mpmath")
    """What can be imported beside the standard library when the server's own interpreter is used. A separate
    interpreter gives all that it has installed."""
    backend: Literal["process", "docker"] = "process"
    image: str = ""
    """Image of the docker backend: Python 3.11 or later with the packages."""
    required: Level = Level.SEALED
    allow_unsafe: bool = False
    limits: Limits = field(default_factory=Limits)
    running: int = field(default_factory=lambda: max(4, 2 * _usable_cpus()))
    """Runs and steps executing at once; more wait in order."""
    sessions: int = 256
    """Open sessions; the longest idle one is evicted for a new one."""
    idle_s: float = 1800.0
    """A session without a step for this long is evicted."""
    session_cpu_s: int = 600
    """CPU time of a session over all its steps."""
    first_uid: int = 60600
    """Private uids are this and the ones after, one per slot. Neither people nor systemd use 60578 to 61183."""
    scratch: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Where the scratch directories go. Best a tmpfs with a size."""
    use_namespaces: bool = True
    use_landlock: bool = True
    use_seccomp: bool = True
    use_private_uid: bool = True
    use_sealed: bool = True
    """Without Landlock, go sealed."""

    @classmethod
    def from_settings(cls, settings: Settings) -> "SandboxConfig":
        return cls(
            backend=settings.sandbox_backend,
            image=settings.sandbox_image,
            python=settings.sandbox_python,
            required=Level[settings.sandbox_level.upper()],
            allow_unsafe=settings.allow_unsafe_sandbox,
            limits=Limits(
                cpu_s=settings.sandbox_cpu_s,
                wall_s=settings.sandbox_wall_s,
                memory=settings.sandbox_memory_mb << 20,
                disk=settings.sandbox_disk_mb << 20,
            ),
            running=settings.sandbox_running or max(4, 2 * _usable_cpus()),
            sessions=settings.sandbox_sessions,
            idle_s=settings.sandbox_idle_s,
        )


@dataclass(frozen=True)
class SandboxReport:
    """What protects the server from the model's code, for `/health` and `/metadata`."""

    level: Level
    required: Level
    backend: Literal["process", "docker"] = "process"
    landlock_abi: int = 0
    seccomp: bool = False
    private_uid: bool = False
    namespaces: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    """Self-test attacks that were held."""
    failed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    restarts: int = 0
    python: str = ""

    def as_json(self) -> dict[str, JsonValue]:
        report: dict[str, JsonValue] = asdict(self)
        report["level"] = self.level.name.lower()
        report["required"] = self.required.name.lower()
        for name in ("namespaces", "passed", "failed", "warnings"):
            report[name] = list(getattr(self, name))
        return report
