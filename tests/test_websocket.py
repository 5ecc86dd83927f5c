"""Episodes over WebSocket: OpenEnv's frames, and what happens when connections come and go."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


class Socket:
    """A connection on which each message has one answer."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def ask(self, message: Any) -> Any:
        self.connection.send(message if isinstance(message, str | bytes) else json.dumps(message))
        return json.loads(self.connection.recv(timeout=60))

    def reset(self, **data: Any) -> Any:
        answer = self.ask({"type": "reset", "data": data})
        assert answer["type"] == "observation", answer
        return answer["data"]

    def step(self, *, step: int | None = None, **data: Any) -> Any:
        return self.ask({"type": "step", "data": data} | ({} if step is None else {"step": step}))

    def error(self, message: Any) -> Any:
        answer = self.ask(message)
        assert answer["type"] == "error", answer
        return answer["data"]

    def closed_with(self) -> int:
        with pytest.raises(ConnectionClosed):
            self.connection.recv(timeout=60)
        assert self.connection.close_code is not None
        return self.connection.close_code


@contextmanager
def websocket(url: str, query: str = "", **options: Any) -> Iterator[Socket]:
    address = f"{url.replace('http', 'ws', 1)}/noop/ws{query}"
    with connect(address, proxy=None, max_size=None, **options) as connection:
        yield Socket(connection)


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    pytest.fail("it did not come true")


# ---- the frames ----


def test_every_frame_has_openenvs_form(shared_noop: tuple[Any, str]) -> None:
    with websocket(shared_noop[1]) as socket:
        begun = socket.ask({"type": "reset", "data": {"seed": 7, "episode_id": "ep", "split": "train", "index": 1}})
        assert set(begun) == {"type", "data"}
        assert begun["type"] == "observation"
        assert (
            begun["data"].items() >= {"reward": None, "done": False, "episode_id": "ep", "task_id": "train-1"}.items()
        )
        step = socket.ask({"type": "step", "data": {"add": 0.5}})
        assert step["data"].items() >= {"reward": 0.5, "done": False, "truncated": False, "step_count": 1}.items()
        assert step["data"]["observation"]["echoed"] == ""
        state = socket.ask({"type": "state"})
        assert state["type"] == "state"
        assert state["data"].items() >= {"episode_id": "ep", "step_count": 1, "total": 0.5}.items()
        truncated = socket.ask({"type": "truncate", "data": {"reason": "max_tokens"}})
        assert truncated["data"].items() >= {"done": True, "truncated": True}.items()
        socket.connection.send('{"type":"close"}')
        assert socket.closed_with() == 1000


@pytest.mark.parametrize(
    ("message", "code", "ours"),
    [
        ("{bad", "INVALID_JSON", "invalid_json"),
        ("", "INVALID_JSON", "invalid_json"),
        (b"\xff\xfe", "INVALID_JSON", "invalid_json"),
        ('{"type":"step","data":{"text":"\\ud800"}}', "INVALID_JSON", "invalid_json"),
        ({"type": "ping"}, "UNKNOWN_TYPE", "unknown_message"),
        ({"type": "x" * 100_000}, "UNKNOWN_TYPE", "unknown_message"),
        ({}, "UNKNOWN_TYPE", "unknown_message"),
        ("[1]", "VALIDATION_ERROR", "invalid_request"),
        ("null", "VALIDATION_ERROR", "invalid_request"),
        ({"type": "state", "data": {}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "step"}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "step", "data": {}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "step", "data": {"nope": 1}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "step", "data": {"add": 1}, "step": -1}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "step", "data": {"add": 1}, "timeout_s": 0}, "VALIDATION_ERROR", "invalid_request"),
        ('{"type":"step","data":{"add":NaN}}', "VALIDATION_ERROR", "invalid_request"),
        ('{"type":"step","data":{"add":1},"timeout_s":Infinity}', "VALIDATION_ERROR", "invalid_request"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "reset", "data": {"sede": 1}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "reset", "data": {"seed": "abc"}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "reset", "data": {"options": {"bugdet": 1}}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "reset", "data": {"task_id": "none"}}, "EXECUTION_ERROR", "task_not_found"),
        ({"type": "truncate", "data": {"reason": "answered"}}, "VALIDATION_ERROR", "invalid_request"),
        ({"type": "step", "data": {"add": 1}, "step": 5}, "EXECUTION_ERROR", "step_conflict"),
        ({"type": "step", "data": {"fault": "x"}}, "EXECUTION_ERROR", "internal"),
        ({"type": "reset", "data": {"options": {"reset_fault": "x"}}}, "FACTORY_ERROR", "internal"),
        ({"type": "mcp"}, "VALIDATION_ERROR", "invalid_request"),
    ],
)
def test_a_bad_message_is_answered_and_harms_nothing(
    shared_noop: tuple[Any, str], message: Any, code: str, ours: str
) -> None:
    environment, url = shared_noop
    environment.faults["x"] = lambda: 1 / 0
    with websocket(url) as socket:
        socket.reset()
        socket.step(add=1)
        error = socket.error(message)
        assert (error["code"], error["error"]["code"]) == (code, ours)
        assert error["message"] == error["error"]["message"]
        assert len(error["message"]) < 3000
        assert "Traceback" not in error["message"]
        assert ".py" not in error["message"]
        assert socket.step(add=1)["data"]["observation"]["total"] == 2


def test_a_misfit_names_its_places(shared_noop: tuple[Any, str]) -> None:
    with websocket(shared_noop[1]) as socket:
        socket.reset()
        error = socket.error({"type": "step", "data": {"add": "much", "nope": 1}})
        assert [problem["loc"][-1] for problem in error["errors"]] == ["add", "nope"]
        assert all(set(problem) == {"type", "loc", "msg"} for problem in error["errors"])


def test_nothing_is_rewarded_before_a_reset(shared_noop: tuple[Any, str]) -> None:
    with websocket(shared_noop[1]) as socket:
        for message in (
            {"type": "step", "data": {"add": 1}},
            {"type": "state"},
            {"type": "truncate", "data": {"reason": "max_turns"}},
        ):
            error = socket.error(message)
            assert (error["code"], error["error"]["code"]) == ("EXECUTION_ERROR", "episode_not_reset")
        assert socket.reset()["step_count"] == 0


def test_a_binary_frame_is_read_like_a_text(shared_noop: tuple[Any, str]) -> None:
    with websocket(shared_noop[1]) as socket:
        assert socket.ask(b'{"type":"reset"}')["type"] == "observation"


def test_at_capacity_the_connection_stays_and_can_try_again(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop}, capacity=1)
    with websocket(url) as first, websocket(url) as second:
        first.reset()
        error = second.error({"type": "reset"})
        assert error["code"] == "CAPACITY_REACHED"
        assert (error["active_sessions"], error["max_sessions"], error["error"]["retryable"]) == (1, 1, True)
        first.reset()
        first.step(finish=True)
        second.reset()


def test_one_connection_plays_one_episode_at_a_time(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop}, capacity=1)
    with websocket(url) as socket:
        for n in range(3):
            socket.reset(episode_id=f"e{n}")
            socket.step(add=n)
        assert httpx2.get(f"{url}/noop/state?episode_id=e2").json()["total"] == 2
        assert httpx2.get(f"{url}/noop/state?episode_id=e1").status_code == 404
        assert noop.open == 1


# ---- connections that come and go ----


def test_a_dropped_connection_is_resumed(shared_noop: tuple[Any, str]) -> None:
    url = shared_noop[1]
    with websocket(url) as socket:
        socket.reset(episode_id="dropped")
        answer = socket.step(step=0, add=1)
        socket.connection.socket.close()
    with websocket(url, "?episode_id=dropped") as socket:
        assert socket.step(step=0, add=1) == answer
        assert socket.step(step=1, add=1)["data"]["observation"]["total"] == 2
        socket.connection.send('{"type":"close"}')
        assert socket.closed_with() == 1000
    assert httpx2.get(f"{url}/noop/state?episode_id=dropped").status_code == 404


@pytest.mark.parametrize("query", ["?episode_id=nobody", "?session_id=nobody"])
def test_an_unknown_episode_cannot_be_resumed(shared_noop: tuple[Any, str], query: str) -> None:
    with websocket(shared_noop[1], query) as socket:
        error = json.loads(socket.connection.recv(timeout=60))["data"]
        assert (error["code"], error["error"]["code"]) == ("SESSION_ERROR", "episode_not_found")
        assert socket.closed_with() == 1000


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/noop/ws?episode_id=../x", 422, "invalid_request"),
        ("/noop/ws?session_id=" + "x" * 300, 422, "invalid_request"),
        ("/noop/mcp?episode_id=%0a", 422, "invalid_request"),
        ("/noop/nowhere", 404, "not_found"),
        ("/nowhere/ws", 404, "not_found"),
    ],
)
def test_a_handshake_is_refused_in_the_services_own_words(
    shared_noop: tuple[Any, str], path: str, status: int, code: str
) -> None:
    address = shared_noop[1].replace("http", "ws", 1) + path
    with pytest.raises(InvalidStatus) as refused, connect(address, proxy=None):
        pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == code


def test_an_episode_of_rest_can_be_played_on_by_websocket_and_back(shared_noop: tuple[Any, str]) -> None:
    url = shared_noop[1]
    httpx2.post(f"{url}/noop/reset", json={"episode_id": "both"})
    body = {"episode_id": "both", "action": {"add": 1}}
    with websocket(url, "?episode_id=both") as socket:
        assert socket.step(add=1)["data"]["observation"]["total"] == 1
        assert httpx2.post(f"{url}/noop/step", json=body).json()["observation"]["total"] == 2
        assert socket.step(add=1)["data"]["observation"]["total"] == 3
    assert httpx2.post(f"{url}/noop/step", json=body).json()["observation"]["total"] == 4


def test_the_episode_of_a_lost_connection_goes_after_its_grace(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop}, grace_s=0.1, idle_timeout_s=2.0)
    with websocket(url) as socket:
        socket.reset(episode_id="lost")
    wait_until(lambda: noop.open == 0)
    assert httpx2.get(f"{url}/noop/state?episode_id=lost").status_code == 404


def test_within_its_grace_an_episode_waits(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop}, grace_s=30.0, idle_timeout_s=0.1)
    with websocket(url) as socket:
        socket.reset(episode_id="waits")
    time.sleep(0.3)
    with websocket(url, "?episode_id=waits") as socket:
        assert socket.step(add=1)["data"]["step_count"] == 1


def test_a_live_connection_is_never_reaped(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop}, idle_timeout_s=0.05, grace_s=0.01)
    with websocket(url) as socket:
        socket.reset(episode_id="live")
        httpx2.post(f"{url}/noop/reset", json={"episode_id": "idle"})
        wait_until(lambda: noop.open == 1)
        time.sleep(0.3)
        assert socket.step(add=1)["data"]["reward"] == 1


CLIENT = """
import json, sys
from websockets.sync.client import connect
socket = connect(sys.argv[1], proxy=None)
socket.send(json.dumps({"type": "reset", "data": {"episode_id": "killed"}}))
socket.recv()
socket.send(json.dumps({"type": "step", "data": {"wait": "gate"}}))
print("playing", flush=True)
socket.recv()
"""


def test_a_killed_client_leaves_nothing_behind(
    start_service: Callable[..., str], noop: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    url = start_service({"noop": noop}, grace_s=0.1)
    noop.gates["gate"] = asyncio.Event()
    command = [sys.executable, "-c", CLIENT, f"{url.replace('http', 'ws', 1)}/noop/ws"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        wait_until(lambda: noop.waiting == ["gate"])
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
    # The step that it had asked for runs to its end; then the grace time begins.
    noop.loop.call_soon_threadsafe(noop.gates["gate"].set)
    wait_until(lambda: noop.open == 0)
    assert httpx2.get(f"{url}/noop/state?episode_id=killed").status_code == 404
    metrics = httpx2.get(f"{url}/metrics").text
    assert 'rolloutgym_live_episodes{environment="noop"} 0.0' in metrics
    assert "rolloutgym_websockets 0.0" in metrics
    assert "Traceback" not in capfd.readouterr().err


def test_steps_are_not_acted_on_twice_when_the_answer_was_lost(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop})
    noop.gates["gate"] = asyncio.Event()
    with websocket(url) as socket:
        socket.reset(episode_id="e")
        socket.connection.send(json.dumps({"type": "step", "step": 0, "data": {"add": 1, "wait": "gate"}}))
        wait_until(lambda: noop.waiting == ["gate"])
        socket.connection.socket.close()
    with websocket(url, "?episode_id=e") as socket:
        noop.loop.call_soon_threadsafe(noop.gates["gate"].set)
        again = socket.step(step=0, add=1, wait="gate")
        assert (again["data"]["step_count"], again["data"]["observation"]["total"]) == (1, 1)
    assert noop.steps == 1


def test_a_message_over_the_limit_closes_the_connection_and_the_episode_can_be_resumed(
    start_service: Callable[..., str], noop: Any
) -> None:
    url = start_service({"noop": noop}, max_body_bytes=10_000)
    with websocket(url) as socket:
        socket.reset(episode_id="big")
        socket.connection.send(json.dumps({"type": "step", "data": {"text": "x" * 20_000}}))
        assert socket.closed_with() == 1009
    with websocket(url, "?episode_id=big") as socket:
        assert socket.step(add=1)["data"]["step_count"] == 1


def test_a_million_characters_and_nul_bytes_go_through(shared_noop: tuple[Any, str]) -> None:
    with websocket(shared_noop[1]) as socket:
        socket.reset()
        for text in ("x" * 1_000_000, "é🐍\u2028" * 100_000, "a\x00b", "\x00" * 1000):
            assert socket.step(text=text)["data"]["observation"]["echoed"] == text
