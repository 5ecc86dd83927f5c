# ruff: noqa: E501
"""System calls by number, from machine code, and in foreign conventions."""

import platform

X86 = platform.machine() == "x86_64"

_FORBIDDEN = """
ptrace personality pivot_root adjtimex chroot acct mount umount2 swapon reboot sethostname iopl ioperm init_module
quotactl io_setup kexec_load add_key request_key keyctl inotify_init unshare splice vmsplice perf_event_open
fanotify_init name_to_handle_at open_by_handle_at setns process_vm_readv process_vm_writev kcmp seccomp bpf
userfaultfd pidfd_send_signal io_uring_setup open_tree fsopen openat2 pidfd_getfd process_madvise mount_setattr
landlock_create_ruleset
"""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "system calls",
        {
            "refused without exception": f"""
for number in {_FORBIDDEN!r}.split():
    ctypes.set_errno(0)
    result = syscall(number, 0, 0, 0, 0, 0, 0)
    if result >= 0 or ctypes.get_errno() not in (1, 38): print('WON', number, result, ctypes.get_errno())""",
            "numbers that do not exist yet": """
for number in range(453, 1000):
    ctypes.set_errno(0)
    if syscall(number, 0, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 38: print('WON', number)""",
            "namespaces": "for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000):\n    if libc.unshare(flag) == 0: print('WON')",
            "clone into namespaces": "if syscall('clone', 0x10000000 | 17, 0, 0, 0, 0) > 0: print('WON')",
            "trace me": "if libc.ptrace(0, 0, 0, 0) == 0: print('WON')",
            "attach": "if libc.ptrace(16, os.getppid(), 0, 0) == 0: print('WON')",
            "read the parent's memory": """
buffer = ctypes.create_string_buffer(64)
iov = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)
remote = (ctypes.c_void_p * 2)(id(os), 64)
if syscall('process_vm_readv', os.getppid(), iov, 1, remote, 1, 0) > 0: print('WON')""",
            "become root": "for uid in (0, 1, 65534):\n    won(attempt(os.setresuid, uid, uid, uid))\n    won(attempt(os.setgid, uid))",
            "drop groups": "won(attempt(os.setgroups, []))",
            "terminal input": "import fcntl, termios\nfor fd in range(3): won(attempt(fcntl.ioctl, fd, termios.TIOCSTI, b'x'))",
            "asynchronous input": "import fcntl\nr, w = os.pipe()\nwon(attempt(fcntl.ioctl, r, 0x5452, b'\\1\\0\\0\\0'))",
            "pipe size": "import fcntl\nr, w = os.pipe()\nwon(attempt(fcntl.fcntl, r, 1031, 1 << 20))",
            "notification pipe": "fds = (ctypes.c_int * 2)()\nif libc.pipe2(fds, 0o200) == 0: print('WON')",
            "watch files": "if libc.inotify_init() >= 0: print('WON')",
        }
        | (
            {
                "x32 numbers": """
for number in (39, 57, 41, 59, 2):
    ctypes.set_errno(0)
    if syscall(0x40000000 | number, 0, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() != 38: print('WON', number)""",
                "32-bit calls": """
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')  # mov eax, 20 (getpid); int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0: print('WON')""",
                "socket from machine code": """
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b'\\xbf\\x02\\0\\0\\0\\xbe\\x01\\0\\0\\0\\x31\\xd2\\xb8\\x29\\0\\0\\0\\x0f\\x05\\xc3')  # socket(2, 1, 0)
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
if ctypes.CFUNCTYPE(ctypes.c_long)(address)() >= 0: print('WON')""",
            }
            if X86
            else {}
        ),
        "",
    ),
]
