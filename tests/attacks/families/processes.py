# ruff: noqa: E501
"""Processes that multiply, outlive the run, or run another program; threads without number."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "processes",
        {
            "fork": "pid = attempt(os.fork)\nif pid == 0: os._exit(0)\nwon(pid)",
            "fork bomb": "while True:\n    os.fork()",
            "raw fork": "pid = syscall('fork')\nif pid == 0: os._exit(0)\nif pid > 0: print('WON')",
            "raw vfork": "if syscall('vfork') > 0: print('WON')",
            "raw clone": "pid = syscall('clone', 17, 0, 0, 0, 0)\nif pid == 0: os._exit(0)\nif pid > 0: print('WON')",
            "clone3": """
args = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)
pid = syscall('clone3', args, 88)
if pid == 0: os._exit(0)
if pid > 0: print('WON')""",
            "daemon that outlives the run": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import time
        time.sleep(3)
    os._exit(0)
print('WON')""",
            "exec": "attempt(os.execv, '/bin/sh', ['sh', '-c', 'echo WON'])",
            "execveat": "fd = os.open('/bin/sh', os.O_RDONLY)\nsyscall('execveat', fd, b'', None, None, 0x1000)\nprint('WON')",
            "posix_spawn": "won(attempt(os.posix_spawn, '/bin/true', ['true'], {}))",
            "os.system": "if os.system('true') == 0: print('WON')",
            "subprocess": "import subprocess\nwon(attempt(subprocess.run, [sys.executable, '-c', 'print(1)']))",
            "multiprocessing": """
import multiprocessing as m
won(attempt(m.get_context('fork').Process(target=print).start))""",
            "process pool": """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1) as pool:
    if pool.submit(abs, -1).result() == 1: print('WON')""",
            "pty": "import pty\nwon(attempt(pty.fork))",
            "own session again": "won(attempt(os.setsid))",
            "thread bomb": """
import threading, time
threads = 0
try:
    for _ in range(2000):
        threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        threads += 1
except RuntimeError:
    pass
if threads >= 1000: print('WON')
os._exit(0)""",
        },
        "",
    ),
]
