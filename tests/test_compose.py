"""`compose.yaml` with a real engine: replicas, Redis and nginx, while replicas are killed, come back and are added."""

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from rolloutgym.cli.playing import oracle
from rolloutgym.client import Client
from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parent.parent
IMAGES = {"redis": "redis:7-alpine", "nginx": "nginx:1.27-alpine"}
BUILD_ARGS = shlex.split(os.environ.get("TEST_BUILD_ARGS", ""))


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def works(*command: str) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


def until(condition: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


class Stack:
    """What the compose file brings up, under a name of its own."""

    def __init__(self, compose: list[str], images: Path) -> None:
        self.name = f"rolloutgymtest{secrets.token_hex(3)}"
        self._command = [*compose, "-p", self.name, "-f", str(ROOT / "compose.yaml"), "-f", str(images)]

    def __call__(self, *arguments: str) -> str:
        environment = {**os.environ, "PUBLISH": "127.0.0.1:"}
        done = subprocess.run(
            [*self._command, *arguments], env=environment, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    def start(self, replicas: int) -> None:
        """With so many replicas, all of them healthy; those that run stay as they are."""
        self("up", "-d", "--no-recreate", "--scale", f"rolloutgym={replicas}")
        until(lambda: [healthy(each) for each in self.replicas()] == [True] * replicas)

    def replicas(self) -> list[str]:
        return sorted(self("ps", "-q", "rolloutgym").split())

    @property
    def url(self) -> str:
        return f"http://{self('port', 'nginx', '8000')}"


def healthy(container: str) -> bool:
    state = json.loads(docker("inspect", "--format", "{{json .State}}", container))
    return (state["Running"], state["Health"]["Status"]) == (True, "healthy")


def count(container: str, metric: str) -> float:
    """Over all environments, as a replica tells."""
    fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/metrics').read().decode())"
    return sum(
        map(float, re.findall(rf"^{metric}{{.*}} (.*)$", docker("exec", container, "python", "-c", fetch), re.M))
    )


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if not works("docker", "info"):
        pytest.skip("no Docker engine answers")
    if not works("docker", "image", "inspect", "rolloutgym"):
        pytest.skip("the engine has no image rolloutgym")
    compose = next((each for each in (["docker", "compose"], ["docker-compose"]) if works(*each, "version")), None)
    if compose is None:
        pytest.skip("neither `docker compose` nor docker-compose is installed")
    override = tmp_path_factory.mktemp("compose") / "images.yaml"
    override.write_text(json.dumps({"services": {each: {"image": image(each)} for each in IMAGES}}))
    stack = Stack(compose, override)
    volumes = docker("volume", "ls", "-q")
    try:
        stack.start(2)
        yield stack
    finally:
        stack("down")
    label = f"label=com.docker.compose.project={stack.name}"
    assert docker("ps", "-aq", "--filter", label) == docker("network", "ls", "-q", "--filter", label) == ""
    assert docker("volume", "ls", "-q") == volumes


def image(service: str) -> str:
    """The published image, or one of our own in its place."""
    name = IMAGES[service]
    if works("docker", "image", "inspect", name) or works("docker", "pull", "-q", name):
        return name
    file = Path(__file__).parent / "images" / f"{service}.Dockerfile"
    docker("build", "-q", *BUILD_ARGS, "-t", f"rolloutgym-test-{service}", "-f", str(file), str(file.parent))
    return f"rolloutgym-test-{service}"


# ---- episodes -------------------------------------------------------------------------------------------------------


class Played(NamedTuple):
    transport: str
    environment: str
    seed: int
    rewards: tuple[float | None, ...]
    success: bool | None


def episodes(clients: dict[str, Client]) -> list[Iterator[Played | None]]:
    """Some of each environment over each transport. Each has been reset; a step is taken when the next is asked for."""
    local = build_environments(Settings())
    begun = [
        play(client, transport, local[name], seed)
        for transport, client in clients.items()
        for name in local
        for seed in range(3)
    ]
    for each in begun:
        assert next(each) is None
    return begun


def play(client: Client, transport: str, environment: AnyEnvironment, seed: int) -> Iterator[Played | None]:
    """`None` after the reset and after every step; at the end, how it went."""
    policy = oracle(environment.name)
    rewards: list[float | None] = []
    with client.environment(environment.name).reset(split="train", index=seed, seed=seed) as episode:
        assert episode.task_id is not None
        policy.start(environment.tasks.get(episode.task_id), episode.observation)
        yield None
        while not episode.done:
            rewards.append(episode.step(policy.act(episode.observation)).reward)
            yield None
        success = episode.observation.info.success
        yield Played(transport, environment.name, seed, tuple(rewards), success)


def finish(begun: list[Iterator[Played | None]]) -> list[Played]:
    return [next(played for played in each if played is not None) for each in begun]


@pytest.fixture
def clients(stack: Stack) -> Iterator[dict[str, Client]]:
    with Client(stack.url, retries=8) as rest, Client(stack.url, transport="websocket", retries=8) as websocket:
        yield {"rest": rest, "websocket": websocket}


# ---- what happens to them -------------------------------------------------------------------------------------------


def test_replicas_that_are_killed_change_no_reward_and_come_back(stack: Stack, clients: dict[str, Client]) -> None:
    undisturbed = finish(episodes(clients))
    assert [each for each in undisturbed if not each.success] == []
    one, other = stack.replicas()
    # Episodes went on where they were, unless a loaded machine made nginx look elsewhere.
    assert count(one, "rolloutgym_replays_total") + count(other, "rolloutgym_replays_total") < len(undisturbed) // 3
    assert count(one, "rolloutgym_resets_total") > 0
    assert count(other, "rolloutgym_resets_total") > 0

    begun = episodes(clients)
    # The service alone: the engine starts its container again.
    docker("exec", one, "python", "-c", "import os; os.kill(int(open('/proc/1/task/1/children').read()), 9)")
    for each in begun:
        next(each)
    until(lambda: docker("inspect", "--format", "{{.RestartCount}}", one) == "1" and healthy(one))
    assert count(other, "rolloutgym_replays_total") > 0
    # The container: it stays down until somebody starts it.
    docker("kill", "--signal", "KILL", other)
    disturbed = finish(begun)
    assert disturbed == undisturbed
    assert count(one, "rolloutgym_replays_total") > 0
    stack("restart", "rolloutgym")
    until(lambda: healthy(one) and healthy(other))
    assert finish(episodes(clients)) == undisturbed


def test_nginx_finds_a_replica_that_is_added_and_misses_none_that_goes(
    stack: Stack, clients: dict[str, Client]
) -> None:
    before = set(stack.replicas())
    stack.start(3)
    (added,) = set(stack.replicas()) - before

    def is_used() -> bool:
        finish(episodes(clients))
        return count(added, "rolloutgym_resets_total") > 0

    until(is_used)
    begun = episodes(clients)
    stack.start(2)
    assert [each for each in finish(begun) if not each.success] == []


def test_without_redis_nothing_is_ready_until_it_is_back(stack: Stack) -> None:
    with httpx2.Client(base_url=stack.url) as http:
        assert http.get("/ready").status_code == 200
        stack("stop", "redis")
        until(lambda: http.get("/ready").status_code == 503)
        error = http.post("/sql/reset", json={}).json()["error"]
        assert (error["code"], error["retryable"]) == ("store_unavailable", True)
        stack("start", "redis")
        until(lambda: http.get("/ready").status_code == 200)
