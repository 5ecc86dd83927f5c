"""Landlock rule sets (<linux/landlock.h>). Standard library only.

A rule set names the rights it handles; what it handles and no rule grants is refused, and stacked sets must all agree.
Landlock does not govern metadata (chmod, utime, xattr, stat): the seccomp filter does.
"""

import ctypes
import os
from collections.abc import Iterable

from rolloutgym.server.sandbox.kernel import syscall

# Same numbers on every architecture.
_NR_CREATE_RULESET, _NR_ADD_RULE, _NR_RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_SYM = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
REFER, TRUNCATE = 1 << 13, 1 << 14

READ = READ_FILE | READ_DIR
SCRATCH = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
"""Everything but devices, sockets, pipes with a name, and executing."""

_FILE_RIGHTS = READ_FILE | WRITE_FILE | TRUNCATE
_NET_BIND_TCP, _NET_CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1, 2


def abi() -> int:
    """The kernel's Landlock version; 0 where there is none (asked by the call itself: module lists can lie)."""
    try:
        return syscall(_NR_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    except OSError:
        return 0


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _handled_files(version: int) -> int:
    last = 12 if version < 2 else 13 if version < 3 else 14 if version < 5 else 15
    return (1 << (last + 1)) - 1


class Ruleset:
    """Refuses all that is not allowed: file access, TCP (ABI 4), abstract sockets and signals to the outside (ABI
    6)."""

    def __init__(self, version: int) -> None:
        self._handled = _handled_files(version)
        attributes = _RulesetAttr(
            self._handled,
            _NET_BIND_TCP | _NET_CONNECT_TCP if version >= 4 else 0,
            _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if version >= 6 else 0,
        )
        size = 8 if version < 4 else 16 if version < 6 else 24  # older kernels take the shorter structure
        self._fd = syscall(_NR_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))

    def allow(self, fd: int, rights: int, *, is_file: bool = False) -> None:
        """Grant rights at and beneath what the descriptor (O_PATH will do) refers to."""
        rights &= self._handled & (_FILE_RIGHTS if is_file else -1)
        rule = _PathBeneathAttr(rights, fd)
        syscall(_NR_ADD_RULE, self._fd, _RULE_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))

    def enforce(self) -> None:
        """Restrict this thread and all that it forks, for good."""
        syscall(_NR_RESTRICT_SELF, self._fd, ctypes.c_uint32(0))
        os.close(self._fd)


class Opened:
    """Paths opened once (O_PATH), so that each child's rule set costs no path walk."""

    def __init__(self, paths: Iterable[str], rights: int) -> None:
        self._entries: list[tuple[int, bool]] = []
        self._rights = rights
        for path in paths:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            self._entries.append((fd, not os.path.isdir(path)))

    def allow_in(self, ruleset: Ruleset) -> None:
        for fd, is_file in self._entries:
            ruleset.allow(fd, self._rights, is_file=is_file)

    def close(self) -> None:
        for fd, _ in self._entries:
            os.close(fd)
