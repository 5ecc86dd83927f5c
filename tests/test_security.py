"""Who may call: the API key, and the origins of browser pages."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rolloutgym.server.app import create_app
from rolloutgym.server.routes.security import is_local_name
from rolloutgym.server.settings import Settings

KEY = "s3cret-ключ"


def client(noop: Any, base_url: str = "http://127.0.0.1:8000", **fields: Any) -> TestClient:
    return TestClient(create_app(Settings(**fields), {"noop": noop}), base_url=base_url)


@pytest.fixture
def locked(noop: Any) -> Iterator[TestClient]:
    with client(noop, api_key="key") as http:
        yield http


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Bearer keyy", "Basic key", "key"])
def test_without_the_key_only_signs_of_life_answer(locked: TestClient, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for method, path in (
        ("POST", "/noop/reset"), ("GET", "/metrics"), ("GET", "/list_environments"), ("GET", "/openapi.json"),
        ("GET", "/noop/metadata"), ("DELETE", "/noop/episodes/x"), ("POST", "/mcp"), ("GET", "/nowhere"),
    ):  # fmt: skip
        response = locked.request(method, path, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
    for path in ("/health", "/ready", "/noop/health", "/noop/ready", "/web/"):
        assert locked.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize("header", ["Bearer key", "bearer key", "Bearer  key"])
def test_with_the_key_everything_answers(locked: TestClient, header: str) -> None:
    assert locked.post("/noop/reset", headers={"authorization": header}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "127.0.0.1:8000", True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://lab.example", "127.0.0.1:8000", True),
        ("http://127.0.0.1:8001", "127.0.0.1:8000", False),
        ("http://localhost:8000", "127.0.0.1:8000", False),
        ("https://evil.example", "127.0.0.1:8000", False),
        ("http://lab.example", "127.0.0.1:8000", False),
        ("https://lab.example.evil.example", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False),
        ("", "127.0.0.1:8000", False),
        ("http://[", "[", False),
        ("http://evil.example:8000", "evil.example:8000", False),
    ],
)
def test_pages_of_other_origins_may_not_call(noop: Any, origin: str | None, host: str, allowed: bool) -> None:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    with client(noop, allowed_origins="https://lab.example") as http:
        response = http.post("/noop/reset", headers=headers)
        if allowed:
            assert response.status_code == 200
        else:
            assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden_origin")
            assert "access-control-allow-origin" not in response.headers


def test_off_loopback_the_services_own_name_is_its_origin(noop: Any) -> None:
    with client(noop, host="0.0.0.0") as http:
        headers = {"host": "gym.example", "origin": "https://gym.example"}
        assert http.post("/noop/reset", headers=headers).status_code == 200
        assert http.post("/noop/reset", headers=headers | {"origin": "https://evil.example"}).status_code == 403


def test_an_allowed_page_may_read_the_answers(noop: Any) -> None:
    with client(noop, allowed_origins="https://lab.example", api_key="key") as http:
        origin = {"origin": "https://lab.example"}
        asking = origin | {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        preflight = http.options("/noop/step", headers=asking)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://lab.example"
        answer = http.post("/noop/reset", headers=origin | {"authorization": "Bearer key"})
        assert answer.headers["access-control-allow-origin"] == "https://lab.example"
        foreign = http.options("/noop/step", headers=asking | {"origin": "https://evil.example"})
        assert foreign.status_code in (400, 403)


def test_websockets_ask_for_key_and_origin_too(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop}, api_key=KEY)
    address = f"{url.replace('http', 'ws', 1)}/noop/ws"
    good = {"Authorization": f"Bearer {KEY}".encode().decode("latin-1")}
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        (good | {"Origin": "https://evil.example"}, 403),
    ):
        with pytest.raises(InvalidStatus) as refused, connect(address, proxy=None, additional_headers=headers):
            pass
        assert refused.value.response.status_code == status
        assert b'"error"' in refused.value.response.body
    with connect(address, proxy=None, additional_headers=good | {"Origin": url}) as socket:
        socket.send('{"type":"reset"}')
        assert '"observation"' in str(socket.recv())
    metrics = httpx2.get(f"{url}/metrics", headers={b"authorization": f"Bearer {KEY}".encode()}).text
    assert 'rolloutgym_errors_total{code="unauthorized"} 2.0' in metrics
    assert 'rolloutgym_errors_total{code="forbidden_origin"} 1.0' in metrics


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True),
        ("0.0.0.0", False), ("10.0.0.1", False), ("localhost.evil.example", False), ("", False),
    ],
)  # fmt: skip
def test_local_names(host: str, local: bool) -> None:
    assert is_local_name(host) is local
