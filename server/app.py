"""The FastAPI application: each environment as a sub-application at its name, the default one at the root too.

`app` is built from the `ROLLOUTGYM_` variables when it is asked for: `uvicorn rolloutgym.server.app:app`.
"""

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.middleware.cors import CORSMiddleware

from rolloutgym.server import serving
from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.routes import episodes, mcp, operations, tasks, web, websocket
from rolloutgym.server.routes.faults import install_error_handlers
from rolloutgym.server.routes.security import Gate
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

    app = FastAPI(title="RolloutGym", version=API_VERSION, lifespan=lifespan)
    app.state.service = service
    # Before the routes that take any name: "/sql/splits" is the sub-application's own.
    for name, environment in service.environments.items():
        sub = FastAPI(title=f"RolloutGym: {name}", version=API_VERSION)
        _add_routes(sub, service, environment, {name: environment})
        app.mount(f"/{name}", sub)
    _add_routes(app, service, service.default, service.environments)
    app.include_router(web.router)
    app.add_middleware(Gate, settings=settings, metrics=service.metrics)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.allowed_origins, allow_methods=["*"], allow_headers=["*"]
        )
    return app


def _add_routes(
    app: FastAPI, service: Service, environment: AnyEnvironment, known: Mapping[str, AnyEnvironment]
) -> None:
    """All routes of one environment, and those that name one of the `known` environments in their path."""
    install_error_handlers(app, service.metrics)
    app.include_router(operations.service_router(service, known))
    app.include_router(operations.router(service, environment))
    app.include_router(episodes.router(service, environment))
    app.include_router(websocket.router(service, environment))
    app.include_router(mcp.router(service, environment))
    app.include_router(tasks.router(service, environment))
    app.include_router(tasks.named_router(service, known))


def run(settings: Settings, on_listening: Callable[[str], None] | None = None) -> None:
    """Assemble the service and serve it, see `serving.serve`."""
    serving.serve(create_app(settings), settings, on_listening)


def main() -> None:
    """Serve as the `ROLLOUTGYM_` variables say."""
    try:
        settings = Settings()
    except ValidationError as error:
        sys.exit("; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in error.errors()))
    run(settings)


def __getattr__(name: str) -> Any:
    if name == "app":
        return create_app(Settings())
    raise AttributeError(name)


if __name__ == "__main__":
    main()
