"""The Model Context Protocol: an agent plays an episode by calling its tools. JSON-RPC objects in, objects out.

A tool call is a step: rewarded, counted and recorded like any other; but the agent sees only what the environment says.
It cannot reset, choose a task or read a score: the trainer begins the episode, or `initialize` begins one.
`openenv/session/*` are OpenEnv's additions.
"""

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import from_json

from rolloutgym.models import EpisodeId, JsonObject, ResetRequest
from rolloutgym.server.codec import misfit
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import CapacityReached, EpisodeDone, EpisodeNotReset, InvalidRequest, ServiceError
from rolloutgym.server.service import Service

PROTOCOL_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
"""Those spoken here, the newest first."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
SERVER_ERROR = -32000

Json = dict[str, Any]
ParamsT = TypeVar("ParamsT", bound=BaseModel)


class Call(BaseModel):
    """A JSON-RPC request, or a notification where it has no id."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | float | None = None
    params: JsonObject | None = None


class SessionParams(BaseModel):
    model_config = ConfigDict(frozen=True)

    session_id: EpisodeId | None = None


class ToolParams(SessionParams):
    name: str
    arguments: JsonObject | None = None


class VersionParams(BaseModel):
    protocolVersion: str = PROTOCOL_VERSIONS[0]


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def answer(self, call_id: object = None) -> Json:
        return {
            "jsonrpc": "2.0",
            "id": call_id,
            "error": {"code": self.code, "message": self.message, "data": self.data},
        }


class Agent:
    """A caller of tools, and the episode that it plays. None before it has one."""

    def __init__(self, service: Service, environment: AnyEnvironment, episode_id: str | None) -> None:
        self._service = service
        self._sessions = service.sessions
        self._environment = environment
        self.episode_id = episode_id

    async def answer(self, request: object) -> Json | None:
        """The response to one JSON-RPC object; None to a notification."""
        call_id = None
        try:
            call = _read_call(request)
            call_id = call.id
            if call.method.startswith("notifications/"):
                return None
            return {"jsonrpc": "2.0", "id": call_id, "result": await self._result(call)}
        except RpcError as error:
            return error.answer(call_id)
        except ServiceError as error:
            self._service.metrics.errors[error.code] += 1
            return _rpc_error(error).answer(call_id)

    async def _result(self, call: Call) -> Json:
        params = call.params or {}
        match call.method:
            case "initialize":
                return await self._initialize(_params(VersionParams, params))
            case "ping":
                return {}
            case "tools/list":
                return await self._list_tools(_params(SessionParams, params))
            case "tools/call":
                return await self._call_tool(_params(ToolParams, params))
            case "openenv/session/create":
                return await self._create(params)
            case "openenv/session/close":
                return await self._close(_params(SessionParams, params))
        raise RpcError(METHOD_NOT_FOUND, f"no such method: {call.method[:80]}")

    async def _initialize(self, params: VersionParams) -> Json:
        if self.episode_id is None:
            request = ResetRequest(options=dict(self._environment.tool_options))
            record = await self._sessions.reset(self._environment, request)
            self.episode_id = record.key.episode_id
        else:
            record = await self._sessions.record(self._environment, self.episode_id)
        version = params.protocolVersion
        return {
            "protocolVersion": version if version in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": f"rolloutgym/{self._environment.name}", "version": self._environment.version},
            "instructions": _spoken(from_json(record.first)),
        }

    async def _list_tools(self, params: SessionParams) -> Json:
        episode_id = params.session_id or self.episode_id
        if episode_id is None:
            tools = tuple(self._environment.tools())
        else:
            tools = await self._sessions.tools(self._environment, episode_id)
        functions = [tool.function for tool in tools]
        return {
            "tools": [
                {"name": one.name, "description": one.description, "inputSchema": one.parameters or {"type": "object"}}
                for one in functions
            ]
        }

    async def _call_tool(self, params: ToolParams) -> Json:
        episode_id = params.session_id or self.episode_id
        if episode_id is None:
            raise EpisodeNotReset("no episode is played here: initialize, or name one by its session_id")
        try:
            written = await self._sessions.call_tool(self._environment, episode_id, params.name, params.arguments or {})
        except (InvalidRequest, EpisodeDone) as error:
            # The agent's own mistake, which it should read and mend.
            return _tool_result(error.message, mistaken=True)
        answer = from_json(written)
        shown = {"rolloutgym/step_count": answer["step_count"], "rolloutgym/done": answer["done"]}
        return _tool_result(_spoken(answer)) | {"_meta": shown}

    async def _create(self, params: dict[str, JsonValue]) -> Json:
        """Begin an episode for an agent; the parameters are those of a reset."""
        record = await self._sessions.reset(self._environment, _params(ResetRequest, params))
        return {"session_id": record.key.episode_id}

    async def _close(self, params: SessionParams) -> Json:
        if params.session_id is None or not await self._sessions.delete(self._environment, params.session_id):
            raise RpcError(INVALID_PARAMS, "no such session")
        return {"session_id": params.session_id, "closed": True}


def _read_call(request: object) -> Call:
    try:
        return Call.model_validate(request)
    except ValidationError:
        raise RpcError(INVALID_REQUEST, "this is no JSON-RPC 2.0 request") from None


def _params(kind: type[ParamsT], params: dict[str, JsonValue]) -> ParamsT:
    try:
        return kind.model_validate(params)
    except ValidationError as error:
        raise RpcError(INVALID_PARAMS, misfit(error, "params").message) from None


def _rpc_error(error: ServiceError) -> RpcError:
    data = error.body().model_dump(mode="json")
    if isinstance(error, CapacityReached):
        data |= {"active_sessions": error.capacity, "max_sessions": error.capacity}
    return RpcError(INVALID_PARAMS if isinstance(error, InvalidRequest) else SERVER_ERROR, error.message, data)


def _spoken(answer: Json) -> str:
    """What the environment says in an answer, as one text."""
    return "\n\n".join(message["content"] for message in answer["observation"]["messages"] if message["content"])


def _tool_result(text: str, *, mistaken: bool = False) -> Json:
    # `data` is where OpenEnv's client looks.
    return {"content": [{"type": "text", "text": text}], "data": text, "isError": mistaken}
