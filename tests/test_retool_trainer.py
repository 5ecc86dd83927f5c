"""The ReTool-style trainer: against TRL on the same rollouts, and its own promises."""

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import LlamaForCausalLM
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rolloutgym.models import StopReason
from rolloutgym.training.retool import RetoolConfig, RetoolTrainer
from rolloutgym.training.retool.batches import Row, collate
from rolloutgym.training.retool.loss import StepTotals
from rolloutgym.training.rollouts import Rollout
from rolloutgym.training.tiny import byte_tokenizer, tiny_llama

torch.set_num_threads(1)

TOKENIZER = byte_tokenizer(tags=("<code>", "</code>"))
GROUP = 4
CPU = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none", "disable_tqdm": True}


def fixed_rollout(task: int, draw: int) -> Rollout:
    """A ragged two-turn rollout whose reward depends on the draw."""
    generator = torch.Generator().manual_seed(100 * task + draw)

    def tokens(count: int) -> list[int]:
        return torch.randint(0, 200, (count,), generator=generator).tolist()

    first, shown, second = tokens(3 + draw), tokens(2 + task % 3), tokens(4 + (task + draw) % 3)
    count = len(first) + len(second)
    return Rollout(
        task_id=f"t{task}",
        seed=0,
        episode_id=f"{task}-{draw}",
        prompt_ids=[5, 6, 7] + [8] * (task % 4),
        completion_ids=[*first, *shown, *second],
        env_mask=[1] * len(first) + [0] * len(shown) + [1] * len(second),
        logprobs=[-1.0] * (len(first) + len(shown) + len(second)),
        episode_return=float((task + draw) % 3),
        components={"answer": float((task + draw) % 3)},
        stop_reason=StopReason.ANSWERED,
        success=(task + draw) % 3 == 2,
        turns=2,
        invalid_actions=0,
        sampled_tokens=count,
        transcript=(),
    )


def rollouts_of(tasks: Sequence[int]) -> list[Rollout]:
    """One for each prompt; prompts of a group stand together."""
    return [fixed_rollout(task, index % GROUP) for index, task in enumerate(tasks)]


class FixedRollouts(RetoolTrainer):
    """Plays nothing: every generation is the fixed one."""

    generations = 0

    def _play(self, inputs: Sequence[dict[str, Any]]) -> list[Rollout]:
        self.generations += 1
        return rollouts_of([row["number"] for row in inputs])


def dataset(size: int = 8) -> Dataset:
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": "q", "task": f"t{n}"}], "number": n} for n in range(size)]
    )


def config(folder: Path, **settings: Any) -> RetoolConfig:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": GROUP,
        "learning_rate": 1e-3,
        "max_steps": 4,
        "save_strategy": "no",
        "shuffle_dataset": False,
        "lr_scheduler_type": "constant",
        **CPU,
    }
    return RetoolConfig(**{**defaults, **settings})


def trained(folder: Path, model: LlamaForCausalLM | None = None, **settings: Any) -> FixedRollouts:
    trainer = FixedRollouts(
        model or tiny_llama(TOKENIZER, hidden=32),
        config(folder, **settings),
        "http://127.0.0.1:9",
        train_dataset=dataset(),
        processing_class=TOKENIZER,
    )
    trainer.train()
    return trainer


def parameters(trainer: Any) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def trl_trainer(folder: Path, **settings: Any) -> GRPOTrainer:
    def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        rollouts = rollouts_of([int(prompt[-1]["task"][1:]) for prompt in prompts])
        return {
            "prompt_ids": [rollout.prompt_ids for rollout in rollouts],
            "completion_ids": [rollout.completion_ids for rollout in rollouts],
            "logprobs": [rollout.logprobs for rollout in rollouts],
            "env_mask": [rollout.env_mask for rollout in rollouts],
            "value": [rollout.episode_return for rollout in rollouts],
        }

    def value_reward(value: list[float], **_: Any) -> list[float | None]:
        return list(value)

    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": GROUP,
        "learning_rate": 1e-3,
        "max_steps": 4,
        "save_strategy": "no",
        "shuffle_dataset": False,
        "lr_scheduler_type": "constant",
        "max_completion_length": 1024,
        "loss_type": "bnpo",
        "use_bias_correction_kl": False,
        "logging_steps": 1,
        **CPU,
    }
    return GRPOTrainer(
        tiny_llama(TOKENIZER, hidden=32),
        reward_funcs=value_reward,
        args=GRPOConfig(**{**defaults, **settings}),
        train_dataset=dataset(),
        processing_class=deepcopy(TOKENIZER),
        rollout_func=rollout_func,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_iterations": 2},
        {"scale_rewards": "none"},
        {"scale_rewards": "batch"},
        {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"loss_type": "grpo"},
        {"loss_type": "dr_grpo"},
        {"temperature": 0.7, "steps_per_generation": 2},
    ],
    ids=str,
)
def test_four_steps_end_where_trl_ends(tmp_path: Path, settings: dict[str, Any]) -> None:
    ours = trained(tmp_path / "ours", **settings)
    theirs = trl_trainer(tmp_path / "trl", **settings)
    theirs.train()
    assert float((parameters(ours) - parameters(theirs)).abs().max()) <= 1e-5


@pytest.mark.parametrize("loss_type", ["bnpo", "dapo", "grpo"])
@pytest.mark.parametrize(("temperature", "beta", "stale"), [(1.0, 0.0, False), (0.7, 0.0, True), (1.0, 0.04, True)])
def test_loss_and_gradients_are_trls(
    tmp_path: Path, loss_type: Any, temperature: float, beta: float, stale: bool
) -> None:
    rows = [
        Row(rollout.prompt_ids, rollout.completion_ids, rollout.env_mask, advantage)
        for rollout, advantage in zip(rollouts_of([0, 0, 1, 1]), (0.7, -1.1, 0.3, -0.2), strict=True)
    ]
    generator = torch.Generator().manual_seed(3)
    for row in rows:
        if stale:
            row.old_logps = -5 + torch.rand(len(row.completion_ids), generator=generator)
        row.ref_logps = -5 + torch.rand(len(row.completion_ids), generator=generator)
    batch = collate(rows, TOKENIZER.pad_token_id, torch.device("cpu"))
    totals = StepTotals(float(batch.mask_BT.sum()), float(len(rows)))
    ours = FixedRollouts(
        tiny_llama(TOKENIZER, hidden=32),
        config(tmp_path, loss_type=loss_type, temperature=temperature, beta=beta),
        "http://127.0.0.1:9",
        train_dataset=dataset(),
        processing_class=TOKENIZER,
        ref_model=tiny_llama(TOKENIZER, hidden=32) if beta else None,
    )
    theirs = trl_trainer(tmp_path / "trl", loss_type=loss_type, temperature=temperature)
    theirs.beta = beta
    theirs.current_gradient_accumulation_steps = 1
    width = batch.mask_BT.shape[1]
    inputs = {
        "prompt_ids": batch.ids_BL[:, :-width],
        "prompt_mask": batch.attention_BL[:, :-width],
        "completion_ids": batch.ids_BL[:, -width:],
        "completion_mask": batch.attention_BL[:, -width:],
        "tool_mask": batch.mask_BT,
        "advantages": batch.advantages_B,
        "ref_per_token_logps": batch.ref_logps_BT,
        "num_items_in_batch": batch.mask_BT.sum(),
    }
    if stale:
        inputs["old_per_token_logps"] = batch.old_logps_BT
    our_model: Any = ours.model
    their_model: Any = theirs.model
    our_model.train()
    their_model.train()
    loss: Any = ours.compute_loss(our_model, (batch, totals))
    their_loss: Any = theirs._compute_loss(their_model, inputs)  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(float(their_loss.detach()), abs=1e-6)
    loss.backward()
    their_loss.backward()
    for mine, their in zip(our_model.parameters(), their_model.parameters(), strict=True):
        assert torch.allclose(mine.grad, their.grad, atol=1e-5)


@pytest.mark.parametrize("loss_type", ["bnpo", "grpo", "dr_grpo"])
def test_the_result_does_not_depend_on_the_micro_batch(tmp_path: Path, loss_type: str) -> None:
    ends = []
    for size in (8, 2, 1):
        trainer = trained(
            tmp_path / str(size),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
            loss_type=loss_type,
            learning_rate=1e-4,
        )
        ends.append(parameters(trainer))
    assert float((ends[0] - ends[1]).abs().max()) <= 1e-6
    assert float((ends[0] - ends[2]).abs().max()) <= 1e-6


def test_one_generation_serves_its_steps_and_iterations(tmp_path: Path) -> None:
    trainer = trained(tmp_path, steps_per_generation=2, num_iterations=2, max_steps=8)
    assert trainer.generations == 2


def test_what_the_interpreter_wrote_moves_nothing(tmp_path: Path) -> None:
    class OtherWords(FixedRollouts):
        """The loss's targets under the mask are changed, the inputs are not."""

        def _prepare_inputs(self, inputs: Any) -> Any:
            batch, totals = super()._prepare_inputs(inputs)
            return batch, totals

    masked = trained(tmp_path / "a")
    plain = trained(tmp_path / "b", mask_interpreter=False)
    assert float((parameters(masked) - parameters(plain)).abs().max()) > 1e-4


def test_metrics_have_trls_names_and_token_weights(tmp_path: Path) -> None:
    ours = trained(tmp_path / "ours", max_steps=2)
    theirs = trl_trainer(tmp_path / "trl", max_steps=2)
    theirs.train()
    lines = [json.loads(line) for line in (tmp_path / "ours" / "metrics.jsonl").read_text().splitlines()]
    first = lines[0]
    expected = theirs.state.log_history[0]
    for name in (
        "reward", "reward_std", "frac_reward_zero_std", "entropy", "completions/mean_length", "completions/min_length",
        "completions/max_length", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
        "clip_ratio/low_min", "clip_ratio/high_max", "loss", "grad_norm",
    ):  # fmt: skip
        assert first[name] == pytest.approx(expected[name], abs=2e-4), name
    assert {"num_tokens", "step_time", "tools/call_frequency", "rewards/episode_return/mean"} <= first.keys()
    rows = [json.loads(line) for line in (tmp_path / "ours" / "completions.jsonl").read_text().splitlines()]
    assert len(rows) == 16
    assert {"reward", "advantage", "task_id", "messages"} <= rows[0].keys()
    assert ours.state.global_step == 2


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "max_steps": 6, "steps_per_generation": 2, "num_iterations": 2, "shuffle_dataset": True, "save_steps": 3,
        "save_strategy": "steps", "lr_scheduler_type": "linear",
    }  # fmt: skip
    whole = trained(tmp_path / "whole", **settings)
    stopped = FixedRollouts(
        tiny_llama(TOKENIZER, hidden=32),
        config(tmp_path / "whole", **settings),
        "http://127.0.0.1:9",
        train_dataset=dataset(),
        processing_class=TOKENIZER,
    )
    stopped.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert stopped.state.global_step == 6
    assert float((parameters(whole) - parameters(stopped)).abs().max()) == 0.0
    assert stopped.generations == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_generations": 1}, "at least 2"),
        ({"per_device_train_batch_size": 6}, "groups of 4"),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 3}, "multiple"),
        ({"num_iterations": 0}, "num_iterations"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        config(tmp_path, **settings)


def test_a_kl_term_needs_a_reference(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ref_model"):
        trained(tmp_path, beta=0.1)
