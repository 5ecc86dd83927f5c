"""An environment that does next to nothing, in every way that a test of the service may want.

As a script it serves that environment, and says on standard output where, and when a step waits or blocks.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, JsonValue

from rolloutgym.models import Action, Info, Message, Observation, StopReason, TaskInfo, ToolSpec
from rolloutgym.server.app import create_app
from rolloutgym.server.environments.base import Environment, Episode, Options, Outcome
from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.errors import InvalidRequest
from rolloutgym.server.serving import Server, serve
from rolloutgym.server.settings import Settings


@dataclass(frozen=True)
class NoopTask:
    id: str
    split: str
    secret: str = "the answer"

    def info(self) -> TaskInfo:
        return TaskInfo(id=self.id, split=self.split, tags={"size": len(self.id)})

    def fingerprint(self) -> bytes:
        return f"{self.id}/{self.secret}".encode()


class NoopAction(Action):
    add: float | None = None
    """To the episode's total; also this step's reward."""
    wait: str | None = None
    """Wait until the test lets this name go on."""
    block: str | None = None
    """Wait for this of the environment's blocking calls, off the event loop."""
    fault: str | None = None
    """Fail in this way."""
    finish: bool | None = None
    say_surrogate: bool | None = None
    """Answer with text that is no Unicode."""


class NoopObservation(Observation):
    echoed: str = ""
    total: float = 0.0
    drawn: int = 0


class NoopOptions(Options):
    budget: Annotated[int, Field(ge=1)] = 1000
    reset_fault: str | None = None


@dataclass
class NoopEnvironment(Environment[NoopTask, NoopOptions, NoopAction, NoopObservation]):
    """Adds numbers. Its actions can wait for a test's word and fail in every way."""

    name = "noop"
    version = "1"
    prompt_version = "1"
    description = "Adds numbers"
    action_type = NoopAction
    observation_type = NoopObservation
    options_type = NoopOptions
    tasks = TaskSet([NoopTask(f"{split}-{i}", split) for split in ("train", "validation", "test") for i in range(5)])

    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    blocking: dict[str, Callable[[], Any]] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """Names that steps have begun to wait for."""
    faults: dict[str, Callable[[], float]] = field(default_factory=dict)
    """What `fault` does: raise, or return the reward."""
    live: set["NoopEpisode"] = field(default_factory=set)
    """Episodes that nobody has closed. Cleared, it counts no episode of an earlier test, which may yet end."""
    steps: int = 0
    """Steps that ran, replayed ones too."""
    running: bool = False
    loop: asyncio.AbstractEventLoop | None = None
    """The service's, once it runs: tests let steps go on with `loop.call_soon_threadsafe`."""
    server: Server | None = None
    """What serves it in a thread."""

    @property
    def open(self) -> int:
        return len(self.live)

    async def start(self) -> None:
        self.running = True
        self.loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        self.running = False

    def episode(self, task: NoopTask, seed: int, options: NoopOptions) -> "NoopEpisode":
        return NoopEpisode(self, task, seed, options)

    def tools(self) -> Sequence[ToolSpec]:
        parameters = {"type": "object", "properties": {"add": {"type": "number"}}, "required": ["add"]}
        return (ToolSpec.model_validate({"function": {"name": "add", "parameters": parameters}}),)

    def reward_range(self) -> tuple[float, float]:
        return (-1000.0, 1000.0)


class NoopEpisode(Episode[NoopAction]):
    def __init__(self, environment: NoopEnvironment, task: NoopTask, seed: int, options: NoopOptions) -> None:
        self._environment = environment
        self._task = task
        self._options = options
        self._random = seeded_random(seed, task.id)
        self._total = 0.0
        self._turn = 0
        environment.live.add(self)

    async def reset(self) -> NoopObservation:
        if self._options.reset_fault is not None:
            self._environment.faults[self._options.reset_fault]()
        return NoopObservation(
            messages=(Message(role="system", content="Add."), Message(role="user", content=self._task.id)),
            tools=tuple(self._environment.tools()),
            info=Info(budget_remaining=self._options.budget),
            drawn=self._random.randrange(1000),
        )

    async def step(self, action: NoopAction) -> Outcome:
        self._environment.steps += 1
        self._turn += 1
        reward = action.add or 0.0
        if action.wait is not None:
            self._environment.waiting.append(action.wait)
            await self._environment.gates[action.wait].wait()
        if action.block is not None:
            self._environment.waiting.append(action.block)
            await asyncio.to_thread(self._environment.blocking[action.block])
        if action.fault is not None:
            reward = self._environment.faults[action.fault]()
        self._total += reward if math.isfinite(reward) else 0.0
        stop = StopReason.ANSWERED if action.finish else None
        truncated = stop is None and self._turn >= self._options.budget
        echoed = "\ud800" if action.say_surrogate else action.text or ""
        return self._outcome(echoed, reward, StopReason.BUDGET_EXHAUSTED if truncated else stop, truncated)

    async def truncate(self, reason: StopReason) -> Outcome:
        return self._outcome("", 0.0, reason, truncated=True)

    def state(self) -> Mapping[str, JsonValue]:
        return {"total": self._total}

    def action_of_call(self, name: str, arguments: Mapping[str, JsonValue]) -> NoopAction:
        if name != "add" or not isinstance(arguments.get("add"), int | float):
            raise InvalidRequest("add takes a number")
        return NoopAction.model_validate(arguments)

    def tools(self) -> Sequence[ToolSpec]:
        return self._environment.tools()

    async def close(self) -> None:
        self._environment.live.discard(self)

    def _outcome(self, echoed: str, reward: float, stop: StopReason | None, truncated: bool) -> Outcome:
        info = Info(
            terminated=stop is not None and not truncated,
            truncated=truncated,
            stop_reason=stop,
            reward_components={"sum": reward} if abs(reward) < 1e300 else {},
            turn=self._turn,
            budget_remaining=self._options.budget - self._turn,
        )
        message = Message(role="user", content=f"total {self._total:g}")
        drawn = self._random.randrange(1000)
        observation = NoopObservation(messages=(message,), info=info, echoed=echoed, total=self._total, drawn=drawn)
        return Outcome(observation, reward)


class _ToldGates(dict[str, asyncio.Event]):
    """Gates that nobody opens; each step that waits is told on standard output."""

    def __missing__(self, name: str) -> asyncio.Event:
        print(f"a step waits for {name}", flush=True)  # noqa: T201
        return asyncio.Event()


def main() -> None:
    """Serve it until SIGTERM, with settings from the environment."""
    settings = Settings(port=0, log_level="error")

    def block() -> float:
        print("a step blocks", flush=True)  # noqa: T201
        time.sleep(600)
        return 0.0

    environment = NoopEnvironment(faults={"block": block}, gates=_ToldGates())
    serve(create_app(settings, {"noop": environment}), settings, lambda url: print(f"listening on {url}", flush=True))  # noqa: T201


if __name__ == "__main__":
    main()
