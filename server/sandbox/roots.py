"""Temporary folders, each locked while the process that made it lives: what one that was killed has left, the next one
removes."""

import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rolloutgym.server.sandbox.scratch import remove_tree

_YOUNG_S = 60.0
"""What is younger may not have been locked yet."""


class Root(NamedTuple):
    path: Path
    lock: int
    """Descriptor of the folder, whose lock tells other processes, and cleaners of old temporary files, that it is in
    use (flock(2), as systemd's tmpfiles.d(5) asks for)."""

    def remove(self) -> None:
        remove_tree(self.path)
        os.close(self.lock)


def make_root(prefix: str, base: Path | None = None) -> Root:
    """A new root in `base`, or where temporary files go, for this user alone. All folders there with that prefix are
    roots."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=base)))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return Root(path, lock)


def sweep(prefix: str, base: Path | None = None) -> int:
    """Remove the roots of processes that were killed, the youngest left out; how many."""
    return sum([_remove_left(path) for path in Path(base or tempfile.gettempdir()).glob(f"{prefix}*")])


def _remove_left(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no folder, another user's, or gone
        return False
    try:
        info = os.stat(lock)
        if info.st_uid != os.geteuid() or time.time() - info.st_mtime < _YOUNG_S:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(path)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
