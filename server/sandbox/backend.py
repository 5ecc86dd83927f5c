"""What the sandbox asks of whatever runs the code: processes of this machine, or containers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rolloutgym.server.sandbox.execution import Child
from rolloutgym.server.sandbox.policy import Level, Limits


@dataclass(frozen=True)
class Found:
    """What a backend could set up, before the self-test has proved it."""

    level: Level
    """What is reached if the self-test holds."""
    attacks: Mapping[str, str]
    """The self-test that fits."""
    python: str = ""
    landlock_abi: int = 0
    seccomp: bool = False
    private_uid: bool = False
    namespaces: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Backend(Protocol):
    @property
    def restarts(self) -> int: ...

    async def start(self) -> Found:
        """`SandboxUnavailable` if it cannot be had."""

    async def stop(self) -> None:
        """End and remove everything. Idempotent, also after a start that failed."""

    async def spawn(self, seed: int, limits: Limits, cpu_allowance: int) -> Child:
        """A child that is on its way; `Child.ready` tells when it runs."""
