"""The SQL environment over HTTP: the oracle earns the full return everywhere, and faults are never rewards."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from rolloutgym.cli.policies import sql as policies
from rolloutgym.client import AsyncClient, Client, RolloutGymError
from rolloutgym.models import ErrorCode, SqlInfo, StopReason
from rolloutgym.server.environments.sql.environment import SqlEnvironment
from rolloutgym.server.environments.sql.questions import SqlTask
from rolloutgym.server.environments.sql.tasks import load_tasks
from rolloutgym.server.environments.tasks import TaskSet

pytestmark = pytest.mark.anyio

PACK = Path(__file__).parents[2] / "shared/data/sql"
FULL = round(1 - 2 * 0.05 / 15, 9)
"""The oracle's return: the answer, less two steps."""
AT_ONCE = 16
Start = Callable[..., str]


@pytest.fixture(scope="module")
def shipped() -> TaskSet[SqlTask]:
    return load_tasks()


@pytest.fixture
def pack() -> TaskSet[SqlTask]:
    if not PACK.is_dir():
        pytest.skip(f"there is no data set in {PACK.parent}")
    return load_tasks(PACK)


def _all(tasks: TaskSet[SqlTask]) -> list[SqlTask]:
    return [task for split in tasks.splits() for task in tasks.of_split(split)]


async def _play(client: AsyncClient, task: SqlTask, policy: Any, options: dict[str, Any]) -> float:
    async with await client.sql.reset(task_id=task.id, options=options) as episode:
        policy.start(task, episode.observation)
        while not episode.done:
            await episode.step(policy.act(episode.observation))
        return episode.total_reward


async def _returns(
    url: str, tasks: Sequence[SqlTask], make_policy: Callable[[], Any], transport: Any = "rest", **options: Any
) -> dict[str, float]:
    """The return of each task's episode, several of them at once."""
    returns: dict[str, float] = {}
    waiting = list(tasks)
    async with AsyncClient(url, transport=transport) as client:

        async def play() -> None:
            while waiting:
                task = waiting.pop()
                returns[task.id] = round(await _play(client, task, make_policy(), options), 9)

        await asyncio.gather(*(play() for _ in range(AT_ONCE)))
    return returns


async def _check(url: str, tasks: Sequence[SqlTask]) -> None:
    returns = await _returns(url, tasks, policies.oracle)
    assert len(returns) == len(tasks)
    assert {task: value for task, value in returns.items() if value != FULL} == {}


async def test_the_oracle_earns_the_full_return_on_every_shipped_task(
    start_service: Start, shipped: TaskSet[SqlTask]
) -> None:
    await _check(start_service({"sql": SqlEnvironment(shipped, workers=1)}), _all(shipped))


async def test_the_oracle_earns_the_full_return_on_fifty_questions(
    start_service: Start, pack: TaskSet[SqlTask]
) -> None:
    await _check(start_service({"sql": SqlEnvironment(pack, workers=2)}), _all(pack)[:: len(pack) // 50])


@pytest.mark.slow
async def test_the_oracle_earns_the_full_return_on_every_usable_question(
    start_service: Start, pack: TaskSet[SqlTask]
) -> None:
    """All golds with rows: the 1,263 that are unambiguous, and those that cut through a tie."""
    assert len(pack) == 1_317
    url = start_service({"sql": SqlEnvironment(pack, workers=2)})
    await _check(url, _all(pack))
    in_sql = await _returns(url, _all(pack), policies.sql_oracle, answer="sql")
    assert set(in_sql.values()) == {round(1 - 0.05 / 15, 9)}


async def test_other_policies_other_transports_other_options(start_service: Start, shipped: TaskSet[SqlTask]) -> None:
    url = start_service({"sql": SqlEnvironment(shipped, workers=1)})
    tasks = _all(shipped)[::60]
    assert set((await _returns(url, tasks, policies.oracle, "websocket")).values()) == {FULL}
    assert set((await _returns(url, tasks, policies.oracle, reward="sparse")).values()) == {1.0}
    assert set((await _returns(url, tasks, policies.do_nothing, budget=3)).values()) == {-0.3}
    random = await _returns(url, tasks, lambda: policies.random(3))
    assert random == await _returns(url, tasks, lambda: policies.random(3), "websocket")
    assert sum(random.values()) / len(random) < 0.2


async def test_an_episode_on_the_wire(start_service: Start, shipped: TaskSet[SqlTask]) -> None:
    url = start_service({"sql": SqlEnvironment(shipped)})
    async with AsyncClient(url) as client:
        task = shipped.of_split("train")[0]
        episode = await client.sql.reset(split="train", index=0, seed=5)
        assert (episode.task_id, episode.seed) == (task.id, 5)
        tables = [name for name in ("loans", "members", "books") if name in episode.messages[-1].content]
        assert tables
        result = await episode.step(f"DESCRIBE {tables[0]}")
        info = SqlInfo.model_validate(result.observation.info.model_dump())
        assert (info.execution_ok, info.new_information, info.budget_remaining) == (True, True, 14)
        end = await episode.truncate(StopReason.CONTEXT_LENGTH)
        assert (end.done, end.truncated) == (True, True)
        assert end.reward == pytest.approx(-0.2 - 14 * 0.05 / 15)
        assert end.observation.info.stop_reason == StopReason.CONTEXT_LENGTH
        state = (await episode.state()).model_dump()
        assert task.gold_sql not in str(state)
        for options in ({"budget": 0}, {"unknown": 1}, {"dialect": "cobol"}):
            with pytest.raises(RolloutGymError) as caught:
                await client.sql.reset(options=options)
            assert caught.value.code == ErrorCode.INVALID_REQUEST


async def test_a_lost_worker_is_an_error_and_the_episode_goes_on(
    start_service: Start, shipped: TaskSet[SqlTask]
) -> None:
    environment = SqlEnvironment(shipped, workers=1)
    url = start_service({"sql": environment})
    endless = "QUERY: WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    async with AsyncClient(url, retries=0) as client:
        episode = await client.sql.reset(split="train", index=0)
        await episode.step("QUERY: SELECT 1")
        pool: Any = environment._executor
        (worker,) = pool._workers
        os.kill(worker.pid, signal.SIGSTOP)  # it does not come to an end by itself
        call = asyncio.ensure_future(episode.step(endless))
        while worker._answer is None:  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0.01)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(RolloutGymError) as caught:
            await call
        assert (caught.value.code, caught.value.retryable) == (ErrorCode.WORKER_LOST, True)
        assert episode.step_count == 1
        again = await episode.step(endless)
        assert again.observation.info.turn == 2
        assert "too expensive" in again.observation.messages[0].content


def test_a_killed_service_leaves_no_process(service_process: Any) -> None:
    service = service_process(environments="sql", sql_workers="2")
    children = psutil.Process(service.pid).children(recursive=True)
    assert len(children) == 2
    with Client(service.url) as client:
        client.sql.reset(split="train", index=0)
        os.kill(service.pid, signal.SIGKILL)
        service.process.wait(60)
        deadline = time.monotonic() + 60
        while any(child.is_running() for child in children) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert not [child for child in children if child.is_running()]
