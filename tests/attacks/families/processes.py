# ruff: noqa: E501
"""Processes that multiply, outlive the run, or run another program; threads without number."""

import platform

X86 = platform.machine() == "x86_64"

# spawn(flags): clone from machine code (x86-64); what it starts shares all memory and only waits.
_SPAWN = r"""
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(
    b'\xb8\x38\0\0\0\x31\xd2\x4d\x31\xd2\x4d\x31\xc0\x0f\x05'  # clone(flags, stack, 0, 0, 0)
    b'\x85\xc0\x75\x09\xb8\x22\0\0\0\x0f\x05\xeb\xf7\xc3'  # in the parent return; else pause() for ever
)
stack = ctypes.create_string_buffer(4096)
start = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
def spawn(flags):
    return start(flags, (ctypes.addressof(stack) + 4000) & ~15)
"""

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
    (
        "processes",
        {
            "threads with small stacks": """
import threading, time
threading.stack_size(32768)
threads = 0
try:
    for _ in range(20_000):
        threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        threads += 1
except RuntimeError:
    pass
if threads >= 3000: print('WON', threads)
os._exit(0)""",
            "thread pool without end": """
from concurrent.futures import ThreadPoolExecutor
import time
pool = ThreadPoolExecutor(10_000)
for _ in range(10_000): pool.submit(time.sleep, 5)
print('WON')""",
        },
        "",
    ),
    (
        "processes",
        {
            "threads without stacks": _SPAWN
            + """
threads = 0
while spawn(0x3d0f00) > 0: threads += 1
if threads > 4000: print('WON', threads)""",
            "threads with descriptors of their own": _SPAWN
            + "for flags in (0x10f00, 0x10b00, 0x10d00, 0x10900, 0x3d0b00): print(spawn(flags) > 0 and 'WON')",
            "threads in namespaces": _SPAWN
            + "for bit in (17, 25, 26, 27, 28, 29, 30): print(spawn(0x3d0f00 | 1 << bit) > 0 and 'WON')",
            "thread with a handle": _SPAWN + "print(spawn(0x3d0f00 | 0x1000) > 0 and 'WON')",
        }
        if X86
        else {},
        "",
    ),
]
