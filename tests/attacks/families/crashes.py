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
    (
        "crashes",
        {
            "freed twice": """
libc.malloc.restype = ctypes.c_void_p
p = ctypes.c_void_p(libc.malloc(64))
libc.free(p)
libc.free(p)""",
            "no processor time": """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (0, 0))
while True: pass""",
            "no memory": """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1, 1))
[0] * 10**7""",
            "no descriptors": """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
print('x')""",
            "no stack": """
import resource
resource.setrlimit(resource.RLIMIT_STACK, (1, 1))
def f(n): return n and f(n - 1)
f(900)""",
            "no output": """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print('x')""",
            "exit in a destructor": """
class D:
    def __del__(self): os._exit(0)
d = D()
raise ValueError(d)""",
            "exit in a thread after the end": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.001), os._exit(0))).start()""",
            "dead in a thread after the end": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.001), os.kill(os.getpid(), 9))).start()""",
        },
        "",
    ),
]
