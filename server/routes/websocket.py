"""Episodes over WebSocket: OpenEnv's messages, read and written with pydantic-core, one answer to each message.

A connection plays one episode at a time. What stock clients read is where they expect it; the service's own error
object and step numbers ride beside. A step before a reset is refused: a client that has silently reconnected must not
be rewarded for playing nothing.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from typing_extensions import TypedDict

from rolloutgym.models import (
    Action,
    EpisodeId,
    ErrorCode,
    JsonObject,
    ResetRequest,
    StepNumber,
    TimeoutSeconds,
    TruncationReason,
)
from rolloutgym.server.codec import misfit
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import CapacityReached, EpisodeNotReset, InvalidRequest, ServiceError, UnknownMessage
from rolloutgym.server.mcp import Agent
from rolloutgym.server.service import Service

ActionT = TypeVar("ActionT", bound=Action)

_FORBID = ConfigDict(extra="forbid", allow_inf_nan=False)


class ResetMessage(TypedDict):
    __pydantic_config__ = _FORBID  # type: ignore[misc]
    type: Literal["reset"]
    data: NotRequired[ResetRequest]


class StepMessage(TypedDict, Generic[ActionT]):
    __pydantic_config__ = _FORBID  # type: ignore[misc]
    type: Literal["step"]
    data: ActionT
    step: NotRequired[StepNumber | None]
    timeout_s: NotRequired[TimeoutSeconds | None]


class Truncation(TypedDict):
    __pydantic_config__ = _FORBID  # type: ignore[misc]
    reason: TruncationReason


class TruncateMessage(TypedDict):
    __pydantic_config__ = _FORBID  # type: ignore[misc]
    type: Literal["truncate"]
    data: Truncation
    step: NotRequired[StepNumber | None]


class StateMessage(TypedDict):
    __pydantic_config__ = _FORBID  # type: ignore[misc]
    type: Literal["state"]


class McpMessage(TypedDict):
    __pydantic_config__ = _FORBID  # type: ignore[misc]
    type: Literal["mcp"]
    data: JsonObject


class CloseMessage(TypedDict):
    __pydantic_config__ = _FORBID  # type: ignore[misc]
    type: Literal["close"]


_OBSERVATION = b'{"type":"observation","data":'

# What stock clients are told, by our code; every other fault is an EXECUTION_ERROR to them.
_OPENENV_CODES: Mapping[ErrorCode, str] = {
    ErrorCode.INVALID_JSON: "INVALID_JSON",
    ErrorCode.UNKNOWN_MESSAGE: "UNKNOWN_TYPE",
    ErrorCode.INVALID_REQUEST: "VALIDATION_ERROR",
    ErrorCode.CAPACITY_REACHED: "CAPACITY_REACHED",
    ErrorCode.EPISODE_NOT_FOUND: "SESSION_ERROR",
    ErrorCode.EPISODE_BUSY: "SESSION_ERROR",
    ErrorCode.SHUTTING_DOWN: "SESSION_ERROR",
}


class Query(TypedDict):
    """Of the handshake."""

    episode_id: NotRequired[EpisodeId]
    """Resumes an episode."""
    session_id: NotRequired[EpisodeId]
    """Plays an episode that was begun over MCP, and leaves it there."""


_QUERY: TypeAdapter[Query] = TypeAdapter(Query)


def player_of(service: Service, environment: AnyEnvironment) -> ASGIApp:
    """The application that answers an environment's connections. `InvalidRequest` where it refuses the handshake."""
    messages = messages_of(environment)

    async def play(scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        try:
            query = _QUERY.validate_python(dict(socket.query_params))
        except ValidationError as error:
            raise misfit(error, "query") from None
        await socket.accept()
        service.metrics.connections += 1
        connection = Connection(service, environment, messages, owns="session_id" not in query)
        episode_id = query.get("episode_id") or query.get("session_id")
        try:
            # A task of its own: waking it for a message does not lead through every middleware's frame.
            await asyncio.create_task(connection.serve(receive, send, episode_id))
        except OSError:
            # The reader has gone while its answer was on the way.
            return
        finally:
            service.metrics.connections -= 1
            await connection.leave()

    return play


def messages_of(environment: AnyEnvironment) -> TypeAdapter[Any]:
    """What a client may say, with the environment's own actions."""
    step: Any = StepMessage[environment.action_type]  # type: ignore[name-defined]
    return TypeAdapter(
        Annotated[
            ResetMessage | step | TruncateMessage | StateMessage | McpMessage | CloseMessage,
            Field(discriminator="type"),
        ]
    )


class Connection:
    """One client's connection, and the episode that it plays."""

    def __init__(
        self, service: Service, environment: AnyEnvironment, messages: TypeAdapter[Any], *, owns: bool
    ) -> None:
        self._service = service
        self._sessions = service.sessions
        self._environment = environment
        self._read_message = messages.validator.validate_json
        self._owns = owns
        """Whether the episode ends with the connection."""
        self._episode_id: str | None = None

    async def serve(self, receive: Receive, send: Send, episode_id: str | None) -> None:
        """Answer messages until one side closes. `OSError` where the client does not take its answer."""
        if episode_id is not None:
            try:
                await self._attach(episode_id)
            except ServiceError as error:
                await send({"type": "websocket.send", "text": self._error(error).decode()})
                await send({"type": "websocket.close"})
                return
        while True:
            received = await receive()
            if received["type"] == "websocket.disconnect":
                return
            # A binary frame is read as the same JSON.
            reply = await self._reply(received.get("text") or received.get("bytes") or b"")
            if reply is None:
                await send({"type": "websocket.close"})
                return
            await send({"type": "websocket.send", "text": reply.decode()})

    async def leave(self) -> None:
        """The connection is gone: its episode waits to be resumed, for a while."""
        settings = self._service.settings
        await self._detach(settings.grace_s if self._owns else settings.idle_timeout_s)

    async def _reply(self, text: str | bytes) -> bytes | None:
        """The answer to a message; None to `close`."""
        kind = ""
        try:
            message = self._read(text)
            kind = message["type"]
            match kind:
                case "step":
                    answer = await self._sessions.step(
                        self._environment,
                        self._playing(),
                        message["data"],
                        step=message.get("step"),
                        timeout_s=message.get("timeout_s"),
                    )
                    return _OBSERVATION + answer + b"}"
                case "reset":
                    return await self._reset(message.get("data") or ResetRequest())
                case "truncate":
                    return await self._truncate(message)
                case "state":
                    state = await self._sessions.state(self._environment, self._playing())
                    return b'{"type":"state","data":' + state + b"}"
                case "mcp":
                    return await self._mcp(message["data"])
            await self._close()
            return None
        except ServiceError as error:
            return self._error(error, resetting=kind == "reset")

    def _read(self, text: str | bytes) -> Any:
        try:
            return self._read_message(text)
        except ValidationError as error:
            if error.errors()[0]["type"].startswith("union_tag"):
                raise UnknownMessage("a message's type is reset, step, truncate, state, mcp or close") from None
            raise misfit(error, "message") from None

    def _playing(self) -> str:
        if self._episode_id is None:
            raise EpisodeNotReset("this connection plays no episode yet: reset first, or resume one by its id")
        return self._episode_id

    async def _truncate(self, message: TruncateMessage) -> bytes:
        reason = message["data"]["reason"]
        answer = await self._sessions.truncate(self._environment, self._playing(), reason, step=message.get("step"))
        return _OBSERVATION + answer + b"}"

    async def _reset(self, request: ResetRequest) -> bytes:
        current = self._episode_id
        if not self._owns:
            if request.episode_id not in (None, current):
                raise InvalidRequest("the episode of a session has the session's id")
            request = request.model_copy(update={"episode_id": current})
        record = await self._sessions.reset(self._environment, request, instead_of=current)
        if record.key.episode_id != current:
            await self._detach(0.0)
            await self._attach(record.key.episode_id)
        return _OBSERVATION + record.first + b"}"

    async def _mcp(self, request: dict[str, JsonValue]) -> bytes:
        agent = Agent(self._service, self._environment, self._episode_id)
        answer = await agent.answer(request)
        if agent.episode_id != self._episode_id and agent.episode_id is not None:
            await self._attach(agent.episode_id)
        # Each message here has an answer; a notification's says nothing.
        return b'{"type":"mcp","data":' + to_json(answer or {"jsonrpc": "2.0", "id": None, "result": {}}) + b"}"

    async def _close(self) -> None:
        """The client has done with the episode."""
        if self._episode_id is not None and self._owns:
            await self._sessions.delete(self._environment, self._episode_id)
        await self._detach(self._service.settings.idle_timeout_s)

    async def _attach(self, episode_id: str) -> None:
        await self._sessions.attach(self._environment, episode_id)
        self._episode_id = episode_id

    async def _detach(self, stays_s: float) -> None:
        if self._episode_id is not None:
            episode_id, self._episode_id = self._episode_id, None
            await self._sessions.detach(self._environment, episode_id, stays_s)

    def _error(self, error: ServiceError, *, resetting: bool = False) -> bytes:
        self._service.metrics.errors[error.code] += 1
        code = _OPENENV_CODES.get(error.code, "EXECUTION_ERROR")
        if resetting and error.code is ErrorCode.INTERNAL:
            code = "FACTORY_ERROR"
        data: dict[str, Any] = {"message": error.message, "code": code, "error": error.body().error}
        if isinstance(error, InvalidRequest) and error.problems:
            data["errors"] = error.problems
        if isinstance(error, CapacityReached):
            data |= {"active_sessions": error.capacity, "max_sessions": error.capacity}
        return to_json({"type": "error", "data": data})
