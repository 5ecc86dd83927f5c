# ruff: noqa: E501
"""What honest programs need works in the sandbox."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from rolloutgym.server.sandbox.client import Limits, RunResult, Sandbox, SandboxConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")

PROGRAMS: dict[str, tuple[str, str | None]] = {
    "sympy": (
        "from sympy import *\nx, y = symbols('x y')\n"
        "print(solve([x + y - 3, x*y - 2], [x, y]), integrate(exp(-x**2), (x, -oo, oo)), factorint(10**30 + 57))\n"
        "print(limit(sin(x)/x, x, 0), Matrix([[1, 2], [3, 4]]).det(), latex(sqrt(2)/3), N(pi, 30))",
        "[(1, 2), (2, 1)] sqrt(pi) {1000000000000000000000000000057: 1}\n"
        "1 -2 \\frac{\\sqrt{2}}{3} 3.14159265358979323846264338328\n",
    ),
    "numpy": (
        "import numpy as np\na = np.random.default_rng(0).normal(size=(50, 50))\n"
        "print(np.linalg.eigvals(a).shape, np.fft.fft(a).shape, int(np.arange(10).sum()))",
        "(50,) (50, 50) 45\n",
    ),
    "mpmath": (
        "import mpmath\nmpmath.mp.dps = 40\nprint(mpmath.zeta(3))",
        "1.202056903159594285399738161511449990765\n",
    ),
    "recursion with a cache": (
        "from functools import lru_cache\nimport sys\nsys.setrecursionlimit(20000)\n"
        "@lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nprint(f(5000) % 10**9)",
        "382863125\n",
    ),
    "standard library": (
        "import itertools, collections, fractions, decimal, statistics, heapq, bisect, math, cmath, random, re, json, "
        "datetime, string, textwrap, copy, operator, dataclasses, typing, enum, hashlib, base64, csv, io, pprint, uuid, "
        "secrets, calendar, zoneinfo, difflib, inspect, types, contextlib, abc, queue, threading, concurrent.futures, "
        "asyncio, tempfile, shutil, pathlib, glob, pickle, zlib, gzip, bz2, lzma, zipfile, tarfile, struct, array, "
        "logging, unittest, doctest, timeit, cProfile, tracemalloc, warnings, traceback, ast, dis, tokenize, html, "
        "urllib.parse, xml.etree.ElementTree, email, ctypes, platform, signal, select, socket, subprocess, "
        "multiprocessing, graphlib, sqlite3, numbers, reprlib, sched, secrets, selectors, shlex, symtable, configparser\n"
        "print('imported')",
        "imported\n",
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\nprint(sum(ThreadPoolExecutor(8).map(lambda x: x*x, range(100))))",
        "328350\n",
    ),
    "asyncio": (
        "import asyncio\nasync def g(n):\n    await asyncio.sleep(.01)\n    return n\n"
        "async def main(): print(await asyncio.gather(*(g(i) for i in range(5))))\nasyncio.run(main())",
        "[0, 1, 2, 3, 4]\n",
    ),
    "alarm": (
        "import signal\ndef h(*a): raise TimeoutError\nsignal.signal(signal.SIGALRM, h)\n"
        "signal.setitimer(signal.ITIMER_REAL, .05)\nimport time\ntry: time.sleep(5)\nexcept TimeoutError: print('rang')",
        "rang\n",
    ),
    "main guard": (
        "def solution():\n    return sum(1 for a in range(1, 100) for b in range(a, 100) if ((a*a + b*b)**.5).is_integer())\n"
        "if __name__ == '__main__':\n    print(solution())",
        "62\n",
    ),
    "big integers": ("print(len(str(2**20000)), len(str(7**100000)))", "6021 84510\n"),
    "classes and matching": (
        "class P:\n    def __init__(self, a): self.a = a\n    def __repr__(self): return f'P({self.a})'\n"
        "class Q(P): pass\nimport copy\nprint(copy.deepcopy([P(1), Q(2)]))\nmatch [1, 2]:\n    case [a, b]: print(a + b)",
        "[P(1), P(2)]\n3\n",
    ),
    "generators": (
        "def g():\n    got = yield 1\n    yield from range(got)\nh = g()\nprint(next(h), h.send(3), list(h))",
        "1 0 [1, 2]\n",
    ),
    "dataclass and enum": (
        "from dataclasses import dataclass, field\nfrom enum import Enum\nclass C(Enum): A = 1\n"
        "@dataclass(order=True)\nclass D:\n    n: int\n    t: list[int] = field(default_factory=list)\n"
        "print(max(D(1), D(2, [C.A.value])))",
        "D(n=2, t=[1])\n",
    ),
    "decimal and fraction": (
        "from decimal import Decimal, getcontext\nfrom fractions import Fraction\ngetcontext().prec = 30\n"
        "print(Decimal(1) / 7, Fraction(3, 4) + Fraction(1, 4))",
        "0.142857142857142857142857142857 1\n",
    ),
    "clock": (
        "import time\nt = time.perf_counter()\ntime.sleep(.01)\nprint(.005 < time.perf_counter() - t < 5)",
        "True\n",
    ),
    "exceptions": (
        "try:\n    raise ExceptionGroup('g', [ValueError(1), KeyError(2)])\n"
        "except* ValueError as e: print(len(e.exceptions))\nexcept* KeyError: print('key')",
        "1\nkey\n",
    ),
    "unit tests": (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1 + 1, 2)\n"
        "print(unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T)).wasSuccessful())",
        None,  # the time it took
    ),
    "platform": (
        "import os, sys, platform\nprint(os.cpu_count() > 0, platform.system(), os.getpid() > 0)",
        "True Linux True\n",
    ),
    "text with umlauts": ("print('Straße, 東京, 🎲')", "Straße, 東京, 🎲\n"),
    "input at its end": ("try: input()\nexcept EOFError: print('no input')", "no input\n"),
    "sockets in a pair": ("import socket\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1))", "b'x'\n"),
}
WITH_FILES: dict[str, tuple[str, str | None]] = {
    "temporary files": (
        "import tempfile, os, pathlib, shutil\n"
        "with tempfile.NamedTemporaryFile('w', suffix='.txt') as f:\n    f.write('hi')\n    f.flush()\n    print(open(f.name).read())\n"
        "d = tempfile.mkdtemp()\np = pathlib.Path(d) / 'x'\np.write_text('abc')\nprint(p.read_text(), os.listdir(d))\n"
        "shutil.copyfile(p, 'y')\nshutil.rmtree(d)\nprint(sorted(os.listdir('.')))",
        "hi\nabc ['x']\n['y']\n",
    ),
    "copies keep going": (
        "import shutil\nopen('a', 'w').write('1')\nshutil.copy('a', 'b')\nshutil.copy2('a', 'c')\nprint(open('b').read(), open('c').read())",
        "1 1\n",
    ),
    "pickle, gzip, sqlite": (
        "import pickle, gzip, sqlite3\npickle.dump({1: 2}, open('p', 'wb'))\nprint(pickle.load(open('p', 'rb')))\n"
        "gzip.open('z.gz', 'wt').write('q')\nprint(gzip.open('z.gz', 'rt').read())\n"
        "c = sqlite3.connect('t.db')\nc.execute('create table t(a)')\nc.execute('insert into t values(1)')\nc.commit()\n"
        "print(c.execute('select * from t').fetchall())",
        "{1: 2}\nq\n[(1,)]\n",
    ),
    "a module of its own": ("open('mine.py', 'w').write('x = 7')\nimport mine\nprint(mine.x)", "7\n"),
    "saved arrays": ("import numpy as np\nnp.save('a.npy', np.arange(3))\nprint(np.load('a.npy'))", "[0 1 2]\n"),
    "time zones": (
        "from zoneinfo import ZoneInfo\nimport datetime\n"
        "print(datetime.datetime(2024, 7, 1, tzinfo=ZoneInfo('Europe/Berlin')).utcoffset())",
        "2:00:00\n",
    ),
}


class Bench:
    """A sandbox and the loop that it lives in."""

    def __init__(self, config: SandboxConfig) -> None:
        self._runner = asyncio.Runner()
        self.sandbox = Sandbox(config)
        self._runner.run(self.sandbox.start())

    def run(self, code: str) -> RunResult:
        return self._runner.run(self.sandbox.run(code, limits=Limits(cpu_s=10, wall_s=30)))

    def close(self) -> None:
        self._runner.run(self.sandbox.stop())
        self._runner.close()


@pytest.fixture(scope="module")
def open_files() -> Iterator[Bench]:
    bench = Bench(SandboxConfig())
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def sealed() -> Iterator[Bench]:
    bench = Bench(SandboxConfig(use_landlock=False, use_namespaces=False))
    yield bench
    bench.close()


@pytest.mark.parametrize("name", [*PROGRAMS, *WITH_FILES])
def test_honest_program(open_files: Bench, name: str) -> None:
    code, expected = (PROGRAMS | WITH_FILES)[name]
    result = open_files.run(code)
    assert (result.status, result.traceback) == ("ok", None)
    assert expected is None or result.output == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_honest_program_without_files(sealed: Bench, name: str) -> None:
    code, expected = PROGRAMS[name]
    result = sealed.run(code)
    assert (result.status, result.traceback) == ("ok", None)
    assert expected is None or result.output == expected


def test_multiprocessing_is_refused_with_an_ordinary_error(open_files: Bench) -> None:
    result = open_files.run("from multiprocessing import Pool\nwith Pool(2) as p: print(p.map(abs, [-1]))")
    assert result.status == "error"
    assert "Error: [Errno" in (result.traceback or "")
