"""Runs a recipe of the documents where its package is installed, and then what a trainer would do with it.

Reads `{"recipe", "code"}`; writes what came of it. The model is a script: a query, then an answer.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

TEXTS = ["QUERY: SELECT 1", "ANSWER: surely not this"]


@dataclass
class Player:
    """In the place of an agent of verifiers: its interaction and its trace."""

    texts: list[str]
    heard: list[str] = field(default_factory=list)
    rewards: dict[str, float] = field(default_factory=dict)

    @property
    def trace(self) -> "Player":
        return self

    @asynccontextmanager
    async def interaction(self, _task: Any) -> AsyncIterator["Player"]:
        yield self

    async def turn(self, message: str) -> Any:
        self.heard.append(message)
        return SimpleNamespace(terminated=False, last_reply=self.texts[len(self.heard) - 1])

    def record_reward(self, name: str, value: float) -> None:
        self.rewards[name] = value


def verifiers_task_set(names: dict[str, Any]) -> Any:
    from verifiers.v1.tasksets.openenv import OpenEnvEnv

    return _played(OpenEnvEnv.run, list(names["taskset"].load()), [json.dumps({"text": text}) for text in TEXTS])


def verifiers_environment(names: dict[str, Any]) -> Any:
    task = SimpleNamespace(data=SimpleNamespace(reset={"split": "train", "index": 0, "seed": 0}))
    return _played(names["SqlEnv"].run, [task], TEXTS)


def _played(run: Any, tasks: list[Any], texts: list[str]) -> Any:
    player = Player(texts)
    asyncio.run(run(SimpleNamespace(), tasks[0], SimpleNamespace(player=player)))
    return {"tasks": len(tasks), "heard": player.heard, "rewards": player.rewards}


def openenv_client(names: dict[str, Any]) -> Any:
    return {"done": names["result"].done, "reward": names["result"].reward}


def skyrl(names: dict[str, Any]) -> Any:
    environment = names["skyrl_gym"].make("rolloutgym-sql", env_config={}, extras={"index": 0, "seed": 0})
    prompt, _ = environment.init([])
    steps = [environment.step(text) for text in TEXTS]
    environment.close()
    return {"prompt": prompt, "steps": steps}


def verl(names: dict[str, Any]) -> Any:
    """Two episodes of one task, as verl's worker makes its loops; the second has too little room for its answer."""
    from omegaconf import OmegaConf
    from verl.workers.rollout.replica import TokenOutput

    from rolloutgym.training.tiny import byte_tokenizer

    tokenizer = byte_tokenizer(
        tags=("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<code>", "</code>")
    )
    asked: list[list[int]] = []

    class Server:
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
            asked.append(prompt_ids)
            ids = [*tokenizer.encode(TEXTS[(len(asked) - 1) % 2]), tokenizer.eos_token_id]
            return TokenOutput(token_ids=ids[: sampling_params["max_tokens"]])

    def play(room: int) -> dict[str, Any]:
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"response_length": room}}, "data": {}})
        whole, data = SimpleNamespace(config=config), SimpleNamespace(config=config.data)

        async def run() -> Any:
            return await names["RolloutGymLoop"](whole, Server(), tokenizer, None, None, data).run({}, index=3)

        output: dict[str, Any] = asyncio.run(run()).model_dump()
        return output

    first = play(2000)
    room = len(first["response_ids"]) - 5
    return {"whole": first, "cut": play(room), "room": room, "asked": asked}


def main() -> None:
    work = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # what a package prints is not the answer
    script = iter(TEXTS)
    names: dict[str, Any] = {"__name__": "recipe", "model": lambda _messages: next(script)}
    exec(compile(work["code"], work["recipe"], "exec"), names)
    json.dump(globals()[work["recipe"]](names), out)


if __name__ == "__main__":
    main()
