"""Plays the attacks against a sandbox and looks at the damage from outside. Loaded by the tests; also a script, so that
the same list runs as another user or inside a container:

    python tests/attacks/arena.py [--no-namespaces] [--no-landlock] [--no-private-uid] [--python PATH]
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import runpy
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rolloutgym.server.sandbox import kernel
from rolloutgym.server.sandbox.client import Limits, RunResult, Sandbox, SandboxConfig
from rolloutgym.server.sandbox.processes import ProcessBackend
from rolloutgym.server.sandbox.syscalls import numbers

T = TypeVar("T")

_CASES: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("cases.py")))
ATTACKS: tuple[Any, ...] = _CASES["ATTACKS"]
LIMITS = Limits(cpu_s=0.3, wall_s=0.8)
PR_SET_CHILD_SUBREAPER = 36
_ELSEWHERE = tuple(f"{folder}/sandbox-test" for folder in ("/dev/shm", "/tmp", "/var/tmp"))
"""What the attacks write outside, where they can. Other programs have files there too."""


def descendants(root: int, without: Collection[int] = ()) -> set[int]:
    """Every process below `root`, zombies and what is below those left out."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z" and int(entry) not in without:
                    parents[int(entry)] = int(parent)
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found - {root}
        found |= more


@dataclass(frozen=True)
class Verdict:
    result: RunResult
    problems: tuple[str, ...]
    """What should not have happened; empty when the attack was held."""


class Arena:
    """A sandbox, another live session in it, and everything worth attacking."""

    def __init__(self, **config: Any) -> None:
        self._of_others = descendants(os.getpid())
        kernel.prctl(PR_SET_CHILD_SUBREAPER, 1)  # what daemonises shows up below this process
        self._loop = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        folder.chmod(0o755)
        self.secret = f"SECRET{secrets.token_hex(16)}"
        self._gold_dir = folder / "data"
        self._gold_dir.mkdir(mode=0o755)
        self._gold = self._gold_dir / "gold"
        self._gold.write_text(self.secret + "\n")
        (self._gold_dir / "gold_module.py").write_text(f"print('WON {self.secret}')\n")
        self._gold.chmod(0o644)
        os.environ["ARENA_SECRET"] = self.secret
        self._listeners = self._listen(folder)
        self.sandbox = Sandbox(SandboxConfig(**config))
        assert isinstance(self.sandbox._backend, ProcessBackend)
        self._backend = self.sandbox._backend
        try:
            self.run(self.sandbox.start())
        except BaseException:
            self._put_away()
            raise
        self._other = self.run(self.sandbox.open_session())
        self._has_files = self.sandbox.report.level.name != "SEALED"
        before = set(self._scratch())
        code = f"kept = 'SECRET' + {self.secret[6:]!r}\nimport os"
        if self._has_files:
            code += "\nopen('file', 'w').write(kept)"
        self.run(self._other.step(code))
        self._other_scratch = next(iter(before), "none")
        self._calm = self._state()

    def run(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(awaitable)

    def close(self) -> None:
        self.run(self.sandbox.stop())
        self._put_away()

    def _put_away(self) -> None:
        kernel.prctl(PR_SET_CHILD_SUBREAPER, 0)
        self._loop.close()
        for listener in self._listeners.values():
            listener.close()
        self._folder.cleanup()
        os.environ.pop("ARENA_SECRET", None)

    def _listen(self, folder: Path) -> dict[str, socket.socket]:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        self._abstract = f"arena-{secrets.token_hex(8)}"
        abstract.bind("\0" + self._abstract)
        for listener in (unix, abstract):
            listener.listen()
        listeners = {"TCP": tcp, "UDP": udp, "UNIX": unix, "ABSTRACT": abstract}
        for listener in listeners.values():
            listener.setblocking(False)
        return listeners

    @property
    def _root(self) -> Path:
        assert self._backend.root is not None
        return self._backend.root.path

    def _scratch(self) -> list[str]:
        return sorted(entry.name for entry in self._root.iterdir() if entry.name.isdigit())

    def _zygote(self) -> int:
        assert self._backend.supervisor is not None
        return self._backend.supervisor.pid

    def _state(self) -> dict[str, Any]:
        """What must be the same after every attack."""
        gold, folder = self._gold.stat(), self._gold_dir.stat()
        return {
            "the gold file": (self._gold.read_text(), gold.st_mode, gold.st_mtime_ns, gold.st_uid, gold.st_nlink),
            "the gold folder": (sorted(os.listdir(self._gold_dir)), folder.st_mode, folder.st_mtime_ns),
            "the processes": descendants(os.getpid(), self._of_others),
            "the scratch directories": self._scratch(),
            "restarts of the zygote": self.sandbox.report.restarts,
            "files elsewhere": [name for name in _ELSEWHERE if os.path.exists(name)],
        }

    def _contacted(self) -> list[str]:
        touched = []
        for name, listener in self._listeners.items():
            with contextlib.suppress(BlockingIOError):
                if name == "UDP":
                    listener.recv(1)
                else:
                    listener.accept()[0].close()
                touched.append(f"it reached the server's {name} socket")
        return touched

    def prelude(self) -> str:
        return (
            f"NR = {numbers(platform.machine())!r}\n"
            f"GOLD, GOLD_DIR = {str(self._gold)!r}, {str(self._gold_dir)!r}\n"
            f"TCP, UDP = {self._listeners['TCP'].getsockname()[1]}, {self._listeners['UDP'].getsockname()[1]}\n"
            f"UNIX, ABSTRACT = {self._listeners['UNIX'].getsockname()!r}, {self._abstract!r}\n"
            f"SERVER, ZYGOTE = {os.getpid()}, {self._zygote()}\n"
            f"ROOT = {str(self._root)!r}\nOTHER = ROOT + '/' + {self._other_scratch!r}\n" + str(_CASES["PRELUDE"])
        )

    def play(self, attack: Any, *, in_session: bool = False) -> Verdict:
        """Run one attack, statelessly or as a session's step, and inspect."""
        code = self.prelude() + attack.code + "\n"
        began = time.monotonic()
        result = self.run(self._in_session(code) if in_session else self.sandbox.run(code, limits=LIMITS))
        took = time.monotonic() - began
        problems = self._contacted()
        shown = f"{result.output}\n{result.value}\n{result.traceback}"
        if "WON" in result.output:
            problems.append(f"it won: {result.output[:300]}")
        if self.secret in shown:
            problems.append("it shows the secret")
        if attack.ends and result.status not in attack.ends:
            problems.append(f"it ended with {result.status}")
        if took > 60.0:
            problems.append(f"it took {took:.1f} s")
        if len(shown) > 200_000:
            problems.append(f"it returned {len(shown)} characters")
        problems += self._service_problems()
        return Verdict(result, tuple(problems))

    async def _in_session(self, code: str) -> RunResult:
        session = await self.sandbox.open_session()
        try:
            return await session.step(code, limits=LIMITS)
        finally:
            await session.close()

    def _service_problems(self) -> list[str]:
        """Another session and the next run are as before, and nothing was left or changed."""
        problems = []
        after = self.run(self.sandbox.run("import math\nprint('next')\nmath.comb(5, 2)"))
        if (after.status, after.output, after.value) != ("ok", "next\n", "10"):
            problems.append(f"the next run: {after}")
        code = "(kept, os.path.exists('file') and open('file').read())" if self._has_files else "(kept, '')"
        other = self.run(self._other.step(code))
        if other.value != repr((self.secret, self.secret if self._has_files else "")):
            problems.append(f"the other session: {other}")
        deadline = time.monotonic() + 20.0
        while (state := self._state()) != self._calm and time.monotonic() < deadline:
            self.run(asyncio.sleep(0.02))  # what was killed is still being removed
        problems += [
            f"{name} changed: {self._calm[name]} -> {state[name]}" for name in state if state[name] != self._calm[name]
        ]
        return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-namespaces", action="store_true")
    parser.add_argument("--no-landlock", action="store_true")
    parser.add_argument("--no-private-uid", action="store_true")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    arena = Arena(
        use_namespaces=not chosen.no_namespaces,
        use_landlock=not chosen.no_landlock,
        use_private_uid=not chosen.no_private_uid,
        python=chosen.python,
    )
    report = arena.sandbox.report
    lost: dict[str, tuple[str, ...]] = {}
    played = [attack for attack in ATTACKS if chosen.only in f"{attack.kind}: {attack.name}"]
    for attack in played:
        problems = arena.play(attack).problems
        if problems:
            lost[f"{attack.kind}: {attack.name}"] = problems
    arena.close()
    summary = {
        "level": report.level.name.lower(),
        "private_uid": report.private_uid,
        "played": len(played),
        "lost": lost,
    }
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    return len(lost)


if __name__ == "__main__":
    sys.exit(main())
