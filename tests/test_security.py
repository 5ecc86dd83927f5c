"""Who may call: the API key, and the origins of browser pages."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rolloutgym.server.app import create_app
from rolloutgym.server.routes.security import is_private_name
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
    for path in ("/health", "/ready", "/noop/health", "/noop/ready", "/web/", "/", "/web"):
        assert locked.get(path, headers=headers).status_code == 200
        assert locked.head(path, headers=headers).status_code == 200


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


@pytest.mark.parametrize(
    ("origin", "allowed", "allowed_with_key"),
    [
        ("https://gym.example", True, True),
        ("http://gym.example", False, True),
        ("http://gym.example:8000", False, True),
        ("http://gpu-7:8000", True, True),
        ("http://gym.rl.svc.cluster.local:8000", True, True),
        ("http://10.0.0.7:8000", True, True),
        ("http://[fd00::7]:8000", True, True),
    ],
)
@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
def test_the_services_own_name_is_its_origin_unless_it_may_be_a_strangers(
    noop: Any, listening: str, origin: str, allowed: bool, allowed_with_key: bool
) -> None:
    headers = {"host": origin.partition("//")[2], "origin": origin}
    for key, expected in ((None, allowed), ("key", allowed_with_key)):
        with client(noop, host=listening, api_key=key) as http:
            response = http.post("/noop/reset", headers=headers | {"authorization": "Bearer key"})
            assert response.status_code == (200 if expected else 403)
            foreign = headers | {"authorization": "Bearer key", "origin": "https://evil.example"}
            assert http.post("/noop/reset", headers=foreign).status_code == 403


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
        # A page's MCP client has to read its session's name.
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
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
    for path in ("/noop/nowhere", "/nowhere/ws"):
        # Who has no key is not told either what there is.
        with pytest.raises(InvalidStatus) as refused, connect(url.replace("http", "ws", 1) + path, proxy=None):
            pass
        assert refused.value.response.status_code == 401
    with connect(address, proxy=None, additional_headers=good | {"Origin": url}) as socket:
        socket.send('{"type":"reset"}')
        assert '"observation"' in str(socket.recv())
    metrics = httpx2.get(f"{url}/metrics", headers={b"authorization": f"Bearer {KEY}".encode()}).text
    assert 'rolloutgym_errors_total{code="unauthorized"} 4.0' in metrics
    assert 'rolloutgym_errors_total{code="forbidden_origin"} 1.0' in metrics


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.0.0.1", True), ("8.8.8.8", True), ("gpu-7", True),
        ("a.localhost", True), ("printer.local", True), ("gym.internal", True), ("localhost.evil.example", False),
        ("evil.example", False), ("127.0.0.1.evil.example", False), ("notlocal.org", False), ("", False),
    ],
)  # fmt: skip
def test_private_names(host: str, private: bool) -> None:
    assert is_private_name(host) is private
