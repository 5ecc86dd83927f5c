"""What an operator and a validator ask: health, readiness, metrics, schemas, metadata."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import TypeAdapter
from pydantic_core import to_json

from rolloutgym.models import Metadata, Observation, State
from rolloutgym.server.codec import write_json
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.routes.bodies import JsonBytes
from rolloutgym.server.service import Service


def add_environment_routes(app: FastAPI, environment: AnyEnvironment) -> None:
    """Of one environment. Each answer is made once, so that asking never blocks an episode."""

    @cache
    def metadata() -> bytes:
        return write_json(metadata_of(environment))

    @cache
    def schemas() -> bytes:
        return to_json(schemas_of(environment))

    @app.get("/metadata", response_model=Metadata, tags=["operations"])
    async def get_metadata() -> JsonBytes:
        return JsonBytes(metadata())

    @app.get("/schema", tags=["operations"])
    async def get_schema() -> JsonBytes:
        """JSON Schemas of actions, observations, state and reset options."""
        return JsonBytes(schemas())


def metadata_of(environment: AnyEnvironment) -> Metadata:
    tasks = environment.tasks
    return Metadata(
        name=environment.name,
        description=environment.description,
        version=environment.version,
        prompt_version=environment.prompt_version,
        reward_range=environment.reward_range(),
        num_tasks={split: len(tasks.of_split(split)) for split in tasks.splits()},
        data_sha256={"tasks": tasks.sha256()},
        details=dict(environment.details()),
    )


def schemas_of(environment: AnyEnvironment) -> dict[str, Any]:
    """JSON Schemas (Draft 2020-12). An observation's is that of the observation with `reward` and `done` beside it, as
    OpenEnv's clients and validator read it."""

    def observation(reward: dict[str, Any]) -> dict[str, Any]:
        observed: type[Observation] = environment.observation_type
        schema = observed.model_json_schema(mode="serialization")
        schema["properties"] |= {"reward": reward, "done": {"type": "boolean"}}
        schema["required"] = [*schema.get("required", []), "reward", "done"]
        return schema

    return {
        "action": TypeAdapter(environment.action_type).json_schema(),
        "observation": observation({"type": "number"}),
        "reset_observation": observation({"type": ["number", "null"]}),
        "state": State.model_json_schema(mode="serialization"),
        "options": environment.options_type.model_json_schema(),
    }


def add_service_routes(app: FastAPI, service: Service, known: Mapping[str, AnyEnvironment]) -> None:
    """Of the service, as far as it is about the `known` environments."""
    registry = CollectorRegistry()
    registry.register(service.metrics)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)

    @app.get("/health", tags=["operations"])
    async def health() -> dict[str, Any]:
        facts = {name: dict(environment.health()) for name, environment in known.items()}
        degraded = any("degraded" in fact for fact in facts.values())
        return {"status": "degraded" if degraded else "healthy", "environments": facts}

    @app.get("/ready", tags=["operations"], responses={503: {"description": "Not ready"}})
    async def ready(response: Response) -> dict[str, str]:
        is_ready = await service.ready()
        response.status_code = 200 if is_ready else 503
        return {"status": "ready" if is_ready else "not ready"}

    @app.get("/metrics", tags=["operations"])
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/list_environments", tags=["tasks"])
    async def list_environments() -> list[str]:
        return list(known)
