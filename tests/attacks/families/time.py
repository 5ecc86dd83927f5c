# ruff: noqa: E501
"""Processor time and wall clock: code that never ends, and code that will not be interrupted."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "cpu",
        {
            "busy loop": "while True: pass",
            "huge power": "x = 7 ** (10 ** 9)",
            "regular expression": "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
            "swallowed interrupt": """
def work(): sum(range(1000))
while True:
    try:
        while True: work()
    except BaseException: pass""",
            "ignored interrupt": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
            "hashing threads": """
import hashlib, threading
def work():
    while True: hashlib.sha256(bytes(1 << 20)).digest()
for _ in range(8): threading.Thread(target=work, daemon=True).start()
work()""",
            "sum in C": "sum(range(10 ** 12))",
            "interrupt handler that loops": """
import signal
def handler(*_):
    while True: pass
signal.signal(signal.SIGINT, handler)
while True: pass""",
            "CPU limit raised": """
import resource
attempt(resource.setrlimit, resource.RLIMIT_CPU, (resource.RLIM_INFINITY,) * 2)
while True: pass""",
        },
        "cpu_limit wall_limit",
    ),
    (
        "wall clock",
        {
            "sleep": "import time\ntime.sleep(100)",
            "blocked signals": """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
while True: time.sleep(100)""",
            "stopped": "import signal\nos.kill(os.getpid(), signal.SIGSTOP)",
            "deadlock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
            "endless thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()",
            "exit handler": "import atexit, time\natexit.register(time.sleep, 100)",
            "select": "import select\nselect.select([], [], [])",
            "reading the channel": "os.read(3, 1)",
            "pipe with no writer": "r, w = os.pipe()\nos.read(r, 1)",
            "destructor": "class A:\n    def __del__(self):\n        import time\n        time.sleep(100)\na = A()\ndel a",
        },
        "wall_limit",
    ),
    (
        "cpu",
        {
            "soft limit that is ignored": """
import resource, signal
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_CPU, (1, resource.getrlimit(resource.RLIMIT_CPU)[1]))
while True: pass""",
            "timer that fires all the time": """
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
while True:
    try:
        while True: pass
    except BaseException: pass""",
            "threads that start threads": """
import threading
def work():
    while True:
        try: threading.Thread(target=work, daemon=True).start()
        except RuntimeError: pass
work()""",
        },
        "cpu_limit wall_limit thread_limit",
    ),
    (
        "cpu",
        {
            "directory of a traceback's object": """
class O:
    def __dir__(self):
        while True: pass
raise AttributeError('x', name='x', obj=O())""",
            "cause that never ends": """
class E(Exception):
    @property
    def __cause__(self): return E()
raise E""",
        },
        "error cpu_limit wall_limit",
    ),
    (
        "wall clock",
        {
            "interrupt handler that sleeps": """
import signal, time
signal.signal(signal.SIGINT, lambda *_: time.sleep(100))
time.sleep(100)""",
            "exit that was taken away": """
os._exit = lambda *_: None
sys.exit = os._exit
import time
while True: time.sleep(9)""",
        },
        "wall_limit",
    ),
]
