"""The demonstration: warm start on recorded episodes, then GRPO over HTTP, with held-out tasks measured on the way.

A language model of about 400 000 parameters begins with random weights. Supervised steps teach it the form of actions
from demonstrations most of which guess; GRPO, by TRL's trainer and `make_rollout_func` against the running service,
then has only the environment's reward to learn from.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rolloutgym.training import rewards
from rolloutgym.training.chat import ChatEncoder
from rolloutgym.training.datasets import make_dataset
from rolloutgym.training.demo.demonstrations import encode, imitate, record, words_of
from rolloutgym.training.demo.games import Game
from rolloutgym.training.demo.measuring import TEMPLATE, looked_rate, play_all, solve_rate
from rolloutgym.training.rollouts import Limits, Rollout, Task
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.tiny import ON_CPU, tiny_llama, word_tokenizer
from rolloutgym.training.trl_rollout import make_rollout_func

_LIMITS = Limits(turn_tokens=24, episode_tokens=200, reply_tokens=40)


@dataclass(frozen=True)
class Plan:
    """How much is done. The defaults take a few minutes on two cores."""

    seed: int = 0
    demonstrations: int = 1500
    warm_steps: int = 300
    warm_batch: int = 64
    warm_learning_rate: float = 2e-3
    grpo_steps: int = 80
    prompts: int = 12
    """Different tasks in a GRPO step."""
    group: int = 8
    """Episodes of each."""
    learning_rate: float = 4e-4
    """At first; it falls linearly to zero."""
    evaluate_every: int = 20
    """GRPO steps between measurements."""
    held_out: int = 200
    """Tasks of the test split that are measured."""
    threads: int = 1
    """Of torch; the other core is the service's."""


@dataclass(frozen=True)
class Measurement:
    """Held-out tasks after so many GRPO steps."""

    step: int
    seconds: float
    """Since the demonstration began."""
    greedy: float
    """Solve rate of the most likely actions."""
    sampled: float
    """Solve rate of actions drawn at temperature 1."""
    looked: float
    """Share of greedy episodes that looked before they answered."""


@dataclass
class Story:
    """What happened."""

    look: str
    """What looking before an answer is, in words."""
    parameters: int = 0
    demonstration_success: float = 0.0
    measurements: list[Measurement] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    """Mean return of each GRPO step's own episodes."""
    waited_ms: float = 0.0
    """For the service, per episode of GRPO; the episodes of a step share their waiting."""
    transcripts: list[Rollout] = field(default_factory=list)
    """A few held-out episodes at the end."""


Report = Callable[[str], None]


def learn(url: str, game: Game, plan: Plan, folder: Path, report: Report) -> Story:
    """Run the whole demonstration against the service at `url`, which serves the game's tasks."""
    torch.set_num_threads(plan.threads)
    started = time.monotonic()
    story = Story(game.look)
    draws = random.Random(plan.seed)
    with RemoteEnvironment(url, game.environment) as environment:
        train_ids = [info.id for info in environment.ask(lambda handle: handle.tasks("train"))]
        held_out = [info.id for info in environment.ask(lambda handle: handle.tasks("test", 0, plan.held_out))]
        tasks = [
            Task(task_id=draws.choice(train_ids), seed=seed, options=game.options)
            for seed in range(plan.demonstrations)
        ]
        demonstrations = record(environment, game, tasks, draws)
        story.demonstration_success = sum(one.success for one in demonstrations) / len(demonstrations)
        words = ["system", "user", "assistant", *words_of(demonstrations), *game.words()]
        tokenizer = word_tokenizer(words, chat_template=TEMPLATE)
        model = tiny_llama(tokenizer, hidden=128, layers=2, context=512, seed=plan.seed)
        story.parameters = sum(parameter.numel() for parameter in model.parameters())
        report(
            f"{len(demonstrations)} demonstrations in {time.monotonic() - started:.0f} s, "
            f"{story.demonstration_success:.0%} of them right; {len(train_ids)} tasks to train on, "
            f"{len(held_out)} held out; {story.parameters:,} parameters, {len(tokenizer)} words"
        )
        encoder = ChatEncoder(tokenizer)
        imitate(
            model,
            [encode(one, tokenizer, encoder, game.stop_tags) for one in demonstrations],
            steps=plan.warm_steps,
            batch_size=plan.warm_batch,
            learning_rate=plan.warm_learning_rate,
            pad_id=tokenizer.pad_token_id,
            draws=draws,
            on_step=lambda step, loss: (
                report(f"warm start, step {step + 1}: loss {loss:.3f}") if step % 100 == 99 else None
            ),
        )

        def play(sampling: SamplingParams) -> list[Rollout]:
            return play_all(environment, game, model, tokenizer, held_out, sampling, _LIMITS, game.options)

        def measure(step: int) -> list[Rollout]:
            greedy = play(SamplingParams(temperature=0))
            sampled = play(SamplingParams())
            now = Measurement(
                step, time.monotonic() - started, solve_rate(greedy), solve_rate(sampled), looked_rate(greedy, game)
            )
            story.measurements.append(now)
            report(
                f"GRPO step {now.step:3d}, {now.seconds:3.0f} s: held-out tasks solved: greedy {now.greedy:.3f}, "
                f"sampled {now.sampled:.3f}; {game.look}: {now.looked:.2f}"
            )
            return greedy

        measure(0)
        _grpo(url, game, plan, folder, model, tokenizer, story, measure)
        played = measure(plan.grpo_steps)
        story.transcripts = played[:: max(1, len(played) // 3)][:3]
    return story


def _grpo(
    url: str,
    game: Game,
    plan: Plan,
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    story: Story,
    measure: Callable[[int], Any],
) -> None:
    class Measure(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % plan.evaluate_every == 0 and state.global_step < plan.grpo_steps:
                measure(state.global_step)

    def keep(rollouts: Sequence[Rollout]) -> None:
        returns = [rollout.episode_return for rollout in rollouts if rollout.episode_return is not None]
        story.rewards.append(sum(returns) / len(returns))

    rollout_func = make_rollout_func(
        url, game.environment, limits=_LIMITS, stop_tags=game.stop_tags, options=game.options, on_rollouts=keep
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[rewards.episode_return],
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=plan.prompts * plan.group,
            num_generations=plan.group,
            max_steps=plan.grpo_steps,
            learning_rate=plan.learning_rate,
            lr_scheduler_type="linear",
            adam_beta2=0.99,
            max_grad_norm=1.0,
            loss_type="bnpo",
            epsilon_high=0.28,
            max_completion_length=_LIMITS.episode_tokens,
            seed=plan.seed,
            logging_steps=plan.evaluate_every,
            **ON_CPU,
        ),
        train_dataset=make_dataset(url, game.environment, "train", seed=plan.seed, options=game.options),
        processing_class=tokenizer,
        rollout_func=rollout_func,
        callbacks=[Measure()],
    )
    trainer.remove_callback(PrinterCallback)  # `report` speaks
    trainer.train()
    story.waited_ms = 1000 * rollout_func.waited_s / (plan.grpo_steps * plan.prompts * plan.group)
    rollout_func.close()
