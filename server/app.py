"""The FastAPI application: each environment as a sub-application at its name, the default one at the root too."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI

from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.routes import episodes, operations, tasks
from rolloutgym.server.routes.faults import install_error_handlers
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

    app = environment_app(service, service.default, title="RolloutGym", lifespan=lifespan)
    app.state.service = service
    for name, environment in service.environments.items():
        app.mount(f"/{name}", environment_app(service, environment, title=f"RolloutGym: {name}"))
    return app


def environment_app(service: Service, environment: AnyEnvironment, *, title: str, lifespan: object = None) -> FastAPI:
    app = FastAPI(title=title, version=API_VERSION, lifespan=lifespan)  # type: ignore[arg-type]
    install_error_handlers(app, service.metrics)
    app.include_router(operations.service_router(service))
    app.include_router(operations.router(service, environment))
    app.include_router(episodes.router(service, environment))
    app.include_router(tasks.router(service, environment))
    return app
