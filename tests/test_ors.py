"""The Open Reward Standard: by hand for its forms, and played with the real SDK and TRL's adapter."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rolloutgym.models import Message
from rolloutgym.server import ors


@pytest.fixture(scope="module")
def http(shared_noop: tuple[Any, str]) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=shared_noop[1]) as client:
        yield client


def events(text: str) -> list[tuple[str, str]]:
    """As the SDK reads them."""
    found: list[tuple[str, str]] = []
    for part in text.split("\n\n"):
        fields = dict(line.split(":", 1) for line in part.split("\n") if line and not line.startswith(":"))
        if fields:
            found.append((fields["event"].lstrip(), fields["data"].lstrip()))
    return found


def begin(http: httpx2.Client, prefix: str = "", **task: Any) -> dict[str, str]:
    (_, sid), end = events(http.post(f"{prefix}/create_session", json={}).text)
    assert end == ("end", "")
    session = {"x-session-id": sid}
    response = http.post(f"{prefix}/create", json=task or {"split": "train", "index": 0}, headers=session)
    assert response.json() == {"sid": sid}, response.text
    return session


def call(
    http: httpx2.Client, session: dict[str, str], name: str = "add", task_id: str | None = None, **arguments: Any
) -> tuple[str, Any]:
    """The number of the call, and its result."""
    body = {"name": name, "input": arguments} | ({} if task_id is None else {"task_id": task_id})
    response = http.post("/noop/call", json=body, headers=session)
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    (first, number), *parts = events(response.text)
    assert first == "task_id"
    kinds = [kind for kind, _ in parts]
    if kinds == ["error"]:
        return number, parts[0][1]
    assert kinds == ["chunk"] * (len(kinds) - 1) + ["end"]
    return number, json.loads("".join(data for _, data in parts))


@pytest.mark.parametrize("prefix", ["", "/noop"])
def test_a_tool_call_is_a_step_with_its_reward(http: httpx2.Client, prefix: str) -> None:
    session = begin(http, prefix, env_name="noop", task_spec={"id": "test-1", "split": "test", "tags": {}, "seed": 3})
    assert http.post(f"{prefix}/ping", headers=session).json() == {"status": "ok"}
    assert [tool["name"] for tool in http.get("/noop/task_tools", headers=session).json()["tools"]] == ["add"]
    assert [block["text"] for block in http.get("/noop/prompt", headers=session).json()] == ["Add.", "test-1"]
    roles = [turn["role"] for turn in http.get("/noop/messages", headers=session).json()]
    assert roles == ["system", "user"]
    number, result = call(http, session, add=2)
    output = result["output"]
    assert (number, result["ok"], output["reward"], output["finished"]) == ("0", True, 2.0, False)
    assert output["blocks"] == [{"type": "text", "text": "total 2", "detail": None}]
    assert output["metadata"]["step_count"] == 1
    assert output["metadata"]["info"]["reward_components"] == {"sum": 2.0}
    number, result = call(http, session, add=1, finish=True)
    assert (number, result["output"]["finished"]) == ("1", True)
    _, late = call(http, session, add=1)
    assert (late["ok"], late["reason"]) == (False, "episode_finished")
    sid = session["x-session-id"]
    assert http.get(f"/noop/state?episode_id={sid}").json()["total_reward"] == 3
    assert http.post(f"{prefix}/delete", headers=session).json() == {"sid": sid}
    assert http.post(f"{prefix}/delete_session", headers=session).json() == {"sid": sid}
    assert http.post(f"{prefix}/ping", headers=session).status_code == 404


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [("reset", {}, "not_found"), ("add", {}, "input_validation"), ("add", {"add": "x"}, "input_validation")],
)
def test_a_call_that_is_none_costs_nothing(
    http: httpx2.Client, name: str, arguments: dict[str, Any], reason: str
) -> None:
    session = begin(http)
    _, result = call(http, session, name, **arguments)
    assert (result["ok"], result["reason"]) == (False, reason)
    assert call(http, session, add=1)[0] == "0"


@pytest.mark.parametrize("finish", [None, True])
def test_a_lost_answer_is_asked_for_again(http: httpx2.Client, finish: bool | None) -> None:
    """By the call's number, also after the end; what was another call is refused."""
    session = begin(http)
    arguments: dict[str, Any] = {"add": 1} | ({} if finish is None else {"finish": finish})
    number, first = call(http, session, **arguments)
    assert call(http, session, task_id=number, **arguments) == (number, first)
    assert call(http, session, task_id=number, add=2)[1].startswith("step_conflict")
    sid = session["x-session-id"]
    assert http.get(f"/noop/state?episode_id={sid}").json()["step_count"] == 1


def test_a_fault_is_an_error_and_no_reward(http: httpx2.Client, shared_noop: tuple[Any, str]) -> None:
    shared_noop[0].faults["x"] = lambda: 1 / 0
    session = begin(http)
    assert call(http, session, add=1, fault="x") == ("0", "internal: the environment failed")
    assert call(http, session, add=1)[1]["output"]["reward"] == 1


def test_calls_at_once_are_steps_one_after_another(http: httpx2.Client, shared_noop: tuple[Any, str]) -> None:
    session = begin(http)

    async def calls() -> list[str]:
        async with httpx2.AsyncClient(base_url=shared_noop[1]) as client:
            body = {"name": "add", "input": {"add": 1}}
            answers = await asyncio.gather(*(client.post("/noop/call", json=body, headers=session) for _ in range(5)))
        return [events(answer.text)[0][1] for answer in answers]

    assert sorted(asyncio.run(calls())) == ["0", "1", "2", "3", "4"]
    state = http.get(f"/noop/state?episode_id={session['x-session-id']}").json()
    assert (state["step_count"], state["total_reward"]) == (5, 5)


def test_a_slow_call_keeps_its_stream_alive(
    start_service: Callable[..., str], noop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rolloutgym.server.routes import ors as routes

    monkeypatch.setattr(routes, "_KEEP_ALIVE_S", 0.02)
    noop.gates["gate"] = asyncio.Event()
    with httpx2.Client(base_url=start_service({"noop": noop})) as http:
        session = begin(http)
        body = {"name": "add", "input": {"add": 1, "wait": "gate"}}
        with http.stream("POST", "/noop/call", json=body, headers=session) as response:
            text = ""
            for piece in response.iter_text():
                text += piece
                if text.count(": at it") >= 3:
                    noop.loop.call_soon_threadsafe(noop.gates["gate"].set)
        assert [kind for kind, _ in events(text)] == ["task_id", "end"]


def test_only_calls_wait_for_a_call(
    start_service: Callable[..., str], noop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads is answered while a step runs, and the stream of a call that waits for its turn is kept alive."""
    from rolloutgym.server.routes import ors as routes

    monkeypatch.setattr(routes, "_KEEP_ALIVE_S", 0.02)
    noop.gates["gate"] = asyncio.Event()
    with httpx2.Client(base_url=start_service({"noop": noop}), timeout=60) as http, ThreadPoolExecutor(1) as pool:
        session = begin(http)
        sid = session["x-session-id"]
        slow = pool.submit(call, http, session, add=1, wait="gate")
        while not noop.waiting:
            time.sleep(0.01)
        assert http.post("/ping", headers=session).json() == {"status": "ok"}
        for path in ("prompt", "messages", "task_tools", f"state?episode_id={sid}"):
            assert http.get(f"/noop/{path}", headers=session).status_code == 200, path
        tools = http.post(f"/noop/mcp?episode_id={sid}", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert [tool["name"] for tool in tools.json()["result"]["tools"]] == ["add"]
        body = {"name": "add", "input": {"add": 2}}
        with http.stream("POST", "/noop/call", json=body, headers=session) as response:
            text = ""
            for piece in response.iter_text():
                text += piece
                if text.count(": at it\n\n") >= 3:
                    noop.loop.call_soon_threadsafe(noop.gates["gate"].set)
        assert slow.result()[0] == "0"
        assert events(text)[0] == ("task_id", "1")


def test_a_call_whose_client_has_gone_did_not_happen(start_service: Callable[..., str], noop: Any) -> None:
    noop.gates["gate"] = asyncio.Event()
    with httpx2.Client(base_url=start_service({"noop": noop})) as http:
        session = begin(http)
        body = {"name": "add", "input": {"add": 1, "wait": "gate"}}
        with http.stream("POST", "/noop/call", json=body, headers=session) as response:
            assert next(response.iter_text()).startswith("event: task_id")
        # The step waits no longer, or this would.
        number, result = call(http, session, task_id="0", add=1)
        assert (number, result["output"]["reward"], result["output"]["metadata"]["step_count"]) == ("0", 1, 1)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/create", {}, 422),
        ("/create", {"split": "train"}, 422),
        ("/create", {"split": "train", "index": 0, "task_spec": {"id": "test-1"}}, 422),
        ("/create", {"split": "train", "index": 0, "toolset_name": "codex"}, 422),
        ("/create", {"split": "train", "index": 99}, 404),
        ("/create", {"task_spec": {"id": "nobody"}}, 404),
        ("/create", {"env_name": "other", "split": "train", "index": 0}, 404),
        ("/create_session", {"env": {"A": "b"}}, 422),
        ("/call", {"name": "add"}, 422),
        ("/call", {"name": "add", "input": {"add": 1}, "task_id": "x"}, 422),
        ("/call", {"name": "add", "input": {"add": 1}}, 404),
        ("/ping", None, 404),
        ("/delete", None, 200),
    ],
)
def test_a_bad_request_is_refused_before_any_stream(http: httpx2.Client, path: str, body: Any, status: int) -> None:
    response = http.post(path, json=body, headers={"x-session-id": "nobody"})
    assert response.status_code == status, response.text
    if path != "/create_session":
        assert http.post(path, json=body).status_code == 422


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("", 401), ("wrong", 401), ("sécret", 401), ("secret", 404)])
def test_the_key_may_come_as_the_sdk_sends_it(
    start_service: Callable[..., str], noop: Any, key: str | None, status: int
) -> None:
    headers = {"x-session-id": "nobody"} | ({} if key is None else {"x-api-key": key})
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    with httpx2.Client(base_url=start_service({"noop": noop}, api_key="secret")) as http:
        assert http.post("/ping", headers=encoded).status_code == status


def test_long_results_come_in_pieces_that_lose_nothing() -> None:
    for text in (" " * 10_000, "ab \u00a0\u3000\u2028\u2029\x85é🐍\\ " * 3000, "x"):
        result = json.dumps({"text": text}, ensure_ascii=False, separators=(",", ":")).encode()
        stream = b"".join(ors.result_events(result)).decode()
        assert stream.splitlines() == stream.split("\n")[:-1]
        parts = events(stream)
        assert [kind for kind, _ in parts] == ["chunk"] * (len(parts) - 1) + ["end"]
        assert json.loads("".join(data for _, data in parts)) == {"text": text}


def test_a_dialogue_becomes_turns() -> None:
    call_json = {"id": "c1", "function": {"name": "add", "arguments": '{"add": 1}'}}
    messages = [
        Message(role="system", content="Add."),
        Message.model_validate({"role": "assistant", "content": "Well.", "tool_calls": [call_json]}),
        Message(role="tool", content="total 1", tool_call_id="c1"),
    ]
    first = json.dumps({"observation": {"messages": [one.model_dump() for one in messages]}}).encode()
    turns = ors.conversation(first)
    assert [turn["role"] for turn in turns] == ["system", "assistant", "user"]
    assert [block["type"] for turn in turns for block in turn["blocks"]] == [
        "text",
        "text",
        "tool_call",
        "tool_result",
    ]
    assert turns[1]["blocks"][1]["input"] == {"add": 1}
    assert turns[2]["blocks"][0]["blocks"][0]["text"] == "total 1"


# ---- with the real clients ----

PLAYS: list[dict[str, Any]] = [
    {
        "variant": None,
        "split": "train",
        "index": 0,
        "calls": [["query", {"sql": "SELECT 6 * 7"}], ["nothing", {}], ["query", {}], ["answer", {"value": "x"}]],
    },
    {"variant": "toolcall", "split": "train", "index": 0, "calls": [["nothing", {}]]},
    {
        "variant": "code",
        "split": "train",
        "index": 0,
        "calls": [["python", {"code": "print(6 * 7)"}], ["answer", {"answer": "x"}], ["answer", {"answer": "x"}]],
    },
]


@pytest.fixture(scope="module")
def sdk(peer: Callable[..., Any], serving: Any, make_noop: Callable[[], Any], service_url: str) -> Any:
    with serving({"noop": make_noop()}, api_key="secret") as locked:
        return peer("ors_client", {"url": service_url, "plays": PLAYS, "locked_url": locked, "key": "secret"})


@pytest.mark.peers
def test_the_sdk_plays_every_environment(sdk: Any, service_url: str) -> None:
    for play, name in zip(PLAYS, ("sql", "toolcall", "code"), strict=True):
        seen = sdk[str(play["variant"])]
        count = httpx2.post(f"{service_url}/{name}/num_tasks", json={"split": "train"}).json()["num_tasks"]
        assert (seen["num_tasks"], seen["tasks"], len(seen["range"])) == (count, count, 2)
        assert (seen["environment"], seen["task"]) == (name, seen["range"][0])
        assert "train" in seen["splits"]
        assert seen["prompts"][0] == seen["prompts"][1]
        assert seen["messages"][0]["role"] == "system"
        assert set(seen["shared_tools"]) <= set(seen["tools"])
        # A session that was left is over.
        assert httpx2.get(f"{service_url}/{name}/state?episode_id={seen['sid']}").status_code == 404
    (queried, unknown, misused, answered), _ = sdk["None"]["calls"]
    assert "42" in queried["blocks"][0]["text"]
    assert (queried["finished"], answered["finished"]) == (False, True)
    assert queried["reward"] == sum(queried["metadata"]["info"]["reward_components"].values())
    assert (unknown["reason"], misused["reason"]) == ("not_found", "input_validation")
    assert answered["metadata"]["step_count"] == 2
    assert sdk["toolcall"]["calls"][0] == [{"reason": "not_found", "detail": "no tool 'nothing'"}]
    (ran, ended, late), _ = sdk["code"]["calls"]
    assert "42" in ran["blocks"][0]["text"]
    assert (ended["reward"], ended["finished"], late["reason"]) == (0.0, True, "episode_finished")


@pytest.mark.peers
def test_the_sdks_key_is_the_services_key(sdk: Any) -> None:
    assert sdk["locked"]
    assert sdk["opened"] == ["train", "validation", "test"]


@pytest.mark.peers
def test_trls_adapter_trains_on_it(peer: Callable[..., Any], service_url: str) -> None:
    (site,) = (Path(__file__).parent.parent / ".venv-peers" / "lib").glob("python*/site-packages")
    work = {"url": service_url, "site": str(site), "tool": "query", "arguments": {"sql": "SELECT 6 * 7"}}
    found = peer("trl_openreward", work, python=Path(sys.executable))
    assert [row["task_index"] for row in found["rows"]] == [0, 1]
    assert "database" in found["prompt"]
    assert "42" in found["said"]
    assert found["scored"] == found["rewards"] != [None]
    assert not found["finished"]
