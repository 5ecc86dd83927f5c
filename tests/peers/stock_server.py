"""OpenEnv's own server with the environment of the tests, on a free port; writes its base URL."""

import socket
import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class NoopAction(Action):
    add: float | None = None
    text: str | None = None
    fault: str | None = None
    finish: bool | None = None


class NoopObservation(Observation):
    echoed: str = ""
    total: float = 0.0


class NoopEnvironment(Environment[NoopAction, NoopObservation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self._total = 0.0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> NoopObservation:
        self._state = State(episode_id=episode_id, step_count=0)
        self._total = 0.0
        return NoopObservation()

    def step(self, action: NoopAction, timeout_s: float | None = None, **_: Any) -> NoopObservation:
        if action.fault is not None:
            raise ValueError(action.fault)
        self._total += action.add or 0.0
        self._state.step_count += 1
        done = bool(action.finish)
        return NoopObservation(echoed=action.text or "", total=self._total, reward=action.add or 0.0, done=done)

    @property
    def state(self) -> State:
        return self._state


def serve(app: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])


if __name__ == "__main__":
    serve(create_fastapi_app(NoopEnvironment, NoopAction, NoopObservation, max_concurrent_envs=int(sys.argv[1])))
