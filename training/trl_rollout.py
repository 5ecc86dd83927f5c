"""`make_rollout_func`: the rollout engine in the form that TRL's GRPOTrainer calls (`trl>=1.8,<2`).

TRL has already repeated every prompt `num_generations` times, so one row goes back for every prompt, in order, in
evaluation as in training. All fields are lists of one value per row: TRL would broadcast anything else. Settings that
TRL would silently misread together with a rollout function are refused.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import JsonValue
from transformers import PreTrainedModel

from rolloutgym.client import AsyncClient
from rolloutgym.models import StopReason
from rolloutgym.training.chat import ChatEncoder, Encoder
from rolloutgym.training.datasets import task_of_prompt
from rolloutgym.training.generators.base import Generator
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.generators.vllm import VLLMGenerator
from rolloutgym.training.rollouts import Limits, Rollout, play_batch
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.service import RemoteEnvironment

_CUT = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_LENGTH, StopReason.TIME_LIMIT})


class RolloutFunction(Protocol):
    """What TRL calls as `rollout_func`, with what we add."""

    spent_s: float
    """Time in rollouts so far, seconds."""

    @property
    def waited_s(self) -> float:
        """Of it, waiting for the service."""
        ...

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]: ...

    def close(self) -> None:
        """Close the connections to the service."""
        ...


def make_rollout_func(
    service: str | AsyncClient,
    env: str,
    *,
    limits: Limits | None = None,
    stop_tags: Sequence[str] = (),
    options: Mapping[str, JsonValue] | None = None,
    make_encoder: Callable[[Any], Encoder] = ChatEncoder,
    mask_truncated: bool = False,
    on_rollouts: Callable[[list[Rollout]], None] | None = None,
    api_key: str | None = None,
) -> RolloutFunction:
    """A `rollout_func` that plays episodes of environment `env` of the service.

    Args:
        service: Base URL of the service, or an unused client of it. Each process of a run connects for itself.
        limits: Those of one batch; by default an episode has the trainer's `max_completion_length`.
        stop_tags: Texts that end a turn beside the model's own end-of-turn token, such as `</code>`.
        options: The environment's reset options.
        make_encoder: From the trainer's tokenizer to the `Encoder` (for templates with options, or `InlineEncoder`).
        mask_truncated: Take episodes that a limit of tokens, context or time ended out of the loss (they keep their
            reward in the group's baseline). Stands for `mask_truncated_completions`, which would also mask every
            episode that the environment ended.
        on_rollouts: Called with each batch of this process, for logs.
    """
    return _TrlRollouts(
        RemoteEnvironment(service, env, api_key=api_key),
        limits,
        tuple(stop_tags),
        options or {},
        make_encoder,
        mask_truncated,
        on_rollouts,
    )


class _TrlRollouts:
    def __init__(
        self,
        environment: RemoteEnvironment,
        limits: Limits | None,
        stop_tags: tuple[str, ...],
        options: Mapping[str, JsonValue],
        make_encoder: Callable[[Any], Encoder],
        mask_truncated: bool,
        on_rollouts: Callable[[list[Rollout]], None] | None,
    ) -> None:
        self._environment = environment
        self._limits = limits
        self._stop_tags = stop_tags
        self._options = options
        self._make_encoder = make_encoder
        self._mask_truncated = mask_truncated
        self._on_rollouts = on_rollouts
        self._encoder: Encoder | None = None
        self.spent_s = 0.0

    @property
    def waited_s(self) -> float:
        return self._environment.waited_s

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        check_trainer(trainer)
        started = time.perf_counter()
        self._environment.open()
        tasks = [replace(task_of_prompt(prompt), options=self._options) for prompt in prompts]
        limits = self._limits or Limits(
            turn_tokens=trainer.max_completion_length, episode_tokens=trainer.max_completion_length
        )
        if self._encoder is None:
            self._encoder = self._make_encoder(trainer.processing_class)
        if trainer.use_vllm:
            rollouts = play_batch(self._environment, tasks, self._vllm(trainer, limits), limits)
        else:
            model = trainer.accelerator.unwrap_model(trainer.model)
            with evaluation_mode(model):
                rollouts = play_batch(self._environment, tasks, self._transformers(trainer, model), limits)
        self.spent_s += time.perf_counter() - started
        if self._on_rollouts is not None:
            self._on_rollouts(rollouts)
        return trl_fields(rollouts, mask_truncated=self._mask_truncated)

    def close(self) -> None:
        self._environment.close()

    def _transformers(self, trainer: Any, model: PreTrainedModel) -> Generator:
        sampling = SamplingParams(
            temperature=trainer.temperature,
            top_k=max(trainer.top_k or 0, 0),
            top_p=trainer.top_p,
            min_p=trainer.min_p or 0.0,
        )
        return TransformersGenerator(
            model, trainer.processing_class, sampling, stop_tags=self._stop_tags, encoder=self._encoder
        )

    def _vllm(self, trainer: Any, limits: Limits) -> Generator:
        assert self._encoder is not None
        return VLLMGenerator(
            trainer.vllm_generation,
            trainer.processing_class,
            self._encoder,
            stop_tags=self._stop_tags,
            model_eos=trainer.model.generation_config.eos_token_id,
            context_tokens=getattr(trainer.model.config, "max_position_embeddings", None),
        )


def trl_fields(rollouts: Sequence[Rollout], *, mask_truncated: bool = False) -> dict[str, list[Any]]:
    """What TRL reads, and what the functions in `rolloutgym.training.rewards` read, one value per row."""
    cut = [mask_truncated and rollout.stop_reason in _CUT for rollout in rollouts]
    return {
        "prompt_ids": [rollout.prompt_ids for rollout in rollouts],
        "completion_ids": [rollout.completion_ids for rollout in rollouts],
        "logprobs": [rollout.logprobs for rollout in rollouts],
        "env_mask": [
            [0] * len(rollout.env_mask) if masked else rollout.env_mask
            for rollout, masked in zip(rollouts, cut, strict=True)
        ],
        "episode_return": [rollout.episode_return for rollout in rollouts],
        "success": [rollout.success for rollout in rollouts],
        "components": [rollout.components for rollout in rollouts],
        "stop_reason": [rollout.stop_reason for rollout in rollouts],
        "turns": [rollout.turns for rollout in rollouts],
        "invalid_actions": [rollout.invalid_actions for rollout in rollouts],
        "episode_id": [rollout.episode_id for rollout in rollouts],
        "fault": [rollout.fault.code if rollout.fault else None for rollout in rollouts],
    }


FIELDS = frozenset(trl_fields([]))


def check_trainer(trainer: Any) -> None:
    """`ValueError` for settings that would go wrong without a word."""
    if trainer.tools:
        raise ValueError("a rollout function excludes `tools` and `environment_factory`: TRL would then train on the "
                         "environment's tokens")  # fmt: skip
    if trainer.args.mask_truncated_completions:
        raise ValueError(
            "`mask_truncated_completions` would mask every episode that the environment ended; "
            "use make_rollout_func(mask_truncated=True)"
        )
    if trainer.args.repetition_penalty != 1.0:
        raise ValueError("`repetition_penalty` would make the sampled distribution another than the trained one")
    dataset = trainer.train_dataset if trainer.model.training else trainer.eval_dataset
    columns = set(getattr(dataset, "column_names", None) or ())
    if clash := sorted(columns & FIELDS):
        raise ValueError(f"the data set's columns {', '.join(clash)} would be overwritten by the rollout's fields")
    plugin = trainer.accelerator.state.deepspeed_plugin
    if not trainer.use_vllm and (trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3)):
        raise ValueError("sharded weights cannot generate row by row in step: use vLLM (`use_vllm=True`)")
