"""Both clients over both transports against a real service: what an episode tells, and how it survives a bad wire."""

import asyncio
import inspect
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeVar, assert_type, cast

import pytest
import stamina
from anyio.from_thread import BlockingPortal, start_blocking_portal

from rolloutgym.client import (
    AsyncClient,
    AsyncEnvironmentHandle,
    AsyncEpisode,
    Client,
    ConnectionFailed,
    EnvironmentHandle,
)
from rolloutgym.client.errors import (
    EpisodeDone,
    EpisodeNotFound,
    InvalidRequest,
    StepConflict,
    TaskNotFound,
    Unauthorized,
    WorkerLost,
)
from rolloutgym.models import (
    CodeAction,
    CodeObservation,
    SplitInfo,
    SqlAction,
    SqlObservation,
    StepResult,
    StopReason,
    TaskInfo,
    ToolCallAction,
    ToolCallObservation,
)
from rolloutgym.server import errors as service_errors

Connect = Callable[..., Client]
T = TypeVar("T")


@pytest.fixture(autouse=True)
def no_waits() -> Iterator[None]:
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


class Blocking:
    """An object of the asynchronous client whose coroutine methods block, so that one test drives both clients."""

    def __init__(self, portal: BlockingPortal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if inspect.iscoroutinefunction(value):
            return lambda *args, **kwargs: self._wrapped(self._portal.call(partial(value, *args, **kwargs)))
        if name == "environment" and callable(value):
            return lambda *args: self._wrapped(value(*args))
        return value

    def __enter__(self) -> Any:
        return self._wrapped(self._portal.call(self._target.__aenter__))

    def __exit__(self, *error: Any) -> None:
        self._portal.call(self._target.__aexit__, *error)

    def _wrapped(self, value: Any) -> Any:
        asynchronous = isinstance(value, AsyncEpisode | AsyncEnvironmentHandle)
        return Blocking(self._portal, value) if asynchronous else value


@pytest.fixture(params=["sync-rest", "sync-websocket", "async-rest", "async-websocket"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """`connect(url, **options)`: a client of this kind that the test can call without `await`."""
    kind, _, transport = request.param.partition("-")
    with ExitStack() as stack:

        def make(url: str, **options: Any) -> Client:
            if kind == "sync":
                return stack.enter_context(Client(url, transport, **options))
            portal = stack.enter_context(start_blocking_portal())
            client = AsyncClient(url, transport, **options)
            stack.callback(portal.call, client.close)
            return cast(Client, Blocking(portal, client))

        yield make


@pytest.fixture
def noop(shared_noop: tuple[Any, str]) -> Iterator[Any]:
    """The environment of the service that all tests here share; its counts start anew."""
    environment, _ = shared_noop
    environment.steps = 0
    environment.live.clear()
    environment.waiting.clear()
    yield environment
    environment.faults.clear()


@pytest.fixture
def url(shared_noop: tuple[Any, str]) -> str:
    return shared_noop[1]


@pytest.fixture
def client(connect: Connect, url: str) -> Client:
    return connect(url)


def eventually(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for what the service does after it has answered."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- an episode -----------------------------------------------------------------------------------------------------


def test_an_episode_tells_what_happened(client: Client) -> None:
    episode = client.environment("noop").reset(split="validation", index=2, seed=5)
    assert (episode.environment, episode.task_id, episode.seed) == ("noop", "validation-2", 5)
    assert [(message.role, message.content) for message in episode.messages] == [
        ("system", "Add."),
        ("user", "validation-2"),
    ]
    assert [tool.function.name for tool in episode.tools] == ["add"]
    assert (episode.reward, episode.total_reward, episode.done, episode.step_count) == (None, 0.0, False, 0)

    result = episode.step({"add": 2.5})
    assert (result.reward, result.done, result.episode_id, result.step_count) == (2.5, False, episode.id, 1)
    result = episode.step("only talk")
    assert (result.reward, result.observation.echoed) == (0.0, "only talk")
    episode.step({"add": -1.0, "finish": True})

    assert (episode.reward, episode.total_reward, episode.done, episode.step_count) == (-1.0, 1.5, True, 3)
    assert [message.content for message in episode.messages[2:]] == ["total 2.5", "total 2.5", "total 1.5"]
    assert episode.observation.info.stop_reason is StopReason.ANSWERED
    assert episode.observation.info.reward_components == {"sum": -1.0}
    state = episode.state()
    assert (state.episode_id, state.step_count, state.done, state.total_reward) == (episode.id, 3, True, 1.5)


@pytest.mark.parametrize("seed", [None, 0, 2**63 - 1])
def test_the_seed_in_use_plays_the_same_episode_again(client: Client, seed: int | None) -> None:
    handle = client.environment("noop")
    first = handle.reset(split="train", index=0, seed=seed)
    assert first.seed is not None
    again = handle.reset(split="train", index=0, seed=first.seed)
    assert first.id != again.id
    assert first.observation == again.observation
    assert first.step("x").observation == again.step("x").observation


def test_a_task_is_chosen_by_id_or_position_or_seed(client: Client) -> None:
    handle = client.environment("noop")
    assert handle.reset(task_id="test-3").task_id == "test-3"
    assert handle.reset(split="test", index=4).task_id == "test-4"
    drawn = {handle.reset(split="test", seed=seed).task_id for seed in range(20)}
    assert drawn == {f"test-{index}" for index in range(5)}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"task_id": "none-such"}, TaskNotFound),
        ({"split": "none-such"}, TaskNotFound),
        ({"split": "train", "index": 5}, TaskNotFound),
        ({"index": 0}, InvalidRequest),
        ({"options": {"bugdet": 3}}, InvalidRequest),
    ],
)
def test_a_reset_that_cannot_be_served(client: Client, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        client.environment("noop").reset(**arguments)


def test_options_reach_the_environment(client: Client) -> None:
    episode = client.environment("noop").reset(options={"budget": 2})
    assert episode.observation.info.budget_remaining == 2
    episode.step("one")
    result = episode.step("two")
    assert (result.done, result.truncated) == (True, True)
    assert result.observation.info.stop_reason is StopReason.BUDGET_EXHAUSTED


def test_the_trainer_ends_an_episode_at_a_limit_of_its_own(client: Client) -> None:
    episode = client.environment("noop").reset()
    episode.step({"add": 1.0})
    result = episode.truncate(StopReason.MAX_TOKENS)
    assert (result.done, result.truncated, result.observation.info.stop_reason) == (True, True, StopReason.MAX_TOKENS)
    assert (episode.done, episode.total_reward) == (True, 1.0)


def test_a_step_after_the_end_is_refused(client: Client) -> None:
    episode = client.environment("noop").reset()
    episode.step({"finish": True})
    with pytest.raises(EpisodeDone):
        episode.step("more")
    assert episode.step_count == 1


def test_an_action_that_does_not_fit_leaves_the_episode_as_it_was(client: Client) -> None:
    episode = client.environment("noop").reset()
    for action in ({"ad": 1.0}, {"add": "many"}, {}, {"text": "a", "add": 1.0}):
        with pytest.raises(InvalidRequest):
            episode.step(cast(Any, action))
    assert episode.step({"add": 3.0}).step_count == 1
    assert episode.total_reward == 3.0


def test_closing_frees_the_place_and_may_be_done_twice(client: Client, noop: Any) -> None:
    episode = client.environment("noop").reset()
    assert noop.open == 1
    episode.close()
    episode.close()
    eventually(lambda: noop.open == 0)
    with pytest.raises(EpisodeNotFound):
        episode.state()


def test_a_live_episode_of_that_name_starts_over(client: Client, noop: Any) -> None:
    handle = client.environment("noop")
    episode = handle.reset()
    episode.step({"add": 1.0})
    again = handle.reset(episode_id=episode.id)
    assert (again.id, again.step_count, again.state().total_reward) == (episode.id, 0, 0.0)
    eventually(lambda: noop.open == 1)
    assert again.step({"add": 2.0}).step_count == 1


def test_an_episode_is_resumed_by_its_name(connect: Connect, url: str) -> None:
    before = connect(url).environment("noop").reset(split="train", index=1, seed=9)
    before.step({"add": 4.0})
    episode = connect(url).environment("noop").resume(before.id)
    assert (episode.task_id, episode.step_count, episode.total_reward, episode.done) == ("train-1", 1, 4.0, False)
    with pytest.raises(LookupError, match="resumed"):
        _ = episode.observation
    assert episode.step({"add": 1.0}).step_count == 2
    assert episode.total_reward == 5.0
    with pytest.raises(EpisodeNotFound):
        connect(url).environment("noop").resume("none-such")


def test_two_players_of_one_episode_are_told(connect: Connect, url: str) -> None:
    one = connect(url).environment("noop").reset()
    other = connect(url).environment("noop").resume(one.id)
    one.step({"add": 1.0})
    with pytest.raises(StepConflict):
        other.step({"add": 2.0})
    assert one.state().total_reward == 1.0


def test_episodes_are_typed(service_url: str) -> None:
    """Checked by mypy; played too."""
    with Client(service_url) as client, client.sql.reset(split="train", index=0) as episode:
        assert_type(client.code, EnvironmentHandle[CodeAction, CodeObservation])
        assert_type(client.environment("toolcall"), EnvironmentHandle[ToolCallAction, ToolCallObservation])
        assert_type(episode.observation, SqlObservation)
        result = episode.step(SqlAction(action_type="QUERY", argument="SELECT 40 + 2"))
        assert_type(result, StepResult[SqlObservation])
        assert result.observation.result is not None
        assert "42" in result.observation.result


# ---- the service ----------------------------------------------------------------------------------------------------


def test_tasks_are_listed(client: Client) -> None:
    handle = client.environment("noop")
    assert handle.splits() == [
        SplitInfo(name="train", type="train"),
        SplitInfo(name="validation", type="validation"),
        SplitInfo(name="test", type="test"),
    ]
    assert handle.num_tasks("test") == 5
    assert handle.task("test", 1) == TaskInfo(id="test-1", split="test", tags={"size": 6})
    assert [task.id for task in handle.tasks("train")] == [f"train-{index}" for index in range(5)]
    assert [task.id for task in handle.tasks("train", 3)] == ["train-3", "train-4"]
    assert [task.id for task in handle.tasks("train", 1, 3)] == ["train-1", "train-2"]
    with pytest.raises(TaskNotFound):
        handle.task("test", 5)


def test_the_service_describes_itself(client: Client) -> None:
    handle = client.environment("noop")
    assert client.list_environments() == ["noop"]
    assert client.health()["status"] == "healthy"
    assert client.ready() is True
    metadata = handle.metadata()
    assert (metadata.name, metadata.num_tasks["train"], metadata.reward_range) == ("noop", 5, (-1000.0, 1000.0))
    assert {"action", "observation", "state", "options"} <= set(handle.schema())


def test_a_key_is_asked_for(connect: Connect, start_service: Callable[..., str], make_noop: Callable[[], Any]) -> None:
    url = start_service(environments={"noop": make_noop()}, api_key="open sesame")
    for key in (None, "wrong"):
        with pytest.raises(Unauthorized):
            connect(url, api_key=key).environment("noop").reset()
    assert connect(url, api_key="open sesame").environment("noop").reset().step({"add": 1.0}).reward == 1.0
    assert connect(url).ready()


def test_a_proxy_of_the_environment_is_not_for_this_machine(
    connect: Connect, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert connect(url, retries=0).environment("noop").reset().step({"add": 1.0}).reward == 1.0


# ---- faults ---------------------------------------------------------------------------------------------------------


def test_a_fault_of_the_service_is_tried_again_and_costs_nothing(client: Client, noop: Any) -> None:
    tries: list[int] = []

    def worker_dies_twice() -> float:
        tries.append(1)
        if len(tries) <= 2:
            raise service_errors.WorkerLost("the worker died")
        return 0.5

    noop.faults["dies"] = worker_dies_twice
    episode = client.environment("noop").reset()
    episode.step({"add": 1.0})
    assert episode.step({"fault": "dies"}).reward == 0.5
    assert (episode.total_reward, episode.step_count, len(tries)) == (1.5, 2, 3)
    assert episode.state().total_reward == 1.5


def test_a_fault_that_stays_is_raised_and_is_no_reward(client: Client, noop: Any) -> None:
    def worker_dies() -> float:
        raise service_errors.WorkerLost("the worker died")

    noop.faults["dies"] = worker_dies
    episode = client.environment("noop").reset()
    with pytest.raises(WorkerLost) as caught:
        episode.step({"fault": "dies"})
    assert caught.value.retryable
    assert caught.value.episode_id == episode.id
    assert (episode.reward, episode.total_reward, episode.step_count) == (None, 0.0, 0)
    assert episode.step({"add": 1.0}).step_count == 1


class BadWire:
    """A TCP forwarder in front of a service. It swallows `lose_answers` answers, each with its connection."""

    def __init__(self, url: str) -> None:
        self.lose_answers = 0
        self.connections = 0
        self.answers = 0
        """What was said by the service, as it came."""
        self._target = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []
        self._threads[0].start()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Break every connection now."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self.connections += 1
            self._open += [near, far]
            thread = threading.Thread(target=self._forward, args=(near, far))
            self._threads.append(thread)
            thread.start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        asked = False
        with near, far, suppress(OSError):
            while True:
                for end in select.select([near, far], [], [])[0]:
                    data = end.recv(65536)
                    self.answers += end is far
                    if end is far and asked and self.lose_answers > 0:
                        self.lose_answers -= 1
                        return
                    if not data:
                        return
                    asked = asked or end is near
                    (far if end is near else near).sendall(data)


@pytest.fixture
def wire(url: str) -> Iterator[BadWire]:
    wire = BadWire(url)
    yield wire
    wire.close()


def test_a_lost_answer_is_asked_for_again_and_the_step_is_taken_once(
    connect: Connect, wire: BadWire, noop: Any
) -> None:
    with connect(wire.url).environment("noop").reset() as episode:
        for step in range(1, 9):
            wire.lose_answers = step % 4
            assert episode.step({"add": 1.0}).step_count == step
            assert wire.lose_answers == 0
        wire.lose_answers = 1
        assert episode.state().total_reward == 8.0
        wire.lose_answers = 2
        assert episode.truncate(StopReason.MAX_TURNS).done
        assert (episode.total_reward, noop.steps) == (8.0, 8)


def test_a_lost_reset_leaves_no_second_episode(connect: Connect, wire: BadWire, noop: Any) -> None:
    handle = connect(wire.url).environment("noop")
    wire.lose_answers = 3
    episode = handle.reset()
    assert episode.step({"add": 1.0}).reward == 1.0
    assert noop.open == 1
    episode.close()
    eventually(lambda: noop.open == 0)


def test_a_connection_that_breaks_while_the_model_thinks_is_no_matter(connect: Connect, wire: BadWire) -> None:
    episode = connect(wire.url).environment("noop").reset()
    for step in range(1, 5):
        wire.cut()
        assert episode.step({"add": 0.5}).step_count == step
    wire.cut()
    assert episode.truncate(StopReason.TIME_LIMIT).done
    assert episode.total_reward == 2.0


def test_closing_frees_the_place_also_where_the_connection_is_gone(connect: Connect, wire: BadWire, noop: Any) -> None:
    """The service would keep the episode for its grace time."""
    with connect(wire.url).environment("noop").reset():
        assert noop.open == 1
        wire.cut()
    eventually(lambda: noop.open == 0)


@pytest.mark.parametrize("connect", ["sync-websocket", "async-websocket"], indirect=True)
def test_a_silent_connection_is_pinged_and_stays(
    connect: Connect, wire: BadWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies cut those on which nothing is said."""
    for module in ("websocket", "async_websocket"):
        monkeypatch.setattr(f"rolloutgym.client.{module}.PING_INTERVAL_S", 0.05)
    episode = connect(wire.url).environment("noop").reset()
    so_far = wire.answers
    eventually(lambda: wire.answers >= so_far + 5)
    assert episode.step({"add": 1.0}).step_count == 1
    assert wire.connections == 1


def test_a_service_that_cannot_be_reached_is_a_failed_connection(connect: Connect, wire: BadWire) -> None:
    episode = connect(wire.url).environment("noop").reset()
    wire.lose_answers = 1000
    with pytest.raises(ConnectionFailed) as caught:
        episode.step({"add": 1.0})
    assert (caught.value.retryable, caught.value.episode_id) == (True, episode.id)
    assert (episode.total_reward, episode.step_count) == (0.0, 0)
    wire.lose_answers = 0
    assert episode.step({"add": 1.0}).step_count == 1


def test_a_farewell_that_fails_costs_no_episode(connect: Connect, wire: BadWire) -> None:
    handle = connect(wire.url, retries=0).environment("noop")
    with handle.reset() as episode:
        episode.step({"add": 1.0, "finish": True})
        wire.lose_answers = 1000
    assert episode.total_reward == 1.0


def test_a_farewell_that_fails_hides_no_error(connect: Connect, wire: BadWire) -> None:
    def play() -> None:
        with connect(wire.url, retries=0).environment("noop").reset():
            wire.lose_answers = 1000
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        play()


def test_a_slow_step_outlives_the_clients_patience(connect: Connect, url: str, noop: Any) -> None:
    """The step goes on; asked for again, it gives its one answer."""
    impatient = connect(url, timeout_s=0.3, retries=0).environment("noop")
    episode = insist(impatient.reset)
    noop.gates["gate"] = gate = asyncio.Event()
    action = {"wait": "gate", "add": 1.0}
    while "gate" not in noop.waiting:  # at the first time, unless the request itself took too long
        with pytest.raises(ConnectionFailed):
            episode.step(action)
    noop.loop.call_soon_threadsafe(gate.set)
    result = insist(lambda: episode.step(action))
    assert (result.step_count, episode.total_reward, noop.steps) == (1, 1.0, 1)
    patient = connect(url).environment("noop").resume(episode.id)
    assert patient.state().total_reward == 1.0


def insist(ask: Callable[[], T]) -> T:
    """The answer that comes in time."""
    while True:
        with suppress(ConnectionFailed):
            return ask()


# ---- many at once ---------------------------------------------------------------------------------------------------


def test_one_client_serves_many_threads(client: Client, noop: Any) -> None:
    handle = client.environment("noop")

    def play(player: int) -> float:
        with handle.reset(split="train", index=player % 5) as episode:
            for step in range(10):
                assert episode.step({"add": float(player)}).step_count == step + 1
            return episode.total_reward

    with ThreadPoolExecutor(32) as pool:
        returns = list(pool.map(play, range(64)))
    assert returns == [10.0 * player for player in range(64)]
    eventually(lambda: noop.open == 0)
