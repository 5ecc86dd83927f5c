"""Reward functions over episodes, and what TRL makes of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rolloutgym.models import StopReason
from rolloutgym.training import rewards
from rolloutgym.training.rollouts import Rollout
from rolloutgym.training.service import Fault
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama
from rolloutgym.training.trl_rollout import trl_fields

torch.set_num_threads(1)  # tiny matrices; and test processes share the cores

TOKENIZER = byte_tokenizer()

SOLVED = Rollout(
    task_id="t",
    seed=1,
    episode_id="e",
    prompt_ids=[1, 2],
    completion_ids=[3, 4, 5],
    env_mask=[1, 1, 1],
    logprobs=[-1.0, -1.0, -1.0],
    episode_return=0.75,
    components={"answer": 1.0, "steps": -0.25},
    stop_reason=StopReason.ANSWERED,
    success=True,
    turns=4,
    invalid_actions=1,
    sampled_tokens=3,
    transcript=(),
)
FAILED = replace(
    SOLVED,
    env_mask=[0, 0, 0],
    logprobs=[0.0, 0.0, 0.0],
    episode_return=None,
    components={},
    stop_reason=None,
    success=None,
    fault=Fault("sandbox_unavailable", "sandbox", "no"),
)
CUT = replace(
    SOLVED, episode_return=0.0, components={"steps": 0.0}, stop_reason=StopReason.MAX_TOKENS, success=False, turns=0,
    invalid_actions=0,
)  # fmt: skip


def fields(*rollouts: Rollout) -> dict[str, Any]:
    return {"prompts": [], "completions": [], "completion_ids": [], **trl_fields(rollouts)}


def test_each_function_reads_the_episode_and_leaves_faults_out() -> None:
    given = fields(SOLVED, FAILED, CUT)
    assert rewards.episode_return(**given) == [0.75, None, 0.0]
    assert rewards.success(**given) == [1.0, None, 0.0]
    assert rewards.component("answer")(**given) == [1.0, None, 0.0]
    assert rewards.component("answer").__name__ == "answer"


@pytest.mark.parametrize("function", [rewards.episode_return, rewards.success, rewards.component("answer")])
def test_the_solve_rate_is_logged_beside_every_reward(function: rewards.RewardFunction) -> None:
    logged: dict[str, float] = {}
    function(**fields(SOLVED, SOLVED, FAILED, CUT), log_metric=logged.__setitem__)
    assert logged["rollout/fault_rate"] == 0.25
    assert logged["rollout/solve_rate"] == pytest.approx(2 / 3)
    assert logged["rollout/turns"] == pytest.approx(8 / 3)
    assert logged["rollout/invalid_action_rate"] == 0.25
    stops = {name: value for name, value in logged.items() if name.startswith("rollout/stop/")}
    assert stops.pop("rollout/stop/answered") == pytest.approx(2 / 3)
    assert stops.pop("rollout/stop/max_tokens") == pytest.approx(1 / 3)
    assert set(stops.values()) == {0.0}


def test_a_batch_of_faults_alone_has_no_solve_rate() -> None:
    logged: dict[str, float] = {}
    rewards.success(**fields(FAILED), log_metric=logged.__setitem__)
    assert logged == {"rollout/fault_rate": 1.0}


def test_episodes_that_a_limit_cut_can_be_taken_out_of_the_loss() -> None:
    assert trl_fields([SOLVED, CUT])["env_mask"] == [[1, 1, 1], [1, 1, 1]]
    assert trl_fields([SOLVED, CUT], mask_truncated=True)["env_mask"] == [[1, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_one_failed_row_of_eight_leaves_the_other_advantages_as_if_it_were_not_there(
    tmp_path: Path, aggregation: str
) -> None:
    returns = [0.0, 1.0, 0.25, None, 0.5, 0.5, 0.0, 1.0]
    rollouts = [replace(SOLVED, episode_return=value) if value is not None else FAILED for value in returns]
    trainer = GRPOTrainer(
        model=tiny_llama(TOKENIZER, hidden=16, layers=1),
        reward_funcs=[rewards.episode_return],
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=8,
            num_generations=8,
            max_steps=1,
            multi_objective_aggregation=aggregation,
            **ON_CPU,
        ),
        train_dataset=Dataset.from_list([{"prompt": "p"}] * 8),
        processing_class=TOKENIZER,
        rollout_func=lambda prompts, trainer: trl_fields(rollouts),
    )
    trainer.train()
    scored = torch.tensor([value for value in returns if value is not None])
    expected = (scored - scored.mean()) / (scored.std() + 1e-4)
    got = list(trainer._logs["advantages"])
    assert got.pop(3) == 0.0
    assert got == pytest.approx(expected.tolist(), abs=2e-4)
    assert trainer.state.log_history[0]["rollout/fault_rate"] == 0.125
    assert trainer.state.log_history[0]["reward"] == pytest.approx(float(scored.mean()))
