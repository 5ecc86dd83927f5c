"""The ReTool-style trainer: against TRL on the same rollouts, and its own promises."""

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import LlamaForCausalLM
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rolloutgym.models import StopReason
from rolloutgym.training.retool import RetoolConfig, RetoolTrainer
from rolloutgym.training.retool.batches import Row, collate
from rolloutgym.training.retool.loss import StepTotals
from rolloutgym.training.retool.scoring import scores_of
from rolloutgym.training.rollouts import Rollout
from rolloutgym.training.service import Fault
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama

torch.set_num_threads(1)

TOKENIZER = byte_tokenizer(tags=("<code>", "</code>"))
GROUP = 4
SMALL: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "num_generations": GROUP,
    "learning_rate": 1e-3,
    "max_steps": 4,
    "shuffle_dataset": False,
    "lr_scheduler_type": "constant",
    **ON_CPU,
}
"""Of both trainers, ours and TRL's."""
PLAIN: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1}
"""For comparing where two runs end: Adam moves a parameter whose gradient is next to nothing by a whole step, to the
side that the processor's rounding decides, and does not tell a gradient from its double."""


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
    return RetoolConfig(output_dir=str(folder), **(SMALL | settings))


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
    return parameters_of(trainer.model)


def parameters_of(model: Any) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


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

    like_ours = {
        "max_completion_length": 1024,
        "loss_type": "bnpo",
        "use_bias_correction_kl": False,
        "logging_steps": 1,
    }
    return GRPOTrainer(
        tiny_llama(TOKENIZER, hidden=32),
        reward_funcs=value_reward,
        args=GRPOConfig(output_dir=str(folder), **(SMALL | like_ours | settings)),
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
    ours = trained(tmp_path / "ours", **PLAIN, **settings)
    theirs = trl_trainer(tmp_path / "trl", **PLAIN, **settings)
    theirs.train()
    assert float((parameters(ours) - parameters(theirs)).abs().max()) <= 1e-6
    assert float((parameters(ours) - parameters_of(tiny_llama(TOKENIZER, hidden=32))).abs().max()) > 1e-4


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
            **PLAIN,
        )
        ends.append(parameters(trainer))
    assert float((ends[0] - ends[1]).abs().max()) <= 1e-6
    assert float((ends[0] - ends[2]).abs().max()) <= 1e-6


def test_one_generation_serves_its_steps_and_iterations(tmp_path: Path) -> None:
    trainer = trained(tmp_path, steps_per_generation=2, num_iterations=2, max_steps=8)
    assert trainer.generations == 2


def test_what_the_interpreter_wrote_moves_nothing(tmp_path: Path) -> None:
    """With another target under the mask and the same inputs, the gradients are the same; without the mask they are
    not."""
    trainer = trained(tmp_path, max_steps=1)
    model: Any = trainer.model
    model.train()

    def gradients(mask: list[int], changed: int) -> Tensor:
        row = Row([5, 6, 7], [20, 21, 22, 23, 24], mask, 1.0)
        batch = collate([row], TOKENIZER.pad_token_id, torch.device("cpu"))
        model.zero_grad()
        handle = model.get_decoder().register_forward_pre_hook(  # the model reads on what it read before
            lambda module, args, kwargs: ((), {**kwargs, "input_ids": batch.ids_BL}), with_kwargs=True
        )
        other = batch.ids_BL.clone()
        other[0, -1 - 2] = changed
        loss: Any = trainer.compute_loss(model, (replace(batch, ids_BL=other), StepTotals(4, 1)))
        handle.remove()
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    masked, unmasked = [1, 1, 0, 1, 1], [1] * 5
    assert torch.equal(gradients(masked, 22), gradients(masked, 99))
    assert not torch.equal(gradients(unmasked, 22), gradients(unmasked, 99))


def test_a_faulted_rollout_has_no_part_in_its_group_whatever_a_reward_function_says(tmp_path: Path) -> None:
    class OneFault(FixedRollouts):
        def _play(self, inputs: Sequence[dict[str, Any]]) -> list[Rollout]:
            first, *others = super()._play(inputs)
            return [replace(first, fault=Fault("sandbox_unavailable", "sandbox", "no"), episode_return=None), *others]

    def hundred_for_faults(fault: list[str | None], turns: list[int], **_: Any) -> list[float]:
        return [100.0 if broken else float(number % 2) for number, broken in enumerate(fault)]

    OneFault(
        tiny_llama(TOKENIZER, hidden=32), config(tmp_path, max_steps=1), "http://127.0.0.1:9",
        train_dataset=dataset(), processing_class=TOKENIZER, reward_functions=[hundred_for_faults],
    ).train()  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "completions.jsonl").read_text().splitlines()]
    group = [row["advantage"] for row in rows[:GROUP]]
    half = (1 / 3) / (math.sqrt(1 / 3) + 1e-4)  # of 1, 0, 1
    assert group == pytest.approx([0.0, half, -2 * half, half], rel=1e-4)
    assert rows[0]["reward"] is None


@pytest.mark.parametrize("loss_type", ["bnpo", "grpo", "dr_grpo"])
def test_a_step_with_a_fault_is_the_step_without_that_rollout(tmp_path: Path, loss_type: str) -> None:
    class Groups(FixedRollouts):
        def __init__(self, *args: Any, faulted: bool, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.faulted = faulted

        def _play(self, inputs: Sequence[dict[str, Any]]) -> list[Rollout]:
            """Two draws of a task; of the other kind also a third, whose service failed."""
            if not self.faulted:
                return [fixed_rollout(0, draw) for draw in (0, 1)]
            fault = Fault("sandbox_unavailable", "sandbox", "no")
            return [*(fixed_rollout(0, draw) for draw in (0, 1)), replace(fixed_rollout(0, 2), fault=fault)]

    ends = []
    for size, faulted in ((2, False), (3, True)):
        settings: dict[str, Any] = {"per_device_train_batch_size": size, "num_generations": size, "max_steps": 1}
        trainer = Groups(
            tiny_llama(TOKENIZER, hidden=32),
            config(tmp_path / str(size), loss_type=loss_type, max_grad_norm=1e9, optim="sgd", **settings),
            "http://127.0.0.1:9", train_dataset=dataset(), processing_class=TOKENIZER, faulted=faulted,
        )  # fmt: skip
        trainer.train()
        ends.append(parameters(trainer))
    moved = float((ends[0] - parameters_of(tiny_llama(TOKENIZER, hidden=32))).abs().max())
    assert float((ends[0] - ends[1]).abs().max()) < 1e-3 * moved


def test_a_gradient_that_is_not_finite_never_reaches_the_weights(tmp_path: Path) -> None:
    class Broken(FixedRollouts):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss: Any = super().compute_loss(*args, **kwargs)
            return loss * math.nan if self.state.global_step == 1 else loss

    ends = {}
    for steps in (1, 2, 3):
        trainer = Broken(
            tiny_llama(TOKENIZER, hidden=32), config(tmp_path / str(steps), max_steps=steps), "http://127.0.0.1:9",
            train_dataset=dataset(), processing_class=TOKENIZER,
        )  # fmt: skip
        trainer.train()
        ends[steps] = parameters(trainer)
    assert torch.equal(ends[1], ends[2])
    assert torch.isfinite(ends[3]).all()
    assert not torch.equal(ends[2], ends[3])
    assert [log["skipped_steps"] for log in trainer.state.log_history if "loss" in log] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("size", [8, 9])
def test_an_evaluation_may_end_in_a_batch_of_one(tmp_path: Path, size: int) -> None:
    trainer = FixedRollouts(
        tiny_llama(TOKENIZER, hidden=32), config(tmp_path, per_device_eval_batch_size=8), "http://127.0.0.1:9",
        train_dataset=dataset(), eval_dataset=dataset(size), processing_class=TOKENIZER,
    )  # fmt: skip
    figures = trainer.evaluate()
    assert math.isfinite(figures["eval_loss"])
    assert figures["eval_reward"] == pytest.approx(sum((task + task % GROUP) % 3 for task in range(size)) / size)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["eval_reward"] == figures["eval_reward"]


def test_too_few_prompts_for_a_generation_are_refused(tmp_path: Path) -> None:
    trainer = FixedRollouts(
        tiny_llama(TOKENIZER, hidden=32), config(tmp_path), "http://127.0.0.1:9", train_dataset=dataset(1),
        processing_class=TOKENIZER,
    )  # fmt: skip
    with pytest.raises(ValueError, match="1 prompts, a generation takes 2"):
        trainer.train()


def test_training_again_begins_with_a_generation_of_its_own(tmp_path: Path) -> None:
    trainer = trained(tmp_path, steps_per_generation=2, max_steps=3)
    assert trainer.generations == 2
    trainer.train()
    assert trainer.generations == 4


def test_old_logprobs_are_those_of_the_policy_that_sampled(tmp_path: Path) -> None:
    """Without dropout, which sleeps while it samples."""
    base: Any = tiny_llama(TOKENIZER, hidden=32)
    lora = LoraConfig(r=4, target_modules=["q_proj"], lora_dropout=0.9, init_lora_weights=False, task_type="CAUSAL_LM")
    trainer = FixedRollouts(
        get_peft_model(base, lora),  # type: ignore[arg-type]
        config(tmp_path, num_iterations=2), "http://127.0.0.1:9", train_dataset=dataset(), processing_class=TOKENIZER,
    )  # fmt: skip
    model: Any = trainer.model
    model.train()
    rows = trainer._generate([dict(row) for row in dataset().select([0] * GROUP + [1] * GROUP)], "train")
    assert model.training
    model.eval()
    batch = collate(rows, TOKENIZER.pad_token_id, torch.device("cpu"))
    with torch.no_grad():
        expected = scores_of(model, batch, entropy=False).logps_BT
    assert batch.old_logps_BT is not None
    for row, wanted in zip(rows, expected, strict=True):
        assert row.old_logps is not None
        assert torch.allclose(row.old_logps, wanted[: len(row.completion_ids)], atol=1e-5)


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
