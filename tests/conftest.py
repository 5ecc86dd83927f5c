"""Shared fixtures: services in threads and processes, what several of them share, and peers."""

import asyncio
import gc
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import docker
import httpx2
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from rolloutgym.models import ResetRequest
from rolloutgym.server.app import create_app
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.sandbox.client import Sandbox, SandboxConfig
from rolloutgym.server.serving import server_of
from rolloutgym.server.sessions import Limits, Sessions
from rolloutgym.server.settings import Settings
from rolloutgym.server.store import Key, MemoryStore, Record, Store
from rolloutgym.tests.noop import NoopAction, NoopEnvironment

# How long an example or an answer takes depends on what else the machine does. The examples are the same in every run:
# what others find is for `--hypothesis-profile explore`.
hypothesis_settings.register_profile(
    "explore", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.register_profile("suite", hypothesis_settings.get_profile("explore"), derandomize=True)
hypothesis_settings.load_profile("suite")
_timeout: httpx2.Timeout = signature(httpx2.Client).parameters["timeout"].default
_timeout.connect = _timeout.read = _timeout.write = _timeout.pool = 60.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# ---- an environment for tests of the service ------------------------------------------------------------------------


@pytest.fixture
def noop() -> NoopEnvironment:
    return NoopEnvironment()


@pytest.fixture(scope="session")
def make_noop() -> Callable[[], NoopEnvironment]:
    """For fixtures that live longer than a test."""
    return NoopEnvironment


# ---- episodes below the wire ----------------------------------------------------------------------------------------


class Table:
    """Sessions over one environment, with short calls."""

    def __init__(self, environment: NoopEnvironment, store: Store, limits: Limits) -> None:
        self.environment = environment
        self.metrics = Metrics([environment.name])
        self.store = store
        self.sessions = Sessions([environment], store, limits, self.metrics)

    async def reset(self, episode_id: str = "e", *, instead_of: str | None = None, **fields: Any) -> Record:
        request = ResetRequest(episode_id=episode_id, **{"seed": 1, **fields})
        return await self.sessions.reset(self.environment, request, instead_of=instead_of)

    async def step(
        self, episode_id: str = "e", *, at: int | None = None, limit: float | None = None, **action: Any
    ) -> Any:
        act = NoopAction(**action)
        return json.loads(await self.sessions.step(self.environment, episode_id, act, step=at, timeout_s=limit))

    async def state(self, episode_id: str = "e") -> Any:
        return json.loads(await self.sessions.state(self.environment, episode_id))

    def forget_live_object(self, episode_id: str = "e") -> None:
        self.sessions._sessions[Key(self.environment.name, episode_id)].drop()


@pytest.fixture
async def make_table(noop: NoopEnvironment) -> AsyncIterator[Callable[..., Table]]:
    """`make_table(environment, store, **limits)`: each may be left out. No episode is live at the test's end."""
    made: list[Table] = []
    usual = Limits(capacity=8, idle_timeout_s=60.0, step_timeout_s=5.0)

    def make(environment: NoopEnvironment = noop, store: Store | None = None, **limits: Any) -> Table:
        made.append(Table(environment, store or MemoryStore(), usual._replace(**limits)))
        return made[-1]

    yield make
    for table in made:
        await table.sessions.stop()
        assert table.environment.open == 0


@pytest.fixture
def table(make_table: Callable[..., Table]) -> Table:
    return make_table()


# ---- the sandbox ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sandbox_config() -> SandboxConfig:
    """Of `play`; a module may have another."""
    return SandboxConfig()


@pytest.fixture(scope="module")
def play(sandbox_config: SandboxConfig) -> Iterator[Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]]:
    """`play(what)` awaits `what(sandbox)`: one sandbox and one event loop for all tests of a module."""
    with asyncio.Runner() as runner:
        sandbox = Sandbox(sandbox_config)
        runner.run(sandbox.start())

        async def call(what: Callable[[Sandbox], Awaitable[Any]]) -> Any:
            return await what(sandbox)

        yield lambda what: runner.run(call(what))
        runner.run(sandbox.stop())


# ---- services -------------------------------------------------------------------------------------------------------


@contextmanager
def _serving(environments: Mapping[str, Any], **fields: Any) -> Iterator[str]:
    listening = threading.Event()
    settings = Settings(host="127.0.0.1", port=0, log_level="error", **{"drain_s": 1.0, **fields})
    server = server_of(create_app(settings, environments), settings, listening.set)
    for environment in environments.values():
        environment.server = server
    thread = threading.Thread(target=server.run, name="service")
    thread.start()
    try:
        if not listening.wait(120):
            raise RuntimeError("the service did not start")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive()


@pytest.fixture
def start_service() -> Iterator[Callable[..., str]]:
    """`start_service(environments={"noop": …}, **settings)` serves objects of the test's own, with a real uvicorn in a
    thread, until the test's end; the base URL is returned."""
    with ExitStack() as stack:

        def start(environments: Mapping[str, Any], **fields: Any) -> str:
            return stack.enter_context(_serving(environments, **fields))

        yield start


@pytest.fixture(scope="session")
def serving() -> Any:
    """`with serving({"noop": …}, **settings) as url:`, for fixtures that live longer than a test."""
    return _serving


@pytest.fixture(scope="module")
def shared_noop() -> Iterator[tuple[NoopEnvironment, str]]:
    """An environment and its service's base URL, for all tests of a module."""
    environment = NoopEnvironment()
    # No episode of an earlier test ends by itself while a later one counts.
    with _serving({"noop": environment}, grace_s=3600.0) as url:
        yield environment, url


@dataclass(frozen=True)
class ServiceProcess:
    url: str
    process: "subprocess.Popen[str]"

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


_SERVE = ("-m", "rolloutgym.cli", "serve", "--port", "0")


_SERVE_NOOP = ("-m", "rolloutgym.tests.noop")


@contextmanager
def _process(arguments: Sequence[str] = _SERVE, **fields: str) -> Iterator[ServiceProcess]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROLLOUTGYM_")}
    environment |= {f"ROLLOUTGYM_{name.upper()}": value for name, value in fields.items()}
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the service did not start: {line!r}")
        yield ServiceProcess(line.removeprefix("listening on ").strip(), process)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


@pytest.fixture
def service_process() -> Iterator[Callable[..., ServiceProcess]]:
    """`service_process(sql_workers="1", …)` starts `rolloutgym serve` with these `ROLLOUTGYM_` variables."""
    with ExitStack() as stack:

        def start(**fields: str) -> ServiceProcess:
            return stack.enter_context(_process(**fields))

        yield start


@pytest.fixture
def noop_process() -> Iterator[Callable[..., ServiceProcess]]:
    """`noop_process(drain_s="1", …)` serves the environment of these tests in a process of its own."""
    with ExitStack() as stack:

        def start(**fields: str) -> ServiceProcess:
            return stack.enter_context(_process(_SERVE_NOOP, **fields))

        yield start


@pytest.fixture(scope="session")
def service_url() -> Iterator[str]:
    """One service with all environments and default settings, shared by all tests of a process."""
    with _process() as service:
        yield service.url


# ---- what several services share ------------------------------------------------------------------------------------


def _free_port() -> int:
    """Below those that the system gives to whoever asks for any, or connects."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _until_listening(process: "subprocess.Popen[Any]", port: int) -> None:
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} ended at once")


class RedisServer:
    """A Redis of the tests' own, without a disk."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._flags = ["--save", "", "--dir", str(folder), *flags]
        self.start()

    def start(self) -> None:
        address = ["--bind", "127.0.0.1", "--port", str(self.port)]
        command = ["redis-server", *address, *self._flags]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _until_listening(self.process, self.port)
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as probe:
            probe.sendall(b"PING\r\n")
            probe.recv(64)  # whatever it answers, it listens by now wherever it shall

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    return _free_port


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def start_balancer(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`start_balancer(ports)` runs nginx, as `deploy/` sets it up, in front of services on these loopback ports;
    with `round_robin`, each request goes to the next one."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    with ExitStack() as stack:

        def start(ports: Sequence[int], *, round_robin: bool = False) -> str:
            port = _free_port()
            shipped = (Path(__file__).parent.parent / "deploy" / "nginx" / "nginx.conf").read_text(encoding="utf-8")
            (line,) = re.findall(r" *server rolloutgym:8000(.*) resolve;\n", shipped)
            servers = "".join(f"server 127.0.0.1:{each}{line};\n" for each in ports)
            config = re.sub(r" *server rolloutgym:8000.*\n", servers, shipped)
            if round_robin:
                config = config.replace("hash $affinity;", "")
            config = config.replace("listen 8000;", f"listen 127.0.0.1:{port};").replace("auto;", "1;")
            paths = "".join(
                f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            config = config.replace("http {\n", f"http {{ access_log off; {paths}\n")
            file = tmp_path / "nginx.conf"
            file.write_text(f"daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log;\n{config}")
            process = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(file)], stderr=subprocess.DEVNULL)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            _until_listening(process, port)
            return f"http://127.0.0.1:{port}"

        yield start


# ---- Docker ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Any]:
    """The SDK's client of an engine, or a skip where none answers."""
    engine = None
    try:
        engine = docker.from_env()
        engine.ping()
    except docker.errors.DockerException:
        engine = None
    if engine is None:
        # The SDK leaves the socket that did not connect to the garbage collector, which would blame a later test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        pytest.skip("no Docker engine answers")
    yield engine
    engine.close()


# ---- peers ----------------------------------------------------------------------------------------------------------

_PEERS = Path(__file__).parent.parent / ".venv-peers" / "bin" / "python"
_TRAINERS = Path(__file__).parent.parent / ".venv-trainers" / "bin" / "python"


@pytest.fixture(scope="session")
def peer() -> Callable[..., Any]:
    """`peer("openenv_clients", {…})` runs that script of `tests/peers` in the peers' own environment, with this object
    on its standard input, and returns what it writes."""
    if not _PEERS.exists():
        pytest.skip("other projects' clients are not installed: make .venv-peers/.ready")

    def run(script: str, work: Any, *, python: Path = _PEERS, timeout_s: float = 500.0) -> Any:
        command = [str(python), str(Path(__file__).parent / "peers" / f"{script}.py")]
        done = subprocess.run(command, input=json.dumps(work), capture_output=True, text=True, timeout=timeout_s)
        assert done.returncode == 0, done.stderr[-6000:]
        return json.loads(done.stdout)

    return run


@pytest.fixture
def atropos_api() -> Iterator[httpx2.Client]:
    """The trainer's side of a fresh API server of Atropos."""
    if not _TRAINERS.exists():
        pytest.skip("Atropos is not installed: make .venv-trainers/.ready")
    script = Path(__file__).parent / "peers" / "atropos_api.py"
    process = subprocess.Popen([_TRAINERS, script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with process.stdout, httpx2.Client(base_url=process.stdout.readline().strip(), timeout=30) as trainer:
            yield trainer
    finally:
        process.terminate()
        process.wait(60)
