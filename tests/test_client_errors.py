"""Whatever answers, or does not: the client raises a typed error, retries what may succeed, and makes no reward."""

import asyncio
import inspect
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import stamina

import rolloutgym.server.errors as service_errors
from rolloutgym.client import AsyncClient, Client, ConnectionFailed, RolloutGymError
from rolloutgym.client import errors as client_errors
from rolloutgym.client.protocol import http_options, read_frame, state_call
from rolloutgym.client.retries import RetryPolicy
from rolloutgym.models import ErrorCode
from rolloutgym.server.serving import uvicorn_config
from rolloutgym.server.settings import Settings
from rolloutgym.training.service import RemoteEnvironment

Handler = Callable[[httpx2.Request], httpx2.Response]


@pytest.fixture(autouse=True)
def no_waits() -> Iterator[None]:
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


def fault(code: str, *, retryable: bool = False, boundary: str = "session") -> dict[str, Any]:
    return {"error": {"code": code, "boundary": boundary, "message": "why", "retryable": retryable, "episode_id": "e"}}


def first_observation(request: httpx2.Request) -> httpx2.Response:
    body = json.loads(request.content)
    answer = {"observation": {}, "reward": None, "done": False, "episode_id": body["episode_id"], "step_count": 0}
    return httpx2.Response(200, json=answer)


def sync_reset(handler: Handler, retries: int = 3) -> None:
    with Client(retries=retries, http_transport=httpx2.MockTransport(handler)) as client:
        client.sql.reset()


def async_reset(handler: Handler, retries: int = 3) -> None:
    async def reset() -> None:
        async with AsyncClient(retries=retries, http_transport=httpx2.MockTransport(handler)) as client:
            await client.sql.reset()

    asyncio.run(reset())


both = pytest.mark.parametrize("reset", [sync_reset, async_reset])


def test_every_code_has_one_type_named_as_in_the_service() -> None:
    theirs = {
        cls.__name__: cls.code
        for cls in vars(service_errors).values()
        if isinstance(cls, type)
        and issubclass(cls, service_errors.ServiceError)
        and cls is not service_errors.ServiceError
    }
    ours = {cls.__name__: cls.answers_to for cls in client_errors.FAULTS.values()}
    assert ours == theirs
    assert set(client_errors.FAULTS) == {code.value for code in ErrorCode}


@both
@pytest.mark.parametrize("code", list(ErrorCode))
def test_an_error_answer_is_raised_as_its_type(reset: Callable[..., None], code: ErrorCode) -> None:
    expected = client_errors.FAULTS[code]
    with pytest.raises(expected) as caught:
        reset(lambda request: httpx2.Response(409, json=fault(code)))
    error = caught.value
    assert (error.code, error.boundary, error.message, error.retryable, error.episode_id) == (
        code, "session", "why", False, "e",
    )  # fmt: skip


def test_a_code_of_a_newer_service_is_still_an_error() -> None:
    with pytest.raises(RolloutGymError) as caught:
        sync_reset(lambda request: httpx2.Response(418, json=fault("teapot_empty", boundary="kitchen")))
    assert (caught.value.code, caught.value.boundary) == ("teapot_empty", "kitchen")


@both
@pytest.mark.parametrize(
    ("status", "content", "retryable"),
    [
        (502, b"<html>Bad Gateway</html>", True),
        (504, b"", True),
        (429, b"slow down", True),
        (404, b"<html>nginx</html>", False),
        (301, b"", False),
        (500, b"Internal Server Error", True),
        (400, b'{"detail": "another service"}', False),
        (200, b"<html>hello</html>", False),
        (200, b'{"observation": {}, "reward": 0.5}', False),
        (200, b"", False),
        (200, b'{"observation": {}, "reward": NaN, "done": false, "episode_id": "e", "step_count": 0}', False),
    ],
)
def test_what_the_service_did_not_say_is_a_failed_connection(
    reset: Callable[..., None], status: int, content: bytes, retryable: bool
) -> None:
    calls: list[int] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        calls.append(1)
        return httpx2.Response(status, content=content)

    with pytest.raises(ConnectionFailed) as caught:
        reset(handler, retries=2)
    assert caught.value.retryable is retryable
    assert ("not by the service" in caught.value.message) is (status != 200)
    assert len(calls) == (3 if retryable else 1)


@both
@pytest.mark.parametrize(
    "kind", [httpx2.ConnectError, httpx2.ReadTimeout, httpx2.RemoteProtocolError, httpx2.PoolTimeout, httpx2.WriteError]
)
def test_transport_faults_are_failed_connections(reset: Callable[..., None], kind: type[httpx2.TransportError]) -> None:
    calls: list[int] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        calls.append(1)
        raise kind("broken", request=request)

    with pytest.raises(ConnectionFailed, match="broken"):
        reset(handler, retries=2)
    assert len(calls) == 3


@both
def test_a_repeated_reset_names_the_same_episode(reset: Callable[..., None]) -> None:
    """So that it restarts the one that an unheard first try may have begun."""
    names: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        names.append(json.loads(request.content)["episode_id"])
        if len(names) < 3:
            raise httpx2.ReadTimeout("no answer", request=request)
        return first_observation(request)

    reset(handler)
    assert len(names) == 3
    assert len(set(names)) == 1


@both
@pytest.mark.parametrize(("retryable", "tries"), [(True, 4), (False, 1)])
def test_errors_are_retried_as_the_service_says(reset: Callable[..., None], retryable: bool, tries: int) -> None:
    calls: list[int] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        calls.append(1)
        return httpx2.Response(503, json=fault("capacity_reached", retryable=retryable), headers={"retry-after": "2"})

    with pytest.raises(client_errors.CapacityReached) as caught:
        reset(handler)
    assert len(calls) == tries
    assert caught.value.retry_after_s == 2.0


def capacity(retry_after_s: float | None, *, retryable: bool = True) -> RolloutGymError:
    return client_errors.CapacityReached("capacity_reached", "session", "full", retryable, None, retry_after_s)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (capacity(None), True),
        (capacity(7.0), 7.0),
        (capacity(0.0), 0.0),
        (capacity(61.0), False),
        (capacity(7.0, retryable=False), False),
        (ConnectionFailed("gone"), True),
        (ConnectionFailed("strange", retryable=False), False),
        (ValueError("a defect"), False),
    ],
)
def test_the_wait_is_the_one_that_the_service_asks_for(error: Exception, expected: bool | float) -> None:
    answer = RetryPolicy(retries=3, longest_wait_s=60.0).backoff(error)
    assert (answer, type(answer)) == (expected, type(expected))


@pytest.mark.parametrize("text", ["Wed, 21 Oct 2026 07:28:00 GMT", "-3", "", "1e9", "\u0663"])
def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(text: str) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        headers = [(b"retry-after", text.encode())]
        return httpx2.Response(503, json=fault("capacity_reached"), headers=headers)

    with pytest.raises(client_errors.CapacityReached) as caught:
        sync_reset(handler)
    assert caught.value.retry_after_s is None


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"index": -1, "split": "train"}, "index"),
        ({"episode_id": "no spaces"}, "episode_id"),
        ({"episode_id": "x" * 256}, "episode_id"),
        ({"options": {"limit": float("nan")}}, "options"),
        ({"task_id": "\ud800"}, "JSON"),
    ],
)
def test_a_reset_that_cannot_be_is_refused_before_it_is_sent(arguments: dict[str, Any], hint: str) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise AssertionError("nothing may be sent")

    with (
        Client(http_transport=httpx2.MockTransport(handler)) as client,
        pytest.raises(client_errors.InvalidRequest, match=hint),
    ):
        client.sql.reset(**arguments)


@pytest.mark.parametrize("action", ["lone \ud800 surrogate", {"argument": float("nan")}, {"argument": object()}])
def test_an_action_that_is_not_json_is_refused_and_the_episode_lives_on(action: Any) -> None:
    with Client(http_transport=httpx2.MockTransport(first_observation)) as client:
        episode = client.sql.reset()
        with pytest.raises(client_errors.InvalidRequest):
            episode.step(action)
        assert episode.step_count == 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"type":"error","data":{"message":"m","code":"X","error":{"code":"episode_done","boundary":"session","message":"m"}}}',
         client_errors.EpisodeDone),
        ('{"type":"error","data":{"message":"m","code":"CAPACITY_REACHED"}}', ConnectionFailed),
        ("not json", ConnectionFailed),
        ("[1]", ConnectionFailed),
        ('{"type":"state","data":{"episode_id":"e"}}', ConnectionFailed),
    ],
)  # fmt: skip
def test_frames_that_are_no_answer(content: str, expected: type[RolloutGymError]) -> None:
    with pytest.raises(expected):
        read_frame(state_call("sql", "e"), content)


@pytest.mark.parametrize(
    "error",
    [
        client_errors.StepConflict("step_conflict", "session", "m", False, "e", None),
        ConnectionFailed("gone", retryable=False, episode_id="e", retry_after_s=3.0),
        RolloutGymError("new_code", "new_part", "m"),
    ],
)
def test_errors_travel_between_processes(error: RolloutGymError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


@pytest.mark.parametrize(
    "arguments",
    [
        {"base_url": "127.0.0.1:8000"},
        {"base_url": "ws://127.0.0.1:8000"},
        {"base_url": "http://"},
        {"transport": "carrier pigeon"},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"retries": -1},
        {"max_connections": 0},
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_that_cannot_work_is_not_made(
    kind: type[Client] | type[AsyncClient], arguments: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"address|transport|timeout_s|retries|max_connections"):
        kind(**arguments)


def test_a_client_is_more_patient_than_a_service_with_its_steps() -> None:
    """Else it would give up, and ask again, while the service is about to say why."""
    for kind in (Client, AsyncClient, RemoteEnvironment):
        patience = inspect.signature(kind).parameters["timeout_s"].default
        assert patience > Settings().step_timeout_s + 10


def test_a_client_lets_go_of_idle_connections_before_the_service_does() -> None:
    """A request that is sent while they are being closed would be lost."""
    options = http_options("http://127.0.0.1", api_key=None, timeout_s=1.0, max_connections=1)
    kept_s = options["limits"].keepalive_expiry
    assert kept_s is not None
    assert kept_s + 10 < uvicorn_config(None, Settings()).timeout_keep_alive  # type: ignore[arg-type]


def test_the_key_goes_with_every_request_and_into_no_error() -> None:
    seen: list[str | None] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers.get("authorization"))
        return httpx2.Response(500, content=b"oops")

    with (
        Client(api_key="secret", retries=0, http_transport=httpx2.MockTransport(handler)) as client,
        pytest.raises(ConnectionFailed) as caught,
    ):
        client.list_environments()
    assert seen == ["Bearer secret"]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("base_url", ["https://gym.example/some/prefix", "https://gym.example/some/prefix/"])
def test_a_service_may_live_under_a_prefix(base_url: str) -> None:
    seen: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return first_observation(request)

    with Client(base_url, http_transport=httpx2.MockTransport(handler)) as client:
        client.code.reset()
    assert seen == ["https://gym.example/some/prefix/code/reset"]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"status": "ready"}, True),
        (503, fault("shutting_down", retryable=True), False),
        (503, {"status": "not ready"}, False),
    ],
)
def test_ready_is_asked_once(status: int, body: dict[str, Any], expected: bool) -> None:
    calls: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        calls.append(request.url.path)
        return httpx2.Response(status, json=body)

    with Client(http_transport=httpx2.MockTransport(handler)) as client:
        assert client.ready() is expected
    assert calls == ["/ready"]


def test_nobody_at_the_address_is_not_merely_not_ready() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with Client(http_transport=httpx2.MockTransport(handler)) as client:
        for probe in (client.health, client.ready):
            with pytest.raises(ConnectionFailed):
                probe()
