"""Temporary folders, each locked while the process that made it lives: what one that was killed has left, the next one
removes."""

import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rolloutgym.server.sandbox.scratch import remove_tree

_LOCK = ".lock"
_UNLOCKED_AGE_S = 60.0


class Root(NamedTuple):
    path: Path
    lock: int
    """Descriptor whose lock tells other processes that this root is in use."""

    def remove(self) -> None:
        remove_tree(self.path)
        os.close(self.lock)


def make_root(prefix: str, base: Path | None = None) -> Root:
    """A new root in `base`, or where temporary files go, for this user alone. All folders there with that prefix are
    roots."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=base)))
    lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return Root(path, lock)


def sweep(prefix: str, base: Path | None = None) -> int:
    """Remove the roots of processes that were killed; how many."""
    return sum([_remove_left(path) for path in Path(base or tempfile.gettempdir()).glob(f"{prefix}*")])


def _remove_left(path: Path) -> bool:
    lock = -1
    try:
        info = path.stat(follow_symlinks=False)
        if info.st_uid != os.geteuid():
            return False
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:  # being made this moment, or half removed
            if time.time() - info.st_mtime < _UNLOCKED_AGE_S:
                return False
        remove_tree(path)
    except OSError:
        return False
    finally:
        if lock >= 0:
            os.close(lock)
    return True
