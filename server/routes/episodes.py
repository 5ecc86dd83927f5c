"""Episodes over REST: reset, step, truncate, state, end."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import TypeAdapter

from rolloutgym.models import EpisodeId, ResetRequest, StepRequest, TruncateRequest
from rolloutgym.server.codec import read_json
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.routes.bodies import JsonBytes, read_body
from rolloutgym.server.service import Service

_RESET = TypeAdapter(ResetRequest)
_TRUNCATE = TypeAdapter(TruncateRequest)


def router(service: Service, environment: AnyEnvironment) -> APIRouter:
    routes = APIRouter(tags=["episodes"])
    sessions = service.sessions
    limit = service.settings.max_body_bytes
    # The action is read as its own type at once, not as any object first.
    step_request: TypeAdapter[Any] = TypeAdapter(typed_step_request(environment))

    @routes.post("/reset")
    async def reset(request: Request) -> JsonBytes:
        """Begin an episode, or begin a live one anew."""
        body = await read_body(request, limit)
        record = await sessions.reset(environment, read_json(_RESET, body or b"{}"))
        return JsonBytes(record.first)

    @routes.post("/step")
    async def step(request: Request) -> JsonBytes:
        """Take an action."""
        body = read_json(step_request, await read_body(request, limit))
        taken = await sessions.step(environment, body.episode_id, body.action, step=body.step, timeout_s=body.timeout_s)
        return JsonBytes(taken.answer)

    @routes.post("/truncate")
    async def truncate(request: Request) -> JsonBytes:
        """End the episode at a limit of the trainer's own; it is graded on what there is."""
        body = read_json(_TRUNCATE, await read_body(request, limit))
        taken = await sessions.truncate(environment, body.episode_id, body.reason, step=body.step)
        return JsonBytes(taken.answer)

    @routes.get("/state")
    async def state(episode_id: Annotated[EpisodeId, Query()]) -> JsonBytes:
        """The public state of an episode."""
        return JsonBytes(await sessions.state(environment, episode_id))

    @routes.delete("/episodes/{episode_id}")
    async def end(episode_id: EpisodeId) -> dict[str, bool]:
        """End an episode and forget it, whether or not there is one."""
        return {"ended": await sessions.delete(environment, episode_id)}

    return routes


def typed_step_request(environment: AnyEnvironment) -> type[StepRequest]:
    """`StepRequest` with the environment's own action type."""
    name = f"{environment.action_type.__name__.removesuffix('Action')}StepRequest"
    fields = {"__annotations__": {"action": environment.action_type}, "__doc__": StepRequest.__doc__}
    return type(name, (StepRequest,), fields)
