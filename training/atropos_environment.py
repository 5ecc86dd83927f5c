"""An environment of the service as one of Atropos' own classes: its servers sample, its loop pushes.

Run as `python -m rolloutgym.training.atropos_environment serve`; needs `atroposlib` (extra `atropos`). Atropos runs the
workers, the back-pressure and the evaluations; a worker plays one group through `play_group`, in a thread. Sampling is
by token ids (`tokens_and_logprobs_completion`, which Atropos' vLLM and SGLang servers have): no text is encoded twice.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from statistics import fmean
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig
from pydantic import Field, JsonValue

from rolloutgym.training.atropos import GroupRefused, play_group, scored_group
from rolloutgym.training.chat import ChatEncoder
from rolloutgym.training.generators.base import Conversation, Sampled, TokenBatch
from rolloutgym.training.rollouts import Limits, Task, play_batch
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.stops import StopTags, end_of_turn_ids
from rolloutgym.training.traces import Trace

logger = logging.getLogger(__name__)


class RolloutGymConfig(BaseEnvConfig):  # type: ignore[misc]
    """Atropos' settings, and which environment to play."""

    wandb_name: str | None = Field(
        "rolloutgym", description="Name at the API server, which takes no environment without"
    )
    service_url: str = Field("http://127.0.0.1:8080", description="Base URL of the RolloutGym service")
    environment: str = Field("sql", description="Name of the environment")
    split: str = Field("train", description="Split to train on")
    eval_split: str = Field("validation", description="Split to evaluate on")
    eval_tasks: int = Field(64, description="Tasks of an evaluation")
    reset_options: dict[str, JsonValue] = Field(default_factory=dict, description="The environment's reset options")
    turn_tokens: int = Field(512, description="Most tokens sampled in one turn")
    reply_tokens: int = Field(128, description="Room kept free for the environment's answer, tokens")
    stop_tags: list[str] = Field(default_factory=list, description="Texts that end a turn, such as </code>")
    temperature: float = Field(1.0, description="Sampling temperature of training; evaluations are greedy")
    outcome_weight: float | None = Field(None, description="Send per-token advantages: weight of the return in them")


class RolloutGymEnv(BaseEnv):  # type: ignore[misc]
    name = "rolloutgym"
    env_config_cls = RolloutGymConfig

    @classmethod
    def config_init(cls) -> tuple[RolloutGymConfig, list[Any]]:
        server = APIServerConfig(model_name="default", base_url="http://localhost:9001/v1", server_type="vllm")
        return RolloutGymConfig(), [server]

    async def setup(self) -> None:
        self._environment = RemoteEnvironment(self.config.service_url, self.config.environment)
        self._environment.open()
        self._tasks = await self._count(self.config.split)
        self._eval_tasks = min(self.config.eval_tasks, await self._count(self.config.eval_split))
        self._numbers = count()

    async def get_next_item(self) -> Task:
        number = next(self._numbers)
        return self._task(self.config.split, number % self._tasks, number)

    async def collect_trajectories(self, item: Task) -> tuple[dict[str, Any] | None, list[Task]]:
        """A group, or None where a fault remained or nothing fits together: such a group is never sent."""
        generator = _ServerGenerator.of(self, self.config.temperature, "train")
        rollouts, _ = await asyncio.to_thread(
            play_group, self._environment, item, generator, self.config.group_size, self._limits
        )
        try:
            group = scored_group(rollouts, outcome_weight=self.config.outcome_weight)
            group.check(self.config.group_size, self.max_token_len)
        except GroupRefused as refusal:
            logger.warning("group not sent: %s", refusal)
            return None, []
        return {name: value for name, value in asdict(group).items() if value is not None}, []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Greedy play on the evaluation split; faulted episodes are left out, and counted."""
        tasks = [self._task(self.config.eval_split, index, index) for index in range(self._eval_tasks)]
        generator = _ServerGenerator.of(self, 0.0, "eval")
        rollouts = await asyncio.to_thread(play_batch, self._environment, tasks, generator, self._limits)
        returns = [rollout.episode_return for rollout in rollouts if rollout.episode_return is not None]
        solved = [rollout.success for rollout in rollouts if rollout.success is not None]
        metrics: dict[str, float] = {"eval/faults": len(rollouts) - len(returns)}
        if returns:
            metrics["eval/mean_return"] = fmean(returns)
        if solved:
            metrics["eval/solve_rate"] = fmean(solved)
        await self.evaluate_log(metrics)
        await self.wandb_log(metrics)

    @property
    def _limits(self) -> Limits:
        longest = self.config.max_token_length
        return Limits(
            turn_tokens=self.config.turn_tokens,
            episode_tokens=longest,
            reply_tokens=self.config.reply_tokens,
            context_tokens=longest,
        )

    def _task(self, split: str, index: int, seed: int) -> Task:
        return Task(split=split, index=index, seed=seed, options=self.config.reset_options)

    async def _count(self, split: str) -> int:
        return await asyncio.to_thread(self._environment.ask, lambda handle: handle.num_tasks(split))


@dataclass(frozen=True)
class _ServerGenerator:
    """Atropos' inference servers, asked from the thread that plays; the requests run on Atropos' event loop."""

    server: Any
    tokenizer: Any
    stops: StopTags
    request: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop
    context_tokens: int | None

    @classmethod
    def of(cls, environment: RolloutGymEnv, temperature: float, split: str) -> "_ServerGenerator":
        stops = StopTags(environment.tokenizer, environment.config.stop_tags)
        request: dict[str, Any] = {"n": 1, "temperature": temperature, "split": split}
        if stops.tags:
            request |= {"stop": list(stops.tags), "include_stop_str_in_output": True}
        longest = environment.config.max_token_length
        return cls(environment.server, environment.tokenizer, stops, request, asyncio.get_running_loop(), longest)

    def begin(self, conversations: Sequence[Conversation | None]) -> TokenBatch:
        return TokenBatch(conversations, self.tokenizer, ChatEncoder(self.tokenizer), _ServerSampler(self))


class _ServerSampler:
    def __init__(self, generator: _ServerGenerator) -> None:
        self._of = generator
        self._eos_ids = end_of_turn_ids(generator.tokenizer, None)

    def sample(self, traces: Mapping[int, Trace], budgets: Mapping[int, int]) -> dict[int, Sampled]:
        async def every_row() -> list[Sampled]:
            return await asyncio.gather(*(self._turn(trace, budgets[row]) for row, trace in traces.items()))

        turns = asyncio.run_coroutine_threadsafe(every_row(), self._of.loop).result()
        return dict(zip(traces, turns, strict=True))

    def close(self) -> None:
        """The servers keep nothing of ours."""

    async def _turn(self, trace: Trace, budget: int) -> Sampled:
        _, ids, logprobs, reasons = await self._of.server.tokens_and_logprobs_completion(
            input_ids=trace.ids_from(0), max_tokens=budget, **self._of.request
        )
        if ids[0][-1] in self._eos_ids:
            return Sampled(ids[0], logprobs[0], "end_of_turn")
        if self._of.stops.complete(ids[0]):
            return Sampled(ids[0], logprobs[0], "stop_tag")
        # A server also stops at end-of-turn tokens that the model's generation config names and the tokenizer does not.
        reason = reasons[0]["type"] if isinstance(reasons[0], dict) else reasons[0]  # SGLang's and vLLM's form
        return Sampled(ids[0], logprobs[0], "end_of_turn" if reason == "stop" else "budget")


if __name__ == "__main__":
    RolloutGymEnv.cli()
