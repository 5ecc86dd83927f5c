"""The service in a container of its own, through the Docker SDK (extra `docker`).

The container lives as long as who started it: its standard input is a connection to this process, and it stops when
that ends, even by SIGKILL. It is confined as far as the image allows, reachable from this machine alone, and removed
by the engine when it stops.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
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
_LOG_LINES = 20


class Container:
    """A container that serves at `url`, from its construction to `close()`."""

    def __init__(
        self, image: str = "rolloutgym", *, settings: Mapping[str, object] | None = None, ready_within_s: float = 60.0
    ) -> None:
        """`settings` are the service's, by field (`{"environments": "sql"}`).

        Raises `ConnectionFailed` if no engine answers, the image is missing, or the service does not become ready.
        """
        self._engine = _engine()
        with ExitStack() as undo:
            undo.callback(self._engine.close)
            self._container = _create(self._engine, image, settings or {})
            undo.callback(self._remove)
            # Before the start, so that there is no moment at which it could be orphaned.
            self._lifeline = self._container.attach_socket(params={"stdin": 1, "stream": 1})
            undo.callback(self._hang_up)
            self._start()
            self.url = self._address()
            self._until_ready(monotonic() + ready_within_s)
            undo.pop_all()

    @property
    def id(self) -> str:
        return str(self._container.id)

    def logs(self) -> str:
        """The last lines that the service wrote."""
        return bytes(self._container.logs(tail=_LOG_LINES)).decode(errors="replace")

    def close(self) -> None:
        """Stop the service and remove the container. Idempotent."""
        from docker.errors import NotFound

        with suppress(NotFound):
            self._container.stop(timeout=_STOP_S)
        self._remove()
        self._hang_up()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        from docker.errors import APIError

        try:
            self._container.start()
        except APIError as error:
            raise ConnectionFailed(f"the container did not start: {error.explanation}", retryable=False) from error

    def _remove(self) -> None:
        """Kill it if it runs. The engine may have removed it, or be about to: then asking is refused."""
        from docker.errors import APIError

        with suppress(APIError):
            self._container.remove(force=True)
        with suppress(APIError):
            self._container.wait(condition="removed")

    def _hang_up(self) -> None:
        # The SDK hands out a view of its connection; the connection is to be closed too.
        connection = getattr(self._lifeline, "_sock", None)
        self._lifeline.close()
        if connection is not None:
            connection.close()

    def _address(self) -> str:
        self._container.reload()
        bindings = self._container.ports.get(_PORT) or []
        if not bindings:
            raise ConnectionFailed(f"the container ended at once: {self.logs()}", retryable=False)
        return f"http://127.0.0.1:{bindings[0]['HostPort']}"

    def _until_ready(self, deadline: float) -> None:
        while monotonic() < deadline:
            with suppress(httpx2.RequestError):
                if httpx2.get(f"{self.url}/ready").status_code == 200:
                    return
            self._container.reload()
            if self._container.status not in ("created", "running"):
                break
            sleep(_POLL_S)
        raise ConnectionFailed(f"the service in the container did not start: {self.logs()}", retryable=False)


@contextmanager
def launch(
    image: str = "rolloutgym",
    *,
    settings: Mapping[str, object] | None = None,
    ready_within_s: float = 60.0,
    **client_options: Any,
) -> Iterator[Client]:
    """A client of a container that lives as long as the block; see `Container` and `Client`."""
    with (
        Container(image, settings=settings, ready_within_s=ready_within_s) as container,
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


def _create(engine: Any, image: str, settings: Mapping[str, object]) -> Any:
    from docker.errors import APIError, ImageNotFound

    try:
        return engine.containers.create(
            image,
            _COMMAND,
            environment={f"ROLLOUTGYM_{name.upper()}": str(value) for name, value in settings.items()},
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
