"""A training step of our GRPO trainer beside TRL's: same model, same rollouts, same settings, in one run.

    python benchmarks/retool.py [--rows 16] [--length 256] [--steps 4] [--repeats 3]

Each side runs in a process of its own, in turns. Time is that of the optimiser steps without generation (rollouts are
fixed); memory is what the process peaks at beyond what it had before training. Ratios below 1 favour us.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any


def main() -> None:
    arguments = _arguments()
    if arguments.side:
        sys.stdout.write(json.dumps(_measure(arguments)) + "\n")
        return
    results: dict[str, list[dict[str, float]]] = {"ours": [], "trl": []}
    for repeat in range(arguments.repeats):
        for side in ("ours", "trl") if repeat % 2 == 0 else ("trl", "ours"):
            command = [sys.executable, "-W", "ignore", __file__, "--side", side]
            for name in ("rows", "length", "steps"):
                command += [f"--{name}", str(getattr(arguments, name))]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results[side].append(json.loads(done.stdout.splitlines()[-1]))
    best = {side: {key: min(run[key] for run in runs) for key in runs[0]} for side, runs in results.items()}
    lines = [
        f"{arguments.rows} rollouts of {arguments.length} tokens, {arguments.steps} steps, best of {arguments.repeats}",
        f"{'':6} {'s per step':>11} {'peak MiB':>10}",
        *(f"{side:6} {figures['seconds']:11.3f} {figures['mebibytes']:10.0f}" for side, figures in best.items()),
        f"ratio  {best['ours']['seconds'] / best['trl']['seconds']:11.2f} "
        f"{best['ours']['mebibytes'] / best['trl']['mebibytes']:10.2f}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=("ours", "trl"))
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> dict[str, float]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

    from rolloutgym.training.tiny import byte_tokenizer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32_000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=4, max_position_embeddings=4096, pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        )
    )  # fmt: skip

    class Clock(TrainerCallback):
        times: list[float] = []  # noqa: RUF012

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.times.append(time.perf_counter())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.times.append(time.perf_counter())

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        make = _ours if arguments.side == "ours" else _trl
        trainer = make(model, tokenizer, folder, arguments, [clock])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        trainer.train()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps = [end - begin for begin, end in zip(clock.times[::2], clock.times[1::2], strict=True)]
    return {"seconds": statistics.median(steps), "mebibytes": (peak - before) / 1024}


def _settings(folder: str, arguments: argparse.Namespace) -> dict[str, Any]:
    from rolloutgym.training.tiny import ON_CPU

    return {
        "output_dir": folder,
        "per_device_train_batch_size": arguments.rows // 2,
        "gradient_accumulation_steps": 2,
        "num_generations": 8,
        "num_iterations": 2,
        "max_steps": arguments.steps,
        "learning_rate": 1e-5,
        "max_completion_length": 2 * arguments.length,
        **ON_CPU,
    }


def _fixed(arguments: argparse.Namespace, count: int) -> list[tuple[list[int], list[int]]]:
    """Ragged completions and their masks: half to all of the length, the middle fifth the environment's."""
    import torch

    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(count):
        length = arguments.length // 2 + (arguments.length // 2) * (index % 8 + 1) // 8
        ids = torch.randint(0, 32_000, (length,), generator=generator).tolist()
        shown = range(2 * length // 5, 3 * length // 5)
        rows.append((ids, [0 if position in shown else 1 for position in range(length)]))
    return rows


def _dataset() -> Any:
    from datasets import Dataset

    return Dataset.from_list([{"prompt": [{"role": "user", "content": "q", "task": f"t{n}"}]} for n in range(16)])


def _ours(model: Any, tokenizer: Any, folder: str, arguments: argparse.Namespace, callbacks: list[Any]) -> Any:
    from rolloutgym.models import StopReason
    from rolloutgym.training.retool import RetoolConfig, RetoolTrainer
    from rolloutgym.training.rollouts import Rollout

    class Fixed(RetoolTrainer):
        def _play(self, inputs: Any) -> list[Rollout]:
            return [
                Rollout(
                    task_id="t", seed=0, episode_id="e", prompt_ids=[5] * 32, completion_ids=ids, env_mask=mask,
                    logprobs=[0.0] * len(ids), episode_return=float(index % 3), components={},
                    stop_reason=StopReason.ANSWERED, success=True, turns=1, invalid_actions=0, sampled_tokens=sum(mask),
                    transcript=(),
                )
                for index, (ids, mask) in enumerate(_fixed(arguments, len(inputs)))
            ]  # fmt: skip

    config = RetoolConfig(**_settings(folder, arguments), log_completions=False)
    return Fixed(
        model, config, "http://127.0.0.1:9", train_dataset=_dataset(), processing_class=tokenizer, callbacks=callbacks
    )


def _trl(model: Any, tokenizer: Any, folder: str, arguments: argparse.Namespace, callbacks: list[Any]) -> Any:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        rows = _fixed(arguments, len(prompts))
        return {
            "prompt_ids": [[5] * 32 for _ in rows],
            "completion_ids": [ids for ids, _ in rows],
            "logprobs": [[0.0] * len(ids) for ids, _ in rows],
            "env_mask": [mask for _, mask in rows],
            "value": [float(index % 3) for index in range(len(rows))],
        }

    def value_reward(value: list[float], **_: Any) -> list[float | None]:
        return list(value)

    return GRPOTrainer(
        model,
        reward_funcs=value_reward,
        args=GRPOConfig(**_settings(folder, arguments), loss_type="bnpo", beta=0.0),
        train_dataset=_dataset(),
        processing_class=tokenizer,
        rollout_func=rollout_func,
        callbacks=callbacks,
    )


if __name__ == "__main__":
    main()
