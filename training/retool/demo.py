"""The trainer at work, from scratch: sums that a tiny model cannot do and the interpreter can.

Three runs with different seeds begin from a warm start on demonstrations most of which guess. Two more stand beside the
first: one that also trains on the interpreter's words (no mask), and one whose episodes end with the first turn (no
tool). What is measured is the solve rate of held-out sums, and how often the model runs code.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback

from rolloutgym.training.chat import ChatEncoder
from rolloutgym.training.datasets import make_dataset
from rolloutgym.training.demo.code_game import CodeGame
from rolloutgym.training.demo.demonstrations import Demonstration, encode, imitate, record, words_of
from rolloutgym.training.demo.measuring import TEMPLATE, looked_rate, play_all, solve_rate
from rolloutgym.training.retool.config import RetoolConfig
from rolloutgym.training.retool.trainer import RetoolTrainer
from rolloutgym.training.rollouts import Limits, Rollout, Task
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.tiny import ON_CPU, tiny_llama, word_tokenizer

_LIMITS = Limits(turn_tokens=16, episode_tokens=96, reply_tokens=24)


@dataclass(frozen=True)
class Plan:
    """How much is done; minutes on two cores."""

    seeds: tuple[int, ...] = (0, 1, 2)
    demonstrations: int = 800
    warm_steps: int = 160
    steps: int = 60
    """GRPO steps of a run."""
    prompts: int = 8
    group: int = 8
    learning_rate: float = 6e-4
    evaluate_every: int = 20
    held_out: int = 100


@dataclass(frozen=True)
class Measurement:
    step: int
    solved: float
    """Share of held-out sums solved, greedily."""
    ran_code: float
    """Share of held-out episodes that ran code."""


@dataclass
class Run:
    name: str
    seed: int
    mask_interpreter: bool = True
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    seconds: float = 0.0
    transcripts: list[Rollout] = field(default_factory=list)
    """A few held-out episodes at the end."""


Report = Callable[[str], None]


def runs_of(plan: Plan) -> list[Run]:
    """The runs with the trainer as it is meant, then the two comparisons."""
    meant = [Run(f"seed {seed}", seed) for seed in plan.seeds]
    return [
        *meant,
        Run("no mask", plan.seeds[0], mask_interpreter=False),
        Run("no tool", plan.seeds[0], options={"max_turns": 1}),
    ]


def demonstrate(url: str, game: CodeGame, plan: Plan, folder: Path, report: Report) -> list[Run]:
    """All runs, against the service at `url`, which serves the game's tasks."""
    torch.set_num_threads(1)
    draws = random.Random(0)
    with RemoteEnvironment(url, game.environment) as environment:
        ids = [info.id for info in environment.ask(lambda handle: handle.tasks("train"))]
        held_out = [info.id for info in environment.ask(lambda handle: handle.tasks("test", 0, plan.held_out))]
        tasks = [Task(task_id=draws.choice(ids), seed=number) for number in range(plan.demonstrations)]
        demonstrations = record(environment, game, tasks, draws)
        right = sum(one.success for one in demonstrations) / len(demonstrations)
        report(f"{len(demonstrations)} demonstrations, {right:.0%} of them right")
        words = ["system", "user", "assistant", *words_of(demonstrations), *game.words()]
        tokenizer = word_tokenizer(words, chat_template=TEMPLATE)
        warm = {seed: _warm_start(tokenizer, demonstrations, game, plan, seed) for seed in plan.seeds}
        runs = runs_of(plan)
        for run in runs:
            play = partial(
                play_all, environment, game, tokenizer=tokenizer, task_ids=held_out, options=run.options,
                sampling=SamplingParams(temperature=0), limits=_LIMITS,
            )  # fmt: skip
            into = folder / run.name.replace(" ", "-")
            _train(url, game, plan, run, deepcopy(warm[run.seed]), tokenizer, into, play, report)
    return runs


def _warm_start(
    tokenizer: PreTrainedTokenizerFast, demonstrations: Sequence[Demonstration], game: CodeGame, plan: Plan, seed: int
) -> LlamaForCausalLM:
    model = tiny_llama(tokenizer, hidden=128, layers=2, context=512, seed=seed)
    encoder = ChatEncoder(tokenizer)
    imitate(
        model,
        [encode(one, tokenizer, encoder, game.stop_tags) for one in demonstrations],
        steps=plan.warm_steps,
        batch_size=min(64, len(demonstrations)),
        learning_rate=2e-3,
        pad_id=tokenizer.pad_token_id,
        draws=random.Random(seed),
        on_step=lambda step, loss: None,
    )
    return model


def _train(
    url: str,
    game: CodeGame,
    plan: Plan,
    run: Run,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    play: Callable[[LlamaForCausalLM], list[Rollout]],
    report: Report,
) -> None:
    started = time.monotonic()

    def measure(step: int) -> None:
        run.transcripts = play(model)
        solved, ran = solve_rate(run.transcripts), looked_rate(run.transcripts, game)
        run.measurements.append(Measurement(step, solved, ran))
        report(f"{run.name:>8}, step {step:3d}: solved {solved:.2f}, ran code {ran:.2f}")

    class Measure(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % plan.evaluate_every == 0:
                measure(state.global_step)

    measure(0)
    trainer = RetoolTrainer(
        model,
        RetoolConfig(
            output_dir=str(folder),
            environment_options={"preset": "binary", **run.options},
            per_device_train_batch_size=plan.prompts * plan.group,
            num_generations=plan.group,
            max_steps=plan.steps,
            learning_rate=plan.learning_rate,
            lr_scheduler_type="linear",
            epsilon_high=0.28,
            max_completion_length=_LIMITS.episode_tokens,
            max_turn_tokens=_LIMITS.turn_tokens,
            reply_tokens=_LIMITS.reply_tokens,
            mask_interpreter=run.mask_interpreter,
            seed=run.seed,
            **ON_CPU,
        ),
        url,
        train_dataset=make_dataset(url, game.environment, "train", seed=run.seed),
        processing_class=tokenizer,
        encoder=ChatEncoder(tokenizer),
        callbacks=[Measure()],
    )
    trainer.remove_callback(PrinterCallback)  # `report` speaks
    trainer.train()
    run.seconds = time.monotonic() - started
    run.transcripts = run.transcripts[:3]
