"""Data sets for trainers, and the callable of older rollout code, over the real service."""

from typing import Any

import torch

from rolloutgym.training.datasets import make_dataset, task_of_prompt
from rolloutgym.training.seed_shape import RolloutConfig, rollout_func
from rolloutgym.training.tiny import byte_tokenizer, tiny_llama

torch.set_num_threads(1)  # tiny matrices; and test processes share the cores


def test_rows_carry_the_task_and_show_the_services_prompt(service_url: str) -> None:
    dataset = make_dataset(service_url, "sql", "train", limit=3, seed=10)
    assert dataset.column_names == ["prompt", "environment", "task_id", "seed"]
    assert dataset["seed"] == [10, 11, 12] or list(dataset["seed"]) == [10, 11, 12]
    for row in dataset:
        system, user = row["prompt"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert user["content"].startswith("Question: ")
        task = task_of_prompt(row["prompt"])
        assert (task.task_id, task.seed) == (row["task_id"], row["seed"])
    assert len(set(dataset["task_id"])) == 3


def test_options_shape_the_prompt(service_url: str) -> None:
    (row,) = make_dataset(service_url, "sql", "test", limit=1, options={"budget": 3})
    assert "3 steps" in row["prompt"][0]["content"]


def test_older_rollout_code_gets_its_dicts(service_url: str) -> None:
    tokenizer = byte_tokenizer()
    model = tiny_llama(tokenizer, hidden=16, layers=1, context=4096)
    model.train()
    dataset = make_dataset(service_url, "sql", "train", limit=1)
    prompts: list[Any] = [dataset[0]["prompt"], dataset[0]["task_id"]]
    config = RolloutConfig(service_url, max_new_tokens=4, seed=5)
    episodes = rollout_func(prompts, model, tokenizer, config)
    assert model.training
    for number, episode in enumerate(episodes):
        assert set(episode) == {"prompt", "completion", "content", "metadata", "correct", "progress", "operational"}
        assert episode["prompt"] == prompts[number]
        assert episode["completion"] == episode["content"] != ""
        assert (episode["correct"], episode["progress"]) == (False, 0.0)
        assert episode["metadata"]["task_id"] == dataset[0]["task_id"]
        assert episode["metadata"]["seed"] == 5 + number
        assert episode["metadata"]["stop_reason"] == "max_tokens"
