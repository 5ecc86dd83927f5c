"""The rollout function in two processes of one run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, sys
import torch
torch.set_num_threads(1)
from trl import GRPOConfig, GRPOTrainer
from rolloutgym.training import rewards
from rolloutgym.training.datasets import make_dataset
from rolloutgym.training.rollouts import Limits
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama
from rolloutgym.training.trl_rollout import make_rollout_func

url, out = sys.argv[1:]
played = []
tokenizer = byte_tokenizer()
rollout_func = make_rollout_func(
    url, "sql", limits=Limits(turn_tokens=4, episode_tokens=64, reply_tokens=8), on_rollouts=played.append
)
model = tiny_llama(tokenizer, hidden=16, layers=1, context=4096)
trainer = GRPOTrainer(
    model=model,
    reward_funcs=[rewards.episode_return],
    args=GRPOConfig(
        output_dir=out, per_device_train_batch_size=4, num_generations=4, max_steps=2, learning_rate=1e-2,
        logging_steps=1, **ON_CPU,
    ),
    train_dataset=make_dataset(url, "sql", "train", limit=4),
    processing_class=tokenizer,
    rollout_func=rollout_func,
)
trainer.train()
rank = trainer.accelerator.process_index
report = {
    "world": trainer.accelerator.num_processes,
    "episodes": [rollout.episode_id for batch in played for rollout in batch],
    "tokens": [rollout.completion_ids for rollout in played[0]],
    "weights": sum(parameter.double().abs().sum().item() for parameter in model.parameters()),
    "fault_rate": [logs["rollout/fault_rate"] for logs in trainer.state.log_history if "rollout/fault_rate" in logs],
}
with open(os.path.join(out, f"rank{rank}.json"), "w") as file:
    json.dump(report, file)
trainer.accelerator.end_training()  # else gloo's threads may abort the process as it ends
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_process_plays_episodes_of_its_own(tmp_path: Path, service_url: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    # The launcher below `accelerate launch`, which itself starts several processes on CPUs only through MPI.
    launcher = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launcher, str(script), service_url, str(tmp_path)], check=True, timeout=800)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first["world"] == second["world"] == 2
    assert len(first["episodes"]) == len(second["episodes"]) == 8
    assert not set(first["episodes"]) & set(second["episodes"])
    assert first["tokens"] != second["tokens"]  # the processes draw differently
    assert first["weights"] == pytest.approx(second["weights"], rel=1e-12)
    assert first["fault_rate"] == [0.0, 0.0]
