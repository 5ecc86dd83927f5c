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
    """Loses the answer to each so many-th step, once the step has been taken; each second time with the worker."""

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
            for worker in workers_of(self._supervisor) if self.lost % 2 else ():
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
    """The first of so many free ports in a row."""
    while True:
        with ExitStack() as stack:
            first = 0
            try:
                for offset in range(number):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", first + offset if first else 0))
                    first = first or probe.getsockname()[1]
            except (OSError, OverflowError):
                continue
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
    return not psutil.wait_procs(processes, timeout=15)[1]


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
        survive(redis_server.url, [rest, rest, websocket], local, episodes=21, after_step=lambda: None)
    assert transport.lost >= 6
    assert transport.killed >= 3
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "rolloutgym: a Redis store needs the package redis.asyncio: pip install 'rolloutgym[redis]'\n"
    )


def test_redis_is_not_imported_unless_asked_for() -> None:
    program = (
        "import sys\nfrom rolloutgym.server.app import create_app\nfrom rolloutgym.server.settings import Settings\n"
        "create_app(Settings(environments='toolcall'))\nassert 'redis' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


# ---- two services, one store ----------------------------------------------------------------------------------------


@pytest.fixture
def pair(redis_server: Any, start_service: Callable[..., str], make_noop: Callable[[], Any]) -> Iterator[Any]:
    """Two services that share a store: their environments and base URLs."""
    environments = make_noop(), make_noop()
    yield [(one, start_service({"noop": one}, store=redis_server.url, idle_timeout_s=1.5)) for one in environments]
    with redis.Redis.from_url(redis_server.url) as store:
        store.flushall()


def test_any_service_plays_an_episode_on(pair: Any) -> None:
    (_, first), (two, second) = pair
    with Client(first) as one, Client(second) as other:
        episode = one.environment("noop").reset(seed=5, index=1, split="train")
        answers = [episode.step({"add": 1.0})]
        elsewhere = other.environment("noop").resume(episode.id)
        answers += [elsewhere.step({"add": 2.0}), elsewhere.step({"add": 3.0})]
        assert episode.state().step_count == 3
        assert [answer.observation.total for answer in answers] == [1.0, 3.0, 6.0]
    # The first step was replayed there, once.
    assert two.steps == 3


def test_a_step_repeated_elsewhere_gets_its_first_answer(pair: Any) -> None:
    (one, first), (two, second) = pair
    episode_id = httpx2.post(f"{first}/noop/reset", json={}).json()["episode_id"]
    step = {"episode_id": episode_id, "step": 0, "action": {"add": 1.0}}
    answer = httpx2.post(f"{first}/noop/step", json=step)
    again = httpx2.post(f"{second}/noop/step", json=step)
    assert again.content == answer.content
    assert (one.steps, two.steps) == (1, 0)
    assert httpx2.post(f"{second}/noop/step", json={**step, "action": {"add": 2.0}}).status_code == 409


def test_steps_sent_to_both_services_at_once_are_taken_one_after_another(pair: Any) -> None:
    (_, first), (_, second) = pair
    episode_id = httpx2.post(f"{first}/noop/reset", json={}).json()["episode_id"]
    step = {"episode_id": episode_id, "action": {"add": 1.0}}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: httpx2.post(f"{(first, second)[i % 2]}/noop/step", json=step), range(8)))
    assert sorted(answer.json()["observation"]["total"] for answer in answers) == [float(i) for i in range(1, 9)]


def test_a_websocket_resumes_at_another_service(pair: Any) -> None:
    (_, first), (_, second) = pair
    with Client(first, transport="websocket") as one, Client(second, transport="websocket") as other:
        episode = one.environment("noop").reset()
        episode.step({"add": 1.0})
        assert other.environment("noop").resume(episode.id).step({"add": 1.0}).observation.total == 2.0


def test_a_silent_connection_keeps_its_episode_and_its_place(pair: Any, redis_server: Any) -> None:
    (_, first), _ = pair
    with Client(first, transport="websocket") as client:
        kept = client.environment("noop").reset()
        with Client(first) as rest:
            left = rest.environment("noop").reset()
            # Twice the idle timeout.
            time.sleep(3.0)
            with redis.Redis.from_url(redis_server.url, decode_responses=True) as store:
                places: Any = store.zrangebyscore("rolloutgym:places", int(1000 * time.time()), "inf")
                assert places == [f"noop:{kept.id}"]
            assert kept.step({"add": 1.0}).observation.total == 1.0
            with pytest.raises(EpisodeNotFound):
                left.step({"add": 1.0})


def test_capacity_is_that_of_all_services(
    redis_server: Any, start_service: Callable[..., str], make_noop: Callable[[], Any]
) -> None:
    urls = [start_service({"noop": make_noop()}, store=redis_server.url, capacity=1) for _ in range(2)]
    first = httpx2.post(f"{urls[0]}/noop/reset", json={})
    assert httpx2.post(f"{urls[1]}/noop/reset", json={}).json()["error"]["code"] == "capacity_reached"
    httpx2.delete(f"{urls[1]}/noop/episodes/{first.json()['episode_id']}")
    assert httpx2.post(f"{urls[1]}/noop/reset", json={}).status_code == 200


def test_a_store_that_is_down_is_told_and_come_back_from(
    redis_server: Any, start_service: Callable[..., str], noop: Any
) -> None:
    url = start_service({"noop": noop}, store=redis_server.url)
    with Client(url, retries=0) as client:
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
