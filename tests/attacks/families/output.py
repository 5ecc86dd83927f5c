# ruff: noqa: E501
"""Output without end, and results that cannot be shown."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "output",
        {
            "endless output": "while True: print('y' * 1000)",
            "endless error output": "while True: print('y' * 1000, file=sys.stderr)",
            "no newline": "while True: os.write(1, b'z' * 65536)",
            "thread that floods": """
import threading
def flood():
    while True: os.write(2, b'z' * 65536)
threading.Thread(target=flood, daemon=True).start()
flood()""",
        },
        "output_limit cpu_limit wall_limit",
    ),
    (
        "output",
        {
            "huge exception": "raise ValueError('e' * (100 << 20))",
            "huge value": "'v' * (100 << 20)",
            "huge traceback": "def f(n):\n    if n: f(n - 1)\n    else: 1 / 0\nsys.setrecursionlimit(5000)\nf(2000)",
            "unprintable exception": "class E(Exception):\n    def __str__(self): raise self\nraise E",
            "unprintable value": "class V:\n    def __repr__(self): raise SystemExit(0)\nV()",
            "exception chain": """
e = None
for i in range(3000):
    n = ValueError(i)
    n.__cause__ = e
    e = n
raise e""",
            "closed output": "sys.stdout.close()\nsys.stderr.close()\nos.close(1)\nos.close(2)",
            "replaced output": "sys.stdout = None\nsys.stderr = None",
            "broken output": "class S:\n    def flush(self): raise BaseException\n    write = flush\nsys.stdout = sys.stderr = S()",
        },
        "",
    ),
    (
        "output",
        {
            "output that does not block": """
os.set_blocking(1, False)
while True:
    try: os.write(1, b'z' * 65536)
    except OSError: pass""",
            "output in packets": """
import fcntl
attempt(fcntl.fcntl, 1, fcntl.F_SETFL, os.O_DIRECT | os.O_WRONLY)
while True: os.write(1, b'z' * 4096)""",
        },
        "output_limit cpu_limit wall_limit",
    ),
    (
        "output",
        {
            "value that lies about its length": """
class S(str):
    def __len__(self): return 1
    def __getitem__(self, key): return self
class V:
    def __repr__(self): return S('v' * (4 << 20))
V()""",
            "class without a name": """
class M(type):
    @property
    def __name__(self): raise SystemExit
class E(Exception, metaclass=M):
    def __str__(self): raise self
raise E""",
            "exit status that cannot be shown": """
class C:
    def __str__(self): raise MemoryError
raise SystemExit(C())""",
            "huge syntax error": "raise SyntaxError('x', ('f', 1, 1, 'y' * (50 << 20)))",
            "huge note": """
e = ValueError()
e.add_note('n' * (50 << 20))
raise e""",
            "nested groups": """
e = ValueError()
for _ in range(20_000): e = ExceptionGroup('g', [e])
raise e""",
            "wide groups": """
e = ValueError('x' * 1000)
for _ in range(6): e = ExceptionGroup('g', [e] * 15)
raise e""",
            "cause of itself": """
e = ValueError()
e.__cause__ = e.__context__ = e
raise e""",
        },
        "",
    ),
]
