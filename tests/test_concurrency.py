"""Many episodes at once on one process."""

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from rolloutgym.client import AsyncClient

pytestmark = pytest.mark.anyio


async def until(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not come true")


@pytest.mark.parametrize("transport", ["rest", "websocket"])
async def test_two_hundred_episodes_at_once_have_every_reward_right(
    start_service: Callable[..., str], noop: Any, transport: Any
) -> None:
    url = start_service({"noop": noop})

    async def play(client: AsyncClient, number: int) -> None:
        drawn = random.Random(number)
        handle = client.environment("noop")
        async with await handle.reset(seed=number, options={"budget": 6}) as episode:
            total, turn = 0.0, 0
            while not episode.done:
                add = drawn.randrange(-100, 100) / 4
                turn += 1
                result = await episode.step({"add": add})
                total += add
                assert (result.reward, result.step_count) == (add, turn)
                assert episode.total_reward == pytest.approx(total)
            assert turn == 6
            state = await episode.state()
            assert state.total_reward == pytest.approx(total)
            assert (state.step_count, state.done) == (6, True)

    async with AsyncClient(url, transport=transport) as client, asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(play(client, number))
    async with httpx2.AsyncClient(base_url=url) as http:
        metrics = (await http.get("/metrics")).text
    assert 'rolloutgym_step_seconds_count{environment="noop"} 1200.0' in metrics
    assert 'rolloutgym_finished_total{environment="noop",stop_reason="budget_exhausted"} 200.0' in metrics
    assert noop.open == 0


async def test_a_slow_step_of_one_episode_leaves_the_others_as_they_were(
    start_service: Callable[..., str], noop: Any
) -> None:
    """The slow step blocks, off the loop as every environment does it, until the others have played."""
    url = start_service({"noop": noop})
    released = threading.Event()

    async with httpx2.AsyncClient(base_url=url, timeout=120) as http:
        for name in ("slow", "quick"):
            await http.post("/noop/reset", json={"episode_id": name})
        noop.blocking["query"] = lambda: released.wait(120)
        slow = asyncio.create_task(
            http.post("/noop/step", json={"episode_id": "slow", "action": {"block": "query", "add": 7}})
        )
        await until(lambda: bool(noop.waiting))
        for n in range(1, 101):
            answer = (await http.post("/noop/step", json={"episode_id": "quick", "action": {"add": 1}})).json()
            assert answer["observation"]["total"] == n
            if n % 20 == 0:
                for path in ("health", "metadata", "schema", "splits", "state?episode_id=quick"):
                    assert (await http.get(f"/noop/{path}")).status_code == 200
        assert not slow.done()
        released.set()
        assert (await slow).json()["reward"] == 7


async def test_memory_and_sessions_are_given_back(start_service: Callable[..., str], noop: Any) -> None:
    """Episodes that nobody ends, on connections that nobody closes, leave nothing behind."""
    url = start_service({"noop": noop}, idle_timeout_s=0.1, grace_s=0.1)
    async with httpx2.AsyncClient(base_url=url) as http:
        for n in range(50):
            await http.post("/noop/reset", json={"episode_id": f"e{n}"})
    await until(lambda: noop.open == 0)
    sessions = noop.server.config.app.state.service.sessions
    assert not sessions._sessions
    assert not sessions._store._records
