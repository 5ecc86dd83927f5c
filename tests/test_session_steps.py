"""Steps below the wire: order, idempotence, concurrency, faults, replay."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from rolloutgym.models import StopReason
from rolloutgym.server import errors

pytestmark = pytest.mark.anyio


# ---- steps ----


async def test_a_step_is_rewarded_counted_and_summed(table: Any) -> None:
    await table.reset()
    assert (await table.step(add=1.5))["reward"] == 1.5
    answer = await table.step(add=2.0)
    assert (answer["step_count"], answer["done"], answer["episode_id"]) == (2, False, "e")
    state = await table.state()
    assert (state["step_count"], state["total_reward"], state["total"]) == (2, 3.5, 3.5)


async def test_a_repeated_step_gets_its_first_answer_and_does_not_act_again(table: Any) -> None:
    await table.reset()
    first = await table.step(at=0, add=1)
    second = await table.step(at=1, add=10)
    ran = table.environment.steps
    assert await table.step(at=1, add=10) == second
    assert await table.step(at=0, add=1) == first
    assert table.environment.steps == ran
    assert (await table.state())["total"] == 11


@pytest.mark.parametrize(("at", "add"), [(0, 2.0), (2, 1.0), (7, 1.0)])
async def test_another_step_than_the_next_is_a_conflict(table: Any, at: int, add: float) -> None:
    await table.reset()
    await table.step(at=0, add=1.0)
    with pytest.raises(errors.StepConflict):
        await table.step(at=at, add=add)
    assert (await table.state())["total"] == 1.0


async def test_a_truth_is_not_a_number_in_a_repeated_step(table: Any) -> None:
    await table.reset()
    await table.step(at=0, finish=False, add=1)
    with pytest.raises(errors.StepConflict):
        await table.step(at=0, finish=None, add=1)


async def test_of_two_steps_at_once_one_waits_and_none_is_lost(table: Any) -> None:
    await table.reset()
    gate = table.environment.gates["first"] = asyncio.Event()
    first = asyncio.create_task(table.step(add=1, wait="first"))
    await asyncio.sleep(0)
    second = asyncio.create_task(table.step(add=10))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    gate.set()
    assert (await first)["observation"]["total"] == 1
    assert (await second)["observation"]["total"] == 11


async def test_of_two_repetitions_at_once_one_acts(table: Any) -> None:
    await table.reset()
    gate = table.environment.gates["once"] = asyncio.Event()
    pair = [asyncio.create_task(table.step(at=0, add=1, wait="once")) for _ in range(2)]
    await asyncio.sleep(0)
    gate.set()
    one, two = await asyncio.gather(*pair)
    assert one == two
    assert (await table.state())["step_count"] == 1


async def test_a_waiting_step_does_not_hold_other_episodes(table: Any) -> None:
    gate = table.environment.gates["slow"] = asyncio.Event()
    await table.reset("slow")
    await table.reset("quick")
    slow = asyncio.create_task(table.step("slow", wait="slow"))
    await asyncio.sleep(0)
    for n in range(100):
        assert (await table.step("quick", add=1))["observation"]["total"] == n + 1
    assert not slow.done()
    gate.set()
    await slow


async def test_a_step_after_the_end_is_refused(table: Any) -> None:
    await table.reset()
    end = await table.step(at=0, add=1, finish=True)
    assert end["done"]
    for at in (None, 1):
        with pytest.raises(errors.EpisodeDone):
            await table.step(at=at, add=1)
    assert await table.step(at=0, add=1, finish=True) == end
    state = await table.state()
    assert (state["done"], state["total"], state["step_count"]) == (True, 1.0, 1)
    await asyncio.sleep(0)
    assert table.environment.open == 0, "the live object of an ended episode is kept"


async def test_the_trainer_truncates(table: Any) -> None:
    await table.reset()
    await table.step(add=1)
    sessions, environment = table.sessions, table.environment
    answer = json.loads(await sessions.truncate(environment, "e", StopReason.MAX_TOKENS, step=1))
    assert (answer["done"], answer["truncated"], answer["observation"]["info"]["stop_reason"]) == (
        True,
        True,
        "max_tokens",
    )
    again = json.loads(await sessions.truncate(environment, "e", StopReason.MAX_TOKENS, step=1))
    assert again == answer
    with pytest.raises(errors.StepConflict):
        await sessions.truncate(environment, "e", StopReason.TIME_LIMIT, step=1)
    with pytest.raises(errors.EpisodeDone):
        await sessions.truncate(environment, "e", StopReason.MAX_TOKENS)


async def test_the_environments_budget_ends_an_episode(table: Any) -> None:
    await table.reset(options={"budget": 2})
    assert not (await table.step(add=1))["done"]
    end = await table.step(add=1)
    assert (end["done"], end["truncated"]) == (True, True)


async def test_a_tool_call_is_a_step(table: Any) -> None:
    await table.reset()
    sessions, environment = table.sessions, table.environment
    answer = json.loads(await sessions.call_tool(environment, "e", "add", {"add": 2}))
    assert (answer["reward"], answer["step_count"]) == (2.0, 1)
    for name, arguments in (("reset", {}), ("add", {"add": "x"})):
        with pytest.raises(errors.InvalidRequest):
            await sessions.call_tool(environment, "e", name, arguments)
    assert (await table.state())["step_count"] == 1
    assert [tool.function.name for tool in await sessions.tools(environment, "e")] == ["add"]
    await table.step(finish=True)
    assert await sessions.tools(environment, "e") == ()
    with pytest.raises(errors.EpisodeDone):
        await sessions.call_tool(environment, "e", "add", {"add": 2})


# ---- what waits for no step ----


async def test_what_only_reads_does_not_wait_for_a_step_and_sees_the_last_one(table: Any) -> None:
    await table.reset()
    await table.step(add=1)
    gate = table.environment.gates["slow"] = asyncio.Event()
    slow = asyncio.create_task(table.step(add=5, wait="slow"))
    await asyncio.sleep(0)
    sessions, environment = table.sessions, table.environment
    async with asyncio.timeout(5):
        state = await table.state()
        assert (state["step_count"], state["total"], state["total_reward"]) == (1, 1.0, 1.0)
        assert (await sessions.record(environment, "e")).step_count == 1
        assert [tool.function.name for tool in await sessions.tools(environment, "e")] == ["add"]
        await sessions.attach(environment, "e")
        await sessions.detach(environment, "e", 60.0)
    settled = asyncio.create_task(sessions.settled(environment, "e"))
    await asyncio.sleep(0)
    assert not slow.done()
    gate.set()
    assert (await slow)["observation"]["total"] == 6
    assert (await settled).step_count == 2


async def test_an_episode_is_ended_under_its_step(table: Any) -> None:
    await table.reset()
    gate = table.environment.gates["slow"] = asyncio.Event()
    slow = asyncio.create_task(table.step(add=5, wait="slow"))
    waiting = asyncio.create_task(table.step(at=0, add=5))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await table.sessions.delete(table.environment, "e")
        with pytest.raises(errors.EpisodeNotFound):
            await table.state()
        assert await table.sessions.count() == 0
    gate.set()
    for step in (slow, waiting):
        with pytest.raises(errors.EpisodeNotFound):
            await step
    assert not table.sessions._sessions
    assert table.metrics.environments["noop"].steps == 0


async def test_asking_for_the_state_rebuilds_nothing(table: Any) -> None:
    await table.reset()
    await table.step(add=1)
    table.forget_live_object()
    assert (await table.state())["total"] == 1.0
    assert table.metrics.environments["noop"].replays == 0


# ---- faults ----


def fault(kind: type[BaseException]) -> Callable[[], float]:
    def fail() -> float:
        raise kind("the secret") from None

    return fail


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.WorkerLost, "worker_lost"),
        (errors.SandboxUnavailable, "sandbox_unavailable"),
        (ValueError, "internal"),
        (SystemExit, "internal"),
        (RecursionError, "internal"),
        (TimeoutError, "internal"),
    ],
)
async def test_a_fault_leaves_the_episode_as_before_the_step(table: Any, kind: type[BaseException], code: str) -> None:
    await table.reset()
    before = await table.step(add=1)
    table.environment.faults["x"] = fault(kind)
    with pytest.raises(errors.ServiceError) as caught:
        await table.step(at=1, add=100, fault="x")
    assert (caught.value.code, caught.value.episode_id) == (code, "e")
    state = await table.state()
    assert (state["step_count"], state["total"]) == (1, 1.0)
    after = await table.step(at=1, add=1)
    assert after["observation"]["total"] == 2.0
    assert after["observation"]["info"]["turn"] == 2
    assert before["observation"]["drawn"] != after["observation"]["drawn"]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
async def test_no_reward_but_a_finite_one_leaves_the_service(table: Any, reward: float) -> None:
    await table.reset()
    table.environment.faults["odd"] = lambda: reward
    with pytest.raises(errors.Internal):
        await table.step(fault="odd")
    assert (await table.state())["step_count"] == 0


@pytest.mark.parametrize(("reward", "written"), [(True, b'"reward":1.0'), (3, b'"reward":3.0'), (0, b'"reward":0.0')])
async def test_a_reward_is_a_float_on_the_wire(table: Any, reward: float, written: bytes) -> None:
    await table.reset()
    table.environment.faults["odd"] = lambda: reward
    action = table.environment.action_type(fault="odd")
    assert written in await table.sessions.step(table.environment, "e", action)


async def test_an_answer_that_cannot_be_written_is_an_internal_fault(table: Any) -> None:
    await table.reset()
    with pytest.raises(errors.Internal):
        await table.step(say_surrogate=True)
    assert (await table.step(add=1))["step_count"] == 1


async def test_an_unexpected_fault_is_logged_once_without_its_text(
    table: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await table.reset()
    table.environment.faults["x"] = fault(ValueError)
    (gate := asyncio.Event()).set()
    table.environment.gates["what the model wrote"] = gate
    with pytest.raises(errors.Internal) as caught:
        await table.step(fault="x", wait="what the model wrote")
    assert "secret" not in caught.value.message
    (record,) = caplog.records
    logged = record.getMessage()
    assert "ValueError in episode e" in logged
    assert "noop.py" in logged
    assert "the secret" not in logged.replace('raise kind("the secret")', "")
    assert "what the model wrote" not in logged


async def test_a_step_that_hangs_ends_at_its_deadline_and_did_not_happen(make_table: Callable[..., Any]) -> None:
    table = make_table(step_timeout_s=0.05)
    await table.reset()
    await table.step(add=1)
    table.environment.gates["never"] = asyncio.Event()
    with pytest.raises(errors.StepTimeout):
        await table.step(at=1, wait="never", add=100)
    assert (await table.step(at=1, add=1))["observation"]["total"] == 2.0


async def test_a_caller_may_shorten_the_deadline_but_not_lengthen_it(make_table: Callable[..., Any]) -> None:
    table = make_table(step_timeout_s=0.05)
    await table.reset()
    table.environment.gates["never"] = asyncio.Event()
    for limit in (0.01, 3600.0):
        with pytest.raises(errors.StepTimeout):
            await table.step(wait="never", limit=limit)


async def test_a_cancelled_step_did_not_happen(table: Any) -> None:
    await table.reset()
    table.environment.gates["never"] = asyncio.Event()
    task = asyncio.create_task(table.step(add=100, wait="never"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await table.state())["total"] == 0


# ---- replay ----


async def test_a_lost_live_object_is_rebuilt_by_replay(table: Any) -> None:
    await table.reset("one")
    await table.reset("two")
    for n in range(6):
        table.forget_live_object("two")
        one, two = await table.step("one", add=n), await table.step("two", add=n)
        assert one["observation"] == two["observation"]
        table.forget_live_object("two")
        assert await table.state("two") == await table.state("one") | {"episode_id": "two"}
    metrics = table.metrics.environments["noop"]
    # The state is the record's own: nothing has to be rebuilt for it.
    assert (metrics.replays, metrics.divergences) == (6, 0)


async def test_the_recorded_answer_stands_where_a_replay_differs(table: Any, caplog: pytest.LogCaptureFixture) -> None:
    await table.reset()
    table.environment.faults["clock"] = lambda: 1.0
    first = await table.step(at=0, fault="clock")
    table.environment.faults["clock"] = lambda: 2.0
    table.forget_live_object()
    await table.step(at=1, add=0)
    assert await table.step(at=0, fault="clock") == first
    assert (await table.state())["total_reward"] == 1.0
    assert table.metrics.environments["noop"].divergences == 1
    assert len(caplog.records) == 1
