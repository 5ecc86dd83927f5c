"""`make_rollout_func` in TRL's GRPOTrainer, over a real service; and the traps between the two."""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from pydantic import JsonValue
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rolloutgym.models import Action, Info, Message, Observation, StopReason, TaskInfo, ToolSpec
from rolloutgym.server.environments.base import Environment, Episode, Options, Outcome
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.errors import InvalidRequest, WorkerLost
from rolloutgym.training import rewards
from rolloutgym.training.datasets import make_dataset, task_of_prompt
from rolloutgym.training.rollouts import Limits, Rollout, TooManyFaults
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama, word_tokenizer
from rolloutgym.training.trl_rollout import make_rollout_func

torch.set_num_threads(1)  # tiny matrices; and test processes share the cores

# So few words that a model of random weights ends most of its turns itself.
TOKENIZER = word_tokenizer(["system", "user", "assistant", "s", "again", "a", "bb", *(f"train-{n}" for n in range(8))])

# ---- an environment: say something of even length --------------------------------------------------------------------


@dataclass(frozen=True)
class EvenTask:
    id: str
    split: str = "train"

    def info(self) -> TaskInfo:
        return TaskInfo(id=self.id, split=self.split)

    def fingerprint(self) -> bytes:
        return self.id.encode()


@dataclass
class Even(Environment[EvenTask, Options, Action, Observation]):
    name = "even"
    version = prompt_version = "1"
    description = "Says how long a text is"
    action_type = Action
    observation_type = Observation
    options_type = Options
    tasks = TaskSet([EvenTask(f"{split}-{n}", split) for split in ("train", "test") for n in range(8)])

    broken: set[str] = field(default_factory=set)
    """Ids of tasks whose steps fail."""
    played: list[tuple[str, int]] = field(default_factory=list)
    live: int = 0

    def episode(self, task: EvenTask, seed: int, options: Options) -> "EvenEpisode":
        return EvenEpisode(self, task, seed)

    def tools(self) -> Sequence[ToolSpec]:
        return ()

    def reward_range(self) -> tuple[float, float]:
        return (0.0, 1.0)


class EvenEpisode(Episode[Action]):
    def __init__(self, environment: Even, task: EvenTask, seed: int) -> None:
        self._environment = environment
        self._task = task
        self._turn = 0
        environment.live += 1
        environment.played.append((task.id, seed))

    async def reset(self) -> Observation:
        return Observation(messages=(Message(role="system", content="s"), Message(role="user", content=self._task.id)))

    async def step(self, action: Action) -> Outcome:
        if self._task.id in self._environment.broken:
            raise WorkerLost("gone")
        self._turn += 1
        even = len(action.text or "") % 2 == 0
        done = self._turn == 2
        info = Info(
            terminated=done,
            stop_reason=StopReason.ANSWERED if done else None,
            success=even if done else None,
            reward_components={"even": 0.5 * even},
            turn=self._turn,
        )
        messages = () if done else (Message(role="user", content="again"),)
        return Outcome(Observation(messages=messages, info=info), 0.5 * even)

    async def truncate(self, reason: StopReason) -> Outcome:
        return Outcome(Observation(info=Info(truncated=True, stop_reason=reason, success=False)), 0.0)

    def state(self) -> Mapping[str, JsonValue]:
        return {}

    def action_of_call(self, name: str, arguments: Mapping[str, JsonValue]) -> Action:
        raise InvalidRequest("no tools")

    def tools(self) -> Sequence[ToolSpec]:
        return ()

    async def close(self) -> None:
        self._environment.live -= 1


@pytest.fixture
def even() -> Even:
    return Even()


@pytest.fixture
def url(start_service: Callable[..., str], even: Even) -> str:
    return start_service({"even": even})


def config(folder: Path, **changes: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 80,
        "max_steps": 2,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        **ON_CPU,
    }
    return GRPOConfig(**(settings | changes))


LIMITS = Limits(turn_tokens=24, episode_tokens=80, reply_tokens=20)


def train(folder: Path, url: str, rollout_func: Any = None, **changes: Any) -> GRPOTrainer:
    eval_rows = changes.pop("eval_rows", None)
    trainer = GRPOTrainer(
        model=changes.pop("model", None) or tiny_llama(TOKENIZER, hidden=32, layers=1),
        reward_funcs=changes.pop("reward_funcs", [rewards.episode_return]),
        args=config(folder, **changes),
        train_dataset=make_dataset(url, "even", "train"),
        eval_dataset=make_dataset(url, "even", "test", limit=eval_rows) if eval_rows else None,
        processing_class=TOKENIZER,
        rollout_func=rollout_func or make_rollout_func(url, "even", limits=LIMITS),
    )
    trainer.train()
    return trainer


# ---- end to end -----------------------------------------------------------------------------------------------------


def test_two_steps_of_grpo_over_the_wire(tmp_path: Path, url: str, even: Even) -> None:
    batches: list[list[Rollout]] = []
    rollout_func = make_rollout_func(url, "even", limits=LIMITS, on_rollouts=batches.append)
    model = tiny_llama(TOKENIZER, hidden=32, layers=1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    even.played.clear()
    trainer = train(tmp_path, url, rollout_func, model=model, reward_funcs=[rewards.episode_return, rewards.success])
    rollout_func.close()
    assert trainer.state.global_step == 2
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert model.training
    while even.live:  # the service closes episodes after it has answered
        time.sleep(0.01)
    logs = trainer.state.log_history[0]
    rollouts = batches[0]
    solved = sum(bool(rollout.success) for rollout in rollouts) / len(rollouts)
    returns = [rollout.episode_return or 0.0 for rollout in rollouts]
    assert logs["rollout/solve_rate"] == pytest.approx(solved)
    assert logs["rewards/episode_return/mean"] == pytest.approx(sum(returns) / len(returns))
    assert logs["rewards/success/mean"] == pytest.approx(solved)
    assert logs["rollout/fault_rate"] == 0.0
    assert any(rollout.turns == 2 for rollout in rollouts)
    lengths = [sum(rollout.env_mask) for rollout in rollouts]
    assert logs["completions/mean_length"] == pytest.approx(
        sum(lengths) / len(lengths)
    )  # environment tokens not counted


def test_prompts_arrive_repeated_and_one_row_goes_back_for_each(tmp_path: Path, url: str, even: Even) -> None:
    seen: list[list[str]] = []
    inner = make_rollout_func(url, "even", limits=LIMITS)

    def spy(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        seen.append([str(task_of_prompt(prompt).task_id) for prompt in prompts])
        output = inner(prompts, trainer)
        assert {len(rows) for rows in output.values()} == {len(prompts)}
        assert all(type(rows) is list for rows in output.values())
        return output

    train(tmp_path, url, spy)
    inner.close()
    assert len(seen[0]) == 8
    assert [seen[0].count(task) for task in dict.fromkeys(seen[0])] == [4, 4]
    assert seen[0] == sorted(seen[0], key=seen[0].index)  # a group's rows stand together


def test_all_rows_of_a_group_play_the_same_episode(tmp_path: Path, url: str, even: Even) -> None:
    train(tmp_path, url, max_steps=1, shuffle_dataset=False)
    assert even.played[-8:] == [("train-0", 0)] * 4 + [("train-1", 1)] * 4


def test_evaluation_plays_without_training(tmp_path: Path, url: str) -> None:
    modes: list[bool] = []
    inner = make_rollout_func(url, "even", limits=LIMITS)

    def spy(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        modes.append(trainer.model.training)
        try:
            return inner(prompts, trainer)
        finally:
            assert trainer.model.training == modes[-1]

    trainer = train(
        tmp_path,
        url,
        spy,
        eval_rows=2,
        num_generations_eval=2,
        per_device_eval_batch_size=4,
        eval_strategy="steps",
        eval_steps=1,
    )
    inner.close()
    assert modes.count(False) == 2
    assert any("eval_rollout/solve_rate" in logs for logs in trainer.state.log_history)


def test_the_trained_logprobs_are_the_sampled_ones(tmp_path: Path, url: str) -> None:
    """What the loss computes again on TRL's padded batch is what was reported at sampling, and only on model tokens."""
    output: dict[str, list[Any]] = {}
    captured: dict[str, Any] = {}
    inner = make_rollout_func(url, "even", limits=LIMITS)

    def keep(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        output.update(inner(prompts, trainer))
        return output

    class Spy(GRPOTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            if not captured:
                captured.update(inputs)
                ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
                mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
                logps, _ = self._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))[
                    :2
                ]
                captured["logps"] = logps.detach()
            return super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]

    trainer = Spy(
        model=tiny_llama(TOKENIZER, hidden=32, layers=1),
        reward_funcs=[rewards.episode_return],
        args=config(
            tmp_path, per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=1, temperature=0.7
        ),
        train_dataset=make_dataset(url, "even"),
        processing_class=TOKENIZER,
        rollout_func=keep,
    )
    trainer.train()
    inner.close()
    rows = {tuple(ids): row for row, ids in enumerate(output["completion_ids"])}
    for ids, mask, own, logps in zip(
        captured["completion_ids"], captured["completion_mask"], captured["tool_mask"], captured["logps"], strict=True
    ):
        length = int(mask.sum())
        row = rows[tuple(ids[:length].tolist())]
        assert own[:length].tolist() == output["env_mask"][row]
        for mine, got, expected in zip(output["env_mask"][row], logps.tolist(), output["logprobs"][row], strict=False):
            assert expected == (pytest.approx(got, abs=1e-5) if mine else 0.0)


def test_environment_tokens_have_no_gradient(tmp_path: Path, url: str) -> None:
    """Other ids in place of the masked targets leave the loss as it is."""
    losses: list[float] = []

    class Spy(GRPOTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            if not losses:
                for shift in (0, 1):
                    changed = dict(inputs)
                    env = (inputs["completion_mask"] * (1 - inputs["tool_mask"])).bool()
                    assert env.any()
                    targets = inputs["completion_ids"].clone()
                    targets[env] = (targets[env] + shift) % 10
                    with _frozen_inputs(model, inputs):
                        loss = super()._compute_loss(model, changed | {"completion_ids": targets})  # type: ignore[no-untyped-call]
                        losses.append(loss.item())
            return super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]

    trainer = Spy(
        model=tiny_llama(TOKENIZER, hidden=32, layers=1),
        reward_funcs=[rewards.episode_return],
        args=config(tmp_path, per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=1),
        train_dataset=make_dataset(url, "even"),
        processing_class=TOKENIZER,
        rollout_func=make_rollout_func(url, "even", limits=LIMITS),
    )
    trainer.train()
    assert losses[0] == losses[1] != 0.0


class _frozen_inputs:
    """Feed the model the true ids whatever the targets say, so that only the targets differ."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self._ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        self._model = model

    def __enter__(self) -> None:
        def swap(module: Any, args: Any, kwargs: Any) -> Any:
            return args, kwargs | {"input_ids": self._ids}

        self._hook = self._model.register_forward_pre_hook(swap, with_kwargs=True)

    def __exit__(self, *_: object) -> None:
        self._hook.remove()


# ---- faults ---------------------------------------------------------------------------------------------------------


def test_a_failed_row_is_masked_counted_and_out_of_its_group(tmp_path: Path, url: str, even: Even) -> None:
    even.broken = {"train-0"}
    batches: list[list[Rollout]] = []
    limits = Limits(turn_tokens=24, episode_tokens=80, reply_tokens=20, max_fault_share=0.5)
    rollout_func = make_rollout_func(url, "even", limits=limits, on_rollouts=batches.append)
    trainer = train(tmp_path, url, rollout_func, max_steps=1, shuffle_dataset=False)
    rollout_func.close()
    failed = [rollout for rollout in batches[0] if rollout.fault]
    assert {rollout.task_id for rollout in failed} == {"train-0"}
    assert not any(any(rollout.env_mask) for rollout in failed)
    assert trainer.state.log_history[0]["rollout/fault_rate"] == len(failed) / 8
    assert [advantage for advantage, row in zip(trainer._logs["advantages"], batches[0], strict=True) if row.fault] == [
        0.0
    ] * len(failed)


def test_a_dead_service_stops_the_run(tmp_path: Path, url: str) -> None:
    dataset = make_dataset(url, "even")
    with socket.socket() as held:  # where nobody listens: the port is ours and closed to others
        held.bind(("127.0.0.1", 0))
        trainer = GRPOTrainer(
            model=tiny_llama(TOKENIZER, hidden=16, layers=1),
            reward_funcs=[rewards.episode_return],
            args=config(tmp_path),
            train_dataset=dataset,
            processing_class=TOKENIZER,
            rollout_func=make_rollout_func(f"http://127.0.0.1:{held.getsockname()[1]}", "even", limits=LIMITS),
        )
        with pytest.raises(TooManyFaults, match="8 of 8"):
            trainer.train()
    assert trainer.model is not None
    assert trainer.model.training


# ---- what is refused ------------------------------------------------------------------------------------------------


def fake_trainer(**changes: Any) -> Any:
    args = SimpleNamespace(mask_truncated_completions=False, repetition_penalty=1.0)
    fields: dict[str, Any] = {
        "tools": [],
        "args": args,
        "model": SimpleNamespace(training=True),
        "train_dataset": SimpleNamespace(column_names=["prompt", "task_id"]),
        "eval_dataset": None,
        "accelerator": SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=None)),
        "is_fsdp_enabled": False,
        "use_vllm": False,
    }
    for name in ("mask_truncated_completions", "repetition_penalty"):
        if name in changes:
            setattr(args, name, changes.pop(name))
    return SimpleNamespace(**(fields | changes))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"tools": [len]}, "excludes `tools`"),
        ({"mask_truncated_completions": True}, "mask_truncated=True"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"train_dataset": SimpleNamespace(column_names=["prompt", "success"])}, "success would be overwritten"),
        ({"is_fsdp_enabled": True}, "use vLLM"),
        (
            {"accelerator": SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=SimpleNamespace(zero_stage=3)))},
            "use vLLM",
        ),
    ],
)
def test_settings_that_would_go_wrong_silently_are_refused(setting: dict[str, Any], says: str) -> None:
    rollout_func = make_rollout_func("http://127.0.0.1:1", "even")
    with pytest.raises(ValueError, match=says):
        rollout_func([], fake_trainer(**setting))


def test_tools_beside_a_rollout_function_are_refused_by_the_real_trainer_too(tmp_path: Path, url: str) -> None:
    def look(at: int) -> str:
        """Look.

        Args:
            at: Where.

        Returns:
            What is there.
        """
        return str(at)

    template = Path(str(__import__("trl").__file__)).parent / "chat_templates" / "qwen2_5.jinja"
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    trainer = GRPOTrainer(
        model=tiny_llama(tokenizer, hidden=16, layers=1),
        reward_funcs=[rewards.episode_return],
        args=config(tmp_path),
        train_dataset=make_dataset(url, "even"),
        processing_class=tokenizer,
        rollout_func=make_rollout_func(url, "even"),
        tools=[look],
    )
    with pytest.raises(ValueError, match="excludes `tools`"):
        trainer.train()


@pytest.mark.parametrize("prompt", ["plain text", [{"role": "user", "content": "no task"}], []])
def test_a_prompt_without_a_task_is_refused(prompt: Any) -> None:
    with pytest.raises(ValueError, match="carries no task"):
        task_of_prompt(prompt)


def test_equal_questions_are_told_apart_by_their_task_id() -> None:
    def prompt(task: str) -> list[dict[str, Any]]:
        return [
            {"role": "system", "content": "s", "task_id": None, "seed": None},
            {"role": "user", "content": "How many?", "task_id": task, "seed": 3},
        ]

    rows = Dataset.from_list([{"prompt": prompt("a")}, {"prompt": prompt("b")}])
    assert [task_of_prompt(row["prompt"]).task_id for row in rows] == ["a", "b"]
    assert task_of_prompt(rows[0]["prompt"]).seed == 3
