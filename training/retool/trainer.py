"""The trainer: `transformers.Trainer` with generations from remote episodes and the GRPO loss.

Trainer's own loop does devices, mixed precision, checkpoints, schedules and callbacks. Two of its methods are replaced:

1. `_prepare_inputs` gets the prompts of a whole generation batch. Once in `steps_per_generation × num_iterations` calls
   it plays their episodes, scores them and shuffles the rows; each call then answers with one micro-batch of them.
2. `compute_loss` is the clipped policy loss over the tokens that the model sampled.

Old log-probabilities are the policy's own when the generation was made. They are computed only where the policy changes
before the rows are used up; the reference model is asked only for a KL term.
"""

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object, set_seed
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback

from rolloutgym.training.chat import Encoder, InlineEncoder
from rolloutgym.training.datasets import task_of_prompt
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.retool.advantages import Advantages, combine_rewards, group_advantages
from rolloutgym.training.retool.batches import Batch, Row, collate
from rolloutgym.training.retool.config import RetoolConfig
from rolloutgym.training.retool.guards import NonFiniteSteps
from rolloutgym.training.retool.logs import RunLog
from rolloutgym.training.retool.loss import StepTotals, reduce_loss, token_losses
from rolloutgym.training.retool.measuring import CUT_OFF, measure_loss, measure_rollouts
from rolloutgym.training.retool.metrics import Metrics
from rolloutgym.training.retool.rewarding import RewardFunction, call_rewards, reward_name, weights_of
from rolloutgym.training.retool.sampler import RepeatSampler
from rolloutgym.training.retool.scoring import add_scoring, scores_of
from rolloutgym.training.rewards import episode_return
from rolloutgym.training.rollouts import Rollout, play_batch
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.trl_rollout import trl_fields

GENERATIONS_FILE = "generations-{rank}.pt"


class RetoolTrainer(Trainer):
    """Trains a causal language model on episodes of a remote service.

    Args:
        model: With a reference model of its own where `args.beta` is not 0 (`ref_model`; a peft model needs none, its
            reference is the model without the adapter).
        args: See `RetoolConfig`.
        service: Base URL of the service.
        train_dataset: From `make_dataset`: rows whose prompts carry task ids.
        processing_class: The tokenizer, with a chat template.
        reward_functions: Called with every column and every field of the episodes (`rolloutgym.training.rewards` has
            some); by default the episode's return.
        encoder: How messages become ids; by default the interpreter's answer continues the model's turn.
    """

    args: RetoolConfig

    def __init__(
        self,
        model: PreTrainedModel,
        args: RetoolConfig,
        service: str,
        *,
        train_dataset: Any,
        processing_class: PreTrainedTokenizerBase,
        eval_dataset: Any = None,
        ref_model: PreTrainedModel | None = None,
        reward_functions: Sequence[RewardFunction] = (episode_return,),
        encoder: Encoder | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        self._reward_functions = tuple(reward_functions)
        self._weights_F = weights_of(self._reward_functions, args.reward_weights)
        is_adapter = hasattr(model, "disable_adapter")
        if args.beta and ref_model is None and not is_adapter:
            raise ValueError("a KL term (beta) needs a ref_model, or a peft adapter to switch off")
        add_scoring(model, temperature=args.temperature or 1.0, chunk=args.logits_chunk)
        super().__init__(
            model=model,
            args=args,
            data_collator=_as_rows,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            callbacks=callbacks,
            optimizers=optimizers,
        )
        # Processes with one seed would sample alike: a group that spans two of them would hold every rollout twice.
        set_seed(args.seed, device_specific=True)
        # The loss is divided by totals of the whole optimiser step already.
        self.loss_is_scaled_for_ga = True
        self.environment = RemoteEnvironment(service, args.environment)
        self._tokenizer = processing_class
        self._encoder = encoder or InlineEncoder(processing_class)
        self._pad_id = processing_class.pad_token_id or 0
        self._ref_model = ref_model
        if ref_model is not None:
            add_scoring(ref_model, temperature=args.temperature or 1.0, chunk=args.logits_chunk)
            self._ref_model = self.accelerator.prepare_model(ref_model, evaluation_mode=True)
        self._metrics = {"train": Metrics(), "eval": Metrics()}
        self._micro_step = 0
        self._rows: list[Row] = []
        self._tokens_seen = 0
        self._run_log = RunLog(Path(str(args.output_dir)), active=self.is_world_process_zero())
        self.add_callback(self._run_log)
        self.add_callback(NonFiniteSteps(self.accelerator, self._metrics["train"]))

    # ---- data -------------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        dataset: Any = self.train_dataset
        loader: DataLoader[Any] = self._get_dataloader(
            dataset=dataset,
            description="Training",
            batch_size=self._train_batch_size * self._steps_per_generation,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )
        return loader

    def _get_train_sampler(self, train_dataset: Any = None) -> RepeatSampler:
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        prompts = self.args.generation_batch_size // self.args.num_generations
        if len(dataset) < prompts:
            raise ValueError(f"the data set has {len(dataset)} prompts, a generation takes {prompts}")
        return RepeatSampler(
            dataset,
            mini_repeat_count=self.args.num_generations,
            batch_size=prompts,
            repeat_count=self._generate_every,
            shuffle=self.args.shuffle_dataset,
            seed=self.args.seed,
        )

    @property
    def _steps_per_generation(self) -> int:
        assert self.args.steps_per_generation is not None
        return self.args.steps_per_generation

    @property
    def _generate_every(self) -> int:
        """Micro-batches between generations."""
        return self._steps_per_generation * self.args.num_iterations

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = None

    @property
    def _is_training(self) -> bool:
        assert self.model is not None
        return self.model.training

    # ---- generations ------------------------------------------------------------------------------------------------

    def _prepare_inputs(self, inputs: Any) -> Any:
        """The micro-batch whose turn it is: `(Batch, StepTotals)`."""
        if not self._is_training:
            rows = self._generate(inputs, "eval")
            return collate(rows, self._pad_id, self.accelerator.device), self._totals(rows)
        if self._micro_step % self._generate_every == 0:
            rows = self._generate(inputs, "train")
            self._rows = [rows[index] for index in torch.randperm(len(rows)).tolist()]
        size = self.args.per_device_train_batch_size
        position = self._micro_step % self._steps_per_generation
        window = position - position % self.args.gradient_accumulation_steps
        in_step = self._rows[window * size : (window + self.args.gradient_accumulation_steps) * size]
        rows = self._rows[position * size : (position + 1) * size]
        self._micro_step += 1
        return collate(rows, self._pad_id, self.accelerator.device), self._totals(in_step)

    def _totals(self, rows: Sequence[Row]) -> StepTotals:
        """Of one optimiser step; each process has its share, as gradients are averaged over processes."""
        own = torch.tensor([sum(row.trained_tokens for row in rows), sum(not row.faulted for row in rows)]).float()
        total = self.accelerator.reduce(own.to(self.accelerator.device), "mean")
        return StepTotals(float(total[0]), float(total[1]))

    def _generate(self, inputs: Sequence[dict[str, Any]], mode: str) -> list[Row]:
        """Play the episodes of the prompts, score them, and make rows of them."""
        started = time.perf_counter()
        rollouts = self._play(inputs)
        columns = self._columns(inputs, rollouts)
        rewards_BF = call_rewards(
            self._reward_functions, self._weights_F, columns, len(rollouts), self.args.on_reward_error
        )
        # Whatever a reward function says of it: a faulted rollout is no part of its group's baseline.
        rewards_BF[[rollout.fault is not None for rollout in rollouts]] = torch.nan
        all_rewards_BF = self.accelerator.gather(rewards_BF.to(self.accelerator.device)).cpu()
        scored = self._advantages(all_rewards_BF, mode)
        first = self.accelerator.process_index * len(rollouts)
        advantages_B = scored.advantages_B[first : first + len(rollouts)]
        rows = [
            Row(rollout.prompt_ids, rollout.completion_ids, self._mask(rollout), advantage, rollout.fault is not None)
            for rollout, advantage in zip(rollouts, advantages_B.tolist(), strict=True)
        ]
        self._freeze(rows)
        metrics = self._metrics[mode]
        measure_rollouts(metrics, rollouts, scored, all_rewards_BF, [reward_name(f) for f in self._reward_functions])
        if mode == "train":
            own_tokens = sum(len(rollout.prompt_ids) + rollout.sampled_tokens for rollout in rollouts)
            tokens = torch.tensor(own_tokens, device=self.accelerator.device)
            self._tokens_seen += int(self.accelerator.reduce(tokens, "sum"))
        metrics.most("num_tokens", float(self._tokens_seen))
        metrics.mean("generation_time", time.perf_counter() - started)
        if self.args.log_completions:
            self._run_log.completions(self.state.global_step, mode, rollouts, scored.rewards_B, advantages_B)
        return rows

    def _play(self, inputs: Sequence[dict[str, Any]]) -> list[Rollout]:
        self.environment.open()
        tasks = [replace(task_of_prompt(row["prompt"]), options=self.args.environment_options) for row in inputs]
        model = self.accelerator.unwrap_model(self.model)
        generator = TransformersGenerator(
            model, self._tokenizer, self.args.sampling, stop_tags=self.args.stop_tags, encoder=self._encoder
        )
        with evaluation_mode(model):
            return play_batch(self.environment, tasks, generator, self.args.limits)

    def _columns(self, inputs: Sequence[dict[str, Any]], rollouts: Sequence[Rollout]) -> dict[str, Any]:
        """What reward functions are called with: the data's columns, the episodes' fields, prompts and completions."""
        names = [name for name in inputs[0] if name != "prompt"]
        data = {name: [row[name] for row in inputs] for name in names}
        spoken = [
            "\n".join(message.content for message in rollout.transcript if message.role == "assistant")
            for rollout in rollouts
        ]
        fields = {**trl_fields(rollouts), "model_text": spoken, "transcript": [r.transcript for r in rollouts]}
        if clash := sorted(data.keys() & fields.keys()):
            raise ValueError(f"the data set's columns {', '.join(clash)} are names of the episode's own fields")
        prompts = [row["prompt"] for row in inputs]
        return {"prompts": prompts, "completions": spoken, "trainer_state": self.state, **data, **fields}

    def _advantages(self, rewards_BF: Tensor, mode: str) -> Advantages:
        """Over the groups of all processes. An evaluation has none: every prompt once, the batch is the baseline."""
        rewards_B = combine_rewards(rewards_BF, self._weights_F)
        if mode == "train":
            return group_advantages(rewards_B, self.args.num_generations, self.args.scale_rewards)
        return Advantages(torch.nan_to_num(rewards_B - rewards_B.nanmean()), rewards_B, math.nan)

    def _mask(self, rollout: Rollout) -> list[int]:
        cut = rollout.stop_reason in CUT_OFF
        if rollout.fault is not None or (cut and self.args.mask_truncated_completions):
            return [0] * len(rollout.env_mask)
        return rollout.env_mask if self.args.mask_interpreter else [1] * len(rollout.env_mask)

    def _freeze(self, rows: list[Row]) -> None:
        """Old and reference log-probabilities, as the policy and the reference are now."""
        changes_before_use = self._generate_every > self.args.gradient_accumulation_steps
        if not changes_before_use and not self.args.beta:
            return
        size = self.args.per_device_train_batch_size
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            batch = collate(part, self._pad_id, self.accelerator.device)
            if changes_before_use:
                with evaluation_mode(self.accelerator.unwrap_model(self.model)):  # as it was when it sampled
                    _keep(part, "old_logps", self._score(self.model_wrapped, batch))
            if self.args.beta:
                _keep(part, "ref_logps", self._score_reference(batch))

    @torch.no_grad()
    def _score(self, model: Any, batch: Batch) -> Tensor:
        with self.compute_loss_context_manager():
            return scores_of(model, batch, entropy=False).logps_BT

    def _score_reference(self, batch: Batch) -> Tensor:
        if self._ref_model is not None:
            return self._score(self._ref_model, batch)
        model = self.accelerator.unwrap_model(self.model)
        with model.disable_adapter(), evaluation_mode(model):
            return self._score(model, batch)

    # ---- the loss ---------------------------------------------------------------------------------------------------

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """This micro-batch's share of the optimiser step's loss."""
        batch: Batch
        totals: StepTotals
        batch, totals = inputs
        scores = scores_of(model, batch, entropy=True)
        logps_BT = scores.logps_BT
        old_logps_BT = logps_BT.detach() if batch.old_logps_BT is None else batch.old_logps_BT
        epsilon_low, epsilon_high = self.args.clip_bounds
        losses = token_losses(
            logps_BT,
            old_logps_BT,
            batch.advantages_B,
            batch.mask_BT,
            epsilon_low=epsilon_low,
            epsilon_high=epsilon_high,
            beta=self.args.beta,
            ref_logps_BT=batch.ref_logps_BT,
        )
        measure_loss(self._metrics["train" if self._is_training else "eval"], batch.mask_BT, losses, scores)
        return reduce_loss(losses.loss_BT, batch.mask_BT, totals, self.args.loss_type, self.args.max_completion_length)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        started = time.perf_counter()
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._metrics["train"].mean("step_time", time.perf_counter() - started)
        return loss

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Tensor, None, None]:
        with torch.no_grad(), self.compute_loss_context_manager():
            return self.compute_loss(model, self._prepare_inputs(inputs)).detach(), None, None

    # ---- logs and checkpoints ---------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:  # of training steps; an evaluation's figures are among its logs already
            logs = {**logs, **self._metrics["train"].summary(gather_object)}
        super().log(logs, start_time)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.train`; closes the connections and the logs at the end, whatever happens."""
        self._rows, self._micro_step, self._tokens_seen = [], 0, 0  # a resumed run finds its own
        with self.environment, self._run_log:
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As `Trainer.evaluate`, with the episodes' figures (`eval_reward`, …) among the others.

        Outside of training it has connections and logs of its own.
        """
        with ExitStack() as stack:
            if not self.is_in_train:
                stack.enter_context(self.environment)
                stack.enter_context(self._run_log)
            return super().evaluate(*args, **kwargs)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        output = super().evaluation_loop(*args, **kwargs)
        prefix = kwargs.get("metric_key_prefix", "eval")
        summary = self._metrics["eval"].summary(gather_object)
        figures = {f"{prefix}_{name}": value for name, value in summary.items()}
        return output._replace(metrics={**(output.metrics or {}), **figures})

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        state = {
            "rows": [asdict(row) for row in self._rows],
            "micro_step": self._micro_step,
            "tokens": self._tokens_seen,
        }
        torch.save(state, Path(output_dir) / GENERATIONS_FILE.format(rank=self.args.process_index))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is None:
            return
        state = torch.load(Path(checkpoint) / GENERATIONS_FILE.format(rank=self.args.process_index), weights_only=True)
        self._rows = [Row(**row) for row in state["rows"]]
        self._micro_step, self._tokens_seen = state["micro_step"], state["tokens"]


def _as_rows(rows: list[Any]) -> Any:
    """No collation: episodes begin from the data set's rows."""
    return rows


def _keep(rows: Iterable[Row], name: str, logps_BT: Tensor) -> None:
    for row, logps_T in zip(rows, logps_BT.float().cpu(), strict=True):
        setattr(row, name, logps_T[: len(row.completion_ids)].clone())
