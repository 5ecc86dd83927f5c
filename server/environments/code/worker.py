"""The helper process's side of `workers`: one line of JSON in, one out, within limits that the process puts on itself.

A question may take so much processor time; then the kernel ends the process (SIGPROF). Processor time and not the
clock, so that a busy machine makes no answer wrong.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

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
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no reply
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        reply = _reply(answer, line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 > _REUSED_BYTES
        reusable = not grown and reply.get("failed") != MemoryError.__name__
        print(json.dumps({**reply, "reusable": reusable}), file=replies, flush=True)


def _reply(answer: Callable[[Reply], Reply], line: str) -> Reply:
    try:
        return answer(json.loads(line))
    except Exception as error:  # noqa: BLE001 - the one place that records: the libraries raise anything
        return {"failed": type(error).__name__}
