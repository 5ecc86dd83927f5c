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
]
