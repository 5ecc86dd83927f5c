"""How the service scales: steps per second by workers and store, memory, time to ready.

    python benchmarks/scale.py [--seconds 5] [--episodes 500] [--only speed|memory|records]

Each form of `rolloutgym serve` runs with all three environments and default settings, and a Redis of its own. The load
is the reference policies' own episodes, recorded once and played again over keep-alive connections by a client that
costs little; it shares the machine with the service. The first form, one worker without Redis, is what the others are
compared with. CPU time is the service's whole process family's, without Redis and the client; it says what a core can
do even where the machine is busy. Memory is the family's proportional set size (PSS).
"""

import argparse
import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
import redis
from rich.console import Console
from rich.table import Table

from rolloutgym.cli.playing import oracle
from rolloutgym.client import Client, protocol
from rolloutgym.server.environments.registry import build_environments
from rolloutgym.server.settings import Settings

ENVIRONMENTS = ("sql", "toolcall", "code")
FORMS = ((1, False), (1, True), (2, True), (4, True))
CONNECTIONS = 32
EPISODES_RECORDED = 8
"""Of each environment."""


class Script(NamedTuple):
    """An episode as its requests."""

    environment: str
    reset: Mapping[str, Any]
    actions: Sequence[Mapping[str, Any]]


class Running(NamedTuple):
    url: str
    pid: int
    ready_s: float

    def _sum(self, figure: Callable[[psutil.Process], float]) -> float:
        """Over the process and all that descend from it. What has just ended counts for nothing."""
        total = 0.0
        for process in (psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += figure(process)
        return total

    def memory_mb(self) -> float:
        return self._sum(lambda process: float(process.memory_full_info().pss)) / 2**20

    def cpu_s(self) -> float:
        """CPU time so far, with that of children that have ended."""
        return self._sum(lambda process: float(sum(process.cpu_times()[:4])))


# ---- servers --------------------------------------------------------------------------------------------------------


@contextmanager
def redis_server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def service(workers: int, store: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "rolloutgym.cli", "serve", "--port", "0", "--capacity", "100000"]
    command += ["--workers", str(workers), "--store", store, "--log-level", "error"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROLLOUTGYM_")}
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("listening on ").strip()
        yield Running(url, process.pid, time.perf_counter() - begun)
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# ---- load -----------------------------------------------------------------------------------------------------------


def record(url: str) -> list[Script]:
    """Play episodes with the reference policies, and keep their requests."""
    scripts = []
    local = build_environments(Settings())
    with Client(url) as client:
        for name, number in itertools.product(ENVIRONMENTS, range(EPISODES_RECORDED)):
            policy, actions = oracle(name), []
            with client.environment(name).reset(split="train", index=number, seed=number) as episode:
                policy.start(local[name].tasks.get(str(episode.task_id)), episode.observation)
                while not episode.done:
                    action = policy.act(episode.observation)
                    call = protocol.step_call(name, protocol.OBSERVATIONS[name], episode.id, action, 0)
                    actions.append(dict(call.body or {})["action"])
                    episode.step(action)
            scripts.append(Script(name, {"split": "train", "index": number, "seed": number}, actions))
    return scripts


class Connection:
    """HTTP/1.1, one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def post(self, path: str, body: Mapping[str, Any]) -> None:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
        self._writer.write(head.encode() + b"\r\n\r\n" + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        said = await self._reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {said.decode()}")

    def close(self) -> None:
        self._writer.close()


async def play(connection: Connection, script: Script, episode_id: str, steps: int | None = None) -> int:
    """Reset, and take the script's first steps (all by default). Returns their number."""
    path = f"/{script.environment}"
    await connection.post(f"{path}/reset", {**script.reset, "episode_id": episode_id})
    for number, action in enumerate(script.actions[:steps]):
        await connection.post(f"{path}/step", {"episode_id": episode_id, "step": number, "action": action})
    return len(script.actions[:steps])


class Speed(NamedTuple):
    per_second: float
    cpu_ms: float
    """CPU time per step, resets included."""

    def __str__(self) -> str:
        return f"{self.per_second:.0f} ({self.cpu_ms:.1f})"


def measure(running: Running, scripts: Sequence[Script], seconds: float) -> Speed:
    cpu_s, begun = running.cpu_s(), time.perf_counter()
    steps = asyncio.run(load(running.url, scripts, seconds))
    return Speed(steps / (time.perf_counter() - begun), 1000 * (running.cpu_s() - cpu_s) / steps)


async def load(url: str, scripts: Sequence[Script], seconds: float) -> int:
    """Play for so long; the steps taken."""
    endless = itertools.cycle(scripts)
    end = time.perf_counter() + seconds
    taken = 0

    async def player(name: int) -> None:
        nonlocal taken
        connection = await Connection.open(url)
        for round_ in itertools.count():
            if time.perf_counter() >= end:
                break
            steps = await play(connection, next(endless), f"{name}-{round_}")
            taken += steps
        connection.close()

    await asyncio.gather(*(player(name) for name in range(CONNECTIONS)))
    return taken


async def begin(url: str, script: Script, episodes: int, steps: int) -> None:
    """Live episodes that stay."""
    connection = await Connection.open(url)
    for number in range(episodes):
        await play(connection, script, f"live-{number}", steps)
    connection.close()


# ---- report ---------------------------------------------------------------------------------------------------------


def speeds(seconds: float) -> Table:
    table = Table("workers", "store", "ready after, s", "at rest, MB", *ENVIRONMENTS, "all three", "ratio")
    table.title = f"steps per second (CPU ms per step), {CONNECTIONS} connections, {os.cpu_count()} CPUs"
    scripts: list[Script] = []
    reference = 0.0
    for workers, shared in FORMS:
        with redis_server() as store, service(workers, store if shared else "memory") as running:
            at_rest = running.memory_mb()
            scripts = scripts or record(running.url)
            groups = [[script for script in scripts if script.environment == name] for name in ENVIRONMENTS]
            rates = [measure(running, group, seconds) for group in (*groups, scripts)]
        reference = reference or rates[-1].per_second
        form = (str(workers), "Redis" if shared else "memory", f"{running.ready_s:.1f}", f"{at_rest:.0f}")
        table.add_row(*form, *map(str, rates), f"{rates[-1].per_second / reference:.2f}")
    return table


def memory(episodes: int) -> Table:
    table = Table("environment", "after", "live episodes", "MB", "MB for 1,000", title="memory of live episodes")
    for name, steps in (("sql", 1), ("toolcall", 1), ("code", 0), ("code", 1)):
        # Interpreters that are open at once are limited; the reset alone opens none.
        number = min(episodes, Settings().sandbox_sessions // 2) if name == "code" and steps else episodes
        with service(1, "memory") as running:
            (script, *_) = [script for script in record(running.url) if script.environment == name]
            time.sleep(1.0)
            before = running.memory_mb()
            asyncio.run(begin(running.url, script, number, steps))
            grown = running.memory_mb() - before
        table.add_row(
            name, "one step" if steps else "reset", str(number), f"{grown:.1f}", f"{1000 * grown / number:.0f}"
        )
    return table


def records() -> Table:
    table = Table(
        "environment", "steps", "bytes in Redis", title="records of the reference policies' episodes, and a long one"
    )
    thought = "Let me think. " * 70
    long = Script(
        "sql", {"split": "train", "index": 0}, [{"text": f"{thought}\nQUERY: SELECT * FROM sqlite_master"}] * 15
    )
    with (
        redis_server() as store,
        service(1, store) as running,
        redis.Redis.from_url(store, decode_responses=True) as asked,
    ):
        for script in (*record(running.url)[::EPISODES_RECORDED], long):
            steps = len(script.actions)
            asyncio.run(begin(running.url, script, 1, steps))
            size = asked.memory_usage(f"rolloutgym:record:{script.environment}:live-0", samples=0)
            table.add_row(script.environment, str(steps), str(size))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--episodes", type=int, default=500, help="live episodes whose memory is measured")
    parser.add_argument("--only", choices=("speed", "memory", "records"))
    arguments = parser.parse_args()
    console = Console(width=120)
    if arguments.only in (None, "speed"):
        console.print(speeds(arguments.seconds))
    if arguments.only in (None, "memory"):
        console.print(memory(arguments.episodes))
    if arguments.only in (None, "records"):
        console.print(records())


if __name__ == "__main__":
    main()
