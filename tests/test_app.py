"""How the application is put together: prefixes, the root, documents, the Task API, operations, start and stop."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import jsonschema
import pytest
from starlette.testclient import TestClient
from uvicorn.importer import ImportFromStringError, import_from_string

from rolloutgym.models import Metadata, SplitInfo, State, TaskInfo
from rolloutgym.server.app import create_app
from rolloutgym.server.settings import Settings


@pytest.fixture(scope="module")
def two(make_noop: Callable[[], Any]) -> Iterator[TestClient]:
    """A service of two environments; the first is at the root, since the default one is not served."""
    other = make_noop()
    other.name = "other"
    with TestClient(create_app(Settings(), {"noop": make_noop(), "other": other})) as client:
        yield client


PREFIXES = ("", "/noop", "/other")


# ---- documents ----


@pytest.mark.parametrize("prefix", PREFIXES)
def test_each_environment_has_a_document_of_unprefixed_paths(two: httpx2.Client, prefix: str) -> None:
    document = two.get(f"{prefix}/openapi.json").json()
    assert document["info"]["version"].startswith("1.")
    paths = document["paths"]
    assert {"/reset", "/step", "/state", "/truncate", "/episodes/{episode_id}", "/mcp", "/health", "/ready", "/metrics",
            "/schema", "/metadata", "/list_environments", "/splits", "/tasks", "/num_tasks", "/task", "/task_range",
            "/create_session", "/create", "/tools", "/task_tools", "/prompt", "/messages", "/call", "/ping", "/delete",
            "/delete_session"} == set(paths)  # fmt: skip
    schemas = document["components"]["schemas"]
    assert paths["/step"]["post"]["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/NoopStepRequest"
    }
    assert "add" in schemas["NoopAction"]["properties"]
    assert "ErrorBody" in schemas
    assert "HTTPValidationError" not in schemas
    assert "secret" not in str(document)


def test_every_body_and_stream_is_documented(two: httpx2.Client) -> None:
    paths = two.get("/noop/openapi.json").json()["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            bodies = operation.get("requestBody", {}).get("content", {})
            takes_none = method != "post" or path in ("/create_session", "/delete", "/delete_session", "/ping")
            assert list(bodies) == ([] if takes_none else ["application/json"]), path
            streams = path in ("/create_session", "/call")
            said = operation["responses"]["200"]["content"]
            assert list(said) == ["text/event-stream" if streams else "application/json"], path
    created = paths["/create"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert "seed" in str(created["task_spec"])


@pytest.mark.parametrize("prefix", PREFIXES)
def test_observations_fit_their_schemas(two: httpx2.Client, prefix: str) -> None:
    schema = two.get(f"{prefix}/schema").json()
    jsonschema.Draft202012Validator.check_schema(schema["action"])
    begun = two.post(f"{prefix}/reset").json()
    stepped = two.post(f"{prefix}/step", json={"episode_id": begun["episode_id"], "action": {"add": 1}}).json()
    for answer, name in ((begun, "reset_observation"), (stepped, "observation")):
        seen = answer["observation"] | {"reward": answer["reward"], "done": answer["done"]}
        jsonschema.validate(seen, schema[name], cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(begun["observation"] | {"reward": None, "done": False}, schema["observation"])
    assert "budget" in schema["options"]["properties"]
    for reference in references(schema):
        assert reference.startswith("#/")


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def test_metadata_says_what_is_served(two: httpx2.Client) -> None:
    metadata = Metadata.model_validate_json(two.get("/other/metadata").content)
    assert (metadata.name, metadata.num_tasks) == ("other", {"train": 5, "validation": 5, "test": 5})
    assert len(metadata.data_sha256["tasks"]) == 64
    assert metadata.reward_range == (-1000.0, 1000.0)


# ---- prefixes ----


def test_the_root_serves_the_first_where_the_default_is_not_served(two: httpx2.Client) -> None:
    assert two.get("/metadata").json()["name"] == "noop"
    episode_id = two.post("/reset").json()["episode_id"]
    assert two.get(f"/noop/state?episode_id={episode_id}").json()["environment"] == "noop"
    assert two.get(f"/other/state?episode_id={episode_id}").status_code == 404


def test_episode_ids_are_names_within_their_environment(two: httpx2.Client) -> None:
    for name, add in (("noop", 1), ("other", 10)):
        two.post(f"/{name}/reset", json={"episode_id": "same"})
        two.post(f"/{name}/step", json={"episode_id": "same", "action": {"add": add}})
    totals = [two.get(f"/{name}/state?episode_id=same").json()["total"] for name in ("noop", "other")]
    assert totals == [1, 10]
    two.delete("/noop/episodes/same")
    assert State.model_validate_json(two.get("/other/state?episode_id=same").content).step_count == 1


# ---- the Task API ----


@pytest.mark.parametrize("prefix", ["", "/noop", "/NOOP", "/other", "/noop/noop", "/noop/Noop", "/other/OTHER"])
def test_tasks_are_listed(two: httpx2.Client, prefix: str) -> None:
    splits = [SplitInfo.model_validate(split) for split in two.get(f"{prefix}/splits").json()]
    assert [(split.name, split.type) for split in splits] == [
        ("train", "train"), ("validation", "validation"), ("test", "test"),
    ]  # fmt: skip
    assert two.post(f"{prefix}/num_tasks", json={"split": "test"}).json() == {"num_tasks": 5}
    listed = two.post(f"{prefix}/tasks", json={"split": "test"}).json()
    assert listed["env_name"] == ("other" if "other" in prefix.lower() else "noop")
    tasks = [TaskInfo.model_validate(task) for task in listed["tasks"]]
    assert [task.id for task in tasks] == [f"test-{n}" for n in range(5)]
    assert two.post(f"{prefix}/task", json={"split": "test", "index": 3}).json()["task"] == listed["tasks"][3]
    for bounds, expected in (
        ({"start": 1, "stop": 3}, [1, 2]),
        ({"start": 3}, [3, 4]),
        ({"stop": 99}, [0, 1, 2, 3, 4]),
    ):
        ranged = two.post(f"{prefix}/task_range", json={"split": "test", **bounds}).json()["tasks"]
        assert ranged == [listed["tasks"][n] for n in expected]
    assert "answer" not in str(listed)


@pytest.mark.parametrize("path", ["/nobody/splits", "/noop/other/splits", "/noop/nobody/splits"])
def test_another_environments_tasks_are_not_found(two: httpx2.Client, path: str) -> None:
    assert two.get(path).status_code == 404


def test_environments_are_listed(two: httpx2.Client) -> None:
    assert two.get("/list_environments").json() == ["noop", "other"]
    assert two.get("/other/list_environments").json() == ["other"]


# ---- operations ----


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/web/", "/noop/metadata", "/noop/openapi.json"])
def test_what_can_be_got_has_a_head(two: httpx2.Client, path: str) -> None:
    """As `curl -I`, `wget --spider` and load balancers ask."""
    head = two.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == two.get(path).headers["content-type"]
    assert two.head("/noop/step").status_code == 405


def test_health_and_readiness(two: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert two.get("/health").json() == {"status": "healthy", "environments": {"noop": {}, "other": {}}}
    service = two.app.state.service  # type: ignore[attr-defined]
    monkeypatch.setattr(service.environments["noop"], "health", lambda: {"degraded": "unsafe"}, raising=False)
    assert two.get("/health").json()["status"] == "degraded"
    assert two.get("/other/health").json()["status"] == "healthy"
    assert two.get("/ready").json() == {"status": "ready"}
    monkeypatch.setattr(service.sessions, "draining", True)
    assert two.get("/ready").status_code == 503


@pytest.fixture
def fresh(make_noop: Callable[[], Any]) -> Iterator[TestClient]:
    other = make_noop()
    other.name = "other"
    with TestClient(create_app(Settings(), {"noop": make_noop(), "other": other})) as client:
        yield client


def test_metrics_count_rest_and_websocket(fresh: TestClient) -> None:
    begun = fresh.post("/noop/reset").json()["episode_id"]
    fresh.post("/noop/step", json={"episode_id": begun, "action": {"add": 1, "finish": True}})
    fresh.post("/noop/step", json={"episode_id": begun, "action": {"add": 1}})
    with fresh.websocket_connect("/noop/ws") as socket:
        for message in ({"type": "reset"}, {"type": "step", "data": {"add": 1}}, {"type": "nope"}):
            socket.send_json(message)
            socket.receive_json()
        metrics = fresh.get("/metrics").text.splitlines()
    for line in (
        'rolloutgym_step_seconds_count{environment="noop"} 2.0',
        'rolloutgym_step_seconds_bucket{environment="noop",le="+Inf"} 2.0',
        'rolloutgym_resets_total{environment="noop"} 2.0',
        'rolloutgym_resets_total{environment="other"} 0.0',
        'rolloutgym_finished_total{environment="noop",stop_reason="answered"} 1.0',
        'rolloutgym_live_episodes{environment="noop"} 1.0',
        'rolloutgym_errors_total{code="episode_done"} 1.0',
        'rolloutgym_errors_total{code="unknown_message"} 1.0',
        "rolloutgym_websockets 1.0",
    ):
        assert line in metrics, line


# ---- start and stop ----


def test_uvicorn_finds_the_application_that_the_variables_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTGYM_ENVIRONMENTS", "toolcall")
    app = import_from_string("rolloutgym.server.app:app")
    assert list(app.state.service.environments) == ["toolcall"]
    with pytest.raises(ImportFromStringError, match="nothing"):
        import_from_string("rolloutgym.server.app:nothing")


def test_environments_start_and_stop_with_the_service(noop: Any) -> None:
    app = create_app(Settings(), {"noop": noop})
    assert not noop.running
    with TestClient(app) as client:
        assert noop.running
        client.post("/noop/reset")
        assert noop.open == 1
    assert not noop.running
    assert noop.open == 0


def test_where_one_environment_fails_to_start_the_others_are_stopped(noop: Any) -> None:
    class Broken(type(noop)):  # type: ignore[misc]
        name = "broken"

        async def start(self) -> None:
            raise OSError("no such interpreter")

    with (
        pytest.raises(OSError, match="no such interpreter"),
        TestClient(create_app(Settings(), {"noop": noop, "b": Broken()})),
    ):
        pass
    assert not noop.running
