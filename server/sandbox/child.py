"""Turns a fresh fork of the zygote into a confined child, then serves cells. Standard library only.

The order matters: ids and limits first, then Landlock, the child's filter last, and only then is any byte of the
model's code read from the channel. Descriptors afterwards: 0 (/dev/null), 1 and 2 (the output pipe), 3 (the channel).
"""

import gc
import os
import resource
import signal
import struct
from dataclasses import dataclass
from typing import Any

from rolloutgym.server.sandbox import kernel, landlock, runner

CHANNEL = 3
MAX_DESCRIPTOR = 256
"""Of the zygote."""
READY = b"R"
_exit = os._exit  # bound early: with it patched away, the child would go on in the zygote's loop
_PID_PLACEHOLDER = struct.pack("=I", 0x7ABCDEF1)


@dataclass(frozen=True)
class Confinement:
    """What every child gets, prepared once by the zygote."""

    scratch_root: str
    has_scratch: bool
    private_uid: bool
    first_uid: int
    address_space: int
    """Bytes that the zygote has mapped."""
    landlock_abi: int
    """0 for none."""
    grants: tuple[landlock.Opened, ...]
    """What the second layer allows beside the scratch: readable roots, devices."""
    child_filter: bytes
    null: int
    """Descriptor of /dev/null."""
    library_roots: tuple[str, ...]
    """Paths that no traceback shows, longest first."""


def scratch_of(confinement: Confinement, spawn: dict[str, Any]) -> str:
    return f"{confinement.scratch_root}/{spawn['id']}"


def _arrange_descriptors(null: int, output: int) -> None:
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(CHANNEL + 1, MAX_DESCRIPTOR)


def _limit(confinement: Confinement, spawn: dict[str, Any]) -> None:
    rlimits: dict[str, int] = spawn["rlimits"]
    rlimits["AS"] += confinement.address_space
    if not confinement.private_uid:
        del rlimits["NPROC"]  # would count the server's own threads; the server counts the child's
    for name, value in rlimits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (spawn["cpu"], spawn["cpu"] + 1))


def drop_to(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _confine_files(confinement: Confinement, scratch: str) -> None:
    """The second Landlock layer: as the zygote's, but of the scratch directories only its own."""
    ruleset = landlock.Ruleset(confinement.landlock_abi)
    for grant in confinement.grants:
        grant.allow_in(ruleset)
    if confinement.has_scratch:
        fd = os.open(scratch, os.O_PATH)
        ruleset.allow(fd, landlock.SCRATCH)
        os.close(fd)
    ruleset.enforce()


def _confine(confinement: Confinement, spawn: dict[str, Any], output: int) -> None:
    zygote = os.getppid()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    uid = confinement.first_uid + spawn["slot"]
    scratch = scratch_of(confinement, spawn)
    os.umask(0o077)
    if confinement.has_scratch:
        os.mkdir(scratch, 0o700)
        if confinement.private_uid:
            os.chown(scratch, uid, uid)
        os.chdir(scratch)
    else:
        os.chdir("/")
    if confinement.private_uid:
        drop_to(uid)
    kernel.die_with_parent(zygote)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # no core, and nobody of this uid may trace it
    home = scratch if confinement.has_scratch else "/nonexistent"
    os.environ.update(HOME=home, TMPDIR=home)
    if confinement.landlock_abi:
        _confine_files(confinement, scratch)
    _arrange_descriptors(confinement.null, output)
    _limit(confinement, spawn)


def _receive(size: int) -> bytes:
    """`size` bytes from the channel; empty when the server has closed it."""
    data = bytearray()
    while len(data) < size:
        chunk = os.read(CHANNEL, size - len(data))
        if not chunk:
            return b""
        data += chunk
    return bytes(data)


def _send(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(CHANNEL, view) :]


def run(confinement: Confinement, spawn: dict[str, Any], channel: int, output: int) -> None:
    """Body of the child. Does not return. A failure before the code runs is reported on the channel, as the server's
    fault; it writes anything but `READY` then."""
    status = 1
    try:
        os.dup2(channel, CHANNEL)
        try:
            _confine(confinement, spawn, output)
        except Exception as error:  # noqa: BLE001  # sent to the server, which raises it
            os.write(CHANNEL, f"E{type(error).__name__}: {error}".encode())
            _exit(status)
        scratch = scratch_of(confinement, spawn) if confinement.has_scratch else None
        interpreter = runner.Interpreter(seed=spawn["seed"], scratch=scratch, library_roots=confinement.library_roots)
        gc.enable()
        if confinement.child_filter:
            pid = struct.pack("=I", os.getpid())
            kernel.load_filter(confinement.child_filter.replace(_PID_PLACEHOLDER, pid))
        _send(READY)
        runner.serve(interpreter, _receive, _send)
        status = 0
    finally:
        _exit(status)
