"""The shortest way to the requests that are many: past the routing of two applications, which costs more than a step.

The routes themselves stay where they are, for the documents and for whatever else comes to their path.
"""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rolloutgym.server.errors import ServiceError
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.routes.bodies import JsonRoute
from rolloutgym.server.routes.faults import error_response

Handler = Callable[[Request], Awaitable[Response]]


def handler_of(app: FastAPI, path: str) -> Handler:
    """What an application's `JsonRoute` at the path does."""
    (route,) = (one for one in app.routes if isinstance(one, JsonRoute) and one.path == path)
    return route.get_route_handler()


class Shortcuts:
    """ASGI middleware: POST requests to these paths are answered here."""

    def __init__(self, app: ASGIApp, handlers: Mapping[str, Handler], metrics: Metrics) -> None:
        self._app = app
        self._handlers = handlers
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["path"]) if scope.get("method") == "POST" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await handler(Request(scope, receive, send))
        except ServiceError as error:
            self._metrics.errors[error.code] += 1
            response = error_response(error)
        await response(scope, receive, send)
