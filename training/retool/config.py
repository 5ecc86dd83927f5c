"""Settings of the trainer: those of `transformers.TrainingArguments`, and what GRPO over remote episodes adds."""

from dataclasses import dataclass, field
from typing import Any, Literal

from transformers import TrainingArguments

from rolloutgym.training.retool.advantages import Scaling
from rolloutgym.training.retool.loss import LossType
from rolloutgym.training.rollouts import Limits
from rolloutgym.training.sampling import SamplingParams


@dataclass
class RetoolConfig(TrainingArguments):
    """`per_device_train_batch_size` counts rollouts of a micro-batch, `gradient_accumulation_steps` micro-batches of an
    optimiser step. A generation is used for `steps_per_generation × num_iterations` micro-batches.

    Raises `ValueError` for settings that do not fit together.
    """

    # -- episodes
    environment: str = field(default="code", metadata={"help": "Environment of the service."})
    environment_options: dict[str, Any] = field(
        default_factory=lambda: {"preset": "binary"}, metadata={"help": "Reset options of every episode."}
    )
    stop_tags: tuple[str, ...] = field(
        default=("</code>",), metadata={"help": "Texts that end a turn beside the end-of-turn token."}
    )
    max_completion_length: int = field(
        default=1024, metadata={"help": "Completion tokens of an episode, the interpreter's among them."}
    )
    max_turn_tokens: int = field(default=512, metadata={"help": "Tokens sampled in one turn."})
    reply_tokens: int = field(default=128, metadata={"help": "Room kept free for what the interpreter answers."})
    max_turns: int | None = field(
        default=None, metadata={"help": "Turns of an episode; None leaves it to the service."}
    )
    max_fault_share: float = field(default=0.25, metadata={"help": "Larger shares of failed episodes stop the run."})

    # -- sampling
    temperature: float = field(default=1.0, metadata={"help": "Of sampling, and of the log-probabilities in the loss."})
    top_k: int = field(default=0, metadata={"help": "Keep the k most likely tokens; 0 keeps all."})
    top_p: float = field(default=1.0, metadata={"help": "Keep the likeliest tokens up to this probability."})
    min_p: float = field(default=0.0, metadata={"help": "Keep tokens this fraction as likely as the likeliest."})

    # -- GRPO
    num_generations: int = field(default=8, metadata={"help": "G, rollouts of one prompt."})
    num_iterations: int = field(default=1, metadata={"help": "How often a generation is trained on."})
    steps_per_generation: int | None = field(
        default=None,
        metadata={"help": "Micro-batches of a generation, a multiple of gradient_accumulation_steps (the default)."},
    )
    loss_type: LossType = field(default="bnpo", metadata={"help": "How token losses become one number."})
    beta: float = field(default=0.0, metadata={"help": "Weight of the KL divergence from the reference model."})
    epsilon: float = field(default=0.2, metadata={"help": "Lower clip bound of the ratio: 1 - epsilon."})
    epsilon_high: float | None = field(default=None, metadata={"help": "Upper one: 1 + epsilon_high; None: epsilon."})
    scale_rewards: Scaling = field(default="group", metadata={"help": "What centred rewards are divided by."})
    reward_weights: list[float] | None = field(default=None, metadata={"help": "One for each reward function."})
    on_reward_error: Literal["raise", "nan"] = field(
        default="raise", metadata={"help": "What becomes of an exception in a reward function."}
    )
    mask_interpreter: bool = field(
        default=True, metadata={"help": "Leave the interpreter's tokens out of the loss. False only for comparisons."}
    )
    mask_truncated_completions: bool = field(
        default=False, metadata={"help": "Leave episodes that a limit cut off out of the loss."}
    )
    logits_chunk: int = field(default=256, metadata={"help": "Tokens whose logits are held at once."})

    # -- logs
    log_completions: bool = field(default=True, metadata={"help": "Write every rollout to completions.jsonl."})
    shuffle_dataset: bool = field(default=True, metadata={"help": "A new order of prompts in every epoch."})

    # -- defaults of TrainingArguments that do not fit
    learning_rate: float = field(default=1e-6, metadata={"help": "Initial learning rate."})
    logging_steps: float = field(default=1, metadata={"help": "Optimiser steps between logs."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "Reward functions see all columns."})
    report_to: str | list[str] | None = field(default="none", metadata={"help": "Such as tensorboard; beside JSONL."})

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[no-untyped-call]
        if self.num_generations < 2:
            raise ValueError("num_generations must be at least 2: a group of one has no baseline")
        if self.steps_per_generation is None:
            self.steps_per_generation = self.gradient_accumulation_steps
        if self.steps_per_generation % self.gradient_accumulation_steps:
            raise ValueError("steps_per_generation must be a multiple of gradient_accumulation_steps, so that what an "
                             "optimiser step trains on is known when it begins")  # fmt: skip
        if self.generation_batch_size % self.num_generations:
            raise ValueError(
                f"a generation has {self.generation_batch_size} rollouts (per_device_train_batch_size × processes × "
                f"steps_per_generation), which do not make groups of {self.num_generations}"
            )
        if self.num_iterations < 1:
            raise ValueError("num_iterations must be at least 1")

    @property
    def generation_batch_size(self) -> int:
        """Rollouts of one generation, over all processes."""
        assert self.steps_per_generation is not None
        return self.per_device_train_batch_size * int(self.world_size) * self.steps_per_generation

    @property
    def clip_bounds(self) -> tuple[float, float]:
        return self.epsilon, self.epsilon if self.epsilon_high is None else self.epsilon_high

    @property
    def limits(self) -> Limits:
        return Limits(
            turn_tokens=self.max_turn_tokens,
            episode_tokens=self.max_completion_length,
            reply_tokens=self.reply_tokens,
            max_turns=self.max_turns,
            max_fault_share=self.max_fault_share,
        )

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(self.temperature, self.top_k, self.top_p, self.min_p)
