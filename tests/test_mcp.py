"""JSON-RPC: an agent plays an episode by calling tools, and sees no more than it should."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from rolloutgym.server.errors import StoreUnavailable


@pytest.fixture(scope="module")
def http(shared_noop: tuple[Any, str]) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{shared_noop[1]}/noop") as client:
        yield client


def call(http: httpx2.Client, method: str, params: Any = None, *, query: str = "", **headers: str) -> Any:
    body = {"jsonrpc": "2.0", "id": 9, "method": method} | ({} if params is None else {"params": params})
    response = http.post(f"/mcp{query}", json=body, headers=headers)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["id"] == 9
    return answer


def result(http: httpx2.Client, method: str, params: Any = None, **options: Any) -> Any:
    return call(http, method, params, **options)["result"]


def test_a_standard_client_initializes_lists_and_calls(http: httpx2.Client) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}
    response = http.post("/mcp", json=hello)
    initialized = response.json()["result"]
    assert initialized["protocolVersion"] == "2025-03-26"
    assert initialized["capabilities"] == {"tools": {}}
    assert "Add." in initialized["instructions"]
    session = {"mcp-session-id": response.headers["mcp-session-id"]}
    done = http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
    assert (done.status_code, done.content) == (202, b"")
    assert result(http, "ping", **session) == {}
    (tool,) = result(http, "tools/list", **session)["tools"]
    assert (tool["name"], tool["inputSchema"]["required"]) == ("add", ["add"])
    called = result(http, "tools/call", {"name": "add", "arguments": {"add": 2}}, **session)
    assert called["content"] == [{"type": "text", "text": "total 2"}]
    assert (called["data"], called["isError"]) == ("total 2", False)
    assert called["_meta"] == {"rolloutgym/step_count": 1, "rolloutgym/done": False}
    assert http.delete("/mcp", headers=session).json() == {"ended": True}
    gone = http.post("/mcp", json=hello | {"method": "ping"}, headers=session)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "episode_not_found")


def test_a_call_is_a_step_of_the_trainers_episode(http: httpx2.Client) -> None:
    http.post("/reset", json={"episode_id": "trained", "seed": 1, "options": {"budget": 2}})
    query = "?episode_id=trained"
    assert result(http, "initialize", {}, query=query)["protocolVersion"] == "2025-06-18"
    for n in (1, 2):
        called = result(http, "tools/call", {"name": "add", "arguments": {"add": 1}}, query=query)
        assert called["_meta"] == {"rolloutgym/step_count": n, "rolloutgym/done": n == 2}
    late = result(http, "tools/call", {"name": "add", "arguments": {"add": 1}}, query=query)
    assert late["isError"]
    state = http.get("/state?episode_id=trained").json()
    assert (state["total_reward"], state["step_count"], state["done"]) == (2, 2, True)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("reset", {}), ("step", {}), ("close", {}), ("add", {}), ("add", {"add": "x"}), ("add", {"add": 1, "sub": 2})],
)
def test_an_agents_mistake_is_told_and_costs_nothing(http: httpx2.Client, name: str, arguments: Any) -> None:
    http.post("/reset", json={"episode_id": "mistaken"})
    called = result(http, "tools/call", {"name": name, "arguments": arguments}, query="?episode_id=mistaken")
    assert called["isError"]
    assert http.get("/state?episode_id=mistaken").json()["step_count"] == 0


def test_openenvs_sessions_are_created_attached_and_closed(http: httpx2.Client, shared_noop: tuple[Any, str]) -> None:
    session = result(http, "openenv/session/create")["session_id"]
    address = f"{shared_noop[1].replace('http', 'ws', 1)}/noop/ws?session_id={session}"
    with connect(address, proxy=None) as socket:
        called = result(http, "tools/call", {"session_id": session, "name": "add", "arguments": {"add": 1}})
        assert called["data"] == "total 1"
        socket.send('{"type":"state"}')
        assert json.loads(socket.recv())["data"]["total_reward"] == 1
        socket.send('{"type":"reset","data":{"seed":4}}')
        assert json.loads(socket.recv())["data"]["episode_id"] == session
        socket.send('{"type":"reset","data":{"episode_id":"other"}}')
        assert json.loads(socket.recv())["data"]["code"] == "VALIDATION_ERROR"
        socket.send('{"type":"close"}')
    # It belongs to the session, not to the connection.
    assert http.get(f"/state?episode_id={session}").json()["step_count"] == 0
    assert result(http, "openenv/session/close", {"session_id": session}) == {"session_id": session, "closed": True}
    assert call(http, "openenv/session/close", {"session_id": session})["error"]["code"] == -32602


def test_tools_are_listed_and_called_on_the_connection(shared_noop: tuple[Any, str]) -> None:
    with connect(f"{shared_noop[1].replace('http', 'ws', 1)}/noop/ws", proxy=None) as socket:

        def ask(method: str, **params: Any) -> Any:
            data = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            socket.send(json.dumps({"type": "mcp", "data": data}))
            answer = json.loads(socket.recv())
            assert answer["type"] == "mcp"
            return answer["data"]

        assert ask("tools/list")["result"]["tools"][0]["name"] == "add"
        early = ask("tools/call", name="add", arguments={"add": 1})["error"]
        assert (early["code"], early["data"]["error"]["code"]) == (-32000, "episode_not_reset")
        socket.send('{"type":"reset"}')
        socket.recv()
        assert ask("tools/call", name="add", arguments={"add": 1})["result"]["data"] == "total 1"
        socket.send('{"type":"mcp","data":{"jsonrpc":"2.0","method":"notifications/initialized"}}')
        assert json.loads(socket.recv()) == {"type": "mcp", "data": {"jsonrpc": "2.0", "id": None, "result": {}}}


def test_json_rpc_has_a_websocket_of_its_own(shared_noop: tuple[Any, str]) -> None:
    with connect(f"{shared_noop[1].replace('http', 'ws', 1)}/noop/mcp", proxy=None) as socket:
        for number, (method, key) in enumerate((("initialize", "serverInfo"), ("tools/list", "tools"))):
            socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method}))
            answer = json.loads(socket.recv())
            assert answer["id"] == number
            assert key in answer["result"]
        socket.send(b"{bad")
        assert json.loads(socket.recv())["error"]["code"] == -32700


def test_an_agents_connection_keeps_its_episode_and_lets_it_go(
    start_service: Callable[..., str], make_noop: Callable[[], Any]
) -> None:
    noop = make_noop()
    url = start_service({"noop": noop}, idle_timeout_s=0.1, grace_s=0.1)
    with connect(f"{url.replace('http', 'ws', 1)}/noop/mcp", proxy=None) as socket:
        socket.send('{"jsonrpc":"2.0","id":1,"method":"initialize"}')
        socket.recv()
        time.sleep(0.4)
        socket.send('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"add":1}}}')
        assert json.loads(socket.recv())["result"]["data"] == "total 1"
    for _ in range(6000):
        if noop.open == 0:
            return
        time.sleep(0.01)
    pytest.fail("its episode stayed")


def test_an_answer_is_not_lost_with_the_store(
    start_service: Callable[..., str], noop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = start_service({"noop": noop})
    sessions = noop.server.config.app.state.service.sessions
    attach, tried = sessions.attach, []

    async def attach_at_the_second_try(*episode: Any) -> None:
        tried.append(episode)
        if len(tried) == 1:
            raise StoreUnavailable("the store is away")
        await attach(*episode)

    monkeypatch.setattr(sessions, "attach", attach_at_the_second_try)
    httpx2.post(f"{url}/noop/reset", json={"episode_id": "e"})
    with connect(f"{url.replace('http', 'ws', 1)}/noop/mcp?episode_id=e", proxy=None) as socket:
        for total in ("total 1", "total 2", "total 3"):
            socket.send('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"add":1}}}')
            assert json.loads(socket.recv())["result"]["data"] == total
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{bad", -32700),
        ("", -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
        ("{}", -32600),
        ("[1]", -32600),
        ("[]", -32600),
        ("null", -32600),
        ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"reset"}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":7}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"session_id":"../x"}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"session_id":"nobody"}}', -32000),
        ('{"jsonrpc":"2.0","id":1,"method":"openenv/session/create","params":{"sede":1}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"openenv/session/create","params":{"task_id":"none"}}', -32000),
    ],
)
def test_a_bad_request_has_its_json_rpc_error(http: httpx2.Client, body: str, code: int) -> None:
    response = http.post("/mcp", content=body)
    assert response.status_code == 200
    answer = response.json()
    assert (answer["jsonrpc"], answer["error"]["code"]) == ("2.0", code)
    assert "data" in answer["error"]


def test_capacity_is_told(start_service: Callable[..., str], shared_noop: tuple[Any, str]) -> None:
    url = start_service({"noop": type(shared_noop[0])()}, capacity=1)
    with httpx2.Client(base_url=f"{url}/noop") as http:
        call(http, "openenv/session/create")
        for method in ("openenv/session/create", "initialize"):
            error = call(http, method)["error"]
            assert error["code"] == -32000
            assert error["data"].items() >= {"active_sessions": 1, "max_sessions": 1}.items()


def test_a_session_that_nobody_uses_gives_its_place_back(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service({"noop": noop}, capacity=1, idle_timeout_s=0.2)
    with httpx2.Client(base_url=f"{url}/noop") as http:
        for method in ("openenv/session/create", "initialize", "openenv/session/create"):
            for _ in range(3000):
                if "result" in call(http, method):
                    break
                time.sleep(0.02)
            else:
                pytest.fail("the place stays taken")


@pytest.mark.peers
def test_the_mcp_projects_own_client_plays(peer: Callable[..., Any], service_url: str) -> None:
    httpx2.post(f"{service_url}/sql/reset", json={"episode_id": "trained-by-mcp", "seed": 7}).raise_for_status()
    query = {"name": "query", "arguments": {"sql": "SELECT 6 * 7"}}
    code = {"path": "/code/mcp", "name": "python", "arguments": {"code": "print(6 * 7)"}}
    plays = [{"path": "/mcp", **query}, {"path": "/sql/mcp?episode_id=trained-by-mcp", **query}, code]
    found = peer("mcp_client", {"url": service_url, "plays": plays})
    names = ("sql", "sql", "code")
    for seen, name in zip(found, names, strict=True):
        assert seen["server"] == f"rolloutgym/{name}"
        assert seen["version"] == "2025-06-18"
        assert "42" in seen["said"][0]
        assert not seen["is_error"]
        assert seen["meta"] == {"rolloutgym/step_count": 1, "rolloutgym/done": False}
        assert not {"reset", "step", "state", "close", "truncate", "score"} & set(seen["tools"])
        assert (seen["mistaken"], seen["unknown"]) == (True, -32601)
    # A client ends its session, and with it the episode that it began; a trainer's stays to be looked at.
    states = [
        httpx2.get(f"{service_url}/{name}/state?episode_id={seen['session']}")
        for seen, name in zip(found, names, strict=True)
    ]
    assert [state.status_code for state in states] == [404, 200, 404]
    assert states[1].json()["step_count"] == 1
    assert found[1]["session"] == "trained-by-mcp"
    assert set(found[0]["tools"]) == set(found[1]["tools"]) == {"describe", "sample", "query", "answer"}
    assert set(found[2]["tools"]) == {"python", "answer"}
