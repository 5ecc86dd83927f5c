"""The files that others' tools read: Kubernetes manifests, compose file, nginx configuration, Dockerfile."""

import re
import threading
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import httpx2
import kubernetes_validate
import pytest
import yaml

from rolloutgym.client import Client
from rolloutgym.server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS: list[dict[str, Any]] = [
    document
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
VERSIONS = ("1.30", "1.37")


def named(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def manifest_of(kind: str, name: str = "rolloutgym") -> dict[str, Any]:
    (found,) = [one for one in MANIFESTS if named(one) == f"{kind} {name}"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=named)
def test_manifests_fit_the_schemas_of_kubernetes(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    manifest = manifest_of("Deployment") | {"spec": {**manifest_of("Deployment")["spec"], "replicaz": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_selectors_and_targets_of_the_manifests_exist() -> None:
    labels = [m["spec"]["template"]["metadata"]["labels"] for m in MANIFESTS if m["kind"] == "Deployment"]
    for manifest in MANIFESTS:
        spec = manifest.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector", {}))
        wanted = selector.get("matchLabels", selector)
        if wanted:
            assert any(wanted.items() <= one.items() for one in labels), named(manifest)
    target = manifest_of("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert named({"kind": target["kind"], "metadata": target}) in map(named, MANIFESTS)


def test_pods_are_confined_and_probed() -> None:
    pod = manifest_of("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    security = container["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    # No restart mends a Redis that does not answer.
    assert probes == {"startupProbe": "/health", "readinessProbe": "/ready", "livenessProbe": "/health"}
    assert {"requests", "limits"} == set(container["resources"])
    # Variables of the Service rolloutgym would be taken for settings, and refused.
    assert pod["enableServiceLinks"] is False
    # What is in flight may finish, and the balancer hears of the end first.
    drain_s = float(manifest_of("ConfigMap")["data"]["ROLLOUTGYM_DRAIN_S"])
    pause_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > drain_s + pause_s + 5


def test_the_autoscaler_alone_says_how_many_pods_there_are() -> None:
    assert "replicas" not in manifest_of("Deployment")["spec"]
    scaler, spared = manifest_of("HorizontalPodAutoscaler")["spec"], manifest_of("PodDisruptionBudget")["spec"]
    assert 0 < spared["minAvailable"] < scaler["minReplicas"] < scaler["maxReplicas"]


def test_only_the_service_reaches_redis_and_only_redis_is_reached() -> None:
    labels = manifest_of("Deployment")["spec"]["template"]["metadata"]["labels"]
    guarded = manifest_of("NetworkPolicy", "rolloutgym-redis")["spec"]
    (entry,) = guarded["ingress"]
    assert entry == {"from": [{"podSelector": {"matchLabels": labels}}], "ports": [{"port": 6379}]}
    assert ("egress" in guarded, guarded["policyTypes"]) == (False, ["Ingress", "Egress"])
    reached = manifest_of("NetworkPolicy")["spec"]["egress"]
    assert reached[0] == {"to": [{"podSelector": guarded["podSelector"]}], "ports": [{"port": 6379}]}
    assert [{port["port"] for port in each["ports"]} for each in reached[1:]] == [{53}]


BYTES = {"mb": 2**20, "gb": 2**30, "Mi": 2**20, "Gi": 2**30}


def test_redis_has_room_for_the_records_and_refuses_rather_than_forgets() -> None:
    """As many live and as many ended ones as the capacity is, of the size that docs/deployment.md names."""
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    (most,) = re.findall(r"(\d+) kB for a long\s+one", page)
    (container,) = manifest_of("Deployment", "rolloutgym-redis")["spec"]["template"]["spec"]["containers"]
    cluster = int(manifest_of("ConfigMap")["data"]["ROLLOUTGYM_CAPACITY"])
    for command, capacity in (
        (container["args"], cluster),
        (COMPOSE["services"]["redis"]["command"], Settings.model_fields["capacity"].default),
    ):
        flags = dict(zip(command[1::2], command[2::2], strict=True))
        assert (flags["--save"], flags["--maxmemory-policy"]) == ("", "noeviction")
        room = int(flags["--maxmemory"][:-2]) * BYTES[flags["--maxmemory"][-2:]]
        assert room > 2 * capacity * int(most) * 1000
    limit = container["resources"]["limits"]["memory"]
    assert int(limit[:-2]) * BYTES[limit[-2:]] > 6 * 2**30


def settings_of(variables: dict[str, str]) -> Settings:
    fields: dict[str, Any] = {name.removeprefix("ROLLOUTGYM_").lower(): value for name, value in variables.items()}
    return Settings(**fields)


def test_the_settings_in_the_files_are_settings() -> None:
    assert settings_of(manifest_of("ConfigMap")["data"]).store == "redis://rolloutgym-redis:6379/0"
    variables = COMPOSE["services"]["rolloutgym"]["environment"]
    # A variable without a value is the shell's.
    assert settings_of({**variables, "ROLLOUTGYM_API_KEY": "k"}).store == "redis://redis:6379/0"
    assert variables["ROLLOUTGYM_API_KEY"] is None


def test_the_compose_file_ties_replicas_redis_and_nginx_together() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"rolloutgym", "redis", "nginx"}
    replica = services["rolloutgym"]
    assert replica["read_only"]
    assert replica["cap_drop"] == ["ALL"]
    assert replica["scale"] > 1
    nginx = (ROOT / "deploy" / "nginx" / "nginx.conf").read_text(encoding="utf-8")
    assert re.findall(r"server ([\w-]+):8000 .* resolve;", nginx) == ["rolloutgym"]
    assert services["nginx"]["volumes"] == ["./deploy/nginx/nginx.conf:/etc/nginx/nginx.conf:ro"]
    # Each waits until what it needs is healthy; a replica says so by the image's own check.
    assert replica["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert services["nginx"]["depends_on"] == {"rolloutgym": {"condition": "service_healthy"}}
    assert services["redis"]["healthcheck"]["test"] == ["CMD", "redis-cli", "ping"]
    assert set(replica["healthcheck"]) == {"interval"}
    # A silent WebSocket, and a step that takes as long as it may.
    hours = re.findall(r"proxy_(?:read|send)_timeout (\d+)h;", nginx)
    assert [3600 * int(each) > Settings.model_fields["step_timeout_s"].default for each in hours] == [True, True]
    # Nobody but this machine reaches it unasked.
    assert services["nginx"]["ports"] == ["${PUBLISH:-127.0.0.1:8000}:8000"]
    assert not {"ports", "network_mode"} & (set(replica) | set(services["redis"]))


@pytest.mark.redis
def test_nginx_as_shipped_passes_both_transports_and_keeps_an_episode_where_it_is(
    start_balancer: Callable[..., str],
    redis_server: Any,
    start_service: Callable[..., str],
    make_noop: Callable[[], Any],
) -> None:
    environments = [make_noop() for _ in range(2)]
    urls = [start_service({"noop": one}, store=redis_server.url) for one in environments]
    balancer = start_balancer([int(url.rpartition(":")[2]) for url in urls])
    for transport in ("rest", "websocket"):
        with Client(balancer, transport=transport) as client:
            for seed in range(8):
                with client.environment("noop").reset(seed=seed) as episode:
                    totals = [episode.step({"add": 1.0}).observation.total for _ in range(3)]
                    assert totals == [1.0, 2.0, 3.0]
    with httpx2.Client(base_url=f"{balancer}/noop", timeout=60) as http:
        for number in range(8):
            ors = {"x-session-id": f"ors-{number}"}
            http.post("/create", json={"split": "train", "index": 0}, headers=ors).raise_for_status()
            for _ in range(3):
                assert "total" in http.post("/call", json={"name": "add", "input": {"add": 1}}, headers=ors).text
            mcp: dict[str, str] = {}
            for method, params in (("initialize", {}), *[("tools/call", {"name": "add", "arguments": {"add": 1}})] * 3):
                call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                answer = http.post("/mcp", json=call, headers=mcp)
                assert "result" in answer.json()
                mcp = {"mcp-session-id": answer.headers["mcp-session-id"]}
    # No step was replayed, and both had some.
    assert sum(one.steps for one in environments) == 4 * 8 * 3
    assert all(one.steps for one in environments)


def test_nginx_sends_no_step_again_that_a_replica_may_have_begun(start_balancer: Callable[..., str]) -> None:
    """The replica ends in the middle; only the client knows the step's number."""
    begun = []

    class Dying(BaseRequestHandler):
        def handle(self) -> None:
            begun.append(self.request.recv(65536))

    with ExitStack() as stack:
        replicas = [stack.enter_context(ThreadingTCPServer(("127.0.0.1", 0), Dying)) for _ in range(2)]
        for replica in replicas:
            stack.callback(replica.shutdown)
            threading.Thread(target=replica.serve_forever, args=(0.05,)).start()
        balancer = start_balancer([replica.server_address[1] for replica in replicas])
        assert httpx2.post(f"{balancer}/sql/step", json={"episode_id": "e", "action": {}}).status_code == 502
    assert len(begun) == 1


def test_the_dockerfile_builds_with_both_builders_and_keeps_its_promises() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "<<" not in text
    final = text[text.rindex("\nFROM") :]
    assert re.search(r"^USER 10001:10001$", final, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["dumb-init", .*"--"\]$', final, re.MULTILINE)
    assert re.search(r'^CMD \["rolloutgym", "serve"\]$', final, re.MULTILINE)
    assert "HEALTHCHECK" in final
    assert "COPY . " not in final
    # What changes most comes last, and installs nothing but itself.
    requirements, code = text.index("COPY pyproject.toml "), text.index("COPY . ")
    assert requirements < text.index("-r /requirements.txt") < code
    assert re.findall(r"pip install (.*?)(?: \\)?$", text[code:], re.MULTILINE) == [
        "--no-cache-dir --quiet --no-deps /wheels/rolloutgym-*.whl"
    ]


def test_the_image_is_built_from_what_a_wheel_needs_and_nothing_else() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {name.split(".")[1] for name in configured["tool"]["setuptools"]["packages"] if "." in name}
    project = configured["project"]
    files = {"pyproject.toml", "py.typed", project["readme"], *project["license-files"]}
    files |= {path.name for path in ROOT.glob("*.py")}
    first, *others = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert first == "*"
    assert set(others) == {f"!{name}" for name in folders | files} | {"**/__pycache__", "**/*.pyc"}
