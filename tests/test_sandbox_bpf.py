"""The filters, run by a small interpreter of classic BPF: which system call with which arguments gets which answer."""

import errno
import re
import struct
from pathlib import Path

import pytest

from rolloutgym.server.sandbox.bpf import (
    PID_PLACEHOLDER,
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    build_filters,
)
from rolloutgym.server.sandbox.syscalls import AUDIT_ARCH, numbers

MACHINES = tuple(AUDIT_ARCH)
OWN_PID = 4321


def _evaluate(program: bytes, arch: int, number: int, arguments: tuple[int, ...]) -> int:
    data = struct.pack("=IIQ6Q", number, arch, 0, *(arguments + (0,) * 6)[:6])
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator = counter = 0
    while True:
        code, if_true, if_false, operand = instructions[counter]
        counter += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                counter += if_true if accumulator == operand else if_false
            case 0x45:
                counter += if_true if accumulator & operand else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def _answer(machine: str, name: str | int, *arguments: int, sealed: bool = False, child: bool = True) -> int:
    """What the kernel does with both filters: the strictest of their answers."""
    filters = build_filters(machine, sealed=sealed)
    number = numbers(machine)[name] if isinstance(name, str) else name
    programs = [filters.service]
    if child:
        programs.append(filters.child.replace(PID_PLACEHOLDER, struct.pack("=I", OWN_PID)))
    answers = [_evaluate(program, AUDIT_ARCH[machine], number, arguments) for program in programs]
    return min(answers, key=lambda answer: (answer != RET_KILL_PROCESS, answer & 0xFFFF0000, -(answer & 0xFFFF)))


def _refused(number: int) -> int:
    return RET_ERRNO | number


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("read", (), RET_ALLOW),
        ("mmap", (), RET_ALLOW),
        ("openat", (0, 0, 0), RET_ALLOW),
        ("openat", (0, 0, 0o1001), RET_ALLOW),  # O_WRONLY | O_TRUNC
        ("openat", (0, 0, 0o1000), _refused(errno.EACCES)),  # O_RDONLY | O_TRUNC
        ("clone", (0x003D0F00,), RET_ALLOW),  # what a thread is made with
        ("clone", (0x007D0F00,), RET_ALLOW),  # by musl
        ("clone", (0x003D0B00,), _refused(errno.EPERM)),  # a thread with descriptors of its own
        ("clone", (0x003D1F00,), _refused(errno.EPERM)),  # CLONE_PIDFD
        ("clone", (17,), _refused(errno.EPERM)),  # SIGCHLD: a fork
        ("clone", (0x10000000 | 0x10000,), _refused(errno.EPERM)),  # CLONE_NEWUSER
        ("clone3", (), _refused(errno.ENOSYS)),
        ("execve", (), _refused(errno.EPERM)),
        ("execveat", (), _refused(errno.EPERM)),
        ("socket", (2, 1, 0), _refused(errno.EPERM)),
        ("socketpair", (1, 1, 0), RET_ALLOW),
        ("socketpair", (1, 0o2000000 | 1, 0), RET_ALLOW),  # SOCK_CLOEXEC
        ("socketpair", (1, 2, 0), _refused(errno.EPERM)),  # SOCK_DGRAM
        ("socketpair", (2, 1, 0), _refused(errno.EPERM)),
        ("sendto", (3, 0, 0, 0, 0, 0), RET_ALLOW),
        ("sendto", (3, 0, 0, 0, 0x1000, 16), _refused(errno.EPERM)),
        ("sendto", (3, 0, 0, 0, 0x1000_0000_0000, 16), _refused(errno.EPERM)),  # only the high half is set
        ("kill", (OWN_PID, 9), RET_ALLOW),
        ("kill", (OWN_PID + 1, 9), _refused(errno.EPERM)),
        ("kill", (0xFFFFFFFF, 9), _refused(errno.EPERM)),
        ("kill", (0, 9), _refused(errno.EPERM)),
        ("tgkill", (OWN_PID, 1, 9), RET_ALLOW),
        ("tgkill", (1, 1, 9), _refused(errno.EPERM)),
        ("tkill", (OWN_PID, 9), _refused(errno.EPERM)),
        ("prctl", (15,), RET_ALLOW),  # PR_SET_NAME
        ("prctl", (1,), _refused(errno.EPERM)),  # PR_SET_PDEATHSIG
        ("prctl", (4,), _refused(errno.EPERM)),  # PR_SET_DUMPABLE
        ("prctl", (22,), _refused(errno.EPERM)),  # PR_SET_SECCOMP
        ("prlimit64", (0,), RET_ALLOW),
        ("prlimit64", (77,), _refused(errno.EPERM)),
        ("fcntl", (0, 3), RET_ALLOW),
        ("fcntl", (0, 8), _refused(errno.EPERM)),  # F_SETOWN
        ("ioctl", (0, 0x5401), RET_ALLOW),
        ("ioctl", (0, 0x5412), _refused(errno.ENOTTY)),  # TIOCSTI
        ("get_robust_list", (0,), RET_ALLOW),
        ("get_robust_list", (77,), _refused(errno.EPERM)),
        ("getsockopt", (3, 1, 4), RET_ALLOW),  # SO_ERROR
        ("getsockopt", (3, 1, 77), _refused(errno.EPERM)),  # SO_PEERPIDFD
        ("fallocate", (3, 0), RET_ALLOW),
        ("fallocate", (3, 1), _refused(errno.EOPNOTSUPP)),  # FALLOC_FL_KEEP_SIZE
        ("pipe2", (0, 0o2000000), RET_ALLOW),
        ("pipe2", (0, 0o200), _refused(errno.EPERM)),  # O_NOTIFICATION_PIPE
        ("fchmodat", (), _refused(0)),  # success, and nothing done
        ("utimensat", (), _refused(0)),
        ("setxattr", (), _refused(errno.ENOTSUP)),
        ("memfd_create", (), _refused(errno.EPERM)),
        ("setresuid", (), _refused(errno.EPERM)),
        ("sendmsg", (), _refused(errno.EPERM)),
        ("landlock_create_ruleset", (), _refused(errno.EPERM)),
        ("seccomp", (), _refused(errno.EPERM)),
        ("openat2", (), _refused(errno.ENOSYS)),
        ("process_madvise", (), _refused(errno.ENOSYS)),
    ],
)
def test_child_gets(machine: str, name: str, arguments: tuple[int, ...], answer: int) -> None:
    assert _answer(machine, name, *arguments) == answer


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["clone", "kill", "setresuid", "sendmsg", "landlock_restrict_self", "setsid"])
def test_zygote_may_set_children_up(machine: str, name: str) -> None:
    assert _answer(machine, name, 17, child=False) == RET_ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["execve", "socket", "mount", "ptrace", "memfd_create"])
def test_zygote_may_no_more_than_that(machine: str, name: str) -> None:
    assert _answer(machine, name, child=False) == _refused(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("openat", (0, 0, 0), _refused(errno.EACCES)),
        ("mkdirat", (), _refused(errno.EACCES)),
        ("renameat2", (), _refused(errno.EACCES)),
        ("newfstatat", (0, 0, 0, 0x1000), RET_ALLOW),  # AT_EMPTY_PATH: libc's fstat
        ("newfstatat", (0, 0, 0, 0), _refused(errno.EACCES)),
        ("statx", (0, 0, 0x1000), RET_ALLOW),
        ("statx", (0, 0, 0), _refused(errno.EACCES)),
        ("read", (), RET_ALLOW),
    ],
)
def test_sealed_child_gets_no_path(machine: str, name: str, arguments: tuple[int, ...], answer: int) -> None:
    assert _answer(machine, name, *arguments, sealed=True) == answer


def test_every_call_with_a_path_is_closed_when_sealed() -> None:
    by_descriptor = {"fstat", "fstatfs", "ftruncate"}
    for name in numbers("x86_64"):
        if re.search(r"(open|stat|link|dir|access|rename|^creat|chown|chmod|mknod|truncate|utime)", name):
            assert _answer("x86_64", name, sealed=True) != RET_ALLOW or name in by_descriptor, name


@pytest.mark.parametrize("machine", MACHINES)
def test_unknown_numbers_are_not_implemented(machine: str) -> None:
    for number in [*range(460, 1024), 0x7FFFFFFF]:
        assert _answer(machine, number) == _refused(errno.ENOSYS)


def test_x32_numbers_are_not_implemented() -> None:
    for number in numbers("x86_64").values():
        assert _answer("x86_64", 0x40000000 | number) == _refused(errno.ENOSYS)


@pytest.mark.parametrize(("machine", "foreign"), [("x86_64", 0x40000003), ("aarch64", 0x40000028)])
def test_foreign_architecture_kills(machine: str, foreign: int) -> None:
    """i386 and 32-bit arm."""
    filters = build_filters(machine, sealed=False)
    assert _evaluate(filters.service, foreign, 0, ()) == RET_KILL_PROCESS


def test_other_machines_are_refused() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        build_filters("riscv64", sealed=False)


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_the_kernels(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    if machine == "aarch64":
        found["newfstatat"] = found["fstatat"]
    ours = numbers(machine)
    assert {name: int(found[name]) for name in ours if name in found} == {n: ours[n] for n in ours if n in found}
    assert len([name for name in ours if name in found]) > 290
