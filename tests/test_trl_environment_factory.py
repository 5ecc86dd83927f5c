"""`make_environment_factory` in TRL's GRPOTrainer, over the real service."""

import inspect
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from datasets import concatenate_datasets
from transformers.utils.chat_template_utils import get_json_schema
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rolloutgym.client import AsyncClient
from rolloutgym.client.errors import InvalidRequest
from rolloutgym.training.datasets import make_dataset
from rolloutgym.training.rollouts import TooManyFaults
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama
from rolloutgym.training.trl_environments import (
    ToolEnvironment,
    close_environment_factory,
    make_environment_factory,
)

torch.set_num_threads(1)  # tiny matrices; and test processes share the cores


def tool_tokenizer(merges: Sequence[tuple[str, str]] = ()) -> Any:
    """TRL takes chat templates of tool calls only if it knows them byte for byte."""
    tokenizer = byte_tokenizer(merges, tags=("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"))
    template = Path(str(trl.__file__)).parent / "chat_templates" / "qwen2_5.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    return tokenizer


@pytest.fixture
def dead_url() -> Iterator[str]:
    """Where nobody listens: the port is ours and closed to others."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


Begin = Callable[..., Any]


@pytest.fixture
def begin(service_url: str) -> Iterator[Begin]:
    """An object of a factory in its first episode; all is closed afterwards."""
    factories = []

    def start(env: Any) -> Any:
        row = make_dataset(service_url, env, "train", limit=1, protocol="tools")[0]
        factory = make_environment_factory(service_url, env)
        factories.append(factory)
        environment = factory()
        environment.reset(**row)
        return environment

    yield start
    for factory in factories:
        close_environment_factory(factory)


def tools_of(environment: ToolEnvironment) -> set[str]:
    """As TRL finds them."""
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    return {name for name, _ in members if not name.startswith("_")} - {"reset", "get_reward"}


@pytest.mark.parametrize(
    ("env", "tools"),
    [
        ("sql", {"describe", "sample", "query", "answer"}),
        ("code", {"python", "answer"}),
        ("toolcall", {"call_functions", "reply"}),
    ],
)
def test_every_tool_is_typed_and_documented(env: Any, tools: set[str]) -> None:
    environment = make_environment_factory("http://127.0.0.1:1", env)()
    assert tools_of(environment) == tools
    for name in tools:
        schema = get_json_schema(getattr(environment, name))["function"]
        assert schema["description"]
        assert all(parameter["description"] for parameter in schema["parameters"]["properties"].values())


def test_sql_is_played_by_tool_calls(begin: Begin) -> None:
    environment = begin("sql")
    table = environment._episode.messages[-1].content.split("Tables: ")[1].split(",")[0].strip()
    assert f"able {table}" in environment.describe(table)
    assert "row" in environment.sample(table)
    assert "no such column" in environment.query(f"SELECT nonsense FROM {table}").lower()
    assert environment.answer("surely not this") != ""
    assert environment.answer("again") == "The episode is over."
    assert environment.success is False
    assert environment.get_reward() == environment._episode.total_reward < 0.5


def test_code_is_played_by_tool_calls(begin: Begin) -> None:
    environment = begin("code")
    assert "42" in environment.python("6 * 7")
    environment.answer("surely not this")
    assert environment.success is False


def test_tool_calls_are_made_through_one_tool(begin: Begin) -> None:
    environment = begin("toolcall")
    functions = [tool.function.name for tool in environment._episode.tools]
    environment.call_functions([{"name": functions[0], "arguments": {}}])
    assert environment.get_reward() is not None


@pytest.mark.parametrize("calls", [["no object"], [{}], [{"name": 3, "arguments": "text"}], []])
def test_calls_of_any_shape_are_judged_and_never_a_fault(begin: Begin, calls: Any) -> None:
    environment = begin("toolcall")
    with suppress(InvalidRequest):  # TRL shows it to the model
        environment.call_functions(calls)
    assert environment.fault is None
    assert environment.get_reward() is not None


def test_an_unfinished_episode_is_graded_on_what_there_is(begin: Begin) -> None:
    environment = begin("sql")
    reward = environment.get_reward()
    assert reward is not None
    assert reward <= 0
    assert environment._episode.observation.info.stop_reason == "max_turns"
    assert environment.get_reward() == reward


def test_the_prompt_teaches_tools_and_not_text(service_url: str) -> None:
    sql, code, toolcall = (
        make_dataset(service_url, env, "train", limit=1, protocol="tools")[0]["prompt"]
        for env in ("sql", "code", "toolcall")
    )
    assert "DESCRIBE:" not in sql[0]["content"]
    assert "<code>" not in code[0]["content"]
    assert '"parameters"' in toolcall[0]["content"]
    assert [prompt[-1]["role"] for prompt in (sql, code, toolcall)] == ["user"] * 3
    assert all(prompt[-1]["task_id"] for prompt in (sql, code, toolcall))


def test_a_fault_is_no_reward_and_many_stop_the_run(dead_url: str) -> None:
    factory = make_environment_factory(AsyncClient(dead_url, retries=0), "sql")
    environment = factory()
    for _ in range(16):
        environment.reset(task_id="t")
        assert environment.query("SELECT 1") == "The environment does not answer."  # type: ignore[attr-defined]
        assert environment.get_reward() is None
    with pytest.raises(TooManyFaults, match="16 of the last 16"):
        environment.reset(task_id="t")
    close_environment_factory(factory)


def test_a_row_without_a_task_is_refused() -> None:
    with pytest.raises(ValueError, match="task_id"):
        make_environment_factory("http://127.0.0.1:1", "sql")().reset(prompt=[], question="?")


# ---- end to end -----------------------------------------------------------------------------------------------------


def config(folder: Path, **changes: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 24,
        "max_steps": 2,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        **ON_CPU,
    }
    return GRPOConfig(**(settings | changes))


def test_two_steps_of_grpo_on_a_mix_of_three_environments(tmp_path: Path, service_url: str) -> None:
    names: list[Any] = ["sql", "toolcall", "code"]
    factories: Any = {name: make_environment_factory(service_url, name) for name in names}
    dataset = concatenate_datasets(
        [make_dataset(service_url, name, "train", limit=1, protocol="tools") for name in names]
    )
    # Longer tokens than bytes, or the prompts with all their functions would take minutes.
    texts = [message["content"] for row in dataset for message in row["prompt"]]
    untrained: Any = byte_tokenizer()
    trained = untrained.train_new_from_iterator(texts, vocab_size=2000)
    merges = json.loads(trained.backend_tokenizer.to_str())["model"]["merges"]
    tokenizer = tool_tokenizer([(left, right) for left, right in merges])
    model = tiny_llama(tokenizer, hidden=16, layers=1, heads=1, context=16384)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    trainer = GRPOTrainer(
        model=model,
        args=config(tmp_path, per_device_train_batch_size=6, num_generations=2, max_completion_length=8),
        train_dataset=dataset,
        processing_class=tokenizer,
        environment_factory=factories,
    )
    trainer.train()
    for factory in factories.values():
        close_environment_factory(factory)
    assert trainer.state.global_step == 2
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)) or all(
        logs.get("frac_reward_zero_std") == 1 for logs in trainer.state.log_history if "loss" in logs
    )
    columns = {name for logs in trainer.state.log_history for name in logs if name.startswith("rewards/")}
    assert {f"rewards/{name}_environment/mean" for name in names} <= columns


def test_a_scripted_model_calls_tools_and_is_rewarded(tmp_path: Path, service_url: str) -> None:
    """TRL runs the calls, masks what the environment says, and takes the episode's return as the reward."""
    seen: dict[str, Any] = {}
    tokenizer = tool_tokenizer()

    class Spy(GRPOTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            seen.update(inputs)
            return super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]

    says = [
        '<tool_call>\n{"name": "query", "arguments": {"sql": "SELECT 1 AS one"}}\n</tool_call><|im_end|>',
        '<tool_call>\n{"name": "answer", "arguments": {"value": "no"}}\n</tool_call><|im_end|>',
        "done<|im_end|>",
    ]
    model = tiny_llama(tokenizer, hidden=16, layers=1, context=16384)
    turn = iter(says)

    def generate(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        ids = torch.tensor([tokenizer.encode(next(turn), add_special_tokens=False)])
        return torch.cat([input_ids, ids.expand(len(input_ids), -1)], 1)

    model.generate = generate
    factory: Any = make_environment_factory(service_url, "sql")
    trainer = Spy(
        model=model,
        args=config(tmp_path, max_steps=1, max_completion_length=600, per_device_train_batch_size=4),
        train_dataset=make_dataset(service_url, "sql", "train", limit=1, protocol="tools"),
        processing_class=tokenizer,
        environment_factory=factory,
    )
    trainer.train()
    close_environment_factory(factory)
    own = seen["completion_mask"][0].bool() & seen["tool_mask"][0].bool()
    env = seen["completion_mask"][0].bool() & ~seen["tool_mask"][0].bool()
    assert tokenizer.decode(seen["completion_ids"][0][own]) == "".join(says)
    assert "one" in tokenizer.decode(seen["completion_ids"][0][env])
    assert trainer.state.log_history[0]["tools/call_frequency"] == 2
    assert trainer.state.log_history[0]["rewards/sql_environment/mean"] < 0.5
