"""Nothing is left: processes, descriptors, scratch, slots; after many runs, after a kill, after hostile trees."""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rolloutgym.server.sandbox import scratch, supervisor
from rolloutgym.server.sandbox.client import Limits, Sandbox, SandboxConfig
from rolloutgym.server.sandbox.launch import start_process
from rolloutgym.server.sandbox.processes import ProcessBackend
from rolloutgym.server.sandbox.roots import sweep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")

PROGRAMS = (
    "1 + 1",
    "print('x' * 100)",
    "open('f', 'w').write('x')",
    "import os\nos.makedirs('a/b/c')",
    "1 / 0",
    "import os\nos._exit(3)",
    "import sys\nsys.exit(1)",
    "import os\nos.kill(os.getpid(), 9)",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since
                found += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return found


def _is_zygote(pid: int) -> bool:
    try:
        return b"\0-S\0-s\0-P\0-B\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # ended since it was listed
        return False


def _own_zygotes() -> list[int]:
    """Of this very process, which may also have started whole services for other tests."""
    return [pid for pid in _children(os.getpid()) if _is_zygote(pid)]


def _used_by(zygote: int) -> list[tuple[int, int]]:
    """Descriptors and threads of an idle zygote (and of its keeper, where it has a process table of its own)."""
    family = [zygote, *_children(zygote)]
    return [(len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))) for pid in family]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  # what ends elsewhere announces itself to nobody
            await asyncio.sleep(0.02)


async def _many(runs: int, base: Path) -> None:
    gc.collect()
    before = _descriptors()
    sandbox = Sandbox(SandboxConfig(scratch=base, running=16))
    await sandbox.start()
    backend = sandbox._backend
    assert isinstance(backend, ProcessBackend)
    assert backend.root is not None
    try:
        calm = _descriptors()
        (zygote,) = _own_zygotes()
        calm_zygote = _used_by(zygote)
        pending = iter(range(runs))

        async def worker() -> None:
            for i in pending:
                code = PROGRAMS[i % len(PROGRAMS)]
                if i % 5 == 0:
                    session = await sandbox.open_session()
                    await session.step(code)
                    await session.close()
                else:
                    await sandbox.run(code)

        await asyncio.gather(*(worker() for _ in range(16)))
        await _until(lambda: not backend.children and not backend.cleaning)
        assert [name for name in os.listdir(backend.root.path) if name.isdigit()] == []
        assert _descriptors() == calm
        assert _used_by(zygote) == calm_zygote
        assert sandbox.report.restarts == 0
        assert backend.slots <= 64
        assert sorted(backend.free_slots) == list(range(backend.slots))
        zygotes = _own_zygotes()
        assert len(zygotes) == 1
        assert all(len(_children(pid)) <= 1 for pid in zygotes)
    finally:
        await sandbox.stop()
    assert os.listdir(base) == []
    assert _own_zygotes() == []
    gc.collect()
    assert _descriptors() == before


def test_300_runs_leave_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    asyncio.run(_many(300, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_10_000_runs_leave_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    asyncio.run(_many(10_000, tmp_path))


def test_a_start_that_is_broken_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    started, go_on = threading.Event(), threading.Event()

    def start(*arguments: Any) -> Any:
        made = start_process(*arguments)
        started.set()
        go_on.wait()
        return made

    monkeypatch.setattr(supervisor, "start_process", start)

    async def main() -> None:
        before = _descriptors()
        starting = asyncio.create_task(Sandbox(SandboxConfig(scratch=tmp_path)).start())
        await asyncio.to_thread(started.wait)
        starting.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert _descriptors() == before

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []
    assert _own_zygotes() == []


def test_refused_start_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        before = _descriptors()
        for config in (
            SandboxConfig(scratch=tmp_path, use_seccomp=False),
            SandboxConfig(scratch=tmp_path, python=Path("/nonexistent")),
        ):
            with pytest.raises(Exception, match="sandbox"):
                await Sandbox(config).start()
        assert _descriptors() == before

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []
    assert _own_zygotes() == []


_SERVER = """
import asyncio, sys
from pathlib import Path
from rolloutgym.server.sandbox.client import Limits, Sandbox, SandboxConfig

async def main():
    sandbox = Sandbox(SandboxConfig(scratch=Path(sys.argv[1]), use_namespaces=sys.argv[2] == "True"))
    await sandbox.start()
    session = await sandbox.open_session()
    await session.step("import threading, time\\nopen('f', 'w').write('x')")
    await session.step("threading.Thread(target=time.sleep, args=(600,)).start()")
    running = asyncio.create_task(sandbox.run("while True: pass", limits=Limits(cpu_s=600, wall_s=600)))
    while not any(child.running for child in sandbox._backend.children.values()):
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def _processes_in(folder: Path) -> list[int]:
    """Processes whose working directory is below the folder, or whose command line names it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                where = os.readlink(entry / "cwd") + (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(folder) in where:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("namespaces", [True, False])
def test_killed_server_leaves_no_process_and_its_scratch_is_swept(tmp_path: Path, namespaces: bool) -> None:
    tmp_path.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(tmp_path), str(namespaces)], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        zygotes = _children(server.pid)
        family = zygotes + [child for pid in zygotes for child in _children(pid)]
        family += [child for pid in family for child in _children(pid)]
        assert len(family) >= 3
        server.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
    assert _processes_in(tmp_path) == []
    (root,) = tmp_path.iterdir()
    os.utime(root, (0, 0))
    assert sweep("rolloutgym-sandbox-", tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_remove_tree_takes_hostile_trees_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(outside)
    (top / "loop").symlink_to(top)
    (top / "closed").mkdir()
    (top / "closed" / "inner").mkdir()
    (top / "closed" / "inner" / "link").symlink_to(outside)
    (top / "closed").chmod(0)
    for i in range(20):  # names that a clean-up might choose itself
        (top / f".moved-{i}").touch()
        (top / f"moved-{i}" / "inner").mkdir(parents=True)
    (top / os.fsdecode(b"\xff" * 255) / "\n").mkdir(parents=True)
    here = os.open(top, os.O_RDONLY)
    for _ in range(1500):  # far beyond what a path can name
        os.mkdir("d" * 50, dir_fd=here)
        deeper = os.open("d" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    scratch.remove_tree(top)
    assert not top.exists()
    assert (outside / "kept").read_text() == "kept"


def test_names_that_clean_up_chooses_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree that holds one of them already could not be removed, nor its slot be used again."""
    chosen: list[str] = []
    rename = os.rename

    def listen(old: str, new: Path) -> None:
        chosen.append(new.name)
        rename(old, new)

    monkeypatch.setattr(os, "rename", listen)
    for _ in range(2):
        (tmp_path / "top" / "a" / "b").mkdir(parents=True)
        scratch.remove_tree(tmp_path / "top")
    assert len(set(chosen)) == 2


def _tree(top: Path, kind: str) -> None:
    top.mkdir()
    match kind:
        case "bytes":
            (top / "f").write_bytes(bytes(300_000))
        case "files":
            for i in range(30):
                (top / str(i)).touch()
        case "folders":
            for i in range(30):
                (top / str(i)).mkdir()
        case "nested":
            (top / "a" / "b" / "c").mkdir(parents=True)
            (top / "a" / "b" / "c" / "f").write_bytes(bytes(300_000))
        case "deep":
            (top / "/".join("d" * 80)).mkdir(parents=True)
        case "link":
            (top / "l").symlink_to("/usr")
        case "small":
            (top / "f").write_bytes(bytes(1000))


@pytest.mark.parametrize(
    ("kind", "over"),
    [
        ("bytes", True),
        ("files", True),
        ("folders", True),
        ("nested", True),
        ("deep", True),
        ("link", False),
        ("small", False),
        ("empty", False),
    ],
)
def test_scratch_is_measured(tmp_path: Path, kind: str, over: bool) -> None:
    top = tmp_path / "top"
    _tree(top, kind)
    before = _descriptors()
    max_files = 1000 if kind == "deep" else 20
    assert scratch.exceeds(top, 200_000, max_files) is over
    assert _descriptors() == before


def test_what_cannot_be_measured_is_over() -> None:
    """A folder that may be written but not listed, looked at by a server that is not root."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to look as another user")
    with tempfile.TemporaryDirectory() as name:
        top = Path(name) / "top"
        (top / "closed").mkdir(parents=True)
        for folder in (Path(name), top):
            folder.chmod(0o755)
        (top / "closed").chmod(0o333)
        pid = os.fork()
        if pid == 0:
            status = 2
            try:
                os.setresuid(60600, 60600, 60600)
                status = int(scratch.exceeds(top, 1 << 30, 1000))
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
        (top / "closed").chmod(0o700)
        assert scratch.exceeds(top, 1 << 30, 1000) is False


def test_a_look_without_descriptors_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own lack: it may neither end the watch over all children nor this one."""
    (tmp_path / "a").mkdir()

    def none_left(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    for name in ("open", "scandir"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, none_left)
            assert scratch.exceeds(tmp_path, 1 << 30, 1000) is False


def test_missing_scratch_is_not_over(tmp_path: Path) -> None:
    assert scratch.exceeds(tmp_path / "gone", 1, 1) is False


def test_evicted_and_broken_sessions_free_their_slots(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    async def main() -> None:
        sandbox = Sandbox(SandboxConfig(scratch=tmp_path, sessions=2))
        await sandbox.start()
        backend = sandbox._backend
        assert isinstance(backend, ProcessBackend)
        try:
            for _ in range(6):
                session = await sandbox.open_session()
                await session.step("open('f', 'w').write('x')")
                await _until(lambda: len(backend.children) <= 2 and not backend.cleaning)
            task = asyncio.create_task(session.step("import time\ntime.sleep(600)", limits=Limits(wall_s=600)))
            while not session.running:  # noqa: ASYNC110  # nobody announces it
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await _until(lambda: len(backend.children) == 1)
            assert backend.slots <= 4
        finally:
            await sandbox.stop()

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []
