"""The FastAPI application: each environment as a sub-application at its name, the default one at the root too.

`app` is built from the `ROLLOUTGYM_` variables when it is asked for: `uvicorn rolloutgym.server.app:app`.
"""

import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.middleware.cors import CORSMiddleware

from rolloutgym.server import serving, workers
from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.errors import ServiceError
from rolloutgym.server.routes import web
from rolloutgym.server.routes.bodies import HeadAsGet, json_app
from rolloutgym.server.routes.episodes import add_episode_routes
from rolloutgym.server.routes.faults import UnexpectedFaults, add_error_handlers
from rolloutgym.server.routes.mcp import SESSION_HEADER, add_mcp_routes
from rolloutgym.server.routes.operations import add_environment_routes, add_service_routes
from rolloutgym.server.routes.ors import add_ors_routes
from rolloutgym.server.routes.security import Gate
from rolloutgym.server.routes.shortcuts import Handler, Shortcuts, handler_of
from rolloutgym.server.routes.tasks import add_named_task_routes, add_task_routes
from rolloutgym.server.routes.websocket import player_of
from rolloutgym.server.service import Service
from rolloutgym.server.settings import Settings

API_VERSION = "1.0.0"


def create_app(settings: Settings, environments: Mapping[str, AnyEnvironment] | None = None) -> FastAPI:
    """The service. Its environments start and stop with the root application's lifespan."""
    service = Service(settings, build_environments(settings) if environments is None else environments)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.drain()
            await service.stop()

    app = json_app(title="RolloutGym", version=API_VERSION, lifespan=lifespan)
    steps: dict[str, Handler] = {}
    players = {"/ws": player_of(service, service.default)}
    # Before the routes that take any name: "/sql/splits" is the sub-application's own.
    for name, environment in service.environments.items():
        sub = json_app(title=f"RolloutGym: {name}", version=API_VERSION)
        _add_routes(sub, service, environment, {name: environment})
        app.mount(f"/{name}", sub)
        steps[f"/{name}/step"] = handler_of(sub, "/step")
        players[f"/{name}/ws"] = player_of(service, environment)
    _add_routes(app, service, service.default, service.environments)
    app.include_router(web.router)
    steps["/step"] = handler_of(app, "/step")
    app.add_middleware(Shortcuts, steps=steps, players=players, metrics=service.metrics)
    app.add_middleware(UnexpectedFaults, metrics=service.metrics)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Gate, settings=settings, metrics=service.metrics, environments=service.environments)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[SESSION_HEADER, "retry-after"],
        )
    return app


def _add_routes(
    app: FastAPI, service: Service, environment: AnyEnvironment, known: Mapping[str, AnyEnvironment]
) -> None:
    """All routes of one environment, and those that name one of the `known` environments in their path."""
    app.state.service = service
    app.state.max_body_bytes = service.settings.max_body_bytes
    add_error_handlers(app, service.metrics)
    add_episode_routes(app, service, environment)
    add_mcp_routes(app, service, environment)
    add_ors_routes(app, service, environment, known)
    add_task_routes(app, environment)
    add_environment_routes(app, environment)
    add_service_routes(app, service, known)
    add_named_task_routes(app, known)


def run(settings: Settings, on_listening: Callable[[str], None] | None = None) -> None:
    """Assemble the service and serve it, see `serving.serve` and `workers.supervise`."""
    if settings.workers > 1:
        workers.supervise(settings, _serve_on, on_listening)
    else:
        serving.serve(create_app(settings), settings, on_listening)


def _serve_on(settings: Settings, listeners: list[socket.socket], on_listening: Callable[[str], None]) -> None:
    """What a worker process does."""
    try:
        serving.serve_on(listeners, create_app(settings), settings, on_listening)
    except (OSError, ValueError, ServiceError) as error:
        sys.exit(f"rolloutgym: {error}")


def main() -> None:
    """Serve as the `ROLLOUTGYM_` variables say."""
    try:
        settings = Settings()
    except ValidationError as error:
        sys.exit("; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in error.errors()))
    try:
        run(settings)
    except (OSError, ValueError, ServiceError) as error:
        sys.exit(f"rolloutgym: {error}")


def __getattr__(name: str) -> Any:
    if name == "app":
        return create_app(Settings())
    raise AttributeError(name)


if __name__ == "__main__":
    main()
