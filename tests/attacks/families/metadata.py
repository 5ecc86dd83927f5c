# ruff: noqa: E501
"""Modes, times, owners and sizes of files outside."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "metadata",
        {
            "mode": "attempt(os.chmod, GOLD, 0)\nattempt(os.chmod, GOLD_DIR, 0)",
            "times": "attempt(os.utime, GOLD, (1, 1))\nattempt(os.utime, GOLD_DIR, (1, 1))",
            "owner": "won(attempt(os.chown, GOLD, os.getuid(), -1))",
            "truncate": "attempt(os.truncate, GOLD, 0)",
            "O_TRUNC on a read-only open": "attempt(os.open, GOLD, os.O_RDONLY | os.O_TRUNC)",
            "open to write": "won(attempt(os.open, GOLD, os.O_WRONLY))\nwon(attempt(os.open, GOLD, os.O_RDWR | os.O_TRUNC))",
            "creat": "if libc.creat(GOLD.encode(), 0o600) >= 0: print('WON')",
            "extended attribute": "won(attempt(os.setxattr, GOLD, 'user.test', b'1'))\nwon(attempt(os.removexattr, GOLD, 'user.none'))",
            "mode of a library": "import json\nbefore = os.stat(os.__file__).st_mode if os.path.exists(os.__file__) else 0\nattempt(os.chmod, os.__file__, 0o777)\nif before and os.stat(os.__file__).st_mode != before: print('WON')",
            "set-uid file": "f = open('s', 'w')\nattempt(os.fchmod, f.fileno(), 0o4777)\nif os.fstat(f.fileno()).st_mode & 0o4000: print('WON')",
        },
        "",
    ),
]
