"""Clients that are copied, inherited by forked processes, or used in one event loop after another, as trainers do."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from rolloutgym.client import AsyncClient, Client

TRANSPORTS = ("rest", "websocket")


class WhoAsks(BaseHTTPRequestHandler):
    """Answers with the port that the request came from, so that connections can be told apart."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = b'{"port":%d}' % self.client_address[1]
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def who_asks() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), WhoAsks)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def run(script: str, *arguments: str) -> list[str]:
    """What a process of its own prints, by words: forking this one, with its threads, would not be safe."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


FORKED_REST = """
import asyncio, os, sys
from rolloutgym.client import AsyncClient, Client

client, async_client = Client(sys.argv[1]), AsyncClient(sys.argv[1])
ask = (client.health, lambda: asyncio.run(async_client.health()))[sys.argv[2] == "async"]
print(ask()["port"], flush=True)
if os.fork() == 0:
    print(ask()["port"], flush=True)
    os._exit(0)
os.wait()
print(ask()["port"], flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_process_makes_connections_of_its_own(who_asks: str) -> None:
    before, child, after = run(FORKED_REST, who_asks, "sync")
    assert before == after != child
    before, child, _ = run(FORKED_REST, who_asks, "async")
    assert before != child


FORKED_WEBSOCKET = """
import os, sys, httpx2
from rolloutgym.client import Client

client = Client(sys.argv[1], "websocket")
episode = client.environment("noop").reset()
reading, writing = os.pipe()
if os.fork() == 0:
    result = episode.step({"add": 2})
    (open_now,) = (line for line in httpx2.get(sys.argv[1] + "/metrics", timeout=60).text.splitlines()
                   if line.startswith("rolloutgym_websockets "))
    print(result.reward, open_now.split()[1], flush=True)
    os._exit(0)
os.wait()
# The same step again: its answer, on a connection that nobody has spoiled.
print(episode.step({"add": 2}).step_count, client.environment("noop").reset().step({"add": 3}).reward, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_process_goes_on_with_an_episode_on_a_connection_of_its_own(shared_noop: tuple[Any, str]) -> None:
    assert run(FORKED_WEBSOCKET, shared_noop[1]) == ["2.0", "2.0", "1", "3.0"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_client_travels_to_other_processes(transport: Any, shared_noop: tuple[Any, str]) -> None:
    with Client(shared_noop[1], transport, api_key="key", retries=1) as client:
        written = pickle.dumps(client)
        episode_id = client.environment("noop").reset().id
        with pickle.loads(written) as copy:
            assert copy.environment("noop").resume(episode_id).step({"add": 1}).reward == 1
            assert pickle.dumps(copy) == written

    async def play() -> Any:
        async with pickle.loads(pickle.dumps(AsyncClient(shared_noop[1], transport))) as copy:
            episode = await copy.environment("noop").resume(episode_id)
            return (await episode.step({"add": 2})).reward

    assert asyncio.run(play()) == 2


LOOPS = """
import asyncio, sys
from rolloutgym.client import AsyncClient

client = AsyncClient(sys.argv[1], sys.argv[2])
episode = asyncio.run(client.environment("noop").reset())
for add in (1, 2):
    print(asyncio.run(episode.step({"add": add})).observation.total)
asyncio.run(episode.close())
asyncio.run(client.close())
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_asynchronous_client_goes_on_in_another_event_loop(transport: str, shared_noop: tuple[Any, str]) -> None:
    assert run(LOOPS, shared_noop[1], transport) == ["1.0", "3.0"]


ASTRAY: list[dict[str, Any]] = [{"episode_id": "another"}, {"step_count": 7}]


@pytest.mark.parametrize("wrong", ASTRAY)
def test_the_answer_of_another_step_is_no_reward(wrong: dict[str, Any]) -> None:
    asked = 0

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal asked
        asked += 1
        right = {"observation": {}, "reward": 1.0, "done": False, "episode_id": "e", "step_count": int(asked > 1)}
        return httpx2.Response(200, json=right | (wrong if asked == 2 else {}))

    with Client(http_transport=httpx2.MockTransport(answer), retries=1) as client:
        episode = client.sql.reset(episode_id="e")
        assert episode.step("ANSWER: 1").step_count == 1
    assert asked == 3
