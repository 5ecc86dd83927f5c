# ruff: noqa: E501
"""Sockets of every family, and what can be sent over them."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "network",
        {
            "TCP": "import socket\nwon(attempt(socket.create_connection, ('127.0.0.1', TCP), 1))",
            "UDP": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(b'x', ('127.0.0.1', UDP))\nprint('WON')",
            "IPv6": "import socket\nsocket.socket(socket.AF_INET6)\nprint('WON')",
            "name lookup": "import socket\nprint(socket.getaddrinfo('localhost', 80))\nsocket.socket()\nprint('WON')",
            "HTTP": "import urllib.request\nwon(attempt(urllib.request.urlopen, f'http://127.0.0.1:{TCP}/', timeout=1))",
            "asyncio": "import asyncio\nasyncio.run(asyncio.open_connection('127.0.0.1', TCP))\nprint('WON')",
            "raw socket": "import socket\nwon(attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1))",
            "listen": "import socket\nwon(attempt(socket.create_server, ('127.0.0.1', 0)))",
            "unix socket": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(UNIX)\nprint('WON')",
            "abstract socket": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + ABSTRACT)\nprint('WON')",
            "datagram pair to a path": """
import socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
print('WON')""",
            "stream pair to an address": """
import socket
a, b = socket.socketpair()
won(attempt(a.sendto, b'x', UNIX))
won(attempt(a.connect, UNIX))""",
            "pass a descriptor": "import array, socket\na, b = socket.socketpair()\nwon(attempt(socket.send_fds, a, [b'x'], [1]))",
            "every family": """
for family in range(46):
    for kind in (1, 2, 3, 5):
        if libc.socket(family, kind, 0) >= 0: print('WON', family, kind)""",
            "by raw call": "if syscall('socket', 2, 1, 0) >= 0: print('WON')",
            "connect the channel": "import socket\ns = socket.socket(fileno=3)\nwon(attempt(s.connect, UNIX))",
        },
        "",
    ),
    (
        "network",
        {
            "many messages": """
b = ctypes.create_string_buffer(256)
for name in ('sendmmsg', 'recvmmsg', 'sendmsg', 'recvmsg', 'accept', 'accept4', 'bind', 'listen'):
    ctypes.set_errno(0)
    if syscall(name, 3, b, 1, 0, None) >= 0 or ctypes.get_errno() not in (1, 38): print('WON', name)""",
            "channel to an address": r"""
import socket
s = socket.socket(fileno=3)
for where in (UNIX, '\0' + ABSTRACT): won(attempt(s.sendto, b'x', where))
won(attempt(s.bind, '\0mine'))""",
            "ring of requests": """
if syscall('io_uring_setup', 8, ctypes.create_string_buffer(256)) >= 0: print('WON')
if syscall('io_setup', 8, ctypes.create_string_buffer(8)) == 0: print('WON')""",
        },
        "",
    ),
]
