"""The two seccomp filters, assembled here in the server and handed to the zygote as bytes.

`service` is an allow-list, loaded once by the zygote and inherited by every child. `child` is small and loaded by each
child last: it takes away what only setting a child up needs, and lets signals reach the child's own pid alone. The
kernel runs both and takes the stricter answer. Being an allow-list, the first refuses what it does not know: later
system calls, x32 numbers (bit 30 set), and foreign calling conventions, which kill.
"""

import errno
import struct
from typing import NamedTuple

from rolloutgym.server.sandbox.syscalls import AUDIT_ARCH, numbers

Instruction = tuple[int, int, int, int]  # struct sock_filter: code, jump if true, jump if false, operand

# <linux/bpf_common.h>: class | size or operation | source
LD_ABS = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
JEQ = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JSET = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RET = 0x06  # BPF_RET | BPF_K

# <linux/seccomp.h>
RET_KILL_PROCESS = 0x80000000
RET_ERRNO = 0x00050000
RET_ALLOW = 0x7FFF0000
DATA_NR, DATA_ARCH, DATA_ARGS = 0, 4, 16  # offsets in struct seccomp_data

PID_PLACEHOLDER = struct.pack("=I", 0x7ABCDEF1)
"""Stands in the child filter for the child's pid, which it puts in itself."""


def _words(text: str) -> list[str]:
    return text.split()


ALLOWED = _words("""
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3 creat
stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getcwd chdir fchdir getdents
getdents64 mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat ftruncate
umask fsync fdatasync flock statfs fstatfs sendfile copy_file_range fadvise64 mmap munmap mprotect mremap
madvise brk msync membarrier exit exit_group wait4 waitid futex futex_waitv set_robust_list rseq
set_tid_address arch_prctl rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend
sigaltstack restart_syscall pause getpid getppid gettid getuid geteuid getgid getegid getgroups getresuid getresgid
getpgrp getpgid getsid uname sysinfo getrlimit setrlimit getrusage times clock_gettime clock_getres clock_nanosleep
nanosleep gettimeofday time setitimer getitimer alarm timer_create timer_settime timer_gettime timer_delete
timer_getoverrun timerfd_create timerfd_settime timerfd_gettime sched_yield sched_getaffinity sched_getparam
sched_getscheduler sched_get_priority_max sched_get_priority_min getpriority getcpu getrandom epoll_create
epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 poll ppoll select pselect6 eventfd eventfd2 pipe
recvfrom shutdown getsockname getpeername
""")

SETUP_ONLY = _words("""
fork vfork clone kill tgkill setsid sendmsg recvmsg setresuid setresgid setgroups chown fchownat prctl
seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
""")
"""Allowed to the zygote and to a child that is being set up; the child filter refuses or narrows every one."""

WITHOUT_EFFECT = _words("chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat")
"""Answered with success and not done: Landlock governs no metadata, and libraries (shutil.copy) give up on an error."""

NOT_SUPPORTED = _words("""
setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr
fremovexattr
""")

REFUSED = _words("""
execve execveat socket connect bind listen accept accept4 setsockopt sendmmsg recvmmsg ptrace process_vm_readv
process_vm_writev kcmp pidfd_open pidfd_send_signal pidfd_getfd tkill rt_sigqueueinfo rt_tgsigqueueinfo setpgid
mount umount2 unshare setns setpriority chroot pivot_root keyctl add_key request_key bpf perf_event_open userfaultfd
io_uring_setup io_uring_enter io_uring_register io_setup memfd_create memfd_secret shmget shmat semget msgget mq_open
setuid setgid setreuid setregid setfsuid setfsgid personality mknod mknodat fchown lchown truncate
sched_setaffinity sched_setscheduler sched_setparam sched_setattr ioprio_set mlock mlockall mlock2 splice tee vmsplice
inotify_init inotify_init1 fanotify_init name_to_handle_at open_by_handle_at init_module finit_module delete_module
kexec_load reboot swapon swapoff sethostname setdomainname acct quotactl syslog clock_settime settimeofday adjtimex
""")
"""Would be refused anyway (ENOSYS); named for the clearer EPERM."""

PATH_CALLS = _words("""
open openat creat stat lstat access faccessat faccessat2 readlink readlinkat chdir fchdir mkdir mkdirat rmdir unlink
unlinkat rename renameat renameat2 link linkat symlink symlinkat statfs
""")
"""Refused in sealed mode."""

# CLONE_VM, …FS, …FILES, …SIGHAND, …THREAD, …SYSVSEM, …SETTLS, …PARENT_SETTID, …CHILD_CLEARTID: what a C library starts
# a thread with, with musl's CLONE_DETACHED (which does nothing) and without. A thread without CLONE_FILES would have a
# table of descriptors, and so a limit on them, of its own.
CLONE_OF_THREAD = (0x003D0F00, 0x007D0F00)
CLONE_NEW_ANY = 0x7E020000  # CLONE_NEWNS, …CGROUP, …UTS, …IPC, …USER, …PID, …NET
O_TRUNC, O_ACCMODE, O_NOTIFICATION_PIPE = 0o1000, 3, 0o200
AT_EMPTY_PATH = 0x1000
AF_UNIX, SOCK_STREAM, SOCK_TYPE_MASK = 1, 1, 0xF

# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW,
# F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_GET_SEALS: not F_SETOWN and F_SETSIG (signals to others), F_SETPIPE_SZ, F_NOTIFY.
FCNTL_ALLOWED = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: not FIOASYNC, TIOCSTI.
IOCTL_ALLOWED = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN: not SO_PEERPIDFD (a handle of the
# server's process).
SOCKET_OPTIONS_READ = (3, 4, 7, 8, 30, 38, 39)
# PR_SET_NAME, PR_GET_NAME, PR_SET_VMA (glibc names its arenas), PR_GET_DUMPABLE, PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP.
PRCTL_ALLOWED = (15, 16, 0x53564D41, 3, 39, 21)
# PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP.
PRCTL_SETUP = (1, 4, 38, 22)


class Filters(NamedTuple):
    service: bytes
    child: bytes


def _ret(action: int) -> list[Instruction]:
    return [(RET, 0, 0, action)]


def _error(number: int) -> int:
    return RET_ERRNO | number


def _load_argument(index: int, *, high: bool = False) -> Instruction:
    return (LD_ABS, 0, 0, DATA_ARGS + 8 * index + (4 if high else 0))  # both architectures are little-endian


def _argument_in(index: int, values: tuple[int, ...], refusal: int) -> list[Instruction]:
    """Allow if the low half of the argument is among `values`. For arguments that the kernel takes as 32 bits."""
    tests: list[Instruction] = [(JEQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_load_argument(index), *tests, *_ret(refusal), *_ret(RET_ALLOW)]


def _argument_zero(index: int, refusal: int) -> list[Instruction]:
    """Allow if all 64 bits of the argument are zero: a null pointer."""
    return [
        _load_argument(index),
        (JEQ, 0, 3, 0),
        _load_argument(index, high=True),
        (JEQ, 0, 1, 0),
        *_ret(RET_ALLOW),
        *_ret(refusal),
    ]


def _argument_bits(index: int, bits: int, *, any_set: int, none_set: int) -> list[Instruction]:
    return [_load_argument(index), (JSET, 0, 1, bits), *_ret(any_set), *_ret(none_set)]


def _open_rule(flags_argument: int) -> list[Instruction]:
    """O_TRUNC needs a writable open: read-only with O_TRUNC cuts a file, and Landlock before ABI 3 does not see it."""
    return [
        _load_argument(flags_argument),
        (JSET, 0, 3, O_TRUNC),
        (AND, 0, 0, O_ACCMODE),
        (JEQ, 0, 1, 0),
        *_ret(_error(errno.EACCES)),
        *_ret(RET_ALLOW),
    ]


def _socketpair_rule() -> list[Instruction]:
    """Unix stream pairs only (asyncio needs them): a datagram socket could still send to any address."""
    return [
        _load_argument(0),
        (JEQ, 0, 4, AF_UNIX),
        _load_argument(1),
        (AND, 0, 0, SOCK_TYPE_MASK),
        (JEQ, 0, 1, SOCK_STREAM),
        *_ret(RET_ALLOW),
        *_ret(_error(errno.EPERM)),
    ]


class _Program:
    """A chain of tests on the system-call number. The first rule for a name wins; a name that the architecture does not
    have is left out."""

    def __init__(self, machine: str) -> None:
        self._numbers = numbers(machine)
        self._seen: set[str] = set()
        self._instructions: list[Instruction] = [
            (LD_ABS, 0, 0, DATA_ARCH),
            (JEQ, 1, 0, AUDIT_ARCH[machine]),
            *_ret(RET_KILL_PROCESS),
            (LD_ABS, 0, 0, DATA_NR),
        ]

    def rule(self, names: list[str] | str, body: list[Instruction]) -> None:
        """When the number matches run `body`, which must end in a return."""
        for name in [names] if isinstance(names, str) else names:
            if name in self._numbers and name not in self._seen:
                self._seen.add(name)
                self._instructions += [(JEQ, 0, len(body), self._numbers[name]), *body]

    def assemble(self, default: int) -> bytes:
        self._instructions += _ret(default)
        if len(self._instructions) > 4096:  # BPF_MAXINSNS
            raise ValueError("the filter is too long for the kernel")
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self._instructions)


def _service_filter(machine: str) -> bytes:
    denied = _error(errno.EPERM)
    program = _Program(machine)
    program.rule("clone3", _ret(_error(errno.ENOSYS)))  # its flags are behind a pointer; libc then falls back to clone
    program.rule("clone", _argument_bits(0, CLONE_NEW_ANY, any_set=denied, none_set=RET_ALLOW))
    program.rule("open", _open_rule(1))
    program.rule("openat", _open_rule(2))
    program.rule("fcntl", _argument_in(1, FCNTL_ALLOWED, denied))
    program.rule("ioctl", _argument_in(1, IOCTL_ALLOWED, _error(errno.ENOTTY)))
    program.rule("prctl", _argument_in(0, PRCTL_ALLOWED + PRCTL_SETUP, denied))
    program.rule("prlimit64", _argument_in(0, (0,), denied))  # own limits only
    program.rule("get_robust_list", _argument_in(0, (0,), denied))  # own only
    program.rule("pipe2", _argument_bits(1, O_NOTIFICATION_PIPE, any_set=denied, none_set=RET_ALLOW))
    program.rule("socketpair", _socketpair_rule())
    program.rule("getsockopt", _argument_in(2, SOCKET_OPTIONS_READ, denied))
    # No mode but the plain one: FALLOC_FL_KEEP_SIZE takes space without regard to RLIMIT_FSIZE on many file systems.
    program.rule("fallocate", _argument_in(1, (0,), _error(errno.EOPNOTSUPP)))
    program.rule("sendto", _argument_zero(4, denied))  # no destination address
    program.rule(ALLOWED, _ret(RET_ALLOW))
    program.rule(SETUP_ONLY, _ret(RET_ALLOW))
    program.rule(WITHOUT_EFFECT, _ret(_error(0)))
    program.rule(NOT_SUPPORTED, _ret(_error(errno.ENOTSUP)))
    program.rule(REFUSED, _ret(denied))
    return program.assemble(_error(errno.ENOSYS))


def _child_filter(machine: str, *, sealed: bool) -> bytes:
    denied = _error(errno.EPERM)
    (pid,) = struct.unpack("=I", PID_PLACEHOLDER)
    program = _Program(machine)
    program.rule("clone", _argument_in(0, CLONE_OF_THREAD, denied))
    program.rule(["kill", "tgkill"], _argument_in(0, (pid,), denied))
    program.rule("prctl", _argument_in(0, PRCTL_ALLOWED, denied))
    if sealed:
        unreachable = _error(errno.EACCES)
        program.rule(PATH_CALLS, _ret(unreachable))
        # libc's fstat is one of these with an empty path
        program.rule("newfstatat", _argument_bits(3, AT_EMPTY_PATH, any_set=RET_ALLOW, none_set=unreachable))
        program.rule("statx", _argument_bits(2, AT_EMPTY_PATH, any_set=RET_ALLOW, none_set=unreachable))
    program.rule(SETUP_ONLY, _ret(denied))
    return program.assemble(RET_ALLOW)


def build_filters(machine: str, *, sealed: bool) -> Filters:
    """Both filters as arrays of `struct sock_filter`. `ValueError` for an unsupported architecture."""
    return Filters(_service_filter(machine), _child_filter(machine, sealed=sealed))
