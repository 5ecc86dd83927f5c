"""The bridge and the environment class against Atropos' own API server, which runs in an environment of its own."""

import json
import subprocess
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rolloutgym.training.atropos import AtroposClient, Counts, play_and_push
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.rollouts import Limits, Task
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.stops import decode
from rolloutgym.training.tiny import byte_tokenizer, tiny_llama

pytestmark = pytest.mark.slow

PEERS = Path(__file__).parent / "peers"
PYTHON = Path(__file__).parent.parent / ".venv-trainers" / "bin" / "python"

TOKENIZER = byte_tokenizer()
MODEL = tiny_llama(TOKENIZER, hidden=16, layers=1, heads=2, context=2048)


@pytest.fixture
def service(start_service: Callable[..., str], noop: Any) -> str:
    """Two turns; a text of odd length is worth 1."""
    plain = noop.episode

    def episode(*arguments: Any) -> Any:
        live = plain(*arguments)
        step = live.step

        async def scored(action: Any) -> Any:
            change = {"add": float(len(action.text) % 2), "finish": live._turn == 1}
            return await step(action.model_copy(update=change))

        live.step = scored
        return live

    noop.episode = episode
    return start_service({"noop": noop})


def start(trainer: httpx2.Client, batch_size: int) -> None:
    """As a trainer does: register, then ask for the first batch, which is what environments wait for."""
    registration = {"wandb_group": "g", "wandb_project": "p", "batch_size": batch_size, "max_token_len": 4096}
    registration |= {"checkpoint_dir": "", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 10}
    trainer.post("/register", json=registration).raise_for_status()
    assert trainer.get("/batch").json() == {"batch": None}


def trained(group: dict[str, Any], row: int) -> list[int]:
    return [token for token in group["masks"][row] if token != -100]


def starts_with(tokens: list[int], start: list[int]) -> bool:
    return tokens[: len(start)] == start


def test_what_is_pushed_comes_out_as_the_trainers_batch(atropos_api: httpx2.Client, service: str) -> None:
    start(atropos_api, batch_size=4)
    tasks = (Task(split="train", index=number % 5, seed=number) for number in count())
    limits = Limits(turn_tokens=6, episode_tokens=200, reply_tokens=60)
    pushed = Counts()
    with (
        RemoteEnvironment(service, "noop") as environment,
        evaluation_mode(MODEL),
        AtroposClient(str(atropos_api.base_url)) as client,
    ):
        client.register("noop", group_size=2, max_tokens=4096)
        generator = TransformersGenerator(MODEL, TOKENIZER, seed=1)
        while pushed.pushed < 2:
            more = play_and_push(environment, tasks, generator, client, limits, groups=1, outcome_weight=1.0)
            pushed.pushed += more.pushed
            assert (more.faulted, more.unusable) == (0, 0)
        assert atropos_api.get("/status").json()["queue_size"] == 2
        batch = atropos_api.get("/batch").json()["batch"]
        assert atropos_api.get("/batch").json() == {"batch": None}
    assert [len(group["tokens"]) for group in batch] == [2, 2]
    for group in batch:
        assert group["env_id"] == 0
        assert len(set(group["scores"])) == 2
        for row, tokens in enumerate(group["tokens"]):
            said = [message["content"] for message in group["messages"][row] if message["role"] == "assistant"]
            text = decode(TOKENIZER, trained(group, row))
            assert text.replace("<|im_end|>", "") == "".join(said).replace("<|im_end|>", "")
            assert len(group["inference_logprobs"][row]) == len(group["advantages"][row]) == len(tokens)
            sampled = [mask != -100 for mask in group["masks"][row]]
            assert [number <= 0 for number in group["inference_logprobs"][row]] == sampled


@pytest.mark.parametrize("eos", ["<|im_end|>", "<|pad|>"])
def test_the_environment_class_runs_as_atropos_runs_it(
    atropos_api: httpx2.Client, service: str, tmp_path: Path, eos: str
) -> None:
    """Also where the server ends turns by a token of the model's settings, which the tokenizer does not name."""
    start(atropos_api, batch_size=6)
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = eos
    tokenizer.save_pretrained(tmp_path)
    work = {"service": service, "environment": "noop", "atropos": str(atropos_api.base_url), "tokenizer": str(tmp_path)}
    done = subprocess.run(
        [PYTHON, PEERS / "atropos_environment.py"], input=json.dumps(work), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout)
    batch = atropos_api.get("/batch").json()["batch"]
    assert sorted(group["scores"] for group in batch) == sorted(found["scores"])
    assert sum(len(group["tokens"]) for group in batch) == 6
    sampled = sorted(turn["ids"] for turn in found["sampled"])
    assert len(sampled) == 12  # two turns of each
    rows = [(group, row) for group in batch for row in range(2)]
    assert sorted(chain(*(trained(*row) for row in rows))) == sorted(chain(*sampled))
    for group, row in rows:
        tokens = group["tokens"][row]
        turns = sorted(found["sampled"], key=lambda turn: len(turn["prompt"]))
        own = [turn["ids"] for turn in turns if starts_with(tokens, turn["prompt"] + turn["ids"])]
        assert list(chain(*own)) == trained(group, row)
        assert "<|im_end|><|im_end|>" not in decode(TOKENIZER, tokens)
    assert found["metrics"]["results"]["all"]["eval/faults"] == 0
    assert 0 <= found["metrics"]["results"]["all"]["eval/mean_return"] <= 2
