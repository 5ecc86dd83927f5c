# ruff: noqa: E501
"""Crashes, and signals to oneself."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "crashes",
        {
            "null pointer": "ctypes.string_at(0)",
            "abort": "os.abort()",
            "killed by itself": "os.kill(os.getpid(), 9)",
            "deep C recursion": "sys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
            "deep C structures": "sys.setrecursionlimit(10 ** 9)\na = []\nfor _ in range(10**6): a = [a]\nrepr(a)",
            "broken bytecode": "f = lambda: 0\nf.__code__ = f.__code__.replace(co_code=b'\\x64\\xff' * 100, co_consts=())\nf()",
            "smashed stack": "ctypes.memset(id(None), 0xff, 64)",
            "alarm": "import signal\nsignal.alarm(1)\nsignal.pause()",
            "every signal": "import signal, time\nfor s in (1, 2, 3, 13, 15):\n    signal.signal(s, signal.SIG_IGN)\n    os.kill(os.getpid(), s)",
        },
        "",
    ),
]
