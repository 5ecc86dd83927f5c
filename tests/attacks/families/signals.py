# ruff: noqa: E501
"""Signals and handles to other processes; priorities and limits."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "signals",
        {
            "kill the parent": "won(attempt(os.kill, os.getppid(), 0))\nattempt(os.kill, os.getppid(), 9)",
            "kill the server": "won(attempt(os.kill, SERVER, 0))",
            "kill the zygote": "won(attempt(os.kill, ZYGOTE, 0))\nattempt(os.kill, ZYGOTE, 9)",
            "kill everything": "won(attempt(os.kill, -1, 0))",
            "kill the group": "won(attempt(os.kill, 0, 0))\nwon(attempt(os.killpg, os.getpgrp(), 0))",
            "tkill": "if syscall('tkill', SERVER, 0) == 0: print('WON')",
            "tgkill": "if syscall('tgkill', SERVER, SERVER, 0) == 0: print('WON')",
            "rt_sigqueueinfo": "if syscall('rt_sigqueueinfo', SERVER, 0, ctypes.create_string_buffer(128)) == 0: print('WON')",
            "pidfd": "won(attempt(os.pidfd_open, os.getppid()))",
            "pidfd of itself": "won(attempt(os.pidfd_open, os.getpid()))",
            "pidfd by number": """
import signal
for fd in range(3, 64):
    try: signal.pidfd_send_signal(fd, 0)
    except OSError: continue
    print('WON')""",
            "owner of SIGIO": """
import fcntl
r, w = os.pipe()
won(attempt(fcntl.fcntl, r, fcntl.F_SETOWN, SERVER))
won(attempt(fcntl.fcntl, r, fcntl.F_SETSIG, 9))""",
            "niceness": "won(attempt(os.setpriority, os.PRIO_PROCESS, os.getppid(), 19))\nwon(attempt(os.nice, -10))",
            "survive the parent": "if libc.prctl(1, 0) == 0: print('WON')",
            "become traceable": "if libc.prctl(4, 1) == 0: print('WON')",
            "affinity": "won(attempt(os.sched_setaffinity, 0, {0}))",
            "limits of another": "import resource\nwon(attempt(resource.prlimit, os.getppid(), resource.RLIMIT_NOFILE, (1, 1)))",
            "limits raised": """
import resource
for name in ('AS', 'NOFILE', 'FSIZE', 'CORE'):
    won(attempt(resource.setrlimit, getattr(resource, 'RLIMIT_' + name), (1 << 40, 1 << 40)))""",
        },
        "",
    ),
    (
        "signals",
        {
            "handle of the server through the channel": """
length, handle = ctypes.c_int(4), ctypes.c_int(-1)
if libc.getsockopt(3, 1, 77, ctypes.byref(handle), ctypes.byref(length)) == 0: print('WON', handle.value)  # SO_PEERPIDFD""",
            "handle of a pair's maker": """
import socket
a, b = socket.socketpair()
length, handle = ctypes.c_int(4), ctypes.c_int(-1)
if libc.getsockopt(a.fileno(), 1, 77, ctypes.byref(handle), ctypes.byref(length)) == 0: print('WON')
won(attempt(a.setsockopt, 1, 16, 1))  # SO_PASSCRED
won(attempt(a.setsockopt, 1, 76, 1))  # SO_PASSPIDFD
won(attempt(a.setsockopt, 1, 26, bytes(16)))  # SO_ATTACH_FILTER""",
            "timer to another's thread": """
timer = ctypes.c_long()
for tid in (ZYGOTE, SERVER, os.getppid(), 1):
    event = (ctypes.c_int * 16)(0, 0, 9, 4, tid)  # SIGKILL, SIGEV_THREAD_ID
    if libc.syscall(ctypes.c_long(NR['timer_create']), 1, event, ctypes.byref(timer)) == 0: print('WON')""",
            "locks of another's threads": """
head, size = ctypes.c_void_p(), ctypes.c_size_t()
for pid in (ZYGOTE, SERVER, os.getppid()):
    if libc.syscall(ctypes.c_long(NR['get_robust_list']), pid, ctypes.byref(head), ctypes.byref(size)) == 0: print('WON')""",
            "leases and notices of files": """
import fcntl
f = os.open('f', os.O_CREAT | os.O_RDWR)
for fd in (f, os.open('.', os.O_RDONLY)):
    for command in (1024, 1026, 1033, 8, 10, 15, 1036):  # F_SETLEASE, F_NOTIFY, F_ADD_SEALS, F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SET_RW_HINT
        won(attempt(fcntl.fcntl, fd, command, 1))""",
            "scheduling": """
for name in ('sched_setscheduler', 'sched_setparam', 'sched_setattr', 'ioprio_set', 'setpriority', 'sched_setaffinity'):
    if syscall(name, 0, 0, ctypes.create_string_buffer(64), 0) == 0: print('WON', name)""",
            "the clock": """
import time
won(attempt(time.clock_settime, time.CLOCK_REALTIME, 0))
if syscall('adjtimex', ctypes.create_string_buffer(512)) >= 0: print('WON')""",
        },
        "",
    ),
]
