"""The few kernel calls that Python does not offer, under the kernel's own names. Standard library only."""

import ctypes
import os
import platform
import signal
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)

# <linux/prctl.h>
PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_SECCOMP: Final = 22
PR_SET_NO_NEW_PRIVS: Final = 38
SECCOMP_MODE_FILTER: Final = 2

MADV_COLLAPSE: Final = 25
_LINUX_CAPABILITY_VERSION_3: Final = 0x20080522
_NR_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

# <sched.h>
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

# <sys/mount.h>
MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), f"syscall {number}")


def prctl(option: int, argument: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0), f"prctl {option}")


def die_with_parent(parent: int) -> None:
    """SIGKILL this process when its parent dies. To be called after the last change of uid, which clears the
    setting."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets."""
    header = (ctypes.c_uint32 * 2)(_LINUX_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load_filter(instructions: bytes) -> None:
    """Put a seccomp filter (an array of `struct sock_filter`) on this thread and all that it forks, for good."""
    program = _SockFprog(len(instructions) // 8, instructions)
    _check(
        _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
        "seccomp",
    )


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = (value.encode() if value is not None else None for value in (source, target, kind))
    _check(
        _libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() if data is not None else None), f"mount on {target}"
    )


def unmount(target: str) -> None:
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    syscall(_NR_PIVOT_ROOT[platform.machine()], new.encode(), old.encode())


def collapse(start: int, length: int) -> bool:
    """Back a range with huge pages, so that forking copies fewer page-table entries. False where the kernel cannot."""
    return bool(_libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_COLLAPSE) == 0)
