"""The start-up self-test: a dozen real attacks, run as any model's code would be, against a canary of this very start.

What the sandbox reports about itself is what these prove, not what the kernel says it supports. An attack that wins
prints the canary's secret or `WON`, or changes the canary.
"""

import os
import secrets
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rolloutgym.server.sandbox.policy import Limits, RunResult

_LIMITS = Limits(cpu_s=2.0, wall_s=5.0)

ATTACKS: dict[str, str] = {
    "read a file outside": "print(open(CANARY).read())",
    "cut a file outside": "import os\nos.open(CANARY, os.O_RDONLY | os.O_TRUNC)",
    "change the times of a file outside": "import os\nos.utime(CANARY, (1, 1))",
    "change the mode of a file outside": "import os\nos.chmod(CANARY, 0)",
    "fork": "import os\nif os.fork() == 0: os._exit(0)\nprint('WON')",
    "run a program": "import os\nos.posix_spawn('/bin/true', ['true'], {})\nprint('WON')",
    "open a network socket": "import socket\nsocket.socket()\nprint('WON')",
    "connect to the server": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1)\nprint('WON')",
    "signal the parent": "import os\nos.kill(os.getppid(), 0)\nprint('WON')",
    "take memory that no limit counts": "import os\nos.memfd_create('m')\nprint('WON')",
    "be traced": "import ctypes\nif ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0: print('WON')",
    "find an inherited descriptor": """
import os
for fd in range(4, 256):
    try:
        os.fstat(fd)
    except OSError:
        continue
    print('WON')
""",
    "find the server's environment": "import os\nif MARK in os.environ: print('WON')",
    "import the server": "import rolloutgym\nprint('WON')",
}
ATTACKS_ON_OWN_TREE = {
    "see that a file outside exists": "import os\nos.stat(CANARY)\nprint('WON')",
    "be in the server's process table": "import os\nif os.getppid() != 1: print('WON')",
}
ATTACKS_ON_CONTAINER = {
    name: ATTACKS[name]
    for name in (
        "read a file outside",
        "cut a file outside",
        "change the times of a file outside",
        "change the mode of a file outside",
        "connect to the server",
        "find the server's environment",
        "import the server",
    )
} | {
    "see that a file outside exists": ATTACKS_ON_OWN_TREE["see that a file outside exists"],
    "be root": "import os\nif os.getuid() == 0: print('WON')",
    "write outside the scratch": "open('/etc/new', 'w')\nprint('WON')",
    "mount": "import ctypes\nif ctypes.CDLL(None).mount(b'none', b'/scratch', b'tmpfs', 0, None) == 0: print('WON')",
}
"""A container may fork and make sockets: those reach nothing but itself."""
_BENIGN = """
import bisect, graphlib, math, statistics
statistics.median([3, 1, 2])
"""


class Runner(Protocol):
    async def run(self, code: str, *, limits: Limits | None = None, seed: int = 0) -> RunResult: ...


@dataclass(frozen=True)
class Outcome:
    passed: tuple[str, ...]
    failed: tuple[str, ...]


class _Canary:
    """A readable file that no attack may read or change."""

    def __init__(self, folder: str) -> None:
        os.chmod(folder, 0o755)
        self.path = os.path.join(folder, "canary")
        self.secret = secrets.token_hex(16)
        self._write()

    def _write(self) -> None:
        with open(self.path, "w") as file:
            file.write(self.secret)
        os.chmod(self.path, 0o644)
        self._state = self._look()

    def _look(self) -> tuple[int, int, int]:
        found = os.stat(self.path)
        return found.st_mtime_ns, found.st_mode, found.st_size

    def survived(self) -> bool:
        """Whether it is unchanged; restores it if not."""
        intact = self._look() == self._state
        if not intact:
            self._write()
        return intact


async def run(sandbox: Runner, *, attacks: Mapping[str, str]) -> Outcome:
    """Every attack, and one piece of plain code that must work (or nothing was proved but that nothing runs)."""
    mark = f"MARK_{secrets.token_hex(8)}"
    passed: list[str] = []
    failed: list[str] = []
    os.environ[mark] = "1"
    try:
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
            canary = _Canary(folder)
            names = f"CANARY, PORT, MARK = {canary.path!r}, {listener.getsockname()[1]}, {mark!r}\n"
            for name, code in attacks.items():
                result = await sandbox.run(names + code, limits=_LIMITS)
                shown = f"{result.output}{result.value}{result.traceback}"
                held = canary.survived() and canary.secret not in shown and "WON" not in result.output
                (passed if held else failed).append(name)
    finally:
        del os.environ[mark]
    benign = await sandbox.run(_BENIGN, limits=_LIMITS)
    (passed if benign.status == "ok" and benign.value == "2" else failed).append("run plain code")
    return Outcome(tuple(passed), tuple(failed))
