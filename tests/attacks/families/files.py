# ruff: noqa: E501
"""Files outside of the scratch directory; files without number or size inside of it."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "files",
        {
            "read the gold file": "print(open(GOLD).read())",
            "relative path": "print(open(os.path.relpath(GOLD)).read())",
            "through /proc/self/root": "print(open('/proc/self/root' + GOLD).read())",
            "through /proc/self/cwd": "print(open('/proc/self/cwd/' + os.path.relpath(GOLD)).read())",
            "pathlib": "import pathlib\nprint(pathlib.Path(GOLD).read_bytes())",
            "io.open_code": "import io\nprint(io.open_code(GOLD).read())",
            "opener with dir_fd": "d = os.open(GOLD_DIR, os.O_PATH)\nprint(os.read(os.open('gold', os.O_RDONLY, dir_fd=d), 99))",
            "O_PATH opened again": "f = os.open(GOLD, os.O_PATH)\nprint(open(f'/proc/self/fd/{f}').read())",
            "symbolic link": "os.symlink(GOLD, 'link')\nprint(open('link').read())",
            "hard link": "os.link(GOLD, 'link')\nprint(open('link').read())",
            "rename": "os.rename(GOLD, 'mine')\nprint(open('mine').read())",
            "exchange": "open('mine', 'w').write('x')\nif syscall('renameat2', -100, GOLD.encode(), -100, b'mine', 2) == 0: print('WON')",
            "mapped": "import mmap\nf = os.open(GOLD, os.O_RDONLY)\nprint(mmap.mmap(f, 0, prot=mmap.PROT_READ)[:])",
            "fopen": """
libc.fopen.restype = ctypes.c_void_p
f = libc.fopen(GOLD.encode(), b'r')
if f:
    buffer = ctypes.create_string_buffer(99)
    libc.fgets(buffer, 99, ctypes.c_void_p(f))
    print(buffer.value)""",
            "dlopen": "ctypes.CDLL(GOLD)\nprint('WON')",
            "linecache": "import linecache\nprint(linecache.getline(GOLD, 1))",
            "runpy": "import runpy\nrunpy.run_path(GOLD)",
            "import path": "sys.path.insert(0, GOLD_DIR)\nimport importlib\nimportlib.invalidate_caches()\nimport gold_module",
            "sqlite": "import sqlite3\nc = sqlite3.connect(GOLD)\nc.execute('select * from sqlite_master').fetchall()",
            "sqlite attach": "import sqlite3\nc = sqlite3.connect(':memory:')\nc.execute('attach ? as g', (GOLD_DIR + '/new.db',))\nc.execute('create table g.t(a)')\nc.commit()\nprint('WON')",
            "sendfile": "f = os.open(GOLD, os.O_RDONLY)\nos.sendfile(1, f, 0, 99)",
            "copy": "import shutil\nprint(open(shutil.copyfile(GOLD, 'copy')).read())",
            "chroot": "won(attempt(os.chroot, '.'))",
            "change directory": "os.chdir(GOLD_DIR)\nprint(open('gold').read())",
            "write beside it": "won(attempt(open, GOLD_DIR + '/new', 'w'))",
            "remove it": "won(attempt(os.unlink, GOLD))",
            "make a folder beside it": "won(attempt(os.mkdir, GOLD_DIR + '/new'))",
            "list its folder": "won(attempt(os.listdir, GOLD_DIR))",
            "list the root": "won(attempt(os.listdir, '/'))",
            "list all scratch": "won(attempt(os.listdir, ROOT))",
            "password file": "won(attempt(open, '/etc/passwd'))",
            "home": "won(attempt(os.listdir, '/root'))\nwon(attempt(os.listdir, '/home'))",
            "temporary folder": "won(attempt(open, '/tmp/sandbox-test', 'w'))\nwon(attempt(open, '/var/tmp/sandbox-test', 'w'))",
            "device node": "won(attempt(os.mknod, 'null', 0o20666, os.makedev(1, 3)))",
            "named pipe": "won(attempt(os.mkfifo, 'pipe'))",
            "block device": "for d in ('sda', 'vda', 'mem', 'kmsg', 'tty', 'ptmx', 'fuse', 'kvm'): won(attempt(os.open, '/dev/' + d, os.O_RDONLY))",
            "another session's file": "print(open(OTHER + '/file').read())",
            "another session's folder": "won(attempt(open, OTHER + '/new', 'w'))",
            "another session's file removed": "won(attempt(os.unlink, OTHER + '/file'))",
            "poisoned library": "import json\nwon(attempt(open, json.__file__, 'a'))\nwon(attempt(open, os.path.dirname(json.__file__) + '/evil.py', 'w'))",
            "poisoned cache": "import json\nwon(attempt(open, json.__cached__, 'r+b'))",
            "server's packages": "for name in ('rolloutgym', 'fastapi', 'uvicorn', 'pydantic'):\n    try: __import__(name)\n    except ImportError: continue\n    print('WON')",
            "server's site-packages": """
import numpy
site = os.path.dirname(os.path.dirname(numpy.__file__))
won(attempt(open, site + '/pydantic/__init__.py'))
won(attempt(open, site + '/__editable__.rolloutgym-0.1.0.pth'))
sys.path.append(site)
try:
    import pydantic
    print('WON')
except ImportError: pass""",
            "removed scratch": "import shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nattempt(os.rmdir, os.environ['HOME'])",
        },
        "",
    ),
    (
        "files",
        {
            "large file": "f = open('big', 'wb')\nwhile f.tell() < 1 << 30: f.write(bytes(1 << 20))\nprint('WON')",
            "sparse file": "f = open('big', 'wb')\nwon(attempt(f.truncate, 10 << 30))",
            "allocated file": "f = open('big', 'wb')\nwon(attempt(os.posix_fallocate, f.fileno(), 0, 10 << 30))",
        },
        "error ok",
    ),
    (
        "files",
        {
            "many files": "i = 0\nwhile True:\n    open(f'f{i}', 'wb').write(bytes(1 << 20))\n    i += 1",
            "many empty files": "i = 0\nwhile True:\n    open(f'f{i}', 'wb').close()\n    i += 1",
            "deep folders": "while True:\n    os.mkdir('d')\n    os.chdir('d')",
            "many folders": "i = 0\nwhile True:\n    os.mkdir(f'd{i}')\n    i += 1",
            "many links": "open('f', 'w').close()\ni = 0\nwhile True:\n    os.link('f', f'l{i}')\n    i += 1",
            "deleted but open": "fs = []\nwhile True:\n    f = open('f', 'wb')\n    os.unlink('f')\n    f.write(bytes(15 << 20))\n    f.flush()\n    fs.append(f)",
            "unreadable folders": "for i in range(50):\n    os.mkdir(f'd{i}', 0)\nos.makedirs('a/b/c')\nos.symlink(GOLD_DIR, 'a/b/c/away')\nos.symlink('/', 'all')",
        },
        "",
    ),
    (
        "files",
        {
            "names that clean-up would use": """
for i in range(60):
    open(f'.moved-{i}', 'w').close()
    os.makedirs(f'a{i}/b')""",
            "names that are no text": r"""
os.mkdir(b'\xff' * 255)
os.mkdir(b'\xff' * 255 + b'/' + b'\x01\n' * 127)
open(b'\xed\xa0\x80', 'w').close()
os.symlink(b'\xff' * 255, b'\n')
os.makedirs('-rf/--/*')""",
            "folders with every mode": """
os.umask(0)
for mode in range(0, 0o10000, 0o77):
    os.mkdir(f'd{mode}', mode)
    attempt(os.mkdir, f'd{mode}/e', 0)
    attempt(os.mkdir, f'd{mode}/f', 0o300)""",
            "flags of a file": """
import fcntl
f = os.open('f', os.O_CREAT | os.O_RDWR)
for request in (0x40086602, 0x401C5820, 0x40049409, 0x4020940D, 0xC0185879):  # FS_IOC_SETFLAGS, FSSETXATTR, FICLONE, FICLONERANGE, FITRIM
    won(attempt(fcntl.ioctl, f, request, bytes(64)))
for name in ('security.capability', 'system.posix_acl_access', 'user.x', 'trusted.x'):
    won(attempt(os.setxattr, f, name, b'x'))""",
            "space without a size": """
f = os.open('big', os.O_CREAT | os.O_RDWR)
for mode in (1, 3, 0x11, 0x10, 8, 0x20, 0x40):  # FALLOC_FL_KEEP_SIZE and what goes with it
    print(libc.fallocate(f, mode, ctypes.c_long(0), ctypes.c_long(1 << 30)) == 0 and 'WON')
if os.fstat(f).st_blocks > 1 << 20: print('WON')""",
            "large file by copying": """
source = os.open('source', os.O_CREAT | os.O_RDWR)
os.ftruncate(source, 15 << 20)
target = os.open('target', os.O_CREAT | os.O_RDWR)
size = 0
try:
    while size < 64 << 20: size += os.copy_file_range(source, target, 15 << 20, 0, size) or 1 << 20
except OSError:
    pass
if os.fstat(target).st_size > 32 << 20: print('WON')""",
            "library linked in": """
won(attempt(os.link, os.__file__, 'l'))
won(attempt(os.link, sys.executable, 'l'))
won(attempt(os.rename, os.__file__, 'l'))""",
            "O_PATH linked in": """
f = os.open(GOLD, os.O_PATH)
if syscall('linkat', f, b'', -100, b'l1', 0x1000) == 0: print(open('l1').read())
if syscall('linkat', -100, f'/proc/self/fd/{f}'.encode(), -100, b'l2', 0x400) == 0: print(open('l2').read())""",
            "file without a name": """
f = os.open(GOLD_DIR, os.O_TMPFILE | os.O_RDWR)
print('WON')""",
            "scratch moved": """
won(attempt(os.rename, os.getcwd(), OTHER + '/in'))
won(attempt(os.rename, os.getcwd(), os.getcwd() + 'x'))
won(attempt(os.rename, OTHER, 'in'))""",
            "another session's folder by links": """
os.symlink(OTHER, 'o')
print(open('o/file').read())
won(attempt(open, 'o/new', 'w'))""",
            "folder that turns into a link": """
import threading, time
os.mkdir('kept')
def flip():
    while True:
        try:
            os.rename('kept', 'd'); os.rename('d', 'kept'); os.symlink(GOLD_DIR, 'd'); os.unlink('d')
        except OSError: pass
threading.Thread(target=flip, daemon=True).start()
time.sleep(0.5)""",
            "folders that come and go": """
import threading, time
def churn(k):
    while True:
        for i in range(50): attempt(os.mkdir, f'd{k}-{i}')
        for i in range(50): attempt(os.rmdir, f'd{k}-{i}')
for k in range(4): threading.Thread(target=churn, args=(k,), daemon=True).start()
time.sleep(0.6)""",
            "user fault and kernel devices": "for d in ('userfaultfd', 'cpu_dma_latency', 'watchdog', 'uinput', 'net/tun', 'loop-control', 'mapper/control', 'rtc0', 'hwrng', 'vsock', 'dri/card0', 'snd/seq', 'input/event0', 'console', 'tty0', 'port', 'nvram', 'btrfs-control', 'vhost-net'): won(attempt(os.open, '/dev/' + d, os.O_RDONLY))",
            "writing devices": "for d in ('zero', 'full', 'random', 'urandom'): won(attempt(os.open, '/dev/' + d, os.O_WRONLY))",
        },
        "",
    ),
    (
        "files",
        {
            "folder that cannot be listed": """
import time
os.umask(0)
os.mkdir('d', 0o300)
for i in range(12):
    with open(f'd/f{i}', 'wb') as f: f.write(bytes(8 << 20))
time.sleep(5)
print('WON')""",
        },
        "disk_limit cpu_limit wall_limit error",
    ),
]
