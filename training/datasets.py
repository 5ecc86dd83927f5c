"""Data sets for TRL whose prompts carry the task.

TRL hands a rollout function the prompts alone, so the task's id and seed travel as extra keys of the last message
(matching on the question's text would mix up tasks that ask the same). The same facts stand in columns of their own for
`environment_factory`, whose `reset` sees columns.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from datasets import Dataset
from pydantic import JsonValue

from rolloutgym.client import AsyncClient
from rolloutgym.models import ToolSpec
from rolloutgym.training.chat import message_dict
from rolloutgym.training.generators.base import Conversation
from rolloutgym.training.rollouts import Task
from rolloutgym.training.service import Fault, Handle, RemoteEnvironment

Protocol = Literal["text", "tools"]

_AT_ONCE = 64
_CODE_WITH_TOOLS = (
    "Solve the problem. You can run Python with the tool `python`; variables are kept from one call to the next. "
    "When you know the answer, give it with the tool `answer`; that ends the episode."
)
_FUNCTIONS = (
    "Call them with the tool `call_functions`; where none fits, answer with the tool `reply`. "
    "These are the functions, as JSON Schema:\n"
)


def make_dataset(
    service: str | AsyncClient,
    env: str,
    split: str = "train",
    *,
    limit: int | None = None,
    seed: int = 0,
    options: Mapping[str, JsonValue] | None = None,
    protocol: Protocol = "text",
    api_key: str | None = None,
) -> Dataset:
    """The first `limit` tasks of a split, one row each; the row's seed is `seed` plus its index.

    Columns: `prompt` (the conversation that the service begins with; the last message carries `task_id` and `seed`),
    `environment`, `task_id`, `seed`. `protocol` is what the prompt teaches: the service's own text form, or the tools
    of `make_environment_factory`. Asks the service for every task once.
    """
    if protocol == "tools":
        options = tool_options(env, options)
    with RemoteEnvironment(service, env, api_key=api_key) as environment:
        tasks = environment.ask(lambda handle: handle.tasks(split, 0, limit))
        rows: list[dict[str, Any]] = []
        for start in range(0, len(tasks), _AT_ONCE):
            some = [
                Task(task_id=info.id, seed=seed + number, options=options or {})
                for number, info in enumerate(tasks[start : start + _AT_ONCE], start)
            ]
            prompts = environment.gather([partial(_beginning, task=task) for task in some])
            rows += [_row(env, task, prompt, protocol) for task, prompt in zip(some, prompts, strict=True)]
    return Dataset.from_list(rows)


def task_of_prompt(prompt: Any) -> Task:
    """The task that a prompt of `make_dataset` carries. `ValueError` for any other prompt."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        for message in reversed(prompt):
            if message.get("task_id") is not None:
                return Task(task_id=message["task_id"], seed=message.get("seed"))
    raise ValueError("the prompt carries no task: a message needs the key `task_id` (see make_dataset)")


def tool_options(env: str, options: Mapping[str, JsonValue] | None) -> dict[str, JsonValue]:
    """Reset options of an episode that is played by tool calls."""
    return ({"action_format": "tools"} if env == "sql" else {}) | dict(options or {})


async def _beginning(handle: Handle, task: Task) -> Conversation:
    async with await handle.reset(task_id=task.task_id, seed=task.seed, options=task.options) as episode:
        return Conversation(episode.messages, episode.tools)


def _row(env: str, task: Task, beginning: Conversation | Fault, protocol: Protocol) -> dict[str, Any]:
    if isinstance(beginning, Fault):
        raise RuntimeError(f"the service could not show task {task.task_id!r}: {beginning.message}")
    messages = [message_dict(message) for message in beginning.messages]
    if protocol == "tools":
        messages = _with_tools(env, messages, beginning.tools)
    messages[-1] |= {"task_id": task.task_id, "seed": task.seed}
    return {"prompt": messages, "environment": env, "task_id": task.task_id, "seed": task.seed}


def _with_tools(env: str, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The conversation with a system message that tells of the environment's tools and of no text form."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    if env == "code":
        system = _CODE_WITH_TOOLS
    elif env == "toolcall":
        listed = "\n".join(json.dumps(tool.function.model_dump(mode="json"), ensure_ascii=False) for tool in tools)
        system = f"{system}\n\n{_FUNCTIONS}{listed}"
    return [{"role": "system", "content": system}, *(m for m in messages if m["role"] != "system")]
