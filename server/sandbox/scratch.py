"""Scratch directories on disk, one per child: measured while the code runs, removed after. What the code built there is
hostile: deep trees, unreadable folders, links to anywhere. Nothing is followed."""

import errno
import os
import secrets
import stat
from pathlib import Path

MAX_DEPTH = 64
"""Folders nested deeper count as over the limit: each level holds a descriptor of ours while it is measured."""


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
