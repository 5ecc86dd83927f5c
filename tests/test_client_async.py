"""What only tasks can do to a client: hundreds of them at once, and cancellation in the middle of a step."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, Literal, cast

import pytest

from rolloutgym.client import AsyncClient

Transport = Literal["rest", "websocket"]

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["rest", "websocket"])
async def client(request: pytest.FixtureRequest, shared_noop: tuple[Any, str]) -> AsyncIterator[AsyncClient]:
    noop, url = shared_noop
    noop.steps = 0
    async with AsyncClient(url, cast(Transport, request.param)) as client:
        yield client


async def test_one_client_serves_hundreds_of_tasks(client: AsyncClient, shared_noop: tuple[Any, str]) -> None:
    handle = client.environment("noop")

    async def play(player: int) -> float:
        async with await handle.reset(split="train", index=player % 5) as episode:
            for step in range(5):
                assert (await episode.step({"add": float(player)})).step_count == step + 1
            return episode.total_reward

    returns = await asyncio.gather(*map(play, range(200)))
    assert returns == [5.0 * player for player in range(200)]
    assert shared_noop[0].steps == 1000


async def test_a_cancelled_step_may_be_taken_again_and_counts_once(
    client: AsyncClient, shared_noop: tuple[Any, str]
) -> None:
    noop, _ = shared_noop
    gate = Gate()
    noop.gates["async gate"] = gate
    episode = await client.environment("noop").reset()
    action = {"wait": "async gate", "add": 1.0}
    step = asyncio.create_task(episode.step(action))
    while gate.loop is None:  # noqa: ASYNC110 (the event is the service's, on another loop)
        await asyncio.sleep(0.01)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert episode.step_count == 0
    gate.loop.call_soon_threadsafe(gate.set)
    result = await episode.step(action)
    assert (result.step_count, episode.total_reward, noop.steps) == (1, 1.0, 1)
    await episode.close()


class Gate(asyncio.Event):
    """Says on which loop it is waited for: the service's."""

    loop: asyncio.AbstractEventLoop | None = None

    async def wait(self) -> Literal[True]:
        self.loop = asyncio.get_running_loop()
        return await super().wait()


async def test_a_client_that_is_closed_leaves_no_task_behind(shared_noop: tuple[Any, str]) -> None:
    before = asyncio.all_tasks()
    client = AsyncClient(shared_noop[1], "websocket")
    episodes = [await client.environment("noop").reset() for _ in range(3)]
    assert len(asyncio.all_tasks() - before) == 1
    await client.close()
    assert asyncio.all_tasks() == before
    assert not any(episode.done for episode in episodes)


_FORGETFUL = {
    "sync": """
from rolloutgym.client import Client
episode = Client({url!r}, {transport!r}).environment("noop").reset()
print(episode.step({{"add": 1.0}}).reward)
""",
    "async": """
import asyncio
from rolloutgym.client import AsyncClient
async def play():
    episode = await AsyncClient({url!r}, {transport!r}).environment("noop").reset()
    print((await episode.step({{"add": 1.0}})).reward)
asyncio.run(play())
""",
}


@pytest.mark.parametrize("transport", ["rest", "websocket"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_program_that_closes_nothing_still_ends(kind: str, transport: str, shared_noop: tuple[Any, str]) -> None:
    script = _FORGETFUL[kind].format(url=shared_noop[1], transport=transport)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr
