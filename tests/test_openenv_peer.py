"""OpenEnv's own clients, server and validator against the service. They live in an environment of their own."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rolloutgym.client import Client

pytestmark = pytest.mark.peers

Peer = Callable[..., Any]

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers" / "bin"

RESET = {"seed": 7, "split": "train", "index": 0}
SQL = [
    {"text": "QUERY: SELECT 1"},
    {"action_type": "QUERY", "argument": "SELECT 2"},
    {"text": "no action at all"},
    {"action_type": "ANSWER", "argument": "42"},
]
ACTIONS: dict[str, list[dict[str, Any]]] = {
    "sql": SQL,
    "toolcall": [{"tool_calls": [{"function": {"name": "nothing", "arguments": "{}"}}], "content": "Hm."}],
    "code": [{"code": "print(6 * 7)"}, {"code": "nothing"}, {"text": "no action at all"}],
}
BASES = {"": "sql", "/sql": "sql", "/toolcall": "toolcall", "/code": "code"}
QUERY = (RESET, "query", {"sql": "SELECT 6 * 7"}, "42")
CALLS: dict[str, tuple[dict[str, Any], str, dict[str, Any], str]] = {
    "": QUERY,
    "/sql": QUERY,
    "/toolcall": ({"task_id": "empty-holiday-account-00"}, "list_accounts", {}, "account_id"),
    "/code": (RESET, "python", {"code": "6 * 7"}, "42"),
}
"""A reset, a tool call, and what its result says."""


@pytest.fixture(scope="module")
def found(peer: Peer, service_url: str, full_url: str) -> Any:
    plays = [{"base": base, "reset": RESET, "actions": ACTIONS[name]} for base, name in BASES.items()]
    tools = {base: call[:3] for base, call in CALLS.items()}
    return peer("openenv_clients", {"url": service_url, "plays": plays, "tools": tools, "full_url": full_url})


@pytest.mark.parametrize("base", BASES)
def test_every_client_of_openenv_plays_every_environment_as_ours_does(found: Any, service_url: str, base: str) -> None:
    name = BASES[base]
    with Client(service_url) as client, client.environment(name).reset(**RESET) as episode:  # type: ignore[arg-type]
        expected = [{"observation": episode.observation.model_dump(mode="json"), "reward": None, "done": False}]
        for action in ACTIONS[name]:
            result = episode.step(action)
            observation = result.observation.model_dump(mode="json")
            expected.append({"observation": observation, "reward": result.reward, "done": result.done})
        state = episode.state().model_dump(mode="json")
    plays = found["plays"][base]
    assert len(plays) == 5
    for play in plays:
        assert [strip(answer) for answer in play[:-1]] == [strip(answer) for answer in expected]
        assert play[-1].items() >= {"step_count": len(ACTIONS[name]), "done": True}.items()
        assert play[-1]["total_reward"] == state["total_reward"]
    assert len({play[-1]["episode_id"] for play in plays}) == 5


def strip(answer: Any) -> Any:
    """Without what a client that knows no field's default leaves out, or adds."""
    if isinstance(answer, dict):
        return {key: strip(value) for key, value in answer.items() if value is not None}
    return [strip(each) for each in answer] if isinstance(answer, list) else answer


def test_an_agents_client_calls_tools_on_the_trainers_session(found: Any) -> None:
    for base, (_, name, _, said) in CALLS.items():
        tools = found["tools"][base]
        assert said in tools["said"]
        # The call was a step; the mistake was none.
        assert tools["steps"] == 1
        # Of toolcall, each task has its own.
        assert (set(tools["tools"]) == set(tools["shared"])) is (base != "/toolcall")
        assert not {"reset", "step", "state", "close"} & set(tools["tools"])
        assert name in tools["tools"]
        assert "reset" in tools["mistaken"]


def test_openenvs_clients_are_told_what_was_wrong(found: Any) -> None:
    for base in BASES:
        refusals = found["refusals"][base]
        assert "(code: EXECUTION_ERROR)" in refusals["step before reset"]
        assert "(code: EXECUTION_ERROR)" in refusals["state before reset"]
        assert "(code: VALIDATION_ERROR)" in refusals["unknown field of reset"]
        assert "(code: VALIDATION_ERROR)" in refusals["unknown field of action"]
        assert "(code: EXECUTION_ERROR)" in refusals["no such task"]
        assert refusals["steps"] == 0


def test_a_client_that_reconnected_unawares_is_not_rewarded(found: Any) -> None:
    assert "plays no episode yet" in found["reconnected"]


def test_openenvs_clients_are_told_of_capacity(found: Any) -> None:
    assert "CAPACITY_REACHED" in found["full"]["generic"]
    assert "places for live episodes are taken" in found["full"]["tools"]


@pytest.fixture(scope="module")
def full_url(serving: Any, make_noop: Callable[[], Any]) -> Any:
    """A service of one place."""
    with serving({"noop": make_noop()}, capacity=1) as url:
        yield url


# ---- frame by frame ----

RESETTING = {"type": "reset", "data": {"seed": 7, "episode_id": "golden"}}
OURS_BESIDE = {"episode_id", "step_count", "truncated", "seed", "task_id"}
"""What stands in our answers beside what stock servers send."""
FRAMES: list[Any] = [
    RESETTING,
    {"type": "step", "data": {"text": "hi"}},
    {"type": "step", "data": {"add": 1, "metadata": {}}},
    {"type": "state"},
    "{bad",
    {"type": "ping"},
    {},
    {"type": "state", "data": {}},
    {"type": "step"},
    {"type": "step", "data": {"nope": 1}},
    {"type": "step", "data": {"add": "much"}},
    {"type": "step", "data": {"fault": "x"}},
    {"type": "mcp", "data": {"jsonrpc": "2.0", "method": "no/such", "id": 3}},
    {"type": "mcp", "data": {}},
    {"type": "state"},
    {"type": "step", "data": {"finish": True}},
    {"type": "reset", "data": {"seed": "abc", "options": {}}},
]
STRICTER = {16: ("observation", "VALIDATION_ERROR")}
"""By place: where ours is an error and a stock server goes on. A stock reset takes any seed for one."""


@pytest.fixture
def peer_server() -> Iterator[Callable[..., str]]:
    """`peer_server("stock_server", …)` starts a script that serves there, until the test's end; its base URL."""
    if not (PEERS / "python").exists():
        pytest.skip("other projects' servers are not installed: make .venv-peers/.ready")
    with ExitStack() as stack:

        def start(script: str, *arguments: str) -> str:
            path = str(ROOT / "tests" / "peers" / f"{script}.py")
            process = subprocess.Popen([str(PEERS / "python"), path, *arguments], stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            stack.callback(process.wait, 15)
            stack.callback(process.terminate)
            line = process.stdout.readline()
            assert line.startswith("http://"), line
            return line.strip()

        yield start


@pytest.fixture
def two(peer_server: Callable[..., str], shared_noop: tuple[Any, str]) -> tuple[str, str]:
    environment, url = shared_noop
    environment.faults["x"] = lambda: 1 / 0
    return peer_server("stock_server", "2"), f"{url}/noop"


def converse(url: str, frames: list[Any]) -> tuple[list[Any], int | None]:
    """The answers, and the closing code after `close`."""
    answers: list[Any] = []
    with connect(f"{url.replace('http', 'ws', 1)}/ws", proxy=None) as socket:
        for frame in frames:
            socket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))
            answers.append(json.loads(socket.recv(timeout=60)))
        socket.send('{"type":"close"}')
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
        return answers, socket.close_code


def test_our_frames_are_a_stock_servers_frames(two: tuple[str, str]) -> None:
    (stock, stock_closed), (ours, ours_closed) = (converse(url, FRAMES) for url in two)
    assert ours_closed == stock_closed == 1000
    for place, (theirs, own) in enumerate(zip(stock, ours, strict=True)):
        where = FRAMES[place]
        if place in STRICTER:
            assert (theirs["type"], own["data"]["code"]) == STRICTER[place], where
            continue
        assert own["type"] == theirs["type"], where
        assert set(own) == set(theirs) == {"type", "data"}, where
        match theirs["type"]:
            case "observation":
                assert set(own["data"]) - set(theirs["data"]) <= OURS_BESIDE, where
                for key in ("reward", "done"):
                    assert own["data"][key] == theirs["data"][key], where
                for key in ("echoed", "total"):
                    assert own["data"]["observation"][key] == theirs["data"]["observation"][key], where
            case "state":
                assert own["data"].items() >= theirs["data"].items(), where
            case "error":
                assert own["data"]["code"] == theirs["data"]["code"], where
                assert set(own["data"]) - set(theirs["data"]) == {"error"}, where
                assert set(theirs["data"]) <= set(own["data"]), where
            case "mcp":
                assert own["data"]["error"]["code"] == theirs["data"]["error"]["code"], where
                assert own["data"].keys() == theirs["data"].keys(), where


def test_where_a_stock_server_rewards_or_gives_up_ours_does_not(two: tuple[str, str]) -> None:
    """Each difference in kind, with what it is for."""
    stock, ours = two
    step = {"type": "step", "data": {"add": 1}}
    # A step before a reset: a stock client that reconnected would be rewarded for an episode of its own making.
    assert converse(stock, [step])[0][0]["data"]["reward"] == 1
    assert converse(ours, [step])[0][0]["data"]["code"] == "EXECUTION_ERROR"
    # A step after the end.
    ended = [RESETTING, {"type": "step", "data": {"finish": True}}, step]
    assert converse(stock, ended)[0][-1]["data"]["reward"] == 1
    assert converse(ours, ended)[0][-1]["data"]["code"] == "EXECUTION_ERROR"
    # JSON that is no object ends a stock session.
    assert converse(ours, [RESETTING, "[1]", step])[0][-1]["data"]["reward"] == 1
    with connect(f"{stock.replace('http', 'ws', 1)}/ws", proxy=None) as socket:
        socket.send("[1]")
        assert json.loads(socket.recv(timeout=60))["data"]["code"] == "SESSION_ERROR"
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)


# ---- the validator ----

GRADED = (
    "static.manifest",
    "runtime.startup",
    "runtime.reward_well_formed",
    "runtime.observation_schema",
    "runtime.state_contract",
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a clone has: the validator refuses the links of a virtual environment."""
    copy = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return copy


@pytest.fixture(scope="module")
def validated(peer: Peer, service_url: str, clone: Path) -> Any:
    urls = [service_url + base for base in BASES]
    command = [sys.executable, "-m", "rolloutgym.cli", "serve"]
    serve = {
        name: {
            "command": [*command, "--environments", name, "--default-env", name, "--port"],
            "plan": actions if name != "sql" else None,
        }
        for name, actions in ACTIONS.items()
    }
    return peer("openenv_validate", {"urls": urls, "root": str(clone), "serve": serve})


def test_the_repository_is_a_valid_package(validated: Any) -> None:
    assert validated["static"]["verdict"] == "pass"
    assert validated["static"]["results"]["static.manifest"]["status"] == "pass"


@pytest.mark.parametrize("base", BASES)
def test_the_running_service_is_valid_at_every_prefix(validated: Any, service_url: str, base: str) -> None:
    report = validated["urls"][service_url + base]
    assert report["passed"], report
    assert report["mode"] == "simulation"
    assert report["standard_profile"] == "openenv-http/1.x"
    assert [criterion["id"] for criterion in report["criteria"] if not criterion["passed"]] == []
    assert report["summary"]["required_passed_count"] == report["summary"]["required_total_count"] == 6


@pytest.mark.parametrize("name", ACTIONS)
def test_the_official_runtime_graders_pass(validated: Any, name: str) -> None:
    report = validated["runtime"][name]
    judged = {check: one["status"] for check, one in report["results"].items() if one["status"] != "skip"}
    assert judged == dict.fromkeys(GRADED, "pass")
    # A warning is what there is to get: most graders of this version of the validator are not written yet.
    assert report["verdict"] == "warn"


# ---- with an engine ----

_DOCKER = """#!{python}
import os, re, sys
def own(word):
    if re.fullmatch("python:.*@sha256:.*", word):
        return {helper!r} or word
    return "127.0.0.1:" + word if re.fullmatch("[0-9]+:8000", word) else word
arguments = [own(word) for word in sys.argv[1:]]
if arguments[0] == "build":
    arguments[1:1] = {build_args!r}
os.execv({docker!r}, [{docker!r}, *arguments])
"""


@pytest.fixture
def docker_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `docker` that adds TEST_BUILD_ARGS to every build, publishes ports to this machine alone, and takes
    TEST_HELPER_IMAGE, if given, for the image that the validator would pull to look at the network from."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("no Docker engine answers")
    folder = tmp_path / "bin"
    folder.mkdir()
    text = _DOCKER.format(
        python=sys.executable,
        docker=docker,
        helper=os.environ.get("TEST_HELPER_IMAGE"),
        build_args=shlex.split(os.environ.get("TEST_BUILD_ARGS", "")),
    )
    (folder / "docker").write_text(text)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("docker_on_path")
def test_openenv_validate_passes_in_a_container(clone: Path, tmp_path: Path) -> None:
    """It builds the image from the clone, starts it in the most confined form, plays the probe and judges."""
    openenv = PEERS / "openenv"
    if not openenv.exists():
        pytest.skip("OpenEnv is not installed: make .venv-peers/.ready")
    command = [str(openenv), "validate", str(clone), "--level", "runtime", "--output", str(tmp_path / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    report = json.loads((tmp_path / "report.json").read_text())
    judged = {one["check_id"]: one["status"] for one in report["results"] if one["status"] != "skip"}
    assert judged == dict.fromkeys((*GRADED, "runtime.network_policy"), "pass"), report["results"]
    assert (done.returncode, report["verdict"]) == (0, "warn")
    (startup,) = [one for one in report["results"] if one["check_id"] == "runtime.startup"]
    assert startup["measured"]["provider"] == "docker-local"


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.usefixtures("docker_on_path")
def test_openenvs_launcher_starts_the_image(peer: Peer, service_url: str) -> None:
    if subprocess.run(["docker", "image", "inspect", "rolloutgym"], capture_output=True).returncode:
        pytest.skip("the engine has no image rolloutgym")
    running = subprocess.check_output(["docker", "ps", "-aq"])
    plays = {name: {"reset": RESET, "actions": actions} for name, actions in ACTIONS.items()}
    found = peer("openenv_container", {"image": "rolloutgym", "plays": plays})
    for name, actions in ACTIONS.items():
        with Client(service_url) as client, client.environment(name).reset(**RESET) as episode:  # type: ignore[arg-type]
            rewards = [episode.step(action).reward for action in actions]
            assert (found[name]["rewards"], found[name]["done"]) == (rewards, True)
        assert found[name]["state"]["step_count"] == len(actions)
    assert subprocess.check_output(["docker", "ps", "-aq"]) == running


# ---- the other way around ----


@pytest.mark.parametrize("name", ACTIONS)
def test_our_environments_play_the_same_inside_of_openenvs_server(
    peer_server: Callable[..., str], service_url: str, name: str
) -> None:
    adapted = peer_server("adapted_server", name)
    frames: list[Any] = [
        {"type": "step", "data": ACTIONS[name][0]},
        {"type": "reset", "data": RESET | {"episode_id": "adapted"}},
        {"type": "step", "data": {"nope": 1}},
        *({"type": "step", "data": action} for action in ACTIONS[name]),
        {"type": "state"},
        {"type": "step", "data": ACTIONS[name][0]},
        {"type": "reset", "data": {"sede": 1}},
        {"type": "reset", "data": RESET},
    ]
    theirs, closed = converse(adapted, frames)
    ours, _ = converse(f"{service_url}/{name}", frames)
    assert closed == 1000
    assert [one["type"] for one in theirs] == [one["type"] for one in ours]
    for their, our in zip(theirs, ours, strict=True):
        match our["type"]:
            case "observation":
                assert their["data"]["observation"].pop("metadata") == {}
                assert strip(their["data"]["observation"]) == strip(our["data"]["observation"])
                assert (their["data"]["reward"], their["data"]["done"]) == (our["data"]["reward"], our["data"]["done"])
            case "state":
                assert their["data"] == our["data"]
    for path, body in (("tasks", {"split": "test"}), ("task", {"split": "test", "index": 1})):
        their, our = (httpx2.post(f"{url}/{name}/{path}", json=body).json() for url in (adapted, service_url))
        assert our.items() >= their.items()
    for path, body in (
        ("task", {"split": "test", "index": 10**6}),
        ("task", {"split": "test", "index": -1}),
        ("task", {"split": "none", "index": 0}),
        ("tasks", {"split": "none"}),
        ("num_tasks", {"split": "none"}),
        ("task_range", {"split": "none", "start": 0, "stop": 1}),
    ):
        assert httpx2.post(f"{adapted}/{name}/{path}", json=body).status_code in (400, 422)
    assert httpx2.get(f"{adapted}/{name}/splits").json() == httpx2.get(f"{service_url}/{name}/splits").json()
    assert httpx2.get(f"{adapted}/metadata").json()["name"] == name


def test_an_adapted_environment_is_called_from_threads_and_loops(peer: Peer) -> None:
    found = peer("adapted_environment", {"name": "sql", "reset": RESET, "actions": SQL})
    # A start that failed is tried again by the next session.
    assert found["failed"] == "no room yet"
    one, two, three = found["plays"]
    assert one == two == three
    assert [answer["done"] for answer in one] == [False] * 4 + [True]
    assert "reset first" in found["unreset"]
    assert found["children"][0] > 0
    assert found["children"][1] == 0
