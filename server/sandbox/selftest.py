"""The start-up self-test: a dozen real attacks, run as any model's code would be, against a canary of this very start.

What the sandbox reports about itself is what these prove, not what the kernel says it supports. An attack that wins
prints the canary's secret or `WON`, or changes the canary.
"""

import os
import secrets
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rolloutgym.server.sandbox.policy import Limits, RunResult

_LIMITS = Limits(cpu_s=2.0, wall_s=5.0)

_ATTACKS: dict[str, str] = {
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
_ATTACKS_ON_OWN_TREE = {
    "see that a file outside exists": "import os\nos.stat(CANARY)\nprint('WON')",
    "be in the server's process table": "import os\nif os.getppid() != 1: print('WON')",
}
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


async def run(sandbox: Runner, *, in_own_tree: bool) -> Outcome:
    """Every attack, and one piece of plain code that must work (or nothing was proved but that nothing runs)."""
    attacks = _ATTACKS | (_ATTACKS_ON_OWN_TREE if in_own_tree else {})
    secret, mark = secrets.token_hex(16), f"MARK_{secrets.token_hex(8)}"
    passed, failed = [], []
    os.environ[mark] = "1"
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        os.chmod(folder, 0o755)
        canary = Path(folder, "canary")
        names = f"CANARY, PORT, MARK = {str(canary)!r}, {listener.getsockname()[1]}, {mark!r}\n"
        for name, code in attacks.items():
            canary.write_text(secret)
            canary.chmod(0o644)
            before = canary.stat()
            result = await sandbox.run(names + code, limits=_LIMITS)
            shown = result.output + (result.value or "") + (result.traceback or "")
            after = canary.stat()
            intact = (before.st_mtime_ns, before.st_mode, before.st_size) == (
                after.st_mtime_ns,
                after.st_mode,
                after.st_size,
            )
            held = intact and secret not in shown and "WON" not in result.output
            (passed if held else failed).append(name)
    del os.environ[mark]
    benign = await sandbox.run(_BENIGN, limits=_LIMITS)
    (passed if benign.status == "ok" and benign.value == "2" else failed).append("run plain code")
    return Outcome(tuple(passed), tuple(failed))
