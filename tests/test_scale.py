"""Episodes shared by several workers through a real Redis: any worker plays on, and a killed one loses nothing."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psutil
import pytest
import redis

from rolloutgym.cli.playing import oracle
from rolloutgym.client import Client
from rolloutgym.client.errors import EpisodeNotFound, StoreUnavailable
from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.redis_scripts import Scripts
from rolloutgym.server.settings import Settings
from rolloutgym.server.store import Key
from rolloutgym.server.store_redis import RedisStore

pytestmark = pytest.mark.redis

ENVIRONMENTS = ("sql", "toolcall", "code")
WORKERS = 4


# ---- workers that are killed ----------------------------------------------------------------------------------------


class RoundRobin(httpx2.HTTPTransport):
    """Every request goes to the next of these ports, as a balancer without stickiness sends it."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__()
        self._ports = ports
        self._turn = count()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=self._ports[next(self._turn) % len(self._ports)])
        return super().handle_request(request)


class LosingRoundRobin(RoundRobin):
    """Loses the answer to each so many-th step, once the step has been taken; each third time with the worker."""

    def __init__(self, ports: Sequence[int], supervisor: int, every: int) -> None:
        super().__init__(ports)
        self._supervisor = supervisor
        self._every = every
        self._steps = count(1)
        self._lock = threading.Lock()
        self.lost = 0
        self.killed = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        if not request.url.path.endswith("/step") or response.status_code != 200 or next(self._steps) % self._every:
            return response
        response.read()
        response.close()
        with self._lock:
            self.lost += 1
            for worker in workers_of(self._supervisor) if self.lost % 3 == 1 else ():
                with suppress(psutil.NoSuchProcess):
                    if any(one.laddr.port == request.url.port for one in worker.net_connections("tcp")):
                        worker.kill()
                        self.killed += 1
        raise httpx2.ReadError("the answer is lost", request=request)


class Episode(NamedTuple):
    """How an episode went, as its client saw it."""

    environment: str
    episode_id: str
    rewards: tuple[float, ...]
    success: bool | None


@pytest.fixture(scope="module")
def local() -> dict[str, AnyEnvironment]:
    return build_environments(Settings())


def play(client: Client, local: dict[str, AnyEnvironment], number: int, after_step: Callable[[], None]) -> Episode:
    name = ENVIRONMENTS[number % len(ENVIRONMENTS)]
    policy = oracle(name)
    episode = client.environment(name).reset(split="train", index=number % 100, seed=number)
    policy.start(local[name].tasks.get(str(episode.task_id)), episode.observation)
    rewards: list[float] = []
    while not episode.done:
        result = episode.step(policy.act(episode.observation))
        assert result.observation.info.turn == len(rewards) + 1
        assert result.reward is not None
        rewards.append(result.reward)
        after_step()
    state = episode.state()
    assert (state.step_count, state.done) == (len(rewards), True)
    return Episode(name, episode.id, tuple(rewards), episode.observation.info.success)


def free_ports(number: int) -> int:
    """The first of so many free ports in a row, below those that the system gives to whoever asks for any."""
    while True:
        first = random.randrange(20_000, 32_000)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + number):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def workers_of(supervisor: int) -> list[psutil.Process]:
    """Those that live: one that has just been killed has no command line any more."""
    workers = []
    for child in psutil.Process(supervisor).children():
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                workers.append(child)
    return workers


class Killer:
    """Kills a worker at random, about once in so many steps. Other episodes are in the middle of theirs then."""

    def __init__(self, supervisor: int, steps_per_kill: int) -> None:
        self._supervisor = supervisor
        self._chance = 1 / steps_per_kill
        self._random = random.Random(8)
        self._lock = threading.Lock()
        self.killed = 0

    def step(self) -> None:
        with self._lock:
            if self._random.random() < self._chance:
                workers = workers_of(self._supervisor)
                if workers:
                    self._random.choice(workers).kill()
                    self.killed += 1


def survive(
    store_url: str, clients: Sequence[Client], local: dict[str, AnyEnvironment], episodes: int,
    after_step: Callable[[], None],
) -> None:  # fmt: skip
    """Play while workers are killed, and compare what clients saw, what is recorded, and what is right."""
    with ThreadPoolExecutor(8) as pool:
        played = list(pool.map(lambda i: play(clients[i % len(clients)], local, i, after_step), range(episodes)))
    assert [episode for episode in played if not episode.success] == []
    assert asyncio.run(recorded(store_url, played)) == [episode.rewards for episode in played]


async def recorded(store_url: str, played: Sequence[Episode]) -> list[tuple[float, ...] | None]:
    """The rewards of these episodes, as every worker would read them."""
    store = RedisStore(store_url, idle_timeout_s=60.0, ended=1024)
    records = [await store.load(Key(episode.environment, episode.episode_id), None) for episode in played]
    assert await store.count() == 0
    await store.close()
    return [None if record is None else tuple(record.rewards) for record in records]


def gone(processes: Sequence[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=60)[1]


def test_answers_are_lost_and_workers_killed_and_every_episode_ends_right(
    redis_server: Any, service_process: Callable[..., Any], local: dict[str, AnyEnvironment]
) -> None:
    """A lost answer's step has been taken: the client repeats it elsewhere, and it must not be taken again."""
    workers = 2
    first = free_ports(workers)
    service = service_process(
        store=redis_server.url, workers=str(workers), worker_port=str(first), sql_workers="1", sandbox_running="2"
    )
    transport = LosingRoundRobin(range(first, first + workers), service.pid, every=5)
    with (
        Client(service.url, retries=12, http_transport=transport) as rest,
        Client(service.url, retries=12, transport="websocket") as websocket,
    ):
        survive(redis_server.url, [rest, rest, websocket], local, episodes=18, after_step=lambda: None)
    assert transport.lost >= 4
    assert transport.killed >= 2
    family = psutil.Process(service.pid).children(recursive=True)
    assert service.stop() == 0
    assert gone(family)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_500_episodes_behind_a_balancer_survive_killed_workers(
    redis_server: Any,
    service_process: Callable[..., Any],
    start_balancer: Callable[..., str],
    local: dict[str, AnyEnvironment],
) -> None:
    first = free_ports(WORKERS)
    service = service_process(
        store=redis_server.url, workers=str(WORKERS), worker_port=str(first), sql_workers="1", sandbox_running="2"
    )
    balancer = start_balancer(range(first, first + WORKERS), round_robin=True)
    killer = Killer(service.pid, steps_per_kill=40)
    with Client(balancer, retries=12) as rest, Client(balancer, retries=12, transport="websocket") as websocket:
        survive(redis_server.url, [rest, rest, websocket], local, episodes=500, after_step=killer.step)
    assert killer.killed >= 10


# ---- the supervisor -------------------------------------------------------------------------------------------------


def test_workers_end_with_a_supervisor_that_is_killed(redis_server: Any, service_process: Callable[..., Any]) -> None:
    service = service_process(store=redis_server.url, workers="2", environments="toolcall")
    family = psutil.Process(service.pid).children(recursive=True)
    assert len(workers_of(service.pid)) == 2
    os.kill(service.pid, signal.SIGKILL)
    assert gone(family)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--workers", "2"], "several workers need a store that they share"),
        (["--workers", "2", "--store", "redis://127.0.0.1:1/0", "--sql-data", "/nowhere"], "/nowhere: neither"),
    ],
)
def test_workers_that_cannot_start_say_why_in_one_line(flags: list[str], complaint: str) -> None:
    command = [sys.executable, "-m", "rolloutgym.cli", "serve", "--port", "0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert complaint in line


def test_a_redis_store_without_its_package_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['redis'] = sys.modules['redis.asyncio'] = None\n"
        "from rolloutgym.server.app import main\nmain()\n"
    )
    environment = {**os.environ, "ROLLOUTGYM_STORE": "redis://127.0.0.1:1/0", "ROLLOUTGYM_ENVIRONMENTS": "toolcall"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "rolloutgym: a Redis store needs the package redis.asyncio: pip install 'rolloutgym[redis]'\n"
    )


def test_redis_is_not_imported_unless_asked_for() -> None:
    program = (
        "import sys\nfrom rolloutgym.server.app import create_app\nfrom rolloutgym.server.settings import Settings\n"
        "create_app(Settings(environments='toolcall'))\nassert 'redis' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=200, check=True)


# ---- two services, one store ----------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A service that shares its store, and its environment."""

    environment: Any
    url: str

    def post(self, call: str, **body: Any) -> httpx2.Response:
        return httpx2.post(f"{self.url}/noop/{call}", json=body, timeout=60)

    def step(self, episode_id: str, step: int | None = None, **action: Any) -> httpx2.Response:
        return self.post("step", episode_id=episode_id, step=step, action=action)

    @property
    def sessions(self) -> Any:
        return self.environment.server.config.app.state.service.sessions

    def let_go_on(self, gate: str) -> None:
        self.environment.loop.call_soon_threadsafe(self.environment.gates[gate].set)


def until(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.02)
    pytest.fail("it did not come true")


@pytest.fixture
def make_pair(
    redis_server: Any, start_service: Callable[..., str], make_noop: Callable[[], Any]
) -> Iterator[Callable[..., list[Place]]]:
    """`make_pair(…)` starts two services that share a store."""

    def make(**settings: Any) -> list[Place]:
        environments = make_noop(), make_noop()
        return [Place(one, start_service({"noop": one}, store=redis_server.url, **settings)) for one in environments]

    yield make
    with redis.Redis.from_url(redis_server.url) as store:
        store.flushall()


@pytest.fixture
def pair(make_pair: Callable[..., list[Place]]) -> list[Place]:
    return make_pair(idle_timeout_s=60.0)


def test_any_service_plays_an_episode_on(pair: Any) -> None:
    one, two = pair
    with Client(one.url) as first, Client(two.url) as second:
        episode = first.environment("noop").reset(seed=5, index=1, split="train")
        answers = [episode.step({"add": 1.0})]
        elsewhere = second.environment("noop").resume(episode.id)
        answers += [elsewhere.step({"add": 2.0}), elsewhere.step({"add": 3.0})]
        assert episode.state().step_count == 3
        assert [answer.observation.total for answer in answers] == [1.0, 3.0, 6.0]
    # The first step was replayed there, once.
    assert two.environment.steps == 3


def test_a_service_catches_up_with_the_steps_that_it_has_not_seen(pair: Any) -> None:
    one, two = pair
    episode_id = one.post("reset", seed=1).json()["episode_id"]
    for step in range(10):
        answer = pair[step % 2].step(episode_id, step, add=1).json()
        assert (answer["observation"]["total"], answer["observation"]["info"]["turn"]) == (step + 1, step + 1)
    # Each has played each step once, and not the whole episode again at every turn.
    assert (one.environment.steps, two.environment.steps) == (9, 10)


def test_a_service_that_played_last_asks_the_store_once_a_step(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    run = Scripts.run

    async def counted(self: Scripts, source: str, *arguments: Any) -> Any:
        calls.append(source)
        return await run(self, source, *arguments)

    episode_id = pair[0].post("reset").json()["episode_id"]
    monkeypatch.setattr(Scripts, "run", counted)
    for step, place, expected in ((0, 0, 1), (1, 0, 1), (2, 1, 2), (3, 0, 2), (None, 0, 2)):
        calls.clear()
        assert pair[place].step(episode_id, step, add=1).status_code == 200
        assert len(calls) == expected, step


def test_a_step_repeated_elsewhere_gets_its_first_answer(pair: Any) -> None:
    one, two = pair
    episode_id = one.post("reset").json()["episode_id"]
    answer = one.step(episode_id, 0, add=1)
    again = two.step(episode_id, 0, add=1)
    assert again.content == answer.content
    assert (one.environment.steps, two.environment.steps) == (1, 0)
    assert two.step(episode_id, 0, add=2).json()["error"]["code"] == "step_conflict"


def test_steps_sent_to_both_services_at_once_are_taken_one_after_another(pair: Any) -> None:
    episode_id = pair[0].post("reset").json()["episode_id"]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: pair[i % 2].step(episode_id, add=1), range(12)))
    assert sorted(answer.json()["observation"]["total"] for answer in answers) == [float(i) for i in range(1, 13)]


@pytest.mark.parametrize("finish", [None, True])
def test_a_service_does_not_take_an_episode_for_the_one_before_its_restart(pair: Any, finish: bool | None) -> None:
    """Both have one step, so that its number does not tell them apart."""
    one, two = pair
    one.post("reset", episode_id="e", seed=1)
    one.step("e", 0, add=5, finish=finish)
    two.post("reset", episode_id="e", seed=2)
    drawn = two.step("e", 0, add=1).json()["observation"]["drawn"]
    answer = one.step("e", 1, add=1).json()
    assert (answer["observation"]["total"], answer["step_count"], answer["done"]) == (2, 2, False)
    assert two.step("e", 0, add=1).json()["observation"]["drawn"] == drawn
    again = two.step("e", 1, add=1).json()
    assert again == answer


@pytest.mark.parametrize("mine", [(0, 1.0), (0, 2.0), (None, 2.0)])
def test_a_service_that_sleeps_in_a_step_overwrites_nothing(pair: Any, mine: tuple[int | None, float]) -> None:
    """It is stopped between reading and writing, for as long as it takes the client to go elsewhere and play on."""
    one, two = pair
    step, add = mine
    for place in pair:
        place.environment.gates["asleep"] = asyncio.Event()
    two.environment.gates["asleep"].set()
    episode_id = one.post("reset").json()["episode_id"]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(one.step, episode_id, step, add=add, wait="asleep")
        until(lambda: bool(one.environment.waiting))
        taken = two.step(episode_id, 0, add=1, wait="asleep")
        assert two.step(episode_id, 1, add=10).json()["observation"]["total"] == 11
        one.let_go_on("asleep")
        answer = late.result()
    match mine:
        case (0, 1.0):
            assert answer.content == taken.content
        case (0, _):
            assert answer.json()["error"]["code"] == "step_conflict"
        case _:
            assert (answer.json()["step_count"], answer.json()["observation"]["total"]) == (3, 13)
    state = httpx2.get(f"{one.url}/noop/state", params={"episode_id": episode_id}).json()
    assert state["total"] == (13 if step is None else 11)


def test_a_service_that_sleeps_in_a_reset_does_not_restart_the_episode(pair: Any) -> None:
    one, two = pair
    awake, asleep = threading.Event(), threading.Event()

    def sleep() -> float:
        # The whole service, as when its process is stopped.
        asleep.set()
        awake.wait(60)
        return 0.0

    one.environment.faults["sleep"] = sleep
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(one.post, "reset", episode_id="e", options={"reset_fault": "sleep"})
        assert asleep.wait(60)
        assert two.post("reset", episode_id="e").status_code == 200
        assert two.step("e", 0, add=1).status_code == 200
        awake.set()
        assert late.result().json()["error"]["code"] == "episode_busy"
    assert two.step("e", 1, add=1).json()["observation"]["total"] == 2
    assert one.step("e", 2, add=1).json()["observation"]["total"] == 3


def test_processes_that_are_stopped_and_go_on_take_each_step_once(
    redis_server: Any, noop_process: Callable[..., Any]
) -> None:
    """A client that loses patience with a stopped worker goes to the other, and back."""
    services = [noop_process(store=redis_server.url) for _ in range(2)]
    drawn = random.Random(0)
    ports = [int(service.url.rsplit(":", 1)[1]) for service in services]
    with Client(services[0].url, retries=12, timeout_s=0.3, http_transport=RoundRobin(ports)) as client:
        episode = client.environment("noop").reset()
        for turn in range(1, 21):
            stopped = drawn.choice(services).pid
            os.kill(stopped, signal.SIGSTOP)
            wake = threading.Timer(drawn.random() * 0.2, os.kill, (stopped, signal.SIGCONT))
            wake.start()
            result = episode.step({"add": 1.0})
            assert (result.observation.total, result.observation.info.turn) == (turn, turn)
            wake.join()
        assert episode.state().step_count == 20


def test_a_websocket_resumes_at_another_service(pair: Any) -> None:
    one, two = pair
    with Client(one.url, transport="websocket") as first, Client(two.url, transport="websocket") as second:
        episode = first.environment("noop").reset()
        episode.step({"add": 1.0})
        assert second.environment("noop").resume(episode.id).step({"add": 1.0}).observation.total == 2.0


def test_what_is_used_keeps_its_episode_and_its_place(make_pair: Callable[..., list[Place]], redis_server: Any) -> None:
    """A connection that is silent, and a step that takes long, both for twice the idle timeout."""
    one, _ = make_pair(idle_timeout_s=2.5)
    one.environment.gates["slow"] = asyncio.Event()
    slow = one.post("reset").json()["episode_id"]
    with Client(one.url, transport="websocket") as client, ThreadPoolExecutor(1) as pool:
        kept = client.environment("noop").reset()
        left = one.post("reset").json()["episode_id"]
        step = pool.submit(one.step, slow, 0, add=1, wait="slow")
        time.sleep(5.0)
        with redis.Redis.from_url(redis_server.url, decode_responses=True) as store:
            places: Any = store.zrangebyscore("rolloutgym:places", int(1000 * time.time()), "inf")
            assert sorted(places) == sorted([f"noop:{kept.id}", f"noop:{slow}"])
        assert kept.step({"add": 1.0}).observation.total == 1.0
        one.let_go_on("slow")
        assert step.result().json()["reward"] == 1
        assert one.step(left, 0, add=1).json()["error"]["code"] == "episode_not_found"


def test_a_connection_that_is_found_dead_late_leaves_the_episode_to_who_plays_it(
    make_pair: Callable[..., list[Place]],
) -> None:
    one, two = make_pair(grace_s=0.1, idle_timeout_s=60.0)
    with Client(two.url) as elsewhere:
        with Client(one.url, transport="websocket") as client:
            episode = client.environment("noop").reset()
            resumed = elsewhere.environment("noop").resume(episode.id)
            assert resumed.step({"add": 1.0}).observation.total == 1.0
        # The first client has gone without a word, and the service finds out only now.
        time.sleep(0.5)
        assert resumed.step({"add": 1.0}).observation.total == 2.0


def test_episodes_that_end_elsewhere_do_not_fill_a_service(make_pair: Callable[..., list[Place]]) -> None:
    one, two = make_pair(capacity=2, idle_timeout_s=60.0)
    for number in range(12):
        assert one.post("reset", episode_id=f"e{number}").status_code == 200
        assert two.step(f"e{number}", 0, finish=True).json()["done"]
    until(lambda: len(one.sessions._sessions) <= 4 and one.environment.open <= 4)
    # The last ones are still there for repeated requests.
    assert two.step("e11", 0, finish=True).json()["done"]
    assert one.step("e0", 0, finish=True).json()["error"]["code"] == "episode_not_found"


def test_capacity_is_that_of_all_services(make_pair: Callable[..., list[Place]]) -> None:
    one, two = make_pair(capacity=1)
    first = one.post("reset").json()["episode_id"]
    assert two.post("reset").json()["error"]["code"] == "capacity_reached"
    httpx2.delete(f"{two.url}/noop/episodes/{first}")
    assert two.post("reset").status_code == 200


@pytest.mark.parametrize("transport", ["rest", "websocket"])
def test_a_store_that_is_down_is_told_and_come_back_from(
    redis_server: Any, start_service: Callable[..., str], noop: Any, transport: Any
) -> None:
    url = start_service({"noop": noop}, store=redis_server.url)
    with Client(url, retries=0, transport=transport) as client:
        episode = client.environment("noop").reset()
        redis_server.stop()
        with pytest.raises(StoreUnavailable) as failure:
            episode.step({"add": 1.0})
        assert failure.value.retryable
        assert not client.ready()
        assert client.health()["status"] == "healthy"
        redis_server.start()
        assert client.ready()
        # A Redis without a disk has forgotten: an error, never a reward.
        with pytest.raises(EpisodeNotFound):
            episode.step({"add": 1.0})
        assert client.environment("noop").reset().step({"add": 1.0}).observation.total == 1.0


def test_a_service_may_start_before_its_store(redis_server: Any, start_service: Callable[..., str], noop: Any) -> None:
    redis_server.stop()
    try:
        with Client(start_service({"noop": noop}, store=redis_server.url), retries=0) as client:
            assert (client.health()["status"], client.ready()) == ("healthy", False)
            with pytest.raises(StoreUnavailable):
                client.environment("noop").reset()
            redis_server.start()
            assert client.ready()
            client.environment("noop").reset().close()
    finally:
        if redis_server.process.poll() is not None:
            redis_server.start()
