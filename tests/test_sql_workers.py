"""The worker pool: a crash, a hang, a hostile answer cost one worker and never the service; nothing is left behind."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from rolloutgym.server.environments.sql import worker, workers
from rolloutgym.server.environments.sql.answers import AnswerOptions
from rolloutgym.server.environments.sql.database import Limits
from rolloutgym.server.environments.sql.engine import Engine, Opened, Subject
from rolloutgym.server.environments.sql.formatting import Caps
from rolloutgym.server.environments.sql.workers import Executor, InProcess, TooExpensive, WorkerPool
from rolloutgym.server.errors import Internal, WorkerLost
from rolloutgym.server.sandbox.roots import make_root

pytestmark = pytest.mark.anyio

LIMITS = Limits(cpu_s=1.0, steps=10**12)
PATIENT = Limits(cpu_s=600.0, steps=10**15)
"""Under these, what is endless is still under way whenever a test looks."""
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
STUCK = "SELECT trim(replace(x, '0', 'z'), substr(x, 1, 50000) || 'z') FROM (SELECT hex(zeroblob(240000)) AS x)"
"""Minutes in one call of a function, while nothing looks at a limit."""


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    path = tmp_path / "data.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO singer (name) VALUES (?)", [("Joe",), ("Ann",), ("\U0001f3a4",)])
        connection.commit()
    return Subject(str(path), "SELECT name FROM singer ORDER BY id")


def _children() -> list[psutil.Process]:
    """SQL workers of this very process, which may also have started whole services for other tests."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # ended since it was listed
            if "sql.worker" in " ".join(child.cmdline()):
                found.append(child)
    return found


def _pids(pool: WorkerPool) -> list[int]:
    return [worker.pid for worker in pool._workers]


async def _texts(executor: Executor, subject: Subject) -> list[object]:
    """One of each call, with texts that try the wire."""
    run, caps = executor.run, Caps()
    return [
        await run(Engine.open, subject),
        await run(Engine.describe, subject.database, "singer"),
        await run(Engine.describe, subject.database, "sänger\ud800\0"),
        await run(Engine.sample, subject.database, "Singer", 2, caps),
        await run(Engine.query, subject, subject.gold_sql, "sqlite", caps, ("singer",)),
        await run(Engine.query, subject, "SELECT nme, '\u2028' FROM singer", "sqlite", caps, ("singer",)),
        await run(Engine.query, subject, "SELECT 9e999, -9e999, x'ff', NULL, char(0, 10, 55296)", "sqlite", caps, ()),
        await run(Engine.grade, subject, '["Joe", "Ann", "\U0001f3a4"]', AnswerOptions()),
        await run(Engine.grade, subject, "x" * 2_000_000, AnswerOptions()),
        await run(Engine.grade_sql, subject, subject.gold_sql, "sqlite", AnswerOptions()),
        await run(Engine.grade_sql, subject, "SELECT 'Joe' UNION ALL SELECT 'Ann'", "sqlite", AnswerOptions()),
    ]


async def test_workers_say_what_the_service_itself_would(subject: Subject) -> None:
    pool, alone = WorkerPool(2, LIMITS, call_s=60), InProcess(LIMITS)
    await pool.start()
    assert pool.health() == {"workers": 2, "alive": 2, "lost": 0}
    texts = await asyncio.gather(*(_texts(pool, subject) for _ in range(6)))
    expected = await _texts(alone, subject)
    await pool.stop()
    await alone.stop()
    assert texts == [expected] * 6
    assert [type(text) for text in texts[0]] == [type(text) for text in expected]
    assert expected[-4:] == [True, False, True, False]
    assert not _children()


async def _lose(pool: WorkerPool, subject: Subject, number: signal.Signals) -> None:
    """Send a signal to the worker of a running call, which fails."""
    call = asyncio.ensure_future(pool.run(Engine.query, subject, ENDLESS, "sqlite", Caps(), ()))
    await asyncio.sleep(0.1)
    os.kill(_pids(pool)[0], number)
    with pytest.raises(WorkerLost) as caught:
        await call
    assert caught.value.retryable


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
async def test_a_crash_costs_one_worker(subject: Subject, number: signal.Signals) -> None:
    pool = WorkerPool(1, PATIENT, call_s=60)
    await pool.start()
    (first,) = _pids(pool)
    await _lose(pool, subject, number)
    assert pool.health() == {"workers": 1, "alive": 0, "lost": 1}
    assert (await pool.run(Engine.open, subject)).tables == ("singer",)
    assert pool.health() == {"workers": 1, "alive": 1, "lost": 1}
    assert _pids(pool) != [first]
    await pool.stop()
    assert not _children()


async def test_a_hang_ends_at_the_deadline_of_the_call(subject: Subject) -> None:
    pool = WorkerPool(1, PATIENT, call_s=1.0)
    await pool.start()
    await _lose(pool, subject, signal.SIGSTOP)
    pool._call_s = 60.0
    assert (await pool.run(Engine.open, subject)).tables == ("singer",)
    await pool.stop()
    assert not _children()


async def test_sql_that_sticks_in_one_instruction_is_too_expensive_and_no_fault(subject: Subject) -> None:
    """Else a model could turn a bad reward into an error at will."""
    pool = WorkerPool(1, Limits(cpu_s=0.1), call_s=60)
    await pool.start()
    assert (await pool.run(Engine.open, subject)).tables == ("singer",)
    with pytest.raises(TooExpensive):
        await pool.run(Engine.query, subject, STUCK, "sqlite", Caps(), ())
    with pytest.raises(TooExpensive):
        await pool.run(Engine.grade_sql, subject, STUCK, "sqlite", AnswerOptions())
    assert (await pool.run(Engine.open, subject)).tables == ("singer",)
    assert pool.health() == {"workers": 1, "alive": 1, "lost": 2}
    await pool.stop()
    assert not _children()


def test_a_process_is_watched_only_meanwhile() -> None:
    with worker._watched(1000.0):
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 900
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


async def test_a_worker_out_of_memory_lives_on(subject: Subject) -> None:
    pool = WorkerPool(1, LIMITS, call_s=60)
    await pool.start()
    pids = _pids(pool)
    for sql in (
        "SELECT hex(zeroblob(4e8))",
        "WITH RECURSIVE n(x) AS (SELECT zeroblob(900000) UNION ALL SELECT x FROM n)"
        " SELECT hex(substr(x, 1, 400000)) FROM n ORDER BY 1",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION SELECT x + 1 FROM n) SELECT count(*) FROM n",
    ):
        ran = await pool.run(Engine.query, subject, sql, "sqlite", Caps(), ())
        assert ran.failed
    assert _pids(pool) == pids
    memory = psutil.Process(pids[0]).memory_info().rss
    assert memory < 250 * 2**20
    await pool.stop()


async def test_other_workers_go_on_while_one_is_busy(subject: Subject) -> None:
    pool = WorkerPool(2, LIMITS, call_s=60)
    await pool.start()
    slow = asyncio.ensure_future(pool.run(Engine.query, subject, ENDLESS, "sqlite", Caps(), ()))
    await asyncio.sleep(0.05)
    (busy,) = (worker.pid for worker in pool._workers if worker._answer is not None)
    os.kill(busy, signal.SIGSTOP)  # however slow the others are
    for _ in range(50):
        assert (await pool.run(Engine.open, subject)).tables == ("singer",)
    assert not slow.done()
    os.kill(busy, signal.SIGCONT)
    assert "too expensive" in (await slow).text
    await pool.stop()


async def test_a_call_that_is_given_up_does_not_answer_the_next(subject: Subject) -> None:
    pool = WorkerPool(1, PATIENT, call_s=60)
    await pool.start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.run(Engine.query, subject, ENDLESS, "sqlite", Caps(), ()), 0.2)
    assert await pool.run(Engine.open, subject) == Opened(("singer",), empty=False)
    await pool.stop()
    assert not _children()


@pytest.mark.parametrize(
    "answer",
    [b"", b"+", b"+null", b'+[["singer"]]', b'+[["singer"],0,1]', b'+[{"a":1},false]', b"+{", b"?x", b"+[[1],false]"],
)
async def test_an_answer_of_the_wrong_form_is_a_lost_worker(
    subject: Subject, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = WorkerPool(1, LIMITS, call_s=60)
    await pool.start()

    async def call(self: workers._Worker, message: bytes, timeout_s: float) -> bytes:
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(workers._Worker, "call", call)
        with pytest.raises(WorkerLost):
            await pool.run(Engine.open, subject)
    assert pool.health()["alive"] == 0
    assert (await pool.run(Engine.open, subject)).tables == ("singer",)
    await pool.stop()


@pytest.mark.parametrize("chunks", [[b"\xff\xff\xff\xff+"], [b"\0\0\0\x01++"], [b"\0\0\0\x01+", b"\0\0\0\x01+"]])
async def test_bytes_that_are_no_answer_are_a_lost_worker(subject: Subject, chunks: list[bytes]) -> None:
    pool = WorkerPool(1, PATIENT, call_s=60)
    await pool.start()
    call = asyncio.ensure_future(pool.run(Engine.query, subject, ENDLESS, "sqlite", Caps(), ()))
    await asyncio.sleep(0.1)
    for chunk in chunks:
        pool._workers[0].data_received(chunk)
    with pytest.raises(WorkerLost):
        await call
    await pool.stop()
    assert not _children()


@pytest.mark.parametrize("executor", [InProcess(LIMITS), WorkerPool(1, LIMITS, call_s=60)], ids=["in process", "pool"])
async def test_data_that_do_not_work_are_our_fault_and_tell_nothing(
    executor: Executor, tmp_path: Path, subject: Subject
) -> None:
    await executor.start()
    (tmp_path / "text.sqlite").write_text("no database")
    for bad in (
        Subject(str(tmp_path / "missing.sqlite"), "SELECT secret FROM singer"),
        Subject(str(tmp_path / "text.sqlite"), "SELECT secret FROM singer"),
        subject._replace(gold_sql="SELECT secret FROM singer"),
        subject._replace(gold_sql="DELETE FROM secret"),
    ):
        with pytest.raises(Internal) as caught:
            await executor.run(Engine.open, bad)
        assert "secret" not in caught.value.message
        assert str(tmp_path) not in caught.value.message
    assert (await executor.run(Engine.open, subject)).tables == ("singer",)
    await executor.stop()


async def test_a_pool_can_start_again_and_does_nothing_in_between(subject: Subject) -> None:
    pool = WorkerPool(1, LIMITS, call_s=60)
    for _ in range(2):
        await pool.start()
        assert (await pool.run(Engine.open, subject)).tables == ("singer",)
        await pool.stop()
        with pytest.raises(WorkerLost):
            await pool.run(Engine.open, subject)
        assert not _children()


async def test_a_pool_that_stops_while_it_replaces_a_worker_leaves_none(subject: Subject) -> None:
    pool = WorkerPool(1, PATIENT, call_s=60)
    await pool.start()
    await _lose(pool, subject, signal.SIGKILL)
    call = asyncio.ensure_future(pool.run(Engine.open, subject))
    while not _children():  # noqa: ASYNC110  # nobody announces it
        await asyncio.sleep(0)
    await pool.stop()
    with pytest.raises(WorkerLost):
        await call
    assert not _children()


async def test_a_pool_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerLost):
        await WorkerPool(2, LIMITS, call_s=60).start()
    assert not _children()


async def test_workers_hold_no_secret_and_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTGYM_API_KEY", "secret")
    inherited = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    pool = WorkerPool(1, LIMITS, call_s=60)
    await pool.start()
    process = psutil.Process(_pids(pool)[0])
    assert "secret" not in process.environ().values()
    assert str(inherited) not in set(os.listdir(f"/proc/{process.pid}/fd")) - {"0", "1", "2"}
    assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    assert process.rlimit(psutil.RLIMIT_DATA)[0] < 2**30
    await pool.stop()
    os.close(inherited)


async def test_temporary_files_go_with_the_pool_even_those_of_a_killed_worker(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    pool = WorkerPool(1, PATIENT, call_s=60)
    await pool.start()
    assert await pool.run(Engine.grade_sql, subject, subject.gold_sql, "sqlite", AnswerOptions())
    assert list((tmp_path / "tmp").rglob("*.sqlite"))
    await _lose(pool, subject, signal.SIGKILL)
    await pool.stop()
    assert not list((tmp_path / "tmp").iterdir())


SERVICE = """
import asyncio, sys
from rolloutgym.server.environments.sql.database import Limits
from rolloutgym.server.environments.sql.engine import Engine, Subject
from rolloutgym.server.environments.sql.formatting import Caps
from rolloutgym.server.environments.sql.workers import WorkerPool

async def main():
    pool = WorkerPool(2, Limits(cpu_s=60, steps=10**15), call_s=90)
    await pool.start()
    print(*[worker.pid for worker in pool._workers], flush=True)
    await pool.run(Engine.query, Subject(sys.argv[1], sys.argv[2]), sys.argv[3], "sqlite", Caps(), ())

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_the_service_even_in_a_query(subject: Subject, number: signal.Signals) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SERVICE), *subject, ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        pids = [int(pid) for pid in service.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)
        service.send_signal(number)
        service.wait(60)
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_the_pool_runs_on_uvloop(subject: Subject) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def play() -> None:
        pool = WorkerPool(1, PATIENT, call_s=60)
        await pool.start()
        assert (await pool.run(Engine.open, subject)).tables == ("singer",)
        await _lose(pool, subject, signal.SIGKILL)
        assert (await pool.run(Engine.open, subject)).tables == ("singer",)
        await pool.stop()

    make_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(play())
    assert not _children()


async def test_what_a_killed_pool_has_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = make_root("rolloutgym-sql-workers-")
    os.close(left.lock)
    os.utime(left.path, (0, 0))
    pool = WorkerPool(1, LIMITS, call_s=60)
    await pool.start()
    present = os.listdir(tmp_path)
    await pool.stop()
    assert len(present) == 1
    assert present != [left.path.name]
    assert os.listdir(tmp_path) == []
