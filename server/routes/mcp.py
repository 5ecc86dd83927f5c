"""JSON-RPC over HTTP, as MCP's streamable transport has it without streams, and over a WebSocket of its own.

`?episode_id=` names the episode that the agent plays; else `initialize` begins one, and its `Mcp-Session-Id` names it
from then on.
"""

from contextlib import suppress
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request, Response, WebSocket
from pydantic_core import from_json, to_json
from starlette.websockets import WebSocketDisconnect

from rolloutgym.models import EpisodeId
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import ServiceError
from rolloutgym.server.mcp import PARSE_ERROR, Agent, Call, RpcError
from rolloutgym.server.routes.bodies import JsonBytes, body_of, read_body
from rolloutgym.server.service import Service

SESSION_HEADER = "mcp-session-id"
SessionHeader = Annotated[EpisodeId | None, Header(alias=SESSION_HEADER)]


def add_mcp_routes(app: FastAPI, service: Service, environment: AnyEnvironment) -> None:
    @app.post("/mcp", tags=["mcp"], openapi_extra=body_of(Call), responses={202: {"description": "A notification"}})
    async def call(request: Request, episode_id: EpisodeId | None = None, session: SessionHeader = None) -> Response:
        """One JSON-RPC request or notification."""
        if session is not None:
            # Without its episode, the agent has to initialize again, and learns so by a 404.
            await service.sessions.record(environment, session)
        agent = Agent(service, environment, episode_id or session)
        answer = await answer_json(agent, await read_body(request))
        if answer is None:
            return Response(status_code=202)
        headers = {} if agent.episode_id is None else {SESSION_HEADER: agent.episode_id}
        return JsonBytes(answer, headers=headers)

    @app.delete("/mcp", tags=["mcp"])
    async def end(
        session: Annotated[EpisodeId, Header(alias=SESSION_HEADER)], episode_id: EpisodeId | None = None
    ) -> dict[str, bool]:
        """The agent has done: its episode ends, unless its trainer began it and named it."""
        if episode_id is not None:
            return {"ended": False}
        return {"ended": await service.sessions.delete(environment, session)}

    @app.websocket("/mcp")
    async def converse(socket: WebSocket, episode_id: EpisodeId | None = None) -> None:
        """JSON-RPC messages, without a frame around them."""
        await socket.accept()
        service.metrics.connections += 1
        agent = Agent(service, environment, episode_id)
        attached: str | None = None
        try:
            while (received := await socket.receive())["type"] != "websocket.disconnect":
                answer = await answer_json(agent, received.get("text") or received.get("bytes") or b"")
                if attached is None and agent.episode_id is not None:
                    # Where that fails the answer still counts, and the next message tries again.
                    with suppress(ServiceError):
                        await service.sessions.attach(environment, agent.episode_id)
                        attached = agent.episode_id
                if answer is not None:
                    await socket.send_text(answer.decode())
        except WebSocketDisconnect:
            # The agent has gone while its answer was on the way.
            return
        finally:
            service.metrics.connections -= 1
            if attached is not None:
                await service.sessions.detach(environment, attached, service.settings.grace_s)


async def answer_json(agent: Agent, text: str | bytes) -> bytes | None:
    try:
        request: Any = from_json(text, allow_inf_nan=False)
    except ValueError:
        return to_json(RpcError(PARSE_ERROR, "this is no JSON").answer())
    answer = await agent.answer(request)
    return None if answer is None else to_json(answer)
