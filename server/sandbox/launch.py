"""Starts the zygote: finds out what the sandbox interpreter consists of, writes the plan, execs it with nothing of
ours.

The zygote's modules travel as source through a pipe, so its interpreter needs no access to this package, and the
model's code finds none."""

import json
import os
import platform
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources import files
from pathlib import Path
from typing import Any

from rolloutgym.server.sandbox.bpf import build_filters
from rolloutgym.server.sandbox.plan import ZygotePlan
from rolloutgym.server.sandbox.policy import Limits, SandboxConfig

_MODULES = (
    "plan",
    "kernel",
    "landlock",
    "importer",
    "namespaces",
    "runner",
    "child",
    "zygote",
)  # in order of dependency

_BOOTSTRAP = """
import json, sys, types
payload = json.loads(sys.stdin.buffer.read())
package = "rolloutgym.server.sandbox"
for name in ("rolloutgym", "rolloutgym.server", package):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in payload["modules"]:
    module = sys.modules[f"{package}.{name}"] = types.ModuleType(f"{package}.{name}")
    exec(compile(source, f"<sandbox {name}>", "exec"), module.__dict__)
module.main(payload["plan"], payload["control"], payload["server"])
"""

_LAYOUT = """
import json, os, sys, sysconfig
# Without `site`, nobody has looked whether this is a virtual environment.
folder = os.path.dirname(os.path.dirname(sys.executable))
virtual = os.path.exists(os.path.join(folder, "pyvenv.cfg"))
paths = sysconfig.get_paths("venv", {"base": folder, "platbase": folder}) if virtual else sysconfig.get_paths()
print(json.dumps([sys.path, [paths["purelib"], paths["platlib"]], sys.base_prefix]))
"""

_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # one order of sets in every run
    "OPENBLAS_NUM_THREADS": "1",  # more would leave a live thread in the zygote
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}
_FLAGS = ("-S", "-s", "-P", "-B")  # neither site-packages nor the current folder; write no compiled files

_PRELOAD = (
    *("math", "cmath", "random", "statistics", "fractions", "decimal", "numbers", "itertools", "functools", "operator"),
    *("collections", "collections.abc", "heapq", "bisect", "array", "copy", "types", "typing", "dataclasses", "enum"),
    *("abc", "contextlib", "re", "string", "textwrap", "json", "csv", "datetime", "calendar", "time", "hashlib"),
    *("pathlib", "tempfile", "shutil", "uuid", "secrets", "threading", "queue", "concurrent.futures.thread", "asyncio"),
    *("inspect", "pprint", "warnings", "timeit", "unittest", "pickle", "struct", "base64", "encodings.idna"),
)
_PRELOAD_PACKAGES = {
    "numpy": ("numpy", "numpy.random", "numpy.linalg", "numpy.fft", "numpy.polynomial"),
    "mpmath": ("mpmath",),
    "sympy": ("sympy", "sympy.abc", "sympy.solvers", "sympy.combinatorics", "sympy.stats"),
}
# A few calls of each kind fill the caches that a first use otherwise fills in every child.
_WARM_UP = {
    "sympy": """
import sympy
x, y = sympy.symbols("x y")
n = sympy.Symbol("n", integer=True, positive=True)
sympy.integrate(sympy.sin(x) ** 2, x), sympy.integrate(sympy.exp(-(x**2)), (x, -sympy.oo, sympy.oo))
sympy.solve([x + y - 3, x * y - 2], [x, y]), sympy.solve(x**2 - 5 * x + 6, x), sympy.solveset(sympy.sin(x), x)
sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2), sympy.factor(x**4 - 1), sympy.expand((x + y) ** 5)
sympy.diff(sympy.log(x) * sympy.exp(x), x), sympy.limit(sympy.sin(x) / x, x, 0), sympy.series(sympy.cos(x), x, 0, 6)
sympy.summation(n**2, (n, 1, 10)), sympy.N(sympy.pi, 30), sympy.Rational(3, 7) + sympy.sqrt(8)
sympy.factorint(360), sympy.isprime(97), sympy.gcd(12, 18), sympy.Matrix([[1, 2], [3, 4]]).eigenvals()
str(x**2 + y), repr(sympy.sqrt(2) / 3), sympy.latex(sympy.sqrt(2) / 3)
sympy.sympify("x**2 + 1"), sympy.nsimplify("0.5")
""",
    "numpy": """
import numpy
a = numpy.arange(9.0).reshape(3, 3) + numpy.eye(3)
numpy.linalg.det(a), numpy.linalg.solve(a, a), numpy.linalg.eigvals(a), a @ a, repr(a), numpy.random.rand(2)
""",
}


@dataclass(frozen=True)
class Layout:
    """Where an interpreter has its parts."""

    executable: str
    stdlib: tuple[str, ...]
    site: tuple[str, ...]
    base_prefix: str


def read_layout(python: Path | None) -> Layout:
    """Ask the interpreter (None: our own). `OSError`, `subprocess.SubprocessError` or `ValueError` if it cannot
    answer."""
    executable = str(python) if python is not None else sys.executable
    answer = subprocess.run(
        [executable, *_FLAGS, "-c", _LAYOUT], env=_ENVIRONMENT, cwd="/", capture_output=True, check=True, timeout=30
    )
    path, site, base_prefix = json.loads(answer.stdout)
    return Layout(
        executable,
        tuple(entry for entry in path if os.path.exists(entry)),
        tuple(dict.fromkeys(folder for folder in site if os.path.isdir(folder))),
        base_prefix,
    )


def _packages(layout: Layout, names: tuple[str, ...] | None) -> dict[str, str]:
    """Top-level name → place, of the named packages or (None) of all that are installed."""
    found: dict[str, str] = {}
    for folder in layout.site:
        for entry in sorted(os.listdir(folder)):
            name = entry.split(".", 1)[0]
            place = os.path.join(folder, entry)
            is_package = os.path.isdir(place) and entry == name
            is_module = entry.endswith((".py", *EXTENSION_SUFFIXES))
            if (
                name.isidentifier()
                and name != "__pycache__"
                and (is_package or is_module)
                and (names is None or name in names)
            ):
                found.setdefault(name, place)
    return found


def _library_roots(layout: Layout) -> list[str]:
    """What shared libraries may be loaded from, and time zones."""
    multiarch = f"{platform.machine()}-linux-gnu"
    candidates = [
        *(f"{prefix}/{multiarch}" for prefix in ("/lib", "/usr/lib")),
        "/lib64",
        "/usr/lib64",
        "/etc/ld.so.cache",
        "/usr/share/zoneinfo",
        *(str(path) for path in sorted(Path(layout.base_prefix, "lib").glob("libpython*.so*"))),
    ]
    return list(dict.fromkeys(os.path.realpath(path) for path in candidates if os.path.exists(path)))


def make_plan(config: SandboxConfig, layout: Layout, scratch_root: Path, *, sealed: bool) -> ZygotePlan:
    """`ValueError` for an architecture that the filter is not written for."""
    packages = _packages(layout, config.packages if config.python is None else None)
    libraries = [place for folder in layout.site for place in sorted(map(str, Path(folder).glob("*.libs")))]
    if config.python is None:
        libraries = [place for place in libraries if Path(place).stem in config.packages]
    shared = [*packages.values(), *libraries, *_library_roots(layout)]
    folders = [entry for entry in layout.stdlib if not any(entry.startswith(f"{other}/") for other in layout.stdlib)]
    hidden_names = ("site-packages", "dist-packages")
    readable = [
        path
        for folder in folders
        if os.path.isdir(folder)
        for path in sorted(map(str, Path(folder).iterdir()))
        # A link that leads out of the folder, such as Debian's sitecustomize.py, leads nowhere in the tree.
        if os.path.basename(path) not in hidden_names and os.path.realpath(path).startswith(os.path.realpath(folder))
    ]
    filters = build_filters(platform.machine(), sealed=sealed) if config.use_seccomp else None
    return ZygotePlan(
        stdlib=list(layout.stdlib),
        packages=packages,
        roots=[*folders, *shared],
        readable=[*readable, *(folder for folder in folders if not os.path.isdir(folder)), *shared],
        listable=[folder for folder in folders if os.path.isdir(folder)],
        hidden=[path for folder in folders for name in hidden_names if os.path.isdir(path := f"{folder}/{name}")],
        scratch_root=str(scratch_root),
        preload=[
            *_PRELOAD,
            *(name for package, names in _PRELOAD_PACKAGES.items() if package in packages for name in names),
        ],
        warm_up="".join(code for package, code in _WARM_UP.items() if package in packages),
        service_filter=filters.service.hex() if filters else "",
        child_filter=filters.child.hex() if filters else "",
        landlock=config.use_landlock,
        sealed=sealed,
        namespaces=config.use_namespaces,
        private_uid=config.use_private_uid and os.geteuid() == 0,
        first_uid=config.first_uid,
    )


def rlimits_of(limits: Limits) -> dict[str, int]:
    """`RLIMIT_` name → value of a child; the zygote adds to `AS` what it takes itself."""
    return {
        "AS": limits.memory,
        "FSIZE": limits.file_size,
        "NOFILE": limits.descriptors,
        "NPROC": limits.threads,
        "STACK": limits.stack,
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "SIGPENDING": 256,
    }


@cache
def _sources() -> list[tuple[str, str]]:
    """Read once, so that a later zygote is the same program even if the files have changed."""
    return [(name, files(__package__).joinpath(f"{name}.py").read_text()) for name in _MODULES]


def start_process(layout: Layout, plan: ZygotePlan) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Exec the zygote; blocks for the milliseconds that writing its payload takes. The socket speaks one JSON object
    per message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.pidfd_open(os.getpid())
    try:
        process = subprocess.Popen(
            [layout.executable, *_FLAGS, "-c", _BOOTSTRAP],
            env=_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), server),
            start_new_session=True,
        )
        payload: dict[str, Any] = {
            "modules": _sources(),
            "plan": asdict(plan),
            "control": theirs.fileno(),
            "server": server,
        }
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(payload).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; the closed socket tells
    finally:
        os.close(server)
        theirs.close()
    return process, ours
