"""The image and its launcher, with a real Docker engine: `make docker-test` brings up what they need."""

import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import httpx2
import pytest

from rolloutgym.cli.playing import oracle, play_episode
from rolloutgym.client import Client, ConnectionFailed
from rolloutgym.client.container import _create, launch
from rolloutgym.server.environments.registry import build_environments
from rolloutgym.server.sandbox.launch import read_layout
from rolloutgym.server.settings import Settings

IMAGE = os.environ.get("TEST_IMAGE", "rolloutgym")
LARGEST_MB = 400
"""Of the image beyond its base's Python."""


@pytest.fixture(scope="module")
def engine(docker_engine: Any) -> Any:
    try:
        docker_engine.images.get(IMAGE)
    except docker.errors.ImageNotFound:
        pytest.skip(f"the engine has no image {IMAGE!r}")
    return docker_engine


@contextmanager
def running(engine: Any, **options: Any) -> Iterator[Any]:
    container = engine.containers.run(IMAGE, detach=True, **options)
    try:
        yield container
    finally:
        container.remove(force=True)


def until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def serves(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/ready").status_code == 200
    except httpx2.RequestError:
        return False


def play_all(client: Client) -> None:
    local = build_environments(Settings())
    for name, environment in local.items():
        assert play_episode(client.environment(name), environment, oracle(name), seed=1).success, name


# ---- the image ------------------------------------------------------------------------------------------------------


@pytest.mark.docker
@pytest.mark.slow
def test_plain_run_serves_turns_healthy_and_ends_on_sigterm(engine: Any) -> None:
    with running(engine, ports={"8000/tcp": ("127.0.0.1", None)}) as container:
        container.reload()
        url = f"http://127.0.0.1:{container.ports['8000/tcp'][0]['HostPort']}"
        until(lambda: serves(url), 60)
        with Client(url) as client:
            play_all(client)
        until(lambda: engine.api.inspect_container(container.id)["State"]["Health"]["Status"] == "healthy", 60)
        begun = time.monotonic()
        container.kill(signal="SIGTERM")
        assert container.wait(timeout=10)["StatusCode"] == 0
        assert time.monotonic() - begun < 10


_INSIDE = """
import json, time, urllib.request
deadline = time.time() + 30
while True:
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8000/health", timeout=2).read().decode()); break
    except OSError:
        if time.time() > deadline: raise
        time.sleep(0.2)
def call(path, **body):
    request = urllib.request.Request("http://127.0.0.1:8000" + path, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request, timeout=60))
episode = call("/code/reset", seed=1)["episode_id"]
print(json.dumps(call("/code/step", episode_id=episode, action={"code": "import sympy; print(6 * 7)"})))
"""


@pytest.mark.docker
@pytest.mark.slow
def test_the_most_confined_form_serves_and_isolates(engine: Any) -> None:
    confined = {
        "user": "65532:65532",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": 256,
        "tmpfs": {"/tmp": ""},
        "network_mode": "none",
    }
    with running(engine, **confined) as container:
        status, output = container.exec_run(["python", "-c", _INSIDE])
        assert status == 0, output.decode()
        health, answer = output.decode().splitlines()
        isolation = json.loads(health)["environments"]["code"]
        assert "landlock" in json.dumps(isolation) or "namespaces" in json.dumps(isolation), isolation
        assert "42" in json.loads(answer)["observation"]["messages"][0]["content"]
        assert container.exec_run(["id", "-u"])[1].strip() == b"65532"


_KILLER = """
import json, os, sys, time, urllib.error, urllib.request
def call(path, **body):
    request = urllib.request.Request("http://127.0.0.1:8000" + path, json.dumps(body).encode())
    while True:
        try:
            return json.load(urllib.request.urlopen(request, timeout=60))
        except urllib.error.HTTPError as error:
            if error.code != 503: raise
        except OSError: pass
        time.sleep(0.2)
def processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
            yield int(pid), stat[0], int(stat[1]), open(f"/proc/{pid}/cmdline").read()
        except OSError: pass
for _ in range(int(sys.argv[1])):
    for seed in range(4):
        episode = call("/code/reset", seed=seed)["episode_id"]
        call("/code/step", episode_id=episode, action={"code": "x = 1"})
    found = list(processes())
    sandbox = {pid for pid, _, _, command in found if command.startswith("/opt/sandbox/")}
    (forks,) = [pid for pid, _, parent, _ in found if pid in sandbox and parent not in sandbox]
    family = {pid for pid, _, parent, _ in found if forks in (pid, parent)}
    assert len(family) == 5
    os.kill(forks, 9)
    while family & {pid for pid, state, _, _ in processes() if state != "Z"}: time.sleep(0.05)
time.sleep(1)
print(sum(state == "Z" for _, state, _, _ in processes()))
"""


@pytest.mark.docker
@pytest.mark.slow
def test_nothing_that_is_killed_stays_as_a_zombie(engine: Any) -> None:
    with running(engine, pids_limit=256, environment={"ROLLOUTGYM_ENVIRONMENTS": "code"}) as container:
        status, output = container.exec_run(["python", "-c", _KILLER, "4"])
        assert (status, output.decode()) == (0, "0\n")


def test_a_virtual_environment_lends_the_sandbox_its_own_packages(tmp_path: Path) -> None:
    venv.create(tmp_path / "sandbox", with_pip=False, symlinks=True)
    layout = read_layout(tmp_path / "sandbox" / "bin" / "python")
    assert [folder for folder in layout.site if not folder.startswith(str(tmp_path))] == []
    assert layout.site


@pytest.mark.docker
@pytest.mark.slow
def test_the_image_holds_no_compiler_no_source_tree_and_is_small(engine: Any) -> None:
    listing = (
        "for c in cc gcc g++ make git; do command -v $c; done; ls -d /src /app /opt/rolloutgym/src 2>/dev/null; true"
    )
    output = engine.containers.run(IMAGE, ["sh", "-c", listing], remove=True)
    assert output == b""
    size = "du -sxm /opt | cut -f1; find /opt -name torch -maxdepth 6 -type d"
    assert int(engine.containers.run(IMAGE, ["sh", "-c", size], remove=True)) < LARGEST_MB


# ---- the launcher ---------------------------------------------------------------------------------------------------


def containers_of_clients(engine: Any) -> list[Any]:
    found: list[Any] = engine.containers.list(all=True, filters={"label": "rolloutgym=client"})
    return found


@pytest.mark.docker
@pytest.mark.slow
def test_launch_hands_back_a_client_and_removes_the_container(engine: Any) -> None:
    settings = {"environments": ["toolcall", "sql"], "default_env": "toolcall", "api_key": "k"}
    with launch(IMAGE, settings=settings, api_key="k") as client:
        assert client.list_environments() == ["toolcall", "sql"]
        client.toolcall.reset(seed=1).close()
        assert len(containers_of_clients(engine)) == 1
    assert containers_of_clients(engine) == []


@pytest.mark.docker
@pytest.mark.slow
def test_launch_reads_files_of_this_machine(engine: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "problems.jsonl").write_text('{"prompt": "1 + 1?", "answer": 2}\n')
    settings = {"environments": ["code"], "default_env": "code", "code_data": "/data/problems.jsonl"}
    with launch(IMAGE, settings=settings, mounts={tmp_path: "/data"}) as client:
        assert sum(client.code.num_tasks(split.name) for split in client.code.splits()) == 1
    with pytest.raises(ConnectionFailed, match="does not exist"), launch(IMAGE, mounts={tmp_path / "none": "/data"}):
        pass
    assert containers_of_clients(engine) == []


@pytest.mark.docker
@pytest.mark.slow
def test_a_container_ends_with_a_caller_that_is_killed(engine: Any) -> None:
    program = (
        "from rolloutgym.client.container import launch\n"
        f"with launch({IMAGE!r}, settings={{'environments': 'toolcall'}}): print('up', flush=True); input()\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert caller.stdin is not None
    assert caller.stdout is not None
    assert caller.stdout.readline() == "up\n"
    assert len(containers_of_clients(engine)) == 1
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    until(lambda: containers_of_clients(engine) == [], 20)
    caller.stdin.close()
    caller.stdout.close()


@pytest.mark.docker
@pytest.mark.slow
def test_a_service_that_cannot_start_says_why_and_leaves_no_container(engine: Any) -> None:
    with pytest.raises(ConnectionFailed, match=r"ended: .*nowhere"), launch(IMAGE, settings={"sql_data": "/nowhere"}):
        pass
    with pytest.raises(ConnectionFailed, match=r"not ready within 0\.1 s"), launch(IMAGE, ready_within_s=0.1):
        pass
    assert containers_of_clients(engine) == []


@pytest.mark.docker
@pytest.mark.slow
def test_a_missing_image_says_how_to_build_it(engine: Any) -> None:
    with pytest.raises(ConnectionFailed, match="docker build -t no-such-image"), launch("no-such-image"):
        pass


class RecordingEngine:
    """Makes no container, and keeps what it was to make one of."""

    def __init__(self) -> None:
        self.containers = self
        self.asked: dict[str, Any] = {}

    def create(self, image: str, command: list[str], **options: Any) -> None:
        self.asked = {"image": image, "command": command, **options}


def test_a_container_is_confined_and_set_up_by_its_settings(tmp_path: Path) -> None:
    engine = RecordingEngine()
    settings = {"environments": ["sql", "code"], "api_key": None, "capacity": 7, "sql_empty_golds": True}
    _create(engine, "image", settings, {tmp_path: "/data"})
    asked = engine.asked
    assert asked["environment"] == {
        "ROLLOUTGYM_ENVIRONMENTS": "sql,code", "ROLLOUTGYM_CAPACITY": "7", "ROLLOUTGYM_SQL_EMPTY_GOLDS": "True"
    }  # fmt: skip
    # Reached from this machine alone, on a port that is free.
    assert asked["ports"] == {"8000/tcp": ("127.0.0.1", None)}
    assert (asked["read_only"], asked["cap_drop"], asked["security_opt"]) == (True, ["ALL"], ["no-new-privileges"])
    assert (asked["auto_remove"], asked["stdin_open"]) == (True, True)
    (mount,) = asked["mounts"]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (str(tmp_path), "/data", True)


def test_without_an_engine_the_error_says_so(tmp_path: Path) -> None:
    program = (
        "from rolloutgym.client import ConnectionFailed\nfrom rolloutgym.client.container import launch\n"
        "try:\n    with launch(): pass\nexcept ConnectionFailed as error: print(error.retryable, error)\n"
    )
    # A process of its own: when it fails, the SDK leaves a socket to the garbage collector.
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("False connection_failed: no Docker engine answers: ")


def test_the_sdk_is_imported_only_to_start_a_container() -> None:
    program = "import sys, rolloutgym.client, rolloutgym.client.container; assert 'docker' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
