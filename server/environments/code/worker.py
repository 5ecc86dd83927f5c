"""The helper process's side of `workers`: one line of JSON in, one out, within limits that the process puts on itself.

The process confines itself before the first question: no new processes, sockets or writing, and no file but the
libraries. A question may take so much processor time; then the kernel ends the process (SIGPROF). Processor time and
not the clock, so that a busy machine makes no answer wrong.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from rolloutgym.server.sandbox.confinement import confine

MEMORY_BYTES = 2 << 30
_REUSED_BYTES = 768 << 20
"""A process that has grown beyond this is not asked again: its next question would have less memory than another's."""

Reply = dict[str, Any]


def serve(answer: Callable[[Reply], Reply]) -> None:
    """Answer questions until the input ends. The first argument of the program is the processor time for each,
    seconds."""
    cpu_s = float(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    peak_bytes = _peak_reader()
    confine(_libraries())
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no reply
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        reply = _reply(answer, line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        reusable = peak_bytes() < _REUSED_BYTES and reply.get("failed") != MemoryError.__name__
        print(json.dumps({**reply, "reusable": reusable}), file=replies, flush=True)


def _peak_reader() -> Callable[[], int]:
    """What tells the process's greatest size so far, bytes, also once it is confined. Linux's `ru_maxrss` is no less
    than the size of the process that started this one, which may hold a whole trainer."""
    if sys.platform != "linux":
        return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = open("/proc/self/status", encoding="ascii")  # noqa: SIM115 - for as long as the process lives

    def peak() -> int:
        status.seek(0)
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

    return peak


def _libraries() -> list[str]:
    """Where modules that are imported late come from. Not the working directory, and no checkout of this package."""
    found = [path for path in sys.path[1:] if not os.path.isdir(os.path.join(path, "rolloutgym", "server"))]
    site = [path for path in sys.path[1:] if path.endswith(("site-packages", "dist-packages"))]
    return [*found, *site, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo"]


def _reply(answer: Callable[[Reply], Reply], line: str) -> Reply:
    try:
        return answer(json.loads(line))
    except Exception as error:  # noqa: BLE001 - the one place that records: the libraries raise anything
        return {"failed": type(error).__name__}
