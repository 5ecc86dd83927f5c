"""Episodes in the shape of older SQL rollout code: a prompt list in, one dict of texts and scores per episode out.

`rollout_func(prompts, model, tokenizer, config)` returns, for each prompt, `prompt`, `completion`, `content`,
`metadata`, `correct`, `progress` and `operational`. The engine is underneath: episodes run in lockstep.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from pydantic import JsonValue
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rolloutgym.models import SqlInfo
from rolloutgym.training.datasets import task_of_prompt
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.rollouts import Limits, Rollout, Task, play_batch
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.service import RemoteEnvironment


@dataclass(frozen=True)
class RolloutConfig:
    """Where and how the episodes are played."""

    url: str
    max_new_tokens: int = 256
    """Of one turn."""
    step_budget: int = 15
    """Of an episode."""
    seed: int | None = None
    """Of the first episode; the next ones count up. None draws fresh ones."""
    episode_tokens: int = 4096
    temperature: float = 1.0
    options: Mapping[str, JsonValue] = field(default_factory=dict)


class Episode(TypedDict):
    prompt: Any
    completion: str
    """The model's turns, one a line."""
    content: str
    """The same."""
    metadata: dict[str, Any]
    correct: bool | None
    """None where an infrastructure fault left it open; so are the two scores then."""
    progress: float | None
    """How close the best query came to the gold query, 0 to 1."""
    operational: float | None
    """Actions that ran, less repeats."""


def rollout_func(
    prompts: Sequence[Any], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: RolloutConfig
) -> list[Episode]:
    """One SQL episode for every prompt: a task id, or messages that carry one (see `make_dataset`)."""
    tasks = [_task(prompt, number, config) for number, prompt in enumerate(prompts)]
    limits = Limits(turn_tokens=config.max_new_tokens, episode_tokens=config.episode_tokens)
    generator = TransformersGenerator(model, tokenizer, SamplingParams(temperature=config.temperature))
    with RemoteEnvironment(config.url, "sql") as environment, evaluation_mode(model):
        rollouts = play_batch(environment, tasks, generator, limits)
    return [_episode(prompt, rollout) for prompt, rollout in zip(prompts, rollouts, strict=True)]


def _task(prompt: Any, number: int, config: RolloutConfig) -> Task:
    named = Task(task_id=prompt) if isinstance(prompt, str) else task_of_prompt(prompt)
    seed = named.seed if config.seed is None else config.seed + number
    return Task(task_id=named.task_id, seed=seed, options={"budget": config.step_budget, **config.options})


def _episode(prompt: Any, rollout: Rollout) -> Episode:
    text = "\n".join(message.content for message in rollout.transcript if message.role == "assistant")
    info = rollout.info if isinstance(rollout.info, SqlInfo) else None
    return Episode(
        prompt=prompt,
        completion=text,
        content=text,
        metadata={
            "episode_id": rollout.episode_id,
            "task_id": rollout.task_id,
            "seed": rollout.seed,
            "step_count": rollout.turns,
            "done": rollout.fault is None,
            "stop_reason": rollout.stop_reason,
            "episode_return": rollout.episode_return,
            "fault": rollout.fault.code if rollout.fault else None,
        },
        correct=rollout.success,
        progress=info.progress if info else None,
        operational=info.operational if info else None,
    )
