"""The life of episodes below the wire: resets, capacity, the end of what nobody asks for, the end of the service."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from rolloutgym.server import errors
from rolloutgym.server.store import Record

pytestmark = pytest.mark.anyio


# ---- resets ----


async def test_a_live_episode_is_restarted_by_its_id(table: Any) -> None:
    first = (await table.reset(seed=3)).first
    await table.step(add=1)
    assert (await table.reset(seed=3)).first == first
    assert (await table.state())["step_count"] == 0
    assert await table.sessions.count() == 1
    await asyncio.sleep(0)
    assert table.environment.open == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"task_id": "none"}, errors.TaskNotFound),
        ({"split": "none"}, errors.TaskNotFound),
        ({"split": "train", "index": 99}, errors.TaskNotFound),
        ({"index": 0}, errors.InvalidRequest),
        ({"options": {"budget": 0}}, errors.InvalidRequest),
        ({"options": {"bugdet": 5}}, errors.InvalidRequest),
        ({"options": {"reset_fault": "x"}}, errors.Internal),
    ],
)
async def test_a_reset_that_fails_leaves_what_there_was(
    table: Any, fields: dict[str, Any], error: type[errors.ServiceError]
) -> None:
    table.environment.faults["x"] = lambda: 1 / 0
    with pytest.raises(error):
        await table.reset("new", **fields)
    assert await table.sessions.count() == 0
    await table.reset("old")
    await table.step("old", add=1)
    for new in ("old", "new"):
        with pytest.raises(error):
            await table.reset(new, instead_of="old", **fields)
    assert (await table.step("old", add=1))["observation"]["total"] == 2
    assert await table.sessions.count() == 1


async def test_an_episode_instead_of_another_takes_its_place(make_table: Callable[..., Any]) -> None:
    table = make_table(capacity=1)
    await table.reset("old")
    with pytest.raises(errors.CapacityReached):
        await table.reset("new")
    await table.reset("new", instead_of="old")
    with pytest.raises(errors.EpisodeNotFound):
        await table.state("old")
    assert (await table.state("new"))["step_count"] == 0
    assert await table.sessions.count() == 1


async def test_a_seed_decides_and_is_reported(table: Any) -> None:
    one = json.loads((await table.reset("one", seed=5)).first)
    two = json.loads((await table.reset("two", seed=5)).first)
    assert one | {"episode_id": "two"} == two
    drawn = {json.loads((await table.reset(seed=None)).first)["seed"] for _ in range(20)}
    assert len(drawn) == 20
    # JavaScript reads them exactly.
    assert max(drawn) < 2**53


# ---- capacity, idleness, the end ----


async def test_capacity_counts_unfinished_episodes(make_table: Callable[..., Any]) -> None:
    table = make_table(capacity=2)
    await table.reset("a")
    await table.reset("b")
    with pytest.raises(errors.CapacityReached):
        await table.reset("c")
    await table.reset("b")
    await table.step("a", finish=True)
    await table.reset("c")
    with pytest.raises(errors.CapacityReached):
        await table.reset("a")
    await table.sessions.delete(table.environment, "b")
    await table.reset("a")


async def test_resets_at_once_do_not_exceed_the_capacity(make_table: Callable[..., Any]) -> None:
    table = make_table(capacity=3)
    results = await asyncio.gather(*(table.reset(f"e{n}") for n in range(10)), return_exceptions=True)
    assert sum(isinstance(result, Record) for result in results) == 3
    assert all(isinstance(result, Record | errors.CapacityReached) for result in results)


async def test_idle_episodes_are_reaped_and_used_ones_are_not(make_table: Callable[..., Any]) -> None:
    table = make_table(idle_timeout_s=0.05)
    await table.reset("idle")
    await table.reset("attached")
    await table.sessions.attach(table.environment, "attached")
    await table.reset("busy")
    table.environment.gates["g"] = asyncio.Event()
    busy = asyncio.create_task(table.step("busy", wait="g"))
    await asyncio.sleep(0.1)
    await table.sessions.reap()
    with pytest.raises(errors.EpisodeNotFound):
        await table.state("idle")
    assert (await table.state("attached"))["step_count"] == 0
    table.environment.gates["g"].set()
    await busy
    await table.sessions.detach(table.environment, "attached", 0.0)
    await table.sessions.reap()
    with pytest.raises(errors.EpisodeNotFound):
        await table.state("attached")
    assert await table.sessions.count() == 1


async def test_the_reaper_runs_by_itself(make_table: Callable[..., Any]) -> None:
    table = make_table(idle_timeout_s=0.02)
    await table.sessions.start()
    await table.reset()
    for _ in range(500):
        if not table.sessions._sessions:
            break
        await asyncio.sleep(0.01)
    assert await table.sessions.count() == 0
    assert not table.sessions._sessions


async def test_finished_episodes_are_crowded_out_by_newer_ones(make_table: Callable[..., Any]) -> None:
    table = make_table(capacity=3)
    for n in range(5):
        await table.reset(f"e{n}")
        await table.step(f"e{n}", finish=True)
    for n in range(2):
        with pytest.raises(errors.EpisodeNotFound):
            await table.state(f"e{n}")
    for n in range(2, 5):
        assert (await table.state(f"e{n}"))["done"]


async def test_a_finished_episode_that_is_still_played_is_not_crowded_out(make_table: Callable[..., Any]) -> None:
    table = make_table(capacity=2)
    await table.reset("attached")
    await table.sessions.attach(table.environment, "attached")
    end = await table.step("attached", at=0, finish=True)
    for n in range(5):
        await table.reset(f"e{n}")
        await table.step(f"e{n}", finish=True)
    assert await table.step("attached", at=0, finish=True) == end
    assert len(table.sessions._sessions) == 2


async def test_a_finished_episode_that_began_anew_is_not_crowded_out(make_table: Callable[..., Any]) -> None:
    table = make_table(capacity=2)
    await table.reset("e")
    await table.step("e", finish=True)
    await table.reset("e")
    for n in range(5):
        await table.reset("other")
        await table.step("other", finish=True)
        await table.reset(f"e{n}")
        await table.step(f"e{n}", finish=True)
    assert (await table.step("e", add=1))["step_count"] == 1


async def test_unknown_and_ended_episodes_leave_nothing_behind(table: Any) -> None:
    for call in (table.step("x", add=1), table.state("x")):
        with pytest.raises(errors.EpisodeNotFound):
            await call
    assert not await table.sessions.delete(table.environment, "x")
    await table.reset()
    assert await table.sessions.delete(table.environment, "e")
    assert not await table.sessions.delete(table.environment, "e")
    assert not table.sessions._sessions
    assert not table.store._records
    assert not table.store._places


# ---- the end of the service ----


async def test_draining_waits_for_what_is_in_flight_and_refuses_the_rest(table: Any) -> None:
    await table.reset()
    gate = table.environment.gates["g"] = asyncio.Event()
    step = asyncio.create_task(table.step(add=1, wait="g"))
    await asyncio.sleep(0)
    drain = asyncio.create_task(table.sessions.drain(30))
    await asyncio.sleep(0)
    for call in (table.step(add=1), table.reset("new"), table.state()):
        with pytest.raises(errors.ShuttingDown):
            await call
    assert not drain.done()
    gate.set()
    assert (await step)["reward"] == 1
    await drain


async def test_draining_gives_up_on_what_hangs(table: Any, caplog: pytest.LogCaptureFixture) -> None:
    await table.reset()
    table.environment.gates["never"] = asyncio.Event()
    step = asyncio.create_task(table.step(wait="never"))
    await asyncio.sleep(0)
    await table.sessions.drain(0.01)
    assert len(caplog.records) == 1
    step.cancel()
    await asyncio.wait([step])


async def test_a_step_that_outlives_the_service_still_has_its_answer(make_table: Callable[..., Any]) -> None:
    table = make_table(capacity=2)
    for name in ("a", "b"):
        await table.reset(name)
        await table.step(name, finish=True)
    await table.reset("c")
    gate = table.environment.gates["late"] = asyncio.Event()
    late = asyncio.create_task(table.step("c", wait="late", finish=True))
    await asyncio.sleep(0)
    await table.sessions.stop()
    gate.set()
    assert (await late)["done"]
