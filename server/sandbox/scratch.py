"""Scratch directories on disk: one root per server, one directory in it per child. Measured while the code runs,
removed after. What the code built there is hostile: deep trees, unreadable folders, links to anywhere. Nothing is
followed."""

import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PREFIX = "rolloutgym-sandbox-"
MAX_DEPTH = 64
"""Folders nested deeper count as over the limit: each level holds a descriptor of ours while it is measured."""
_LOCK = ".lock"
_UNLOCKED_AGE_S = 60.0


class Root(NamedTuple):
    path: Path
    lock: int
    """Descriptor whose lock tells other servers that this root is in use."""


def make_root(base: Path) -> Root:
    """A new root, searchable but not listable for others, as private uids must pass through it."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX, dir=base)))
    lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (path / ".tree").mkdir()
    path.chmod(0o711)
    return Root(path, lock)


def sweep(base: Path) -> int:
    """Remove the roots of servers that were killed; how many."""
    removed = 0
    for path in base.glob(PREFIX + "*"):
        try:
            if path.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:  # being made this moment, or half removed
            if time.time() - path.stat().st_mtime < _UNLOCKED_AGE_S:
                continue
            lock = -1
        except OSError:
            continue
        try:
            if lock >= 0:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
            removed += 1
        except OSError:
            continue
        finally:
            if lock >= 0:
                os.close(lock)
    return removed


def remove_tree(top: Path) -> None:
    """Remove a tree of any depth: folders are emptied into the top one until none is left. Nothing alive may change it
    meanwhile."""
    prefix = f".moved-{secrets.token_hex(8)}-"  # a name that the tree holds already could not be taken
    count = 0
    os.chmod(top, 0o700)
    while True:
        with os.scandir(top) as entries:
            batch = list(entries)
        if not batch:
            break
        for entry in batch:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            with os.scandir(entry.path) as inner_entries:
                inner_batch = list(inner_entries)
            for inner in inner_batch:
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, 0o700)  # moving a folder writes its `..`
                    count += 1
                    os.rename(inner.path, top / f"{prefix}{count}")
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)
    os.rmdir(top)


def exceeds(top: Path, max_bytes: int, max_files: int) -> bool:
    """Whether the tree takes more space or entries than allowed. Costs at most `max_files` stats and `MAX_DEPTH`
    descriptors. What cannot be measured (a folder that may be written but not listed) is over."""
    size = count = 0
    path: list[
        tuple[int, list[str]]
    ] = []  # the open folders down to where we are, each with its folders still to visit

    def enter(name: str, parent: int | None) -> bool:
        nonlocal size, count
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        folders: list[str] = []
        path.append((fd, folders))
        with os.scandir(fd) as entries:
            for entry in entries:
                try:
                    info = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:  # removed meanwhile
                    continue
                count += 1
                size += info.st_blocks * 512
                if stat.S_ISDIR(info.st_mode):
                    folders.append(entry.name)
                if count > max_files or size > max_bytes:
                    return True
        return len(path) > MAX_DEPTH

    def over(name: str, parent: int | None) -> bool:
        try:
            return enter(name, parent)
        except OSError as error:
            # Removed meanwhile, or no folder any more; or this process has no descriptor left, which the code cannot
            # help: the next look will tell.
            return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMFILE, errno.ENFILE)

    try:
        found = over(str(top), None)
        while path and not found:
            fd, folders = path[-1]
            if folders:
                found = over(folders.pop(), fd)
            else:
                os.close(path.pop()[0])
    finally:
        for fd, _ in path:
            os.close(fd)
    return found
