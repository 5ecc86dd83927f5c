"""The service in a container of its own, through the Docker SDK (extra `docker`).

The container lives as long as who started it: its standard input is a connection to this process, and it stops when
that ends, even by SIGKILL. It is confined as far as the image allows, reachable from this machine alone, and removed
by the engine when it stops.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

import httpx2

from rolloutgym.client.errors import ConnectionFailed
from rolloutgym.client.sync_client import Client

_PORT = "8000/tcp"
# The service is process 1; beside it, something that ends it when standard input does.
_COMMAND = ["sh", "-c", "exec 3<&0; (cat <&3 >/dev/null; kill -TERM 1) & exec rolloutgym serve </dev/null 3<&-"]
_POLL_S = 0.1
_STOP_S = 15
_KEPT = 100
"""Pieces of output."""


class Container:
    """A container that serves at `url`, from its construction to `close()`."""

    def __init__(
        self,
        image: str = "rolloutgym",
        *,
        settings: Mapping[str, object] | None = None,
        mounts: Mapping[str | Path, str] | None = None,
        ready_within_s: float = 60.0,
    ) -> None:
        """`settings` are the service's, by field (`{"environments": ["sql"], "sql_data": "/data"}`), None being the
        default; `mounts` are folders or files of this machine and where the service reads them (`{"spider": "/data"}`).

        Raises `ConnectionFailed` if no engine answers, the image is missing, or the service does not become ready.
        """
        self._engine = _engine()
        self._output: deque[bytes] = deque(maxlen=_KEPT)
        self._listener: Thread | None = None
        try:
            self._container = _create(self._engine, image, settings or {}, mounts or {})
        except BaseException:
            self._engine.close()
            raise
        try:
            self._attach()
            self._start()
            self.url = self._address()
            self._until_ready(ready_within_s)
        except BaseException:
            self._let_go()
            raise

    @property
    def id(self) -> str:
        return str(self._container.id)

    def logs(self) -> str:
        """The last that the service wrote."""
        return b"".join(tuple(self._output)).decode(errors="replace")

    def close(self) -> None:
        """Stop the service and remove the container. Idempotent."""
        from docker.errors import NotFound

        try:
            with suppress(NotFound):
                self._container.stop(timeout=_STOP_S)
        finally:
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _attach(self) -> None:
        """Before the start, so that there is no moment at which it could run orphaned, and no word is missed."""
        from docker.utils.socket import frames_iter

        self._lifeline = self._container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        pieces = (piece for _, piece in frames_iter(self._lifeline, tty=False))
        self._listener = Thread(target=self._output.extend, args=(pieces,), daemon=True)
        self._listener.start()

    def _start(self) -> None:
        from docker.errors import APIError

        try:
            self._container.start()
        except APIError as error:
            raise ConnectionFailed(f"the container did not start: {error.explanation}", retryable=False) from error

    def _let_go(self) -> None:
        """Kill it if it runs, and wait until the engine has removed it."""
        from docker.errors import APIError

        # It may be gone, or about to go: then asking is refused.
        with suppress(APIError):
            self._container.remove(force=True)
        with suppress(APIError):
            self._container.wait(condition="removed")
        if self._listener is not None:
            # Its end is the output's, and so the container's. The SDK hands out a view of a connection: close both.
            self._listener.join(_STOP_S)
            connection = getattr(self._lifeline, "_sock", None)
            self._lifeline.close()
            if connection is not None:
                connection.close()
        self._engine.close()

    def _address(self) -> str:
        self._check_that_it_runs()
        return f"http://127.0.0.1:{self._container.ports[_PORT][0]['HostPort']}"

    def _until_ready(self, within_s: float) -> None:
        deadline = monotonic() + within_s
        while monotonic() < deadline:
            self._check_that_it_runs()
            with suppress(httpx2.RequestError):
                if httpx2.get(f"{self.url}/ready", trust_env=False).status_code == 200:
                    return
            sleep(_POLL_S)
        raise ConnectionFailed(
            f"the service in the container was not ready within {within_s:g} s: {self.logs()}", retryable=False
        )

    def _check_that_it_runs(self) -> None:
        from docker.errors import NotFound

        with suppress(NotFound):
            self._container.reload()
            if self._container.status in ("created", "running"):
                return
        if self._listener is not None:
            self._listener.join(_STOP_S)  # for its last words
        raise ConnectionFailed(f"the service in the container ended: {self.logs()}", retryable=False)


@contextmanager
def launch(
    image: str = "rolloutgym",
    *,
    settings: Mapping[str, object] | None = None,
    mounts: Mapping[str | Path, str] | None = None,
    ready_within_s: float = 60.0,
    **client_options: Any,
) -> Iterator[Client]:
    """A client of a container that lives as long as the block; see `Container` and `Client`."""
    with (
        Container(image, settings=settings, mounts=mounts, ready_within_s=ready_within_s) as container,
        Client(container.url, **client_options) as client,
    ):
        yield client


def _engine() -> Any:
    try:
        import docker
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("starting a container needs: pip install 'rolloutgym[docker]'") from error
    try:
        engine = docker.from_env()
    except docker.errors.DockerException as error:
        raise ConnectionFailed(f"no Docker engine answers: {error}", retryable=False) from error
    try:
        engine.ping()
    except (docker.errors.DockerException, OSError) as error:
        engine.close()
        raise ConnectionFailed(f"no Docker engine answers: {error}", retryable=False) from error
    return engine


def _create(engine: Any, image: str, settings: Mapping[str, object], mounts: Mapping[str | Path, str]) -> Any:
    from docker.errors import APIError, ImageNotFound
    from docker.types import Mount

    try:
        return engine.containers.create(
            image,
            _COMMAND,
            environment={
                f"ROLLOUTGYM_{name.upper()}": _variable(value) for name, value in settings.items() if value is not None
            },
            mounts=[
                Mount(inside, str(Path(here).absolute()), type="bind", read_only=True)
                for here, inside in mounts.items()
            ],
            labels={"rolloutgym": "client"},
            ports={_PORT: ("127.0.0.1", None)},
            stdin_open=True,
            auto_remove=True,
            read_only=True,
            tmpfs={"/tmp": "size=1g,mode=1777"},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=1024,
        )
    except ImageNotFound as error:
        raise ConnectionFailed(
            f"the engine has no image {image!r}: docker build -t {image} .", retryable=False
        ) from error
    except APIError as error:
        raise ConnectionFailed(f"the engine made no container: {error.explanation}", retryable=False) from error


def _variable(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
