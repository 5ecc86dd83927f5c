"""Confines the calling process itself: for helpers that compute on what a model writes, though they run none of it.

A second wall, in case a library's parser can be talked into more than parsing. Where the kernel lacks a layer, that
layer is left out: unlike the sandbox's children, such a process is not meant to run hostile code.
"""

import os
import platform
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

from rolloutgym.server.sandbox import kernel, landlock
from rolloutgym.server.sandbox.bpf import PID_PLACEHOLDER, build_filters


def confine(readable: Iterable[str]) -> None:
    """Take away, for good: new processes and programs, sockets, signals to others, writing to any file, and reading any
    but those in the folders `readable`."""
    if sys.platform != "linux":
        return
    with suppress(OSError, ValueError):  # ValueError: no filter for this architecture
        filters = build_filters(platform.machine(), sealed=False)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        version = landlock.abi()
        if version:
            ruleset = landlock.Ruleset(version)
            grant = landlock.Opened([path for path in dict.fromkeys(readable) if os.path.exists(path)], landlock.READ)
            grant.allow_in(ruleset)
            grant.close()
            ruleset.enforce()
        kernel.load_filter(filters.service)
        kernel.load_filter(filters.child.replace(PID_PLACEHOLDER, struct.pack("=I", os.getpid())))
