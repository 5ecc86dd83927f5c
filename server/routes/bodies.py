"""JSON in and out of HTTP, without a detour through Python's own parser and FastAPI's encoder."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.types import ASGIApp, Receive, Scope, Send

from rolloutgym.models import ErrorBody
from rolloutgym.server.codec import read_json, write_json
from rolloutgym.server.deadlines import DeadlineExceeded, within
from rolloutgym.server.errors import InvalidRequest, PayloadTooLarge

BODY_S = 60.0
"""How long a client may take over a request's body."""


class JsonRoute(APIRoute):
    """A route whose handler takes a body (a pydantic model) and perhaps the request, and returns a response.

    FastAPI documents it by its signature, as ever; the body is read by pydantic-core, once. Where it has a default, it
    may be absent. Handlers with other parameters are FastAPI's to call.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        parameters = list(inspect.signature(self.endpoint).parameters.values())
        annotations = [parameter.annotation for parameter in parameters]
        takes_request = annotations[1:] == [Request]
        if not annotations or not _is_model(annotations[0]) or not (takes_request or len(annotations) == 1):
            return super().get_route_handler()
        adapter: TypeAdapter[Any] = TypeAdapter(annotations[0])
        default = parameters[0].default
        handler = self.endpoint

        async def handle(request: Request) -> Response:
            content = await read_body(request)
            body = read_json(adapter, content) if content or default is inspect.Parameter.empty else default
            response: Response = await (handler(body, request) if takes_request else handler(body))
            return response

        return handle


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def json_app(**options: Any) -> FastAPI:
    """An application of `JsonRoute`s, whose documents know the service's error form."""
    app = FastAPI(
        responses={422: {"model": ErrorBody, "description": "Any error has this form"}},
        # A redirect would name the host that the request named, and lose the scheme of a proxy before it.
        redirect_slashes=False,
        **options,
    )
    app.router.route_class = JsonRoute
    return app


async def read_body(request: Request) -> bytes:
    """The whole body. `PayloadTooLarge` as soon as it is known to exceed the service's limit; `InvalidRequest` where it
    does not come to its end."""
    limit: int = request.app.state.max_body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise PayloadTooLarge(f"the body exceeds {limit} bytes")
    try:
        return await within(BODY_S, _whole(request, limit))
    except DeadlineExceeded:
        raise InvalidRequest(f"the body was not there within {BODY_S:g} s") from None


async def _whole(request: Request, limit: int) -> bytes:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > limit:
            raise PayloadTooLarge(f"the body exceeds {limit} bytes")
    return bytes(content)


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """The documents' words on a body that the handler reads by itself: `openapi_extra`."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inline(part: Any) -> Any:
        match part:
            case {"$ref": str(name)}:
                return inline(definitions[name.rpartition("/")[2]])
            case dict():
                return {key: inline(value) for key, value in part.items()}
            case list():
                return [inline(each) for each in part]
        return part

    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inline(schema)}}}}


class HeadAsGet:
    """ASGI middleware: what takes GET takes HEAD, whose answer the server sends without its body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


class JsonBytes(Response):
    """A body that is JSON already."""

    media_type = "application/json"


def json_of(model: BaseModel) -> JsonBytes:
    return JsonBytes(write_json(model))
