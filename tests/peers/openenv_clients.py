"""Plays episodes with OpenEnv's own clients, unchanged, as its standard input says; writes what each client saw.

In: `{"url", "plays": [{"base", "reset", "actions"}], "tools": {base: [reset, name, arguments]}, "full_url"}`.
"""

import asyncio
import json
import sys
from typing import Any

from openenv.core import EnvClient, GenericEnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.mcp_client import MCPToolClient
from pydantic import ConfigDict, create_model

Json = dict[str, Any]


def seen(result: StepResult[Json]) -> Json:
    return {"observation": result.observation, "reward": result.reward, "done": result.done}


def play_sync(base: str, reset: Json, actions: list[Json]) -> list[Json]:
    with GenericEnvClient(base_url=base).sync() as client:
        answers = [seen(client.reset(**reset))]
        answers += [seen(client.step(action)) for action in actions]
        return [*answers, client.state()]


async def play_async(client: GenericEnvClient, reset: Json, actions: list[Json]) -> list[Json]:
    answers = [seen(await client.reset(**reset))]
    answers += [seen(await client.step(action)) for action in actions]
    return [*answers, await client.state()]


async def play_sessions(base: str, reset: Json, actions: list[Json]) -> list[list[Json]]:
    """Two sessions at once beside a first one, which plays last."""
    async with GenericEnvClient(base_url=base) as client:
        await client.reset(**reset)
        sessions = [await client.new_session() for _ in range(2)]
        answers = await asyncio.gather(*(play_async(session, reset, actions) for session in sessions))
        return [*answers, await play_async(client, reset, actions)]


class AnyObservation(Observation):
    model_config = ConfigDict(extra="allow")


class TypedClient(EnvClient[Action, AnyObservation, State]):
    """As an environment's package has it: its own types over the same messages."""

    def _step_payload(self, action: Action) -> Json:
        # Null fields and OpenEnv's `metadata` included.
        return action.model_dump()

    def _parse_result(self, payload: Json) -> StepResult[AnyObservation]:
        observation = AnyObservation(**payload["observation"], reward=payload["reward"], done=payload["done"])
        return StepResult(observation=observation, reward=payload["reward"], done=payload["done"])

    def _parse_state(self, payload: Json) -> State:
        return State.model_validate(payload)


def play_typed(base: str, reset: Json, actions: list[Json]) -> list[Json]:
    names = {name for action in actions for name in action} | {"text"}
    Typed: Any = create_model("Typed", __base__=Action, **dict.fromkeys(names, (Any, None)))
    answers = []
    with TypedClient(base_url=base).sync() as client:
        results = [client.reset(**reset), *(client.step(Typed(**action)) for action in actions)]
        for result in results:
            observation = result.observation.model_dump(exclude={"reward", "done", "metadata"})
            answers.append({"observation": observation, "reward": result.reward, "done": result.done})
        return [*answers, client.state().model_dump()]


async def play_tools(base: str, reset: Json, name: str, arguments: Json) -> Json:
    """An agent's client: it sees what the tool says; the trainer's side of the same session sees the reward."""
    async with MCPToolClient(base_url=base) as client:
        before = await client.list_tools()
        await client.reset(**reset)
        tools = await client.list_tools(use_cache=False)
        said = await client.call_tool(name, **arguments)
        mistaken = await client.call_tool("reset")
        state = await client.state()
    return {
        "shared": [tool.name for tool in before],
        "tools": [tool.name for tool in tools],
        "said": said,
        "steps": state.step_count,
        "mistaken": mistaken,
    }


async def refusal(doing: Any) -> str:
    """What the client raises, as text."""
    try:
        await doing
    except Exception as error:  # noqa: BLE001, whatever it is
        return str(error)
    return ""


async def refusals(base: str) -> Json:
    async with GenericEnvClient(base_url=base) as client:
        found = {
            "step before reset": await refusal(client.step({"text": "ANSWER: 1"})),
            "state before reset": await refusal(client.state()),
            "unknown field of reset": await refusal(client.reset(sede=1)),
        }
        await client.reset(seed=1)
        found |= {
            "unknown field of action": await refusal(client.step({"nope": 1})),
            "no such task": await refusal(client.reset(task_id="none")),
        }
        # None of them has cost anything.
        return found | {"steps": (await client.state())["step_count"]}


async def reconnected(base: str) -> str:
    """A client that gave up waiting drops its socket, and its next message goes to a new one without an episode."""
    async with GenericEnvClient(base_url=base) as client:
        await client.reset(seed=1)
        await client.disconnect()
        return await refusal(client.step({"text": "ANSWER: 1"}))


async def full(base: str) -> Json:
    """At a service of one place."""
    async with GenericEnvClient(base_url=base) as first, GenericEnvClient(base_url=base) as second:
        await first.reset()
        return {
            "generic": await refusal(second.reset()),
            "tools": await refusal(MCPToolClient(base_url=base).connect()),
        }


def main() -> None:
    work = json.load(sys.stdin)
    found: Json = {"plays": {}}
    for play in work["plays"]:
        arguments = (work["url"] + play["base"], play["reset"], play["actions"])
        sessions = asyncio.run(play_sessions(*arguments))
        found["plays"][play["base"]] = [play_sync(*arguments), play_typed(*arguments), *sessions]
    found["tools"] = {base: asyncio.run(play_tools(work["url"] + base, *call)) for base, call in work["tools"].items()}
    found["refusals"] = {play["base"]: asyncio.run(refusals(work["url"] + play["base"])) for play in work["plays"]}
    found["reconnected"] = asyncio.run(reconnected(work["url"]))
    found["full"] = asyncio.run(full(work["full_url"]))
    json.dump(found, sys.stdout)


main()
