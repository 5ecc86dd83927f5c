"""The ReTool-style trainer over a real service: episodes in the sandbox, evaluation, adapters, two processes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from rolloutgym.training.datasets import make_dataset
from rolloutgym.training.retool import RetoolConfig, RetoolTrainer
from rolloutgym.training.retool.guards import RewardPlateau, StabilityGuard, StabilityRules
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama

torch.set_num_threads(1)

TOKENIZER = byte_tokenizer(tags=("<code>", "</code>"))


def small(folder: Path, **settings: Any) -> RetoolConfig:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "num_generations": 4,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "max_completion_length": 24,
        "max_turn_tokens": 12,
        "reply_tokens": 4,
        **ON_CPU,
    }
    return RetoolConfig(**{**defaults, **settings})


def trainer_of(url: str, folder: Path, model: Any = None, callbacks: Any = None, **settings: Any) -> RetoolTrainer:
    rows = make_dataset(url, "code", "test").select(range(8))
    return RetoolTrainer(
        model or tiny_llama(TOKENIZER, hidden=32, context=4096),
        small(folder, **settings),
        url,
        train_dataset=rows,
        eval_dataset=rows.select(range(4)),
        processing_class=TOKENIZER,
        callbacks=callbacks,
    )


def test_two_steps_and_an_evaluation_on_real_episodes(service_url: str, tmp_path: Path) -> None:
    trainer = trainer_of(service_url, tmp_path, eval_strategy="steps", eval_steps=2)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]  # type: ignore[union-attr]
    trainer.train()
    assert trainer.evaluate()["eval_rollout/fault_rate"] == 0.0  # with connections of its own
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["reward"] == -1.0  # the binary preset, for a model that says nothing sensible
    assert lines[0]["frac_reward_zero_std"] == 1.0
    assert any("eval_reward" in line for line in lines)
    assert lines[0]["rollout/fault_rate"] == 0.0
    rows = [json.loads(line) for line in (tmp_path / "completions.jsonl").read_text().splitlines()]
    assert {row["mode"] for row in rows} == {"train", "eval"}
    # Equal rewards teach nothing: no parameter has moved.
    after = list(trainer.model.parameters())  # type: ignore[union-attr]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def reward_by_length(model_text: list[str], **columns: Any) -> list[float]:
    return [float(len(text)) for text in model_text]


def test_an_adapter_is_trained_and_is_its_own_reference_when_off(service_url: str, tmp_path: Path) -> None:
    base = tiny_llama(TOKENIZER, hidden=32, context=4096)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    embeddings: Any = base.get_input_embeddings()
    frozen = embeddings.weight.detach().clone()
    trainer = RetoolTrainer(
        model,  # type: ignore[arg-type]
        small(tmp_path, beta=0.1, max_steps=3),
        service_url,
        train_dataset=make_dataset(service_url, "code", "test").select(range(8)),
        processing_class=TOKENIZER,
        reward_functions=[reward_by_length],
    )
    trainer.train()
    kls = [log["kl"] for log in trainer.state.log_history if "kl" in log]
    assert kls[0] == pytest.approx(0.0, abs=1e-6)
    assert kls[-1] > 0
    assert torch.equal(frozen, embeddings.weight)


def test_a_run_that_breaks_a_rule_is_saved_and_stopped(service_url: str, tmp_path: Path) -> None:
    guard = StabilityGuard(StabilityRules(max_grad_norm=-1.0, window=1))
    trainer = trainer_of(service_url, tmp_path, callbacks=[guard], max_steps=5, save_strategy="steps", save_steps=100)
    trainer.train()
    assert trainer.state.global_step == 1
    assert guard.reason is not None
    assert any("stopped_early" in entry for entry in trainer.state.log_history)
    assert (tmp_path / "checkpoint-1").is_dir()


def test_the_learning_rate_falls_on_a_plateau(service_url: str, tmp_path: Path) -> None:
    plateau = RewardPlateau(factor=0.5, patience=0)
    trainer = trainer_of(
        service_url, tmp_path, callbacks=[plateau], max_steps=-1, num_train_epochs=3, lr_scheduler_type="constant"
    )
    trainer.train_dataset = trainer.train_dataset.select(range(1))  # type: ignore[union-attr]
    trainer.train()
    rates = [log["learning_rate"] for log in trainer.state.log_history if "learning_rate" in log]
    assert rates[0] == 1e-3
    assert rates[-1] < 1e-3
    with pytest.raises(ValueError, match="constant"):
        trainer_of(service_url, tmp_path, callbacks=[RewardPlateau()], lr_scheduler_type="linear").train()


_TWO_PROCESSES = """
import sys
import torch
from accelerate.utils import gather_object
from pathlib import Path
from rolloutgym.training.datasets import make_dataset
from rolloutgym.training.retool import RetoolConfig, RetoolTrainer
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama

torch.set_num_threads(1)
url, folder = sys.argv[1:]
tokenizer = byte_tokenizer(tags=("<code>", "</code>"))

def by_length(model_text, **columns):
    return [float(len(text)) for text in model_text]

trainer = RetoolTrainer(
    tiny_llama(tokenizer, hidden=32, context=4096),
    RetoolConfig(
        output_dir=folder, per_device_train_batch_size=2, num_generations=4, max_steps=2, learning_rate=1e-3,
        max_completion_length=24, max_turn_tokens=12, reply_tokens=4, **ON_CPU,
    ),
    url,
    train_dataset=make_dataset(url, "code", "test").select(range(8)),
    processing_class=tokenizer,
    reward_functions=[by_length],
)
first = []
play = trainer._play
trainer._play = lambda inputs: first.append(play(inputs)) or first[-1]
trainer.train()
spoken = gather_object([[rollout.completion_ids for rollout in first[0]]])
assert spoken[0] != spoken[1], "a group over two processes holds every rollout twice"
total = torch.cat([p.detach().flatten() for p in trainer.model.parameters()]).double().sum()
both = trainer.accelerator.gather(total.reshape(1))
assert trainer.accelerator.num_processes == 2
assert torch.equal(both[0], both[1]), both
trainer.accelerator.end_training()  # else gloo's threads may abort the process as it ends
"""


@pytest.mark.slow
def test_two_processes_make_groups_together_and_stay_equal(service_url: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_TWO_PROCESSES, "utf-8")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(script), service_url, str(tmp_path / "run"),
    ]  # fmt: skip
    done = subprocess.run(command, check=False, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [1, 2]
