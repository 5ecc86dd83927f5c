"""Bad input over REST, in process and over a socket: the right status, one error form, and no harm to the episode."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from rolloutgym.models import ErrorBody, ToolCall
from rolloutgym.server.app import create_app
from rolloutgym.server.settings import Settings


@pytest.fixture(scope="module", params=["in process", "over a socket"])
def played(request: pytest.FixtureRequest, shared_noop: tuple[Any, str]) -> Iterator[tuple[Any, httpx2.Client]]:
    """An environment, and a client of the service that serves it."""
    if request.param == "in process":
        environment = type(shared_noop[0])()
        app = create_app(Settings(), {"noop": environment})
        with TestClient(app, raise_server_exceptions=False) as client:
            yield environment, client
    else:
        with httpx2.Client(base_url=shared_noop[1], timeout=60) as client:
            yield shared_noop[0], client


@pytest.fixture
def noop(played: tuple[Any, httpx2.Client]) -> Any:
    return played[0]


@pytest.fixture
def http(played: tuple[Any, httpx2.Client]) -> httpx2.Client:
    return played[1]


def post(http: httpx2.Client, path: str, content: bytes | str) -> httpx2.Response:
    return http.post(path, content=content, headers={"content-type": "application/json"})


def begin(http: httpx2.Client, episode_id: str = "e") -> None:
    http.post("/noop/reset", json={"episode_id": episode_id, "seed": 1}).raise_for_status()
    http.post("/noop/step", json={"episode_id": episode_id, "action": {"add": 1}}).raise_for_status()


def stumble() -> Any:
    raise KeyError("/home/secret")


def check_error(response: httpx2.Response, status: int, code: str) -> Any:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = ErrorBody.model_validate_json(response.content).error
    assert error.code == code
    assert len(response.content) < 4000
    for leak in ("Traceback", ".py", "/home", "site-packages", "rolloutgym.server"):
        assert leak not in response.text
    return error


def action(text: str) -> str:
    return f'{{"episode_id":"e","action":{text}}}'


BODIES = {
    "malformed": ("{bad", "invalid_json"),
    "empty": ("", "invalid_json"),
    "cut off": ('{"episode_id":"e","action":{"add":1', "invalid_json"),
    "trailing": (action('{"add":1}') + "x", "invalid_json"),
    "lone surrogate": (action('{"text":"\\ud800"}'), "invalid_json"),
    "lone surrogate in a name": (action('{"\\udfff":1}'), "invalid_json"),
    "bytes that are no UTF-8": (b'{"episode_id":"e","action":{"text":"\xff"}}', "invalid_json"),
    "deep nesting": ('{"episode_id":' + "[" * 100_000 + "]" * 100_000 + "}", "invalid_json"),
    "a list": ("[]", "invalid_request"),
    "null": ("null", "invalid_request"),
    "a number": ("7", "invalid_request"),
    "no action": ('{"episode_id":"e"}', "invalid_request"),
    "empty action": (action("{}"), "invalid_request"),
    "action of a wrong type": (action('"add"'), "invalid_request"),
    "unknown field": ('{"episode_id":"e","action":{"add":1},"stpe":1}', "invalid_request"),
    "unknown field in the action": (action('{"sub":1}'), "invalid_request"),
    "field of a wrong type": (action('{"add":"much"}'), "invalid_request"),
    "both forms": (action('{"add":1,"text":"x"}'), "invalid_request"),
    "NaN": (action('{"add":NaN}'), "invalid_request"),
    "infinity": (action('{"add":Infinity}'), "invalid_request"),
    "a number too great": (action('{"add":1e999}'), "invalid_request"),
    "negative step": ('{"episode_id":"e","action":{"add":1},"step":-1}', "invalid_request"),
    "NaN as time": ('{"episode_id":"e","action":{"add":1},"timeout_s":NaN}', "invalid_request"),
    "no time": ('{"episode_id":"e","action":{"add":1},"timeout_s":0}', "invalid_request"),
    "episode id of a wrong form": ('{"episode_id":"../e","action":{"add":1}}', "invalid_request"),
    "episode id too long": (json.dumps({"episode_id": "e" * 300, "action": {"add": 1}}), "invalid_request"),
    "NUL in the episode id": ('{"episode_id":"e\\u0000","action":{"add":1}}', "invalid_request"),
    "a name of a million characters": (action(json.dumps({"x" * 1_000_000: 1})), "invalid_request"),
    "many unknown names": (action(json.dumps({f"x{n}": 1 for n in range(10_000)})), "invalid_request"),
}


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES.keys())
def test_a_bad_step_is_refused_and_harms_nothing(http: httpx2.Client, body: bytes | str, code: str) -> None:
    begin(http)
    check_error(post(http, "/noop/step", body), 422, code)
    answer = http.post("/noop/step", json={"episode_id": "e", "action": {"add": 1}, "step": 1}).json()
    assert (answer["step_count"], answer["observation"]["total"]) == (2, 2)


ANYWHERE = ("NaN", "-Infinity", "1e999", '{"a":[1,{"b":1e999}]}')


@pytest.mark.parametrize("number", ANYWHERE)
def test_a_number_that_json_cannot_write_is_refused_where_any_json_may_stand(http: httpx2.Client, number: str) -> None:
    """Recorded, it would have become null, and the episode another one when it was replayed."""
    begin(http)
    some = f'{{"x":{number}}}'
    for path, body in (
        ("/noop/reset", f'{{"options":{some}}}'),
        ("/noop/step", action(f'{{"add":1,"metadata":{some}}}')),
        ("/noop/create", f'{{"task_spec":{{"id":"test-1","options":{some}}}}}'),
        ("/noop/call", f'{{"name":"add","input":{some}}}'),
    ):
        headers = {"content-type": "application/json", "x-session-id": "e"}
        check_error(http.post(path, content=body, headers=headers), 422, "invalid_request")
    for call in (
        f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"add","arguments":{some}}}}}',
        f'{{"jsonrpc":"2.0","id":{number},"method":"ping"}}',
    ):
        answer = post(http, "/noop/mcp?episode_id=e", call)
        assert json.loads(answer.content, parse_constant=pytest.fail)["error"]["code"] < -32000
    with pytest.raises(ValidationError, match="finite"):
        ToolCall.model_validate_json(f'{{"function":{{"name":"f","arguments":{some}}}}}')
    assert http.get("/noop/state?episode_id=e").json()["step_count"] == 1


@pytest.mark.parametrize(
    "body",
    [
        '{"seed":-1}',
        '{"seed":9223372036854775808}',
        '{"seed":"abc"}',
        '{"seed":1.5}',
        '{"seed":NaN}',
        '{"sede":1}',
        '{"index":-1,"split":"train"}',
        '{"index":1}',
        '{"split":3}',
        '{"episode_id":""}',
        '{"options":[]}',
        '{"options":{"bugdet":3}}',
        '{"options":{"budget":"many"}}',
        '{"options":{"budget":NaN}}',
    ],
)
def test_a_bad_reset_is_refused_and_begins_nothing(http: httpx2.Client, noop: Any, body: str) -> None:
    before = noop.open
    check_error(post(http, "/noop/reset", body), 422, "invalid_request")
    assert noop.open == before


def test_what_is_not_there_is_not_found(http: httpx2.Client) -> None:
    begin(http)
    step = {"episode_id": "nobody", "action": {"add": 1}}
    assert check_error(http.post("/noop/step", json=step), 404, "episode_not_found").episode_id == "nobody"
    check_error(http.get("/noop/state?episode_id=nobody"), 404, "episode_not_found")
    truncate = {"episode_id": "nobody", "reason": "max_tokens"}
    check_error(http.post("/noop/truncate", json=truncate), 404, "episode_not_found")
    check_error(http.post("/noop/reset", json={"task_id": "none"}), 404, "task_not_found")
    check_error(http.post("/noop/reset", json={"split": "none"}), 404, "task_not_found")
    check_error(http.post("/noop/reset", json={"split": "train", "index": 99}), 404, "task_not_found")
    check_error(http.post("/noop/task", json={"split": "train", "index": 99}), 404, "task_not_found")
    for path in (
        "/nowhere",
        "/noop",
        "/noop/",
        "/noop/health/",
        "/noop/nowhere",
        "/noop/noop/nowhere",
        "/nowhere/splits",
        "/%00",
        "/noop/..%2f..%2fetc",
    ):
        check_error(http.get(path), 404, "not_found")


def test_a_method_that_a_route_does_not_take(http: httpx2.Client) -> None:
    for method, path in (("GET", "/noop/step"), ("PUT", "/noop/reset"), ("POST", "/health"), ("GET", "/noop/mcp")):
        response = http.request(method, path)
        check_error(response, 405, "method_not_allowed")
        assert response.headers["allow"]


@pytest.mark.parametrize("query", ["", "?episode_id=", "?episode_id=a/b", "?episode_id=" + "e" * 300])
def test_a_bad_query_is_refused(http: httpx2.Client, query: str) -> None:
    check_error(http.get(f"/noop/state{query}"), 422, "invalid_request")


def test_a_body_over_the_limit_is_refused_whether_or_not_its_length_is_told(http: httpx2.Client) -> None:
    begin(http)
    body = action(json.dumps({"text": "x" * 10_000_000}))
    for path in ("/noop/step", "/noop/reset", "/noop/num_tasks", "/noop/mcp"):
        check_error(post(http, path, body), 413, "payload_too_large")

    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100_000

    check_error(http.post("/noop/step", content=parts()), 413, "payload_too_large")
    assert http.get("/noop/state?episode_id=e").json()["step_count"] == 1


def test_a_body_that_is_announced_as_too_long_is_not_waited_for(shared_noop: tuple[Any, str]) -> None:
    port = int(shared_noop[1].rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"POST /noop/step HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n{")
        assert b" 413 " in connection.recv(4096)


def test_great_and_strange_texts_go_through(http: httpx2.Client) -> None:
    begin(http)
    for text in ("x" * 1_000_000, "a\x00b", "\x00" * 1000, "é🐍\u2028\u202e\ufffe", '"\\\n'):
        answer = http.post("/noop/step", json={"episode_id": "e", "action": {"text": text}}).json()
        assert answer["observation"]["echoed"] == text


def test_a_step_after_the_end_and_one_with_the_wrong_number(http: httpx2.Client) -> None:
    begin(http)
    step = {"episode_id": "e", "action": {"add": 1}, "step": 7}
    assert check_error(http.post("/noop/step", json=step), 409, "step_conflict").episode_id == "e"
    http.post("/noop/step", json={"episode_id": "e", "action": {"finish": True}}).raise_for_status()
    for number in (None, 2):
        check_error(http.post("/noop/step", json=step | {"step": number}), 409, "episode_done")


def test_a_defect_of_the_environment_says_nothing_of_itself(http: httpx2.Client, noop: Any) -> None:
    noop.faults["bug"] = stumble
    begin(http)
    error = check_error(http.post("/noop/step", json={"episode_id": "e", "action": {"fault": "bug"}}), 500, "internal")
    assert (error.boundary, error.retryable, error.episode_id) == ("service", False, "e")
    assert http.get("/noop/state?episode_id=e").json()["step_count"] == 1


def test_a_defect_of_the_service_says_nothing_of_itself(
    http: httpx2.Client, noop: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(type(noop.tasks), "splits", lambda _: stumble())
    for path in ("/noop/splits", "/splits"):
        caplog.clear()
        check_error(http.get(path), 500, "internal")
        for _ in range(6000):
            # It is recorded when the answer is on its way already.
            recorded = [record for record in caplog.records if record.levelname == "ERROR"]
            if recorded:
                break
            time.sleep(0.01)
        (record,) = recorded
        assert "KeyError" in record.getMessage()


def test_capacity_names_a_time_to_come_back(start_service: Callable[..., str], shared_noop: tuple[Any, str]) -> None:
    url = start_service({"noop": type(shared_noop[0])()}, capacity=1)
    with httpx2.Client(base_url=url) as http:
        begin(http)
        response = http.post("/noop/reset", json={"episode_id": "other"})
        assert check_error(response, 503, "capacity_reached").retryable
        assert int(response.headers["retry-after"]) >= 1
        http.delete("/noop/episodes/e")
        assert http.post("/noop/reset", json={"episode_id": "other"}).status_code == 200
