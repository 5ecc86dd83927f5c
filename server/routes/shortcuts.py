"""The shortest way to what comes often: past the routing and the wrappers of two applications, which cost more than a
step does.

A step's route stays where it is too, for the documents, and for whatever else comes to its path.
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
    """ASGI middleware: POST requests to the paths of `steps`, and connections to those of `players`, end here."""

    def __init__(
        self, app: ASGIApp, steps: Mapping[str, Handler], players: Mapping[str, ASGIApp], metrics: Metrics
    ) -> None:
        self._app = app
        self._steps = {path: _application(handler) for path, handler in steps.items()}
        self._players = players
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application = None
        if scope["type"] == "websocket":
            application = self._players.get(_path(scope))
        elif scope.get("method") == "POST":
            application = self._steps.get(_path(scope))
        if application is None:
            await self._app(scope, receive, send)
            return
        try:
            await application(scope, receive, send)
        except ServiceError as error:
            self._metrics.errors[error.code] += 1
            await error_response(error)(scope, receive, send)


def _path(scope: Scope) -> str:
    """Below the prefix that the service is served under, if there is one."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _application(handler: Handler) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)

    return answer
