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
]
