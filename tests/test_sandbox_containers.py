"""The docker backend, against a real engine: the image named by TEST_IMAGE, or python:3.11-slim."""

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox.client import Limits, Sandbox, SandboxConfig, SessionLost
from rolloutgym.server.sandbox.containers import _InOrder

IMAGE = os.environ.get("TEST_IMAGE", "python:3.11-slim")
Play = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]


@pytest.fixture(scope="module")
def engine(docker_engine: Any) -> Any:
    try:
        docker_engine.images.get(IMAGE)
    except docker.errors.ImageNotFound:
        pytest.skip(f"the engine has no image {IMAGE!r}")
    return docker_engine


@pytest.fixture(scope="module")
def sandbox_config(engine: Any) -> Iterator[SandboxConfig]:
    yield SandboxConfig(backend="docker", image=IMAGE)
    assert engine.containers.list(all=True, filters={"label": "rolloutgym.sandbox"}) == []


@pytest.mark.docker
@pytest.mark.slow
def test_level_is_proved(play: Play) -> None:
    async def report(sandbox: Sandbox) -> Any:
        return sandbox.report.as_json()

    shown = play(report)
    assert (shown["backend"], shown["level"], shown["failed"]) == ("docker", "namespaces", [])


@pytest.mark.docker
@pytest.mark.slow
def test_run(play: Play) -> None:
    result = play(lambda sandbox: sandbox.run("print('hi')\nimport sys\nprint('err', file=sys.stderr)\n6 * 7", seed=1))
    assert (result.status, result.output, result.value, result.state_kept) == ("ok", "hi\nerr\n", "42", False)


@pytest.mark.docker
@pytest.mark.slow
def test_session_keeps_variables_and_survives_an_interrupt(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> Any:
        session = await sandbox.open_session(seed=3)
        results = [
            await session.step("import random\nx = random.random()\nopen('note', 'w').write('n')"),
            await session.step("import time\ntime.sleep(60)", limits=Limits(wall_s=1)),
            await session.step("open('note').read(), x == random.Random(3).random()"),
        ]
        await session.close()
        return results

    first, limited, last = play(steps)
    assert first.status == "ok"
    assert (limited.status, limited.state_kept) == ("wall_limit", True)
    assert last.value == "('n', True)"


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("while True: print('x' * 1000)", "output_limit"),
        ("import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass", "cpu_limit"),
        ("import os\nos._exit(3)", "exited"),
        ("import ctypes\nctypes.string_at(0)", "crashed"),
        ("data = []\nwhile True: data.append(bytearray(1 << 24))", "memory_limit"),
    ],
)
def test_limits_and_ends(play: Play, code: str, status: str) -> None:
    limits = Limits(cpu_s=1, wall_s=20, memory=128 << 20)

    async def steps(sandbox: Sandbox) -> Any:
        session = await sandbox.open_session(limits=limits)
        result = await session.step(code)
        with pytest.raises(SessionLost):
            await session.step("1")
        return result

    assert play(steps).status == status


@pytest.mark.docker
@pytest.mark.slow
def test_fork_bomb_stays_inside(play: Play) -> None:
    code = """
import os, time
try:
    while True:
        if os.fork() == 0: time.sleep(30)
except OSError:
    print('refused')"""
    result = play(lambda sandbox: sandbox.run(code, limits=Limits(wall_s=10)))
    assert result.output == "refused\n"


@pytest.mark.docker
@pytest.mark.slow
def test_output_stays_before_its_reply(play: Play) -> None:
    async def steps(sandbox: Sandbox) -> list[str]:
        session = await sandbox.open_session()
        outputs = [(await session.step(f"print('{i}' * 5000)")).output for i in range(10)]
        await session.close()
        return outputs

    assert play(steps) == [f"{str(i) * 5000}\n" for i in range(10)]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.usefixtures("docker_engine")
def test_missing_image_is_a_fault_of_ours() -> None:
    sandbox = Sandbox(SandboxConfig(backend="docker", image="rolloutgym/none-such:0"))
    with pytest.raises(SandboxUnavailable, match="no Docker engine with the image"):
        asyncio.run(sandbox.start())


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK's
def test_missing_engine_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(SandboxUnavailable, match="no Docker engine"):
        asyncio.run(Sandbox(SandboxConfig(backend="docker", image=IMAGE)).start())
    gc.collect()


# ---- the process sandbox inside of a container ----------------------------------------------------------------------

_MANY = """
import asyncio, functools, importlib.util, json, pathlib, sys
place = importlib.util.spec_from_file_location("cleanup", "/copied/rolloutgym/tests/test_sandbox_cleanup.py")
cleanup = importlib.util.module_from_spec(place)
place.loader.exec_module(cleanup)
cleanup.SandboxConfig = functools.partial(cleanup.SandboxConfig, **json.loads(sys.argv[1]))
base = pathlib.Path("/tmp/many")
base.mkdir()
base.chmod(0o755)
asyncio.run(cleanup._many(int(sys.argv[2]), base))
"""
_RUNS = int(os.environ.get("TEST_RUNS", "1000"))
_HARDENED = ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=1000", "--read-only", "--tmpfs=/tmp"]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("options", "config"),
    [
        ([], {}),
        (["--user=1000"], {}),
        (["--cap-drop=ALL"], {}),
        (_HARDENED, {}),
        (_HARDENED, {"use_landlock": False}),
    ],
    ids=["default", "user", "root without capabilities", "hardened", "hardened and sealed"],
)
def test_many_runs_in_a_container_leave_nothing(options: list[str], config: dict[str, bool]) -> None:
    """TEST_RUNS of them. The image has a Python of this version; the packages are mounted from here."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    root = Path(__file__).resolve().parent.parent
    mounts = [f"--volume={root}:/copied/rolloutgym:ro", f"--volume={site}:/site:ro"]
    command = ["docker", "run", "--rm", "--network=none", *options, *mounts, "--env=PYTHONPATH=/copied:/site", IMAGE]
    program = ["python3", "-P", "-c", _MANY, json.dumps(config), str(_RUNS)]
    done = subprocess.run([*command, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@given(st.data())
def test_replies_stay_behind_what_was_printed_before_them(data: st.DataObject) -> None:
    """However the engine cuts and mixes the two streams."""
    marker = b"<marker>"
    printed = [data.draw(st.binary(max_size=20)).replace(b"<", b"") for _ in range(3)]
    replies = [b"reply %d" % i for i in range(3)]
    in_order = _InOrder(marker)
    shown = b""
    for text, reply in zip(printed, replies, strict=True):
        whole = text + marker
        cut = data.draw(st.integers(0, len(whole)))
        pieces = [(whole[:cut], False), (whole[cut:], False)]
        pieces.insert(data.draw(st.integers(0, 2)), (reply, True))
        answered = b""
        for piece, is_reply in pieces:
            output, answer = in_order.take(piece, is_reply=is_reply)
            shown += output
            answered += answer
        assert answered == reply
        assert shown.endswith(text)
    assert shown == b"".join(printed)
    in_order.take(b"cut sho", is_reply=False)
    assert in_order.rest() == b"cut sho"
