"""Data sets for TRL whose prompts carry the task.

TRL hands a rollout function the prompts alone, so the task's id and seed travel as extra keys of the last message
(matching on the question's text would mix up tasks that ask the same). The same facts stand in columns of their own for
`environment_factory`, whose `reset` sees columns.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from datasets import Dataset
from pydantic import JsonValue

from rolloutgym.client import AsyncClient
from rolloutgym.models import Message
from rolloutgym.training.chat import message_dict
from rolloutgym.training.rollouts import Task
from rolloutgym.training.service import Fault, Handle, RemoteEnvironment

_AT_ONCE = 64


def make_dataset(
    service: str | AsyncClient,
    env: str,
    split: str = "train",
    *,
    limit: int | None = None,
    seed: int = 0,
    options: Mapping[str, JsonValue] | None = None,
    system_prompt: str | None = None,
    api_key: str | None = None,
) -> Dataset:
    """The first `limit` tasks of a split, one row each; the row's seed is `seed` plus its index.

    Columns: `prompt` (the conversation that the service begins with; the last message carries `task_id` and `seed`),
    `environment`, `task_id`, `seed`. `system_prompt` replaces the service's own, which explains its text protocol: for
    trainers that call tools. Asks the service for every task once.
    """
    with RemoteEnvironment(service, env, api_key=api_key) as environment:
        tasks = environment.ask(lambda handle: handle.tasks(split, 0, limit))
        rows: list[dict[str, Any]] = []
        for start in range(0, len(tasks), _AT_ONCE):
            some = [
                Task(task_id=info.id, seed=seed + number, options=options or {})
                for number, info in enumerate(tasks[start : start + _AT_ONCE], start)
            ]
            prompts = environment.gather([partial(_first_messages, task=task) for task in some])
            rows += [_row(env, task, prompt, system_prompt) for task, prompt in zip(some, prompts, strict=True)]
    return Dataset.from_list(rows)


def task_of_prompt(prompt: Any) -> Task:
    """The task that a prompt of `make_dataset` carries. `ValueError` for any other prompt."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        for message in reversed(prompt):
            if message.get("task_id") is not None:
                return Task(task_id=message["task_id"], seed=message.get("seed"))
    raise ValueError("the prompt carries no task: a message needs the key `task_id` (see make_dataset)")


async def _first_messages(handle: Handle, task: Task) -> tuple[Message, ...]:
    async with await handle.reset(task_id=task.task_id, seed=task.seed, options=task.options) as episode:
        return episode.messages


def _row(env: str, task: Task, prompt: tuple[Message, ...] | Fault, system_prompt: str | None) -> dict[str, Any]:
    if isinstance(prompt, Fault):
        raise RuntimeError(f"the service could not show task {task.task_id!r}: {prompt.message}")
    messages = [message_dict(message) for message in prompt]
    if system_prompt is not None:
        others = [message for message in messages if message["role"] != "system"]
        messages = [{"role": "system", "content": system_prompt}, *others]
    messages[-1] |= {"task_id": task.task_id, "seed": task.seed}
    return {"prompt": messages, "environment": env, "task_id": task.task_id, "seed": task.seed}
