"""What hostile code tries, one file for each family in `families`: kind, name → snippet, and the statuses that a run
may end with. Each snippet prints WON where it gets what it must not get.

Names that the arena puts in front: NR (system-call numbers), GOLD (file with the answer) and GOLD_DIR, TCP and UDP
(ports the server listens on), UNIX and ABSTRACT (its unix sockets), SERVER and ZYGOTE (pids), OTHER (scratch of another
live session), ROOT (where all scratch is); then `PRELUDE`.
"""

import runpy
from pathlib import Path
from typing import NamedTuple

PRELUDE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *args):
    # by name (a call that this machine does not have cannot be tried) or by number
    number = NR.get(number, -1) if isinstance(number, str) else number
    return libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *args)])
def attempt(f, *args, **kw):
    try:
        return f(*args, **kw)
    except (OSError, MemoryError, ValueError) as error:
        return error
def won(result):
    if not isinstance(result, Exception):
        print("WON")
"""


class Attack(NamedTuple):
    kind: str
    name: str
    code: str
    ends: frozenset[str]
    """Statuses that the run may end with; empty for any."""


def _load(file: Path) -> list[Attack]:
    return [
        Attack(kind, name, code.strip("\n"), frozenset(ends.split()))
        for kind, snippets, ends in runpy.run_path(str(file))["FAMILIES"]
        for name, code in snippets.items()
    ]


_FILES = sorted(Path(__file__).with_name("families").glob("*.py"))
ATTACKS: tuple[Attack, ...] = tuple(attack for file in _FILES for attack in _load(file))
