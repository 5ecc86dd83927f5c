"""What the wire costs: steps per second and the server's CPU time per step, beside a bare Starlette echo.

    python benchmarks/wire.py [--seconds 2] [--repeats 5]

Service and echo run side by side, each in a process of its own under the same uvicorn settings, and are measured in
turn, so that whatever else the machine does falls on both. The environment does nothing; a client that hardly costs
anything itself sends one short action after another, on 1 and on 64 sessions. CPU time is the server process's own.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from typing import ClassVar, cast

import psutil
import uvicorn
import uvloop
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from rolloutgym.models import Action, Info, Message, Observation, StopReason, TaskInfo, ToolSpec
from rolloutgym.server.app import create_app
from rolloutgym.server.environments.base import Environment, Episode, Options, Outcome
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.serving import server_of, uvicorn_config
from rolloutgym.server.settings import Settings

# ---- an environment that does nothing -------------------------------------------------------------------------------


@dataclass(frozen=True)
class EchoTask:
    id: str = "task"
    split: str = "train"

    def info(self) -> TaskInfo:
        return TaskInfo(id=self.id, split=self.split)

    def fingerprint(self) -> bytes:
        return self.id.encode()


# Made once, since it is the wire that is measured: read and check the action, record it, write and record the answer.
ALWAYS = Outcome(Observation(messages=(Message(role="user", content="Go on."),), info=Info(turn=1)), 0.5)


class EchoEpisode(Episode[Action]):
    async def reset(self) -> Observation:
        return ALWAYS.observation

    async def step(self, action: Action) -> Outcome:
        return ALWAYS

    async def truncate(self, reason: StopReason) -> Outcome:
        return ALWAYS

    def state(self) -> Mapping[str, JsonValue]:
        return {}

    def action_of_call(self, name: str, arguments: Mapping[str, JsonValue]) -> Action:
        raise NotImplementedError

    def tools(self) -> Sequence[ToolSpec]:
        return ()


class EchoEnvironment(Environment[EchoTask, Options, Action, Observation]):
    name: ClassVar[str] = "echo"
    version: ClassVar[str] = "1"
    prompt_version: ClassVar[str] = "1"
    description: ClassVar[str] = "Says always the same"
    action_type = Action
    observation_type = Observation
    options_type = Options
    tasks = TaskSet([EchoTask()])

    def episode(self, task: EchoTask, seed: int, options: Options) -> EchoEpisode:
        return EchoEpisode()

    def tools(self) -> Sequence[ToolSpec]:
        return ()

    def reward_range(self) -> tuple[float, float]:
        return (0.0, 1.0)


# ---- servers --------------------------------------------------------------------------------------------------------


def serve_service(ready: Connection) -> None:
    settings = Settings(log_level="error")
    server = server_of(create_app(settings, {"echo": EchoEnvironment()}), settings)
    _serve(server, ready)


def serve_echo(ready: Connection) -> None:
    async def websocket(peer: WebSocket) -> None:
        await peer.accept()
        try:
            while True:
                await peer.send_text(await peer.receive_text())
        except WebSocketDisconnect:
            return

    async def reset(_: Request) -> Response:
        return Response(b"{}", media_type="application/json")

    async def post(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    routes = [
        WebSocketRoute("/echo/ws", websocket),
        Route("/echo/reset", reset, methods=["POST"]),
        Route("/echo/step", post, methods=["POST"]),
    ]
    _serve(uvicorn.Server(uvicorn_config(Starlette(routes=routes), Settings(log_level="error"))), ready)


def _serve(server: uvicorn.Server, ready: Connection) -> None:
    # Who connects before the server accepts waits in the listener's queue.
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        ready.send(listener.getsockname()[1])
        server.run(sockets=[listener])


@dataclass(frozen=True)
class Peer:
    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def started(target: Callable[[Connection], None]) -> Iterator[Peer]:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=target, args=(there,))
    process.start()
    try:
        yield Peer(here.recv(), psutil.Process(process.pid))
    finally:
        process.terminate()
        process.join()


# ---- clients --------------------------------------------------------------------------------------------------------

TEXT = '{"text":"SELECT count(*) FROM singer"}'


class Player(asyncio.Protocol):
    """Sends each request as soon as the one before is answered: `first`, then resets with `STEPS` steps after each."""

    STEPS = 1000

    def __init__(self, first: bytes, reset: bytes, step: bytes, size_of: Callable[[bytes], int | None]) -> None:
        self._requests = itertools.chain([first], itertools.cycle([reset, *[step] * self.STEPS]))
        self._size_of = size_of
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = self._size_of(self._received)
        if size is None or len(self._received) < size or self._transport is None:
            return
        self._received = self._received[size:]
        self.answers += 1
        self._transport.write(next(self._requests))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def http_size(received: bytes) -> int | None:
    """The size of the HTTP answer at the start of what was received; None while that is unknown."""
    head, separator, _ = received.partition(b"\r\n\r\n")
    if not separator:
        return None
    length = next((line[16:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), b"0")
    return len(head) + 4 + int(length)


def frame_size(received: bytes) -> int | None:
    """The size of the server's answer: its handshake, or a WebSocket frame."""
    if received.startswith(b"HTTP"):
        return http_size(received)
    if len(received) < 4:
        return None
    short = received[1]
    return 2 + short if short < 126 else 4 + int.from_bytes(received[2:4])


def masked(text: str) -> bytes:
    """A client's text frame; its mask is zero, which leaves the payload as it is."""
    payload = text.encode()
    size = len(payload)
    head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0xFE, size)
    return head + bytes(4) + payload


def websocket_player(_: int) -> Player:
    handshake = (
        b"GET /echo/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    step = masked(f'{{"type":"step","data":{TEXT}}}')
    return Player(handshake, masked('{"type":"reset"}'), step, frame_size)


def rest_player(number: int) -> Player:
    def post(path: str, body: str) -> bytes:
        head = f"POST /echo/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    reset = post("reset", f'{{"episode_id":"e{number}"}}')
    return Player(reset, reset, post("step", f'{{"episode_id":"e{number}","action":{TEXT}}}'), http_size)


LEAST_STEPS = 500
"""For a machine that is too busy to take as many in time."""


@dataclass(frozen=True)
class Run:
    steps_per_s: float
    cpu_us: float
    """Server CPU time per step."""


async def measure(peer: Peer, player: Callable[[int], Player], sessions: int, seconds: float) -> Run:
    loop = asyncio.get_running_loop()
    players = [player(number) for number in range(sessions)]
    for one in players:
        await loop.create_connection(lambda one=one: one, "127.0.0.1", peer.port)  # type: ignore[misc]
    await asyncio.sleep(0.2)
    before, cpu, begun = sum(one.answers for one in players), peer.cpu_s(), perf_counter()
    await asyncio.sleep(seconds)
    while (steps := sum(one.answers for one in players) - before) < LEAST_STEPS:  # noqa: ASYNC110
        await asyncio.sleep(seconds)
    cpu, took = peer.cpu_s() - cpu, perf_counter() - begun
    for one in players:
        one.close()
    await asyncio.sleep(0.1)
    return Run(steps / took, cpu / steps * 1e6)


# ---- the table ------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind; the least CPU time counts")
    arguments = parser.parse_args()
    table = Table("wire", "sessions", "server", "steps/s", "CPU µs/step", "CPU / echo")
    with started(serve_service) as service, started(serve_echo) as echo:
        for wire, player in (("WebSocket", websocket_player), ("REST", rest_player)):
            for sessions in (1, 64):
                runs: dict[str, list[Run]] = {"RolloutGym": [], "Starlette echo": []}
                for _ in range(arguments.repeats):
                    for name, peer in (("RolloutGym", service), ("Starlette echo", echo)):
                        runs[name].append(uvloop.run(measure(peer, player, sessions, arguments.seconds)))
                least = {name: min(run.cpu_us for run in of) for name, of in runs.items()}
                for name, of in runs.items():
                    best = max(run.steps_per_s for run in of)
                    ratio = least[name] / least["Starlette echo"]
                    table.add_row(wire, str(sessions), name, f"{best:,.0f}", f"{least[name]:.1f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
