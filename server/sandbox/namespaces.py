"""A file tree, network, process table, IPC and host name of its own for the zygote, where the kernel grants them.
Standard library only.

The tree holds, at their usual paths and read-only, the interpreter's library, the packages and the scratch directories:
nothing else of the machine can even be named. As root the namespaces come from CAP_SYS_ADMIN, else from a user
namespace."""

import os
import signal
from typing import Final

from rolloutgym.server.sandbox import kernel
from rolloutgym.server.sandbox.plan import ZygotePlan

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")
NAMES: Final = ("mnt", "net", "pid", "ipc", "uts")
_FLAGS = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_DESCRIPTORS = 256
# What a user namespace may not clear when it remounts: MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_NODIRATIME.
_LOCKED = 2 | 4 | 8 | 1024 | 2048


def tree_of(plan: ZygotePlan) -> str:
    """Mount point of the tree; the server makes it."""
    return f"{plan.scratch_root}/.tree"


def granted(plan: ZygotePlan) -> bool:
    """Whether all of it works here, tried in a child (some kernels grant a user namespace and then no right in it)."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            enter()
            enter_tree(plan)
            status = 0
        except OSError:
            pass
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def enter() -> None:
    """Unshare, then go on as process 1 of the new process table; the caller's process stays behind as its keeper."""
    uid, gid = os.getuid(), os.getgid()
    try:
        kernel.unshare(_FLAGS)
    except PermissionError:
        kernel.unshare(kernel.CLONE_NEWUSER | _FLAGS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    pid = os.fork()
    if pid:
        os.closerange(3, _DESCRIPTORS)  # only the zygote may hold the control socket
        os._exit(max(0, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _bind(source: str, target: str, flags: int) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    kernel.mount(source, target, None, kernel.MS_BIND)
    locked = os.statvfs(target).f_flag & _LOCKED
    kernel.mount(None, target, None, kernel.MS_REMOUNT | kernel.MS_BIND | flags | locked)


def enter_tree(plan: ZygotePlan) -> None:
    """Build the tree and make it the root."""
    tree = tree_of(plan)
    mask = os.umask(0o022)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", tree, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=1m")
    for name in ("lib", "lib64"):  # the loader's cache names libraries through these links
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{tree}/{name}")
    read_only = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    inside = tuple(f"{path}/" for path in plan.hidden)
    for path in plan.roots:
        if not path.startswith(inside):
            _bind(path, tree + path, read_only)
    for path in plan.hidden:
        kernel.mount("tmpfs", tree + path, "tmpfs", 0, "mode=0755,size=4k")
    for path in plan.roots:
        if path.startswith(inside):
            _bind(path, tree + path, read_only)
    for path in plan.hidden:
        kernel.mount(None, tree + path, None, kernel.MS_REMOUNT | kernel.MS_BIND | read_only)
    for path in DEVICES:
        _bind(path, tree + path, kernel.MS_NOSUID | kernel.MS_NOEXEC)
    _bind(plan.scratch_root, tree + plan.scratch_root, kernel.MS_NOSUID | kernel.MS_NODEV)
    os.chdir(tree)
    kernel.pivot_root(".", ".")  # stacks the old root on the new one; the next call takes it away
    kernel.unmount(".")
    os.chdir("/")
    kernel.mount(None, "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)
    os.umask(mask)
