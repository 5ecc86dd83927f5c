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
]
