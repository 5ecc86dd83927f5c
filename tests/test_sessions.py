"""Episodes below the wire: order, idempotence, replay, capacity, faults, the end of what nobody asks for."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rolloutgym.models import ResetRequest, StopReason
from rolloutgym.server import errors
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.sessions import Limits, Sessions
from rolloutgym.server.store import Key, MemoryStore, Record

pytestmark = pytest.mark.anyio

LIMITS = Limits(capacity=8, idle_timeout_s=60.0, step_timeout_s=5.0)


class Table:
    """Sessions over one environment, with short calls."""

    def __init__(self, environment: Any, limits: Limits, store: MemoryStore | None = None) -> None:
        self.environment = environment
        self.metrics = Metrics([environment.name])
        self.store = store or MemoryStore()
        self.sessions = Sessions([environment], self.store, limits, self.metrics)

    async def reset(self, episode_id: str = "e", **fields: Any) -> Record:
        instead_of = fields.pop("instead_of", None)
        request = ResetRequest(episode_id=episode_id, **{"seed": 1, **fields})
        return await self.sessions.reset(self.environment, request, instead_of=instead_of)

    async def step(
        self, episode_id: str = "e", *, at: int | None = None, limit: float | None = None, **action: Any
    ) -> Any:
        act = self.environment.action_type(**action)
        return json.loads(await self.sessions.step(self.environment, episode_id, act, step=at, timeout_s=limit))

    async def state(self, episode_id: str = "e") -> Any:
        return json.loads(await self.sessions.state(self.environment, episode_id))

    def forget_live_object(self, episode_id: str = "e") -> None:
        self.sessions._sessions[Key(self.environment.name, episode_id)].drop()


@pytest.fixture
async def table(noop: Any) -> AsyncIterator[Table]:
    table = Table(noop, LIMITS)
    yield table
    await table.sessions.stop()
    assert noop.open == 0


@pytest.fixture
async def make_table(noop: Any) -> AsyncIterator[Callable[..., Table]]:
    made: list[Table] = []

    def make(**limits: Any) -> Table:
        made.append(Table(noop, LIMITS._replace(**limits)))
        return made[-1]

    yield make
    for table in made:
        await table.sessions.stop()
    assert noop.open == 0


def fault(kind: type[BaseException]) -> Callable[[], float]:
    def fail() -> float:
        raise kind("the secret") from None

    return fail


# ---- steps ----


async def test_a_step_is_rewarded_counted_and_summed(table: Table) -> None:
    await table.reset()
    assert (await table.step(add=1.5))["reward"] == 1.5
    answer = await table.step(add=2.0)
    assert (answer["step_count"], answer["done"], answer["episode_id"]) == (2, False, "e")
    state = await table.state()
    assert (state["step_count"], state["total_reward"], state["total"]) == (2, 3.5, 3.5)


async def test_a_repeated_step_gets_its_first_answer_and_does_not_act_again(table: Table) -> None:
    await table.reset()
    first = await table.step(at=0, add=1)
    second = await table.step(at=1, add=10)
    ran = table.environment.steps
    assert await table.step(at=1, add=10) == second
    assert await table.step(at=0, add=1) == first
    assert table.environment.steps == ran
    assert (await table.state())["total"] == 11


@pytest.mark.parametrize(("at", "add"), [(0, 2.0), (2, 1.0), (7, 1.0)])
async def test_another_step_than_the_next_is_a_conflict(table: Table, at: int, add: float) -> None:
    await table.reset()
    await table.step(at=0, add=1.0)
    with pytest.raises(errors.StepConflict):
        await table.step(at=at, add=add)
    assert (await table.state())["total"] == 1.0


async def test_a_truth_is_not_a_number_in_a_repeated_step(table: Table) -> None:
    await table.reset()
    await table.step(at=0, finish=False, add=1)
    with pytest.raises(errors.StepConflict):
        await table.step(at=0, finish=None, add=1)


async def test_of_two_steps_at_once_one_waits_and_none_is_lost(table: Table) -> None:
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


async def test_of_two_repetitions_at_once_one_acts(table: Table) -> None:
    await table.reset()
    gate = table.environment.gates["once"] = asyncio.Event()
    pair = [asyncio.create_task(table.step(at=0, add=1, wait="once")) for _ in range(2)]
    await asyncio.sleep(0)
    gate.set()
    one, two = await asyncio.gather(*pair)
    assert one == two
    assert (await table.state())["step_count"] == 1


async def test_a_waiting_step_does_not_hold_other_episodes(table: Table) -> None:
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


async def test_a_step_after_the_end_is_refused(table: Table) -> None:
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


async def test_the_trainer_truncates(table: Table) -> None:
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


async def test_the_environments_budget_ends_an_episode(table: Table) -> None:
    await table.reset(options={"budget": 2})
    assert not (await table.step(add=1))["done"]
    end = await table.step(add=1)
    assert (end["done"], end["truncated"]) == (True, True)


# ---- what waits for no step ----


async def test_what_only_reads_does_not_wait_for_a_step_and_sees_the_last_one(table: Table) -> None:
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


async def test_an_episode_is_ended_under_its_step(table: Table) -> None:
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


async def test_asking_for_the_state_rebuilds_nothing(table: Table) -> None:
    await table.reset()
    await table.step(add=1)
    table.forget_live_object()
    assert (await table.state())["total"] == 1.0
    assert table.metrics.environments["noop"].replays == 0


# ---- faults ----


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
async def test_a_fault_leaves_the_episode_as_before_the_step(
    table: Table, kind: type[BaseException], code: str
) -> None:
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
async def test_no_reward_but_a_finite_one_leaves_the_service(table: Table, reward: float) -> None:
    await table.reset()
    table.environment.faults["odd"] = lambda: reward
    with pytest.raises(errors.Internal):
        await table.step(fault="odd")
    assert (await table.state())["step_count"] == 0


@pytest.mark.parametrize(("reward", "written"), [(True, b'"reward":1.0'), (3, b'"reward":3.0'), (0, b'"reward":0.0')])
async def test_a_reward_is_a_float_on_the_wire(table: Table, reward: float, written: bytes) -> None:
    await table.reset()
    table.environment.faults["odd"] = lambda: reward
    action = table.environment.action_type(fault="odd")
    assert written in await table.sessions.step(table.environment, "e", action)


async def test_an_answer_that_cannot_be_written_is_an_internal_fault(table: Table) -> None:
    await table.reset()
    with pytest.raises(errors.Internal):
        await table.step(say_surrogate=True)
    assert (await table.step(add=1))["step_count"] == 1


async def test_an_unexpected_fault_is_logged_once_without_its_text(
    table: Table, caplog: pytest.LogCaptureFixture
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
    assert "conftest.py" in logged
    assert "the secret" not in logged.replace('raise kind("the secret")', "")
    assert "what the model wrote" not in logged


async def test_a_step_that_hangs_ends_at_its_deadline_and_did_not_happen(make_table: Callable[..., Table]) -> None:
    table = make_table(step_timeout_s=0.05)
    await table.reset()
    await table.step(add=1)
    table.environment.gates["never"] = asyncio.Event()
    with pytest.raises(errors.StepTimeout):
        await table.step(at=1, wait="never", add=100)
    assert (await table.step(at=1, add=1))["observation"]["total"] == 2.0


async def test_a_caller_may_shorten_the_deadline_but_not_lengthen_it(make_table: Callable[..., Table]) -> None:
    table = make_table(step_timeout_s=0.05)
    await table.reset()
    table.environment.gates["never"] = asyncio.Event()
    for limit in (0.01, 3600.0):
        with pytest.raises(errors.StepTimeout):
            await table.step(wait="never", limit=limit)


async def test_a_cancelled_step_did_not_happen(table: Table) -> None:
    await table.reset()
    table.environment.gates["never"] = asyncio.Event()
    task = asyncio.create_task(table.step(add=100, wait="never"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await table.state())["total"] == 0


# ---- resets ----


async def test_a_live_episode_is_restarted_by_its_id(table: Table) -> None:
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
    table: Table, fields: dict[str, Any], error: type[errors.ServiceError]
) -> None:
    table.environment.faults["x"] = fault(ValueError)
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


async def test_an_episode_instead_of_another_takes_its_place(make_table: Callable[..., Table]) -> None:
    table = make_table(capacity=1)
    await table.reset("old")
    with pytest.raises(errors.CapacityReached):
        await table.reset("new")
    await table.reset("new", instead_of="old")
    with pytest.raises(errors.EpisodeNotFound):
        await table.state("old")
    assert (await table.state("new"))["step_count"] == 0
    assert await table.sessions.count() == 1


async def test_a_seed_decides_and_is_reported(table: Table) -> None:
    one = json.loads((await table.reset("one", seed=5)).first)
    two = json.loads((await table.reset("two", seed=5)).first)
    assert one | {"episode_id": "two"} == two
    drawn = {json.loads((await table.reset(seed=None)).first)["seed"] for _ in range(20)}
    assert len(drawn) == 20
    # JavaScript reads them exactly.
    assert max(drawn) < 2**53


# ---- replay ----


async def test_a_lost_live_object_is_rebuilt_by_replay(table: Table) -> None:
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


async def test_the_recorded_answer_stands_where_a_replay_differs(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
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


# ---- capacity, idleness, the end ----


async def test_capacity_counts_unfinished_episodes(make_table: Callable[..., Table]) -> None:
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


async def test_resets_at_once_do_not_exceed_the_capacity(make_table: Callable[..., Table]) -> None:
    table = make_table(capacity=3)
    results = await asyncio.gather(*(table.reset(f"e{n}") for n in range(10)), return_exceptions=True)
    assert sum(isinstance(result, Record) for result in results) == 3
    assert all(isinstance(result, Record | errors.CapacityReached) for result in results)


async def test_idle_episodes_are_reaped_and_used_ones_are_not(make_table: Callable[..., Table]) -> None:
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


async def test_the_reaper_runs_by_itself(make_table: Callable[..., Table]) -> None:
    table = make_table(idle_timeout_s=0.02)
    await table.sessions.start()
    await table.reset()
    for _ in range(500):
        if not table.sessions._sessions:
            break
        await asyncio.sleep(0.01)
    assert await table.sessions.count() == 0
    assert not table.sessions._sessions


async def test_finished_episodes_are_crowded_out_by_newer_ones(make_table: Callable[..., Table]) -> None:
    table = make_table(capacity=3)
    for n in range(5):
        await table.reset(f"e{n}")
        await table.step(f"e{n}", finish=True)
    for n in range(2):
        with pytest.raises(errors.EpisodeNotFound):
            await table.state(f"e{n}")
    for n in range(2, 5):
        assert (await table.state(f"e{n}"))["done"]


async def test_a_finished_episode_that_is_still_played_is_not_crowded_out(make_table: Callable[..., Table]) -> None:
    table = make_table(capacity=2)
    await table.reset("attached")
    await table.sessions.attach(table.environment, "attached")
    end = await table.step("attached", at=0, finish=True)
    for n in range(5):
        await table.reset(f"e{n}")
        await table.step(f"e{n}", finish=True)
    assert await table.step("attached", at=0, finish=True) == end
    assert len(table.sessions._sessions) == 2


async def test_a_finished_episode_that_began_anew_is_not_crowded_out(make_table: Callable[..., Table]) -> None:
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


async def test_unknown_and_ended_episodes_leave_nothing_behind(table: Table) -> None:
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


async def test_draining_waits_for_what_is_in_flight_and_refuses_the_rest(table: Table) -> None:
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


async def test_draining_gives_up_on_what_hangs(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    await table.reset()
    table.environment.gates["never"] = asyncio.Event()
    step = asyncio.create_task(table.step(wait="never"))
    await asyncio.sleep(0)
    await table.sessions.drain(0.01)
    assert len(caplog.records) == 1
    step.cancel()
    await asyncio.wait([step])


async def test_a_step_that_outlives_the_service_still_has_its_answer(make_table: Callable[..., Table]) -> None:
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


async def test_a_tool_call_is_a_step(table: Table) -> None:
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
