"""The fork server: one single-threaded process that preloads the libraries and forks a confined child for each run or
session. Standard library only; `launch.py` starts it with a clean environment and no inherited descriptor beyond the
control socket and a descriptor of the server's process.

It sees ids, slots and seeds, never code or output: those go between server and child. It ends when the server does, and
its children end with it.
"""

import array
import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
from dataclasses import asdict
from typing import Any

from rolloutgym.server.sandbox import child, importer, kernel, landlock, namespaces
from rolloutgym.server.sandbox.plan import ZygotePlan, ZygoteReport

_OOM_SCORE, _OOM_SCORE_OF_CHILD = b"0", b"700"
_MESSAGE = 1 << 16
_HUGE_PAGE = 2 << 20


def _load(plan: ZygotePlan, warnings: list[str]) -> None:
    """Import all that children share."""
    sys.path[:] = plan.stdlib
    sys.meta_path.append(importer.PackageFinder(plan.packages))
    for name in plan.preload:
        try:
            __import__(name)
        except ImportError as error:
            warnings.append(f"{name} cannot be imported in the sandbox: {error}")
    if plan.sealed:
        for name in importer.extension_modules([path for path in plan.stdlib if path.endswith("lib-dynload")]):
            with contextlib.suppress(ImportError):  # built for a library that is not installed
                __import__(name)
        sys.meta_path.insert(0, importer.load_into_memory(plan.packages, plan.stdlib))
    exec(compile(plan.warm_up, "<warm-up>", "exec"), {"__name__": "warm_up"})
    for name in [name for name in sys.modules if name.split(".")[0] == "rolloutgym"]:
        del sys.modules[name]  # the model's code finds no trace of the server to import


def _why_no_private_uid(plan: ZygotePlan) -> str:
    """Try for real what a private uid, and this process with what that owns, must be able to do; empty if all is
    well."""
    scratch = f"{plan.scratch_root}/probe"
    os.mkdir(scratch, 0o700)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        problem = ""
        try:
            os.chown(scratch, plan.first_uid, plan.first_uid)
            child.drop_to(plan.first_uid)
            os.mkdir(f"{scratch}/made")
            for path in plan.roots:
                if not os.access(path, os.X_OK if os.path.isdir(path) else os.R_OK):
                    problem = f"it cannot read {path}"
        except OSError as error:
            problem = f"it cannot be taken ({error})"
        os.write(writer, problem.encode() + b"\n")
        signal.pause()
    os.close(writer)
    problem = os.read(reader, 4096).decode().strip()
    os.close(reader)
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for name in os.listdir(scratch):
            os.rmdir(f"{scratch}/{name}")
        os.rmdir(scratch)
    except PermissionError:
        problem = problem or "what runs under it could not be killed or removed"
    return problem


def _memory_map(proc: int) -> tuple[int, list[tuple[int, int]]]:
    """Bytes of address space in use, and the ranges of anonymous memory."""
    total, ranges = 0, []
    with open(os.open("maps", os.O_RDONLY, dir_fd=proc)) as maps:
        for line in maps:
            bounds, permissions, _, _, inode, *name = line.split()
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            total += end - start
            if permissions == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
                ranges.append((start, end))
    return total, ranges


def _collapse(ranges: list[tuple[int, int]]) -> None:
    for start, end in ranges:
        start, end = -(-start // _HUGE_PAGE) * _HUGE_PAGE, end // _HUGE_PAGE * _HUGE_PAGE
        if end > start:
            kernel.collapse(start, end - start)


class Zygote:
    def __init__(self, control: socket.socket, server: int) -> None:
        self._control = control
        self._server = server
        self._pids: dict[int, int] = {}  # id → pid
        self._ids: dict[int, int] = {}  # pid → id

    # -- setting up

    def prepare(self, plan: ZygotePlan) -> None:
        """Enter the namespaces, load, confine this process, and report what could be had."""
        warnings = list[str]()
        os.umask(0o077)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(child.CHANNEL + 1):  # the numbers that a child needs for itself: nothing of ours may have them
            os.dup2(null, fd)
        self._null = fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, child.CHANNEL + 1)
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        separate = plan.namespaces and namespaces.granted(plan)
        if separate:
            namespaces.enter()
        proc = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)  # out of reach in the new tree
        self._oom_score = os.open("oom_score_adj", os.O_WRONLY, dir_fd=proc)
        if separate:
            namespaces.enter_tree(plan)
        _load(plan, warnings)
        if threading.active_count() != 1 or len(os.listdir(os.open("task", os.O_RDONLY, dir_fd=proc))) != 1:
            raise RuntimeError("the preloaded libraries started a thread: forking would not be safe")
        why_not = _why_no_private_uid(plan) if plan.private_uid else "switched off"
        if plan.private_uid and why_not:
            warnings.append(f"children share the server's uid; a private one would not do: {why_not}")
        address_space, ranges = _memory_map(proc)
        inodes = {name: os.stat(f"ns/{name}", dir_fd=proc).st_ino for name in namespaces.NAMES}
        os.close(proc)
        confinement = self._confinement(plan, address_space, private_uid=not why_not)
        if why_not:
            kernel.drop_capabilities()
        self._confine(plan, confinement)
        resource.setrlimit(resource.RLIMIT_NOFILE, (child.MAX_DESCRIPTOR, child.MAX_DESCRIPTOR))
        gc.collect()
        gc.freeze()
        gc.disable()
        _collapse(ranges)
        report = ZygoteReport(
            landlock_abi=confinement.landlock_abi,
            namespaces=inodes,
            private_uid=confinement.private_uid,
            address_space=address_space,
            python=sys.version.split()[0],
            warnings=warnings,
        )
        self._confinement_of_children = confinement
        self._send({"op": "ready", "report": asdict(report)})

    def _confinement(self, plan: ZygotePlan, address_space: int, *, private_uid: bool) -> child.Confinement:
        version = landlock.abi() if plan.landlock else 0
        return child.Confinement(
            scratch_root=plan.scratch_root,
            has_scratch=not plan.sealed,
            private_uid=private_uid,
            first_uid=plan.first_uid,
            address_space=address_space,
            landlock_abi=version,
            grants=(
                landlock.Opened(plan.roots, landlock.READ),
                landlock.Opened(namespaces.DEVICES, landlock.READ_FILE),
                landlock.Opened(("/dev/null",), landlock.READ_FILE | landlock.WRITE_FILE),
            )
            if version
            else (),
            child_filter=bytes.fromhex(plan.child_filter),
            null=self._null,
            library_roots=tuple(sorted((p for p in plan.roots if os.path.isdir(p)), key=len, reverse=True)),
        )

    def _confine(self, plan: ZygotePlan, confinement: child.Confinement) -> None:
        """The first layers, inherited by every child."""
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if confinement.landlock_abi:
            ruleset = landlock.Ruleset(confinement.landlock_abi)
            for grant in (
                landlock.Opened(plan.readable, landlock.READ),
                landlock.Opened(plan.listable, landlock.READ_DIR),
                landlock.Opened([plan.scratch_root], landlock.SCRATCH),
                *confinement.grants[1:],
            ):
                grant.allow_in(ruleset)
                if grant not in confinement.grants:
                    grant.close()
            ruleset.enforce()
        if plan.service_filter:
            kernel.load_filter(bytes.fromhex(plan.service_filter))

    # -- serving

    def serve(self) -> None:
        """Until the control socket or the server is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        poll = select.poll()
        for fd in (self._control.fileno(), self._wake, self._server):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif fd == self._server or not self._handle():
                    return
            self._reap()

    def end(self) -> None:
        for pid in self._ids:
            os.kill(pid, signal.SIGKILL)
        for pid in self._ids:
            os.waitpid(pid, 0)

    def _send(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())

    def _handle(self) -> bool:
        """One message of the server; false at the end."""
        data, ancillary, _, _ = self._control.recvmsg(_MESSAGE, socket.CMSG_SPACE(2 * 4))
        if not data:
            return False
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload)
        message = json.loads(data)
        if message["op"] == "spawn":
            self._spawn(message, *descriptors)
        elif message["id"] in self._pids:  # "signal"; a child that has been reaped is gone from the table
            os.kill(self._pids[message["id"]], message["signal"])
        if message.get("acknowledge"):
            self._send({"op": "signalled", "id": message["id"]})
        return True

    def _spawn(self, message: dict[str, Any], channel: int, output: int) -> None:
        os.write(self._oom_score, _OOM_SCORE_OF_CHILD)  # inherited: the kernel's killer prefers children
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._send({"op": "failed", "id": message["id"], "error": str(error)})
        if pid == 0:
            signal.set_wakeup_fd(-1)
            child.run(self._confinement_of_children, message, channel, output)
        os.write(self._oom_score, _OOM_SCORE)
        os.close(channel)
        os.close(output)
        if pid > 0:
            self._pids[message["id"]] = pid
            self._ids[pid] = message["id"]

    def _reap(self) -> None:
        while self._ids:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            id_ = self._ids.pop(pid, None)
            if id_ is None:
                continue  # a grandchild that was left to us; only possible where forking is not refused
            del self._pids[id_]
            self._send(
                {
                    "op": "exit",
                    "id": id_,
                    "code": os.waitstatus_to_exitcode(status),
                    "cpu": usage.ru_utime + usage.ru_stime,
                    "clean": self._remove_scratch(id_),
                }
            )

    def _remove_scratch(self, id_: int) -> bool:
        """Quick removal of an empty scratch directory; the server takes care of any other."""
        confinement = self._confinement_of_children
        if not confinement.has_scratch:
            return True
        try:
            os.rmdir(f"{confinement.scratch_root}/{id_}")
        except OSError:
            return False
        return True


def main(plan: dict[str, Any], control: int, server: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control, server = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 2 * child.CHANNEL) for fd in (control, server))
    zygote = Zygote(socket.socket(fileno=control), server)
    try:
        zygote.prepare(ZygotePlan(**plan))
    except Exception as error:  # noqa: BLE001  # sent to the server, which refuses to start
        zygote._send({"op": "error", "error": f"{type(error).__name__}: {error}"})
        return
    try:
        zygote.serve()
    finally:
        zygote.end()
