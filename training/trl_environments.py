"""`make_environment_factory`: episodes as TRL's tool-calling environments (`trl>=1.8,<2`).

TRL itself generates, calls the public methods of the object as tools and asks for the reward at the end: the convenient
path, where `make_rollout_func` is the fast one (TRL calls the tools of a batch one after the other, and prefills the
conversation at every turn). Faults never become rewards: `get_reward` is then None, which TRL leaves out of the group.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import JsonValue

from rolloutgym.client import AsyncClient
from rolloutgym.models import StopReason
from rolloutgym.training.datasets import tool_options
from rolloutgym.training.rollouts import RemoteEpisode, Task, TooManyFaults
from rolloutgym.training.service import Fault, Handle, RemoteEnvironment

_OVER = "The episode is over."
_BROKEN = "The environment does not answer."
_REMEMBERED, _MIN_JUDGED = 64, 16


@dataclass
class _Link:
    """What all objects of one factory share: the way to the service, and how its last episodes went."""

    remote: RemoteEnvironment
    options: Mapping[str, JsonValue]
    max_fault_share: float
    recent_faults: "deque[bool]" = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class ToolEnvironment:
    """One episode at a time; TRL keeps the object and resets it for every rollout."""

    _link: ClassVar[_Link]

    def __init__(self) -> None:
        self._episode: RemoteEpisode | None = None
        self._fault: Fault | None = None
        self._success: bool | None = None

    def reset(self, **row: Any) -> None:
        """Begin the row's task (columns `task_id` and `seed` of `make_dataset`). The prompt already shows it.

        Raises `TooManyFaults` where too many of the last episodes failed.
        """
        self._forget()
        if "task_id" not in row:
            raise ValueError("the data set has no column task_id (see make_dataset)")
        self._link.remote.open()
        task = Task(task_id=row["task_id"], seed=row.get("seed"), options=self._link.options)
        (begun,) = self._link.remote.gather([partial(_reset, task=task)])
        if isinstance(begun, Fault):
            self._fault = begun
        else:
            self._episode = begun

    def get_reward(self) -> float | None:
        """The episode's return; an episode that the model left unfinished is graded on what there is. None for a
        fault."""
        if self._episode is not None and self._fault is None and not self._episode.done:
            self._tell(partial(_truncate, episode=self._episode))
        return None if self._episode is None or self._fault is not None else self._episode.total_reward

    @property
    def success(self) -> bool | None:
        """Whether the task was solved; None until known, and for a fault."""
        return self._success if self._fault is None else None

    @property
    def fault(self) -> Fault | None:
        return self._fault

    def _act(self, action: Mapping[str, JsonValue]) -> str:
        if self._fault is not None or self._episode is None:
            return _BROKEN
        if self._episode.done:
            return _OVER
        return self._tell(partial(_step, episode=self._episode, action=action))

    def _tell(self, call: Callable[[Handle], Any]) -> str:
        """One call of the episode; what the environment said to it."""
        (result,) = self._link.remote.gather([call])
        if isinstance(result, Fault):
            self._fault = result
            return _BROKEN
        self._success = result.observation.info.success
        return "\n".join(message.content for message in result.observation.messages) or _OVER

    def _forget(self) -> None:
        """Close the last episode and judge how the service is doing."""
        link = self._link
        if self._episode is not None:
            link.remote.gather([partial(_close, episode=self._episode)])
        if self._episode is not None or self._fault is not None:
            link.recent_faults.append(self._fault is not None)
        faults = sum(link.recent_faults)
        if len(link.recent_faults) >= _MIN_JUDGED and faults > link.max_fault_share * len(link.recent_faults):
            raise TooManyFaults(
                f"{faults} of the last {len(link.recent_faults)} episodes failed; the last: {self._fault}"
            )
        self._episode = self._fault = self._success = None


async def _reset(handle: Handle, task: Task) -> RemoteEpisode:
    return await handle.reset(task_id=task.task_id, seed=task.seed, options=task.options)


async def _step(_: Handle, episode: RemoteEpisode, action: Mapping[str, JsonValue]) -> Any:
    return await episode.step(action)


async def _truncate(_: Handle, episode: RemoteEpisode) -> Any:
    return await episode.truncate(StopReason.MAX_TURNS)


async def _close(_: Handle, episode: RemoteEpisode) -> None:
    await episode.close()


# ---- the tools of each environment ----------------------------------------------------------------------------------
# Names, types and docstrings below are what the model is shown.


class SqlTools(ToolEnvironment):
    def describe(self, table: str) -> str:
        """Show a table's columns, types, keys and number of rows.

        Args:
            table: Name of the table.

        Returns:
            The description.
        """
        return self._act({"action_type": "DESCRIBE", "argument": str(table)})

    def sample(self, table: str) -> str:
        """Show the first rows of a table.

        Args:
            table: Name of the table.

        Returns:
            The rows.
        """
        return self._act({"action_type": "SAMPLE", "argument": str(table)})

    def query(self, sql: str) -> str:
        """Run one SELECT statement and show its rows.

        Args:
            sql: The statement.

        Returns:
            The rows, or what was wrong.
        """
        return self._act({"action_type": "QUERY", "argument": str(sql)})

    def answer(self, value: str) -> str:
        """Give the final answer. It ends the episode.

        Args:
            value: The answer.

        Returns:
            That it was recorded.
        """
        return self._act({"action_type": "ANSWER", "argument": str(value)})


class CodeTools(ToolEnvironment):
    def python(self, code: str) -> str:
        """Run Python code; variables are kept from one call to the next.

        Args:
            code: The code to run.

        Returns:
            What it printed and the value of its last expression.
        """
        return self._act({"code": str(code)})

    def answer(self, answer: str) -> str:
        """Give the final answer. It ends the episode.

        Args:
            answer: The answer.

        Returns:
            That it was recorded.
        """
        return self._act({"answer": str(answer)})


class ToolCallTools(ToolEnvironment):
    def call_functions(self, calls: list[dict[str, Any]]) -> str:
        """Call one or more of the functions that the system message lists.

        Args:
            calls: The calls, each an object with the function's `name` and its `arguments`, an object.

        Returns:
            What the functions answered, or what the user says next.
        """
        return self._act({"tool_calls": [_call(number, call) for number, call in enumerate(calls)]})

    def reply(self, text: str) -> str:
        """Answer the user in words, without calling a function.

        Args:
            text: The answer.

        Returns:
            What the user says next.
        """
        return self._act({"text": str(text)})


def _call(number: int, call: Any) -> JsonValue:
    """A model's call in OpenAI's form; whatever it is, the service judges it."""
    fields = call if isinstance(call, dict) else {}
    arguments = fields.get("arguments", {})
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": str(fields.get("name", "")), "arguments": json.dumps(arguments)},
    }


_TOOLS: dict[str, type[ToolEnvironment]] = {"sql": SqlTools, "code": CodeTools, "toolcall": ToolCallTools}


def make_environment_factory(
    service: str | AsyncClient,
    env: Literal["sql", "toolcall", "code"],
    *,
    options: Mapping[str, JsonValue] | None = None,
    max_fault_share: float = 0.25,
    api_key: str | None = None,
) -> type[ToolEnvironment]:
    """A class for TRL's `environment_factory`; `{name: factory, …}` of several trains on a mix of environments.

    The data set comes from `make_dataset(…, protocol="tools")`. Each process connects for itself, at its first episode.
    """
    tools = _TOOLS[env]
    link = _Link(RemoteEnvironment(service, env, api_key=api_key), tool_options(env, options), max_fault_share)
    # The class's name heads the column of its rewards.
    return type(f"{env}_environment", (tools,), {"_link": link, "__doc__": f"Episodes of the {env} environment."})


def close_environment_factory(factory: type[ToolEnvironment]) -> None:
    """Close the connections to the service. (A method of the class would be a tool.)"""
    factory._link.remote.close()
