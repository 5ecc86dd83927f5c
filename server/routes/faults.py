"""Every error in one form: the service's own, the framework's, and the unexpected."""

from typing import Any

from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError, ValidationException, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rolloutgym.server.codec import write_json
from rolloutgym.server.errors import Internal, InvalidRequest, MethodNotAllowed, NotFound, ServiceError
from rolloutgym.server.faults import log_fault
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.routes.bodies import JsonBytes

_RETRY_AFTER_S = 1


def add_error_handlers(app: FastAPI, metrics: Metrics) -> None:
    def respond(error: ServiceError) -> JsonBytes:
        metrics.errors[error.code] += 1
        return error_response(error)

    async def service_error(_: Request, error: Exception) -> JsonBytes:
        assert isinstance(error, ServiceError)
        return respond(error)

    async def framework_error(_: Request, error: Exception) -> JsonBytes:
        assert isinstance(error, HTTPException)
        response = respond(_of_status(error.status_code))
        response.headers.update(error.headers or {})
        return response

    async def parameter_error(_: Request, error: Exception) -> JsonBytes:
        assert isinstance(error, RequestValidationError)
        return respond(_misfit(error))

    async def handshake_error(socket: WebSocket, error: Exception) -> None:
        assert isinstance(error, WebSocketRequestValidationError)
        await respond(_misfit(error))(socket.scope, socket.receive, socket.send)

    async def no_route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raise HTTPException(404)
        await respond(_of_status(404))(scope, receive, send)

    async def unexpected(_: Request, error: Exception) -> JsonBytes:
        # Starlette raises it again: `UnexpectedFaults` records it.
        return respond(Internal("the service failed"))

    app.add_exception_handler(ServiceError, service_error)
    app.add_exception_handler(HTTPException, framework_error)
    app.add_exception_handler(RequestValidationError, parameter_error)
    app.add_exception_handler(WebSocketRequestValidationError, handshake_error)
    app.add_exception_handler(Exception, unexpected)
    app.router.default = no_route


def error_response(error: ServiceError) -> JsonBytes:
    headers: dict[str, str] = {}
    if error.status == 503:
        headers["retry-after"] = str(_RETRY_AFTER_S)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JsonBytes(write_json(error.body()), status_code=error.status, headers=headers)


class UnexpectedFaults:
    """ASGI middleware: an exception that nobody foresaw is recorded once, and answered as `internal`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, watch)
        except Exception as fault:  # noqa: BLE001, this is the one place that records it
            log_fault(fault, None)
            if not begun:
                self._metrics.errors[Internal.code] += 1
                await error_response(Internal("the service failed"))(scope, receive, send)


def _misfit(error: ValidationException) -> ServiceError:
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return InvalidRequest("; ".join(problems))


def _of_status(status: int) -> ServiceError:
    known: dict[int, Any] = {
        404: NotFound("there is no such route"),
        405: MethodNotAllowed("the route does not take this method"),
    }
    return known.get(status) or InvalidRequest("the request could not be read")
