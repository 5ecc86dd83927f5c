"""Whatever a generator of requests makes of the service's own documents, and of its frames, it never fails."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from starlette.testclient import TestClient

from rolloutgym.models import ErrorBody
from rolloutgym.server.app import create_app
from rolloutgym.server.settings import Settings

QUICK = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def app(make_noop: Callable[[], Any]) -> Any:
    # Room for as many resets as the generator likes.
    return create_app(Settings(capacity=100_000), {"noop": make_noop()})


def test_no_request_makes_the_service_fail(app: Any) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) >= 17
    for operation in operations:
        fuzz(operation)


def fuzz(operation: Any) -> None:
    @QUICK
    @given(operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE))
    def try_out(case: Any) -> None:
        response = case.call()
        assert response.status_code < 500, case.as_curl_command()
        if response.status_code >= 400:
            ErrorBody.model_validate_json(response.content)

    try_out()


@pytest.fixture(scope="module")
def client(app: Any) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


WORDS = st.sampled_from(["type", "data", "reset", "step", "state", "truncate", "mcp", "close", "add", "text", "reason"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"type": WORDS}, optional={"data": VALUES, "step": VALUES, "timeout_s": VALUES}).map(
        json.dumps
    ),
    VALUES.map(json.dumps),
    st.text(max_size=50),
    st.binary(max_size=50),
)


@given(MESSAGES)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_message_harms_an_episode(client: TestClient, message: str | bytes) -> None:
    if '"close"' in str(message):
        return
    with client.websocket_connect("/noop/ws") as socket:
        socket.send_text('{"type":"reset","data":{"episode_id":"e"}}')
        assert socket.receive_json()["type"] == "observation"
        if isinstance(message, str):
            try:
                message.encode()
            except UnicodeEncodeError:
                return
            socket.send_text(message)
        else:
            socket.send_bytes(message)
        answer = socket.receive_json()
        assert set(answer) == {"type", "data"}
        assert answer["type"] in {"observation", "state", "error", "mcp"}
        if answer["type"] == "error":
            assert answer["data"]["error"]["code"] != "internal"
        socket.send_text('{"type":"state"}')
        state = socket.receive_json()
        assert state["type"] == "state", state
