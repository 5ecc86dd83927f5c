# ruff: noqa: E501
"""What /proc and /sys tell or allow."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "proc",
        {
            name: f"r = attempt(open, f{path!r}, 'rb')\nif not isinstance(r, Exception): print(r.read(4096)); print('WON')"
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
            }.items()
        }
        | {
            "spared by the memory killer": "won(attempt(open, '/proc/self/oom_score_adj', 'w'))",
            "sysrq": "won(attempt(open, '/proc/sysrq-trigger', 'w'))",
            "process list": "won(attempt(os.listdir, '/proc'))",
        },
        "",
    ),
]
