"""Episodes over REST."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from rolloutgym.models import ResetRequest
from rolloutgym.server.app import create_app
from rolloutgym.server.settings import Settings


def test_an_episode_is_played_and_ended(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop})
    with httpx2.Client(base_url=url) as http:
        begun = http.post("/noop/reset", json={"seed": 7, "task_id": "train-2"}).json()
        assert begun["reward"] is None
        assert begun["task_id"] == "train-2"
        episode_id = begun["episode_id"]
        body = {"episode_id": episode_id, "action": {"add": 2.5}, "step": 0}
        first = http.post("/noop/step", json=body)
        assert first.json()["reward"] == 2.5
        assert http.post("/noop/step", json=body).content == first.content
        state = http.get("/noop/state", params={"episode_id": episode_id}).json()
        assert state["total"] == state["total_reward"] == 2.5
        assert http.delete(f"/noop/episodes/{episode_id}").json() == {"ended": True}
        assert http.delete(f"/noop/episodes/{episode_id}").json() == {"ended": False}
        assert noop.open == 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"episode_id":"e","action":{"add":1},"step":0}', 200),
        (b'{"episode_id":"e","action":{"add":1},"step":7}', 409),
        (b'{"episode_id":"nobody","action":{"add":1}}', 404),
        (b'{"episode_id":"e","action":{"odd":1}}', 422),
        (b'{"episode_id":"e"', 422),
        (b"", 422),
        (b" " * 10_000, 413),
    ],
)
async def test_the_short_way_to_a_step_is_no_other_than_the_long_one(noop: Any, body: bytes, status: int) -> None:
    """Answers, errors and counts are those of the route, which the shortcut passes by."""
    app = create_app(Settings(max_body_bytes=9_000), {"noop": noop})
    (mount,) = (route for route in app.routes if isinstance(route, Mount))
    answers = []
    for application, path in ((app, "/noop/step"), (app, "/step"), (mount.app, "/step")):
        transport = httpx2.ASGITransport(app=application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as http:
            await app.state.service.sessions.reset(noop, ResetRequest(episode_id="e", seed=1))
            answer = await http.post(path, content=body)
        answers.append((answer.status_code, answer.headers, answer.content))
    assert answers[0][0] == status
    assert answers[0] == answers[1] == answers[2]
    assert sum(app.state.service.metrics.errors.values()) == (0 if status == 200 else 3)
    await app.state.service.sessions.stop()


@pytest.mark.anyio
async def test_under_a_prefix_of_a_larger_application_all_is_as_at_the_root(noop: Any) -> None:
    app = create_app(Settings(), {"noop": noop})
    larger = Starlette(routes=[Mount("/games", app)])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=larger), base_url="http://service") as http:
        assert (await http.post("/games/noop/reset", json={"episode_id": "e"})).status_code == 200
        body = {"episode_id": "e", "action": {"add": 1}}
        assert (await http.post("/games/noop/step", json=body)).json()["reward"] == 1
    received = iter(
        [
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "text": '{"type":"step","data":{"add":2}}'},
            {"type": "websocket.disconnect", "code": 1000},
        ]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket", "path": "/games/noop/ws", "root_path": "", "query_string": b"episode_id=e", "headers": [],
        "asgi": {"version": "3.0"}, "subprotocols": [], "scheme": "ws",
    }  # fmt: skip
    await larger(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.send"]
    assert json.loads(sent[1]["text"])["data"]["reward"] == 2
    await app.state.service.sessions.stop()
