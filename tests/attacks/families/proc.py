# ruff: noqa: E501
"""What /proc and /sys tell or allow."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "proc",
        {
            # Engines put /dev/null, which is empty, over some of these.
            name: f"r = attempt(open, f{path!r}, 'rb')\nif not isinstance(r, Exception) and (told := r.read(4096)): print(told, 'WON', sep='\\n')"
            for name, path in {
                "own environment": "/proc/self/environ",
                "own map": "/proc/self/maps",
                "own memory": "/proc/self/mem",
                "server's environment": "/proc/{SERVER}/environ",
                "server's command line": "/proc/{SERVER}/cmdline",
                "server's memory": "/proc/{SERVER}/mem",
                "zygote's memory": "/proc/{ZYGOTE}/mem",
                "parent's map": "/proc/{os.getppid()}/maps",
                "gold through process 1": "/proc/1/root{GOLD}",
                "gold through the server's directory": "/proc/{SERVER}/cwd/../{GOLD}",
                "kernel symbols": "/proc/kallsyms",
                "mounts": "/proc/self/mountinfo",
                "system": "/sys/kernel/mm/transparent_hugepage/enabled",
                "control group": "/sys/fs/cgroup/cgroup.procs",
                "zygote's environment": "/proc/{ZYGOTE}/environ",
                "parent's environment": "/proc/{os.getppid()}/environ",
                "parent's memory": "/proc/{os.getppid()}/mem",
                "own thread's memory": "/proc/thread-self/mem",
                "server's map": "/proc/{SERVER}/maps",
                "gold through the server's root": "/proc/{SERVER}/root{GOLD}",
                "server's standard output": "/proc/{SERVER}/fd/1",
                "own program": "/proc/self/exe",
                "own channel": "/proc/self/fd/3",
                "keys": "/proc/keys",
                "unix sockets": "/proc/net/unix",
                "timers": "/proc/timer_list",
                "kernel memory": "/proc/kcore",
                "own pages": "/proc/self/pagemap",
            }.items()
        }
        | {
            "spared by the memory killer": "won(attempt(open, '/proc/self/oom_score_adj', 'w'))",
            "sysrq": "won(attempt(open, '/proc/sysrq-trigger', 'w'))",
            "process list": "won(attempt(os.listdir, '/proc'))",
        },
        "",
    ),
    (
        "proc",
        {
            "settings written": """
for p in ('/proc/self/mem', '/proc/self/setgroups', '/proc/self/uid_map', '/proc/self/attr/current', '/proc/self/timerslack_ns', '/proc/self/clear_refs', '/proc/self/coredump_filter', '/proc/sys/kernel/core_pattern', '/proc/sys/vm/overcommit_memory', '/sys/fs/cgroup/cgroup.subtree_control', '/sys/kernel/mm/ksm/run'):
    won(attempt(os.open, p, os.O_WRONLY))""",
            "descriptors of others": """
for pid in (SERVER, ZYGOTE, os.getppid(), 'self', 1): won(attempt(os.listdir, f'/proc/{pid}/fd'))
for fd in range(64): won(attempt(os.open, f'/proc/{SERVER}/fd/{fd}', os.O_RDONLY))""",
        },
        "",
    ),
]
