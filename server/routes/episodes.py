"""Episodes over REST: reset, step, truncate, state, end."""

from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import create_model

from rolloutgym.models import EpisodeId, ResetRequest, State, StepRequest, StepResult, TruncateRequest
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.routes.bodies import JsonBytes
from rolloutgym.server.service import Service

_NO_CHOICE = ResetRequest()


def add_episode_routes(app: FastAPI, service: Service, environment: AnyEnvironment) -> None:
    sessions = service.sessions
    Step: Any = typed_step_request(environment)
    Result: Any = StepResult[environment.observation_type]  # type: ignore[name-defined]

    @app.post("/reset", response_model=Result, tags=["episodes"])
    async def reset(body: ResetRequest = _NO_CHOICE) -> JsonBytes:
        """Begin an episode, or begin a live one anew."""
        record = await sessions.reset(environment, body)
        return JsonBytes(record.first)

    @app.post("/step", response_model=Result, tags=["episodes"])
    async def step(body: Step) -> JsonBytes:
        """Take an action."""
        answer = await sessions.step(
            environment, body.episode_id, body.action, step=body.step, timeout_s=body.timeout_s
        )
        return JsonBytes(answer)

    @app.post("/truncate", response_model=Result, tags=["episodes"])
    async def truncate(body: TruncateRequest) -> JsonBytes:
        """End the episode at a limit of the trainer's own; it is graded on what there is."""
        answer = await sessions.truncate(environment, body.episode_id, body.reason, step=body.step)
        return JsonBytes(answer)

    @app.get("/state", response_model=State, tags=["episodes"])
    async def state(episode_id: Annotated[EpisodeId, Query()]) -> JsonBytes:
        """The public state of an episode."""
        return JsonBytes(await sessions.state(environment, episode_id))

    @app.delete("/episodes/{episode_id}", tags=["episodes"])
    async def end(episode_id: EpisodeId) -> dict[str, bool]:
        """End an episode and forget it, whether or not there is one."""
        return {"ended": await sessions.delete(environment, episode_id)}


def typed_step_request(environment: AnyEnvironment) -> type[StepRequest]:
    """`StepRequest` with the environment's own action, which is then read in the same pass."""
    name = environment.action_type.__name__.removesuffix("Action") + "StepRequest"
    return create_model(name, __base__=StepRequest, action=(environment.action_type, ...))
