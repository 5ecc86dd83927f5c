# ruff: noqa: E501
"""Memory beyond the limit, in each form that the kernel has."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "memory",
        {
            "bytearray": "won(attempt(bytearray, 4 << 30))",
            "growing list": "data = []\nwhile True:\n    data.append(bytearray(8 << 20))\n    if len(data) > 400: print('WON'); break",
            "string": "s = 'x' * (3 << 30)\nprint('WON')",
            "shifted integer": "n = 1 << (8 * (3 << 30))\nprint('WON')",
            "zip bomb": """
import zlib
packed = zlib.compress(bytes(64 << 20), 9)
out = []
for _ in range(100): out.append(zlib.decompress(packed))
print('WON')""",
            "shared mapping": "import mmap\nwon(attempt(mmap.mmap, -1, 3 << 30))",
            "nested lists": "a = []\nfor _ in range(10**8): a = [a, [0] * 1000]\nprint('WON')",
        },
        "memory_limit cpu_limit wall_limit error ok",
    ),
    (
        "memory",
        {
            "memfd": "won(attempt(os.memfd_create, 'm'))",
            "memfd_secret": "if syscall('memfd_secret', 0) >= 0: print('WON')",
            "system V memory": "if libc.shmget(0, 1 << 20, 0o1600) >= 0: print('WON')",
            "system V semaphore": "if libc.semget(0, 1, 0o1600) >= 0: print('WON')",
            "system V queue": "if libc.msgget(0, 0o1600) >= 0: print('WON')",
            "POSIX queue": "if syscall('mq_open', b'q', 0o102, 0o600, None) >= 0: print('WON')",
            "/dev/shm": "won(attempt(open, '/dev/shm/sandbox-test', 'w'))",
            "shared memory object": """
from multiprocessing.shared_memory import SharedMemory
won(attempt(SharedMemory, create=True, size=1 << 20))""",
            "locked memory": "if libc.mlock(ctypes.create_string_buffer(1 << 20), 1 << 20) == 0: print('WON')",
        },
        "",
    ),
    (
        "memory",
        {
            "shared mapping of /dev/zero": """
import mmap
won(attempt(mmap.mmap, os.open('/dev/zero', os.O_RDWR), 3 << 30))
won(attempt(mmap.mmap, os.open('/dev/zero', os.O_RDONLY), 3 << 30, prot=mmap.PROT_READ))""",
            "anonymous mappings in turn": """
import mmap
maps = []
try:
    while len(maps) < 4000: maps.append(mmap.mmap(-1, 1 << 20))
except OSError:
    pass
if len(maps) > 2000: print('WON', len(maps))""",
            "deleted files that stay mapped": """
import mmap
maps = []
try:
    while len(maps) < 200:
        f = os.open('f', os.O_CREAT | os.O_RDWR)
        os.ftruncate(f, 15 << 20)
        maps.append(mmap.mmap(f, 0))
        os.close(f)
        os.unlink('f')
except OSError:
    pass
if len(maps) > 100: print('WON', len(maps))""",
            "timers": """
made = 0
timer = ctypes.c_long()
while made < 20_000 and libc.syscall(ctypes.c_long(NR['timer_create']), 0, None, ctypes.byref(timer)) == 0: made += 1
if made >= 20_000: print('WON')""",
            "pipes filled": """
made = 0
try:
    while True:
        r, w = os.pipe()
        os.set_blocking(w, False)
        made += os.write(w, bytes(1 << 20))
except OSError:
    pass
if made > 8 << 20: print('WON', made)""",
            "handle of page faults": """
won(attempt(os.open, '/dev/userfaultfd', os.O_RDWR))
if syscall('userfaultfd', 1) >= 0: print('WON')""",
            "keys": "for ring in (-1, -2, -3, -4, -5): print(syscall('add_key', b'user', b'k', b'x', 1, ring) > 0 and 'WON')",
        },
        "",
    ),
]
