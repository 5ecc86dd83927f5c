"""The recipes run as they are written, but for addresses and amounts; and the page says which of them do."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
import trl
from trl.trainer.grpo_config import GRPOConfig

from rolloutgym.training.retool import RetoolConfig
from rolloutgym.training.tiny import ON_CPU, byte_tokenizer, tiny_llama

torch.set_num_threads(1)  # tiny matrices; and test processes share the cores

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
SECTIONS = dict(section.split("\n", 1) for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:])
TRAINERS, VERL, OPENENV = (ROOT / f".venv-{name}" / "bin" / "python" for name in ("trainers", "verl", "peers"))
PEERS = Path(__file__).parent / "peers"

TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<code>", "</code>")
TOKENIZER = byte_tokenizer(tags=TAGS)


def blocks(section: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)


def at(url: str, code: str) -> str:
    assert "http://127.0.0.1:8000" in code
    return code.replace("http://127.0.0.1:8000", url)


def run(section: str, url: str, **names: Any) -> dict[str, Any]:
    (code,) = blocks(section)
    exec(compile(at(url, code), section, "exec"), names)
    return names


def model() -> Any:
    return tiny_llama(TOKENIZER, hidden=16, layers=1, heads=2, context=8192)


def arguments(kind: Any, folder: Path, **settings: Any) -> Any:
    small = {"per_device_train_batch_size": 2, "num_generations": 2, "max_steps": 2, "max_completion_length": 24}
    return kind(output_dir=str(folder), **(small | ON_CPU | settings))


# ---- what needs nothing but this package's own extras ----------------------------------------------------------------


def test_the_page_says_what_is_executed() -> None:
    listed = dict(re.findall(r"^\| \[(.*?)\]\(#.*?\) \| (.*?) \|$", PAGE, re.MULTILINE))
    assert list(listed) == list(SECTIONS)
    executed = {name for name, where in listed.items() if where.startswith("in `make test")}
    source = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in SECTIONS if f'"{name}"' in source} == executed


def test_curl(service_url: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (commands,) = blocks("REST with curl", "console")
    done = subprocess.run(
        ["sh", "-ec", at(service_url, commands).replace("curl -s", "curl -sfw '\\n'")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    assert [answer["done"] for answer in answers[:3]] == [False, False, True]


def test_python_client(service_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("Python client", service_url, model=lambda _messages: r"\boxed{42}")
    assert re.fullmatch(r"-?[\d.]+ (True|False)\n", capsys.readouterr().out)


def test_trl_rollout_func(service_url: str, tmp_path: Path) -> None:
    args = arguments(GRPOConfig, tmp_path, logging_steps=1)
    names = run("TRL, rollout_func", service_url, model=model(), tokenizer=TOKENIZER, args=args)
    names["trainer"].rollout_func.close()
    assert names["trainer"].state.global_step == 2
    assert any("reward" in line for line in names["trainer"].state.log_history)


def test_trl_environment_factory(service_url: str, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tags=TAGS)
    template = Path(str(trl.__file__)).parent / "chat_templates" / "qwen2_5.jinja"  # TRL knows templates byte for byte
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    args = arguments(GRPOConfig, tmp_path)
    names = run("TRL, environment_factory", service_url, model=model(), tokenizer=tokenizer, args=args)
    assert names["trainer"].state.global_step == 2


def test_retool(service_url: str, tmp_path: Path) -> None:
    args = arguments(RetoolConfig, tmp_path, max_turn_tokens=12, reply_tokens=4)
    names = run("ReTool-style trainer", service_url, model=model(), tokenizer=TOKENIZER, args=args)
    assert names["trainer"].state.global_step == 2


# ---- what needs others' packages -------------------------------------------------------------------------------------


@pytest.fixture
def in_peer(service_url: str) -> Callable[..., Any]:
    def play(python: Path, recipe: str, code: str) -> Any:
        if not python.exists():
            pytest.skip(f"not installed: make {python.parent.parent.name}/.ready")
        work = json.dumps({"recipe": recipe, "code": at(service_url, code)})
        done = subprocess.run([python, PEERS / "recipes.py"], input=work, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-6000:]
        return json.loads(done.stdout)

    return play


@pytest.mark.slow
def test_verifiers(in_peer: Callable[..., Any]) -> None:
    stock, own = blocks("verifiers")
    found = in_peer(TRAINERS, "verifiers_task_set", stock)
    assert found["tasks"] == 64
    assert len(found["heard"]) == 2
    assert "1 row" in found["heard"][1]
    assert "reward_components" in found["heard"][1]  # what the page warns of
    (whole,) = found["rewards"].values()
    found = in_peer(TRAINERS, "verifiers_environment", own)
    assert "1 row" in found["heard"][1]
    assert "reward" not in found["heard"][1]
    assert found["rewards"] == {"episode_return": pytest.approx(whole)}


@pytest.mark.peers
def test_openenv(in_peer: Callable[..., Any]) -> None:
    found = in_peer(OPENENV, "openenv_client", *blocks("OpenEnv client"))
    assert found["done"]
    assert isinstance(found["reward"], float)


@pytest.mark.slow
def test_skyrl(in_peer: Callable[..., Any]) -> None:
    found = in_peer(TRAINERS, "skyrl", *blocks("SkyRL"))
    assert [message["role"] for message in found["prompt"]] == ["system", "user"]
    assert [step["done"] for step in found["steps"]] == [False, True]
    assert "1 row" in found["steps"][0]["observations"][0]["content"]
    assert found["steps"][1]["reward"] == pytest.approx(sum(found["steps"][1]["metadata"].values()))


@pytest.mark.slow
def test_verl(in_peer: Callable[..., Any]) -> None:
    found = in_peer(VERL, "verl", *blocks("verl"))
    whole, cut = found["whole"], found["cut"]
    spoken = [token for token, own in zip(whole["response_ids"], whole["response_mask"], strict=True) if own]
    assert TOKENIZER.decode(spoken) == "QUERY: SELECT 1<|im_end|>ANSWER: surely not this<|im_end|>"
    assert "1 row" in TOKENIZER.decode(whole["response_ids"])
    assert whole["prompt_ids"] == cut["prompt_ids"]  # rollouts of one group have one prompt
    assert (whole["num_turns"], whole["reward_score"] < 0.5) == (2, True)
    # The second turn did not fit: it was not sent.
    assert len(cut["response_ids"]) == found["room"] < len(whole["response_ids"])
    assert cut["num_turns"] == 2
    assert (
        found["asked"][1]
        == whole["prompt_ids"] + whole["response_ids"][: len(found["asked"][1]) - len(whole["prompt_ids"])]
    )


@pytest.mark.slow
def test_atropos_bridge(service_url: str, atropos_api: httpx2.Client) -> None:
    registration = {"wandb_group": "g", "wandb_project": "p", "batch_size": 8, "max_token_len": 4096}
    registration |= {"checkpoint_dir": "", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 10}
    atropos_api.post("/register", json=registration).raise_for_status()
    atropos_api.get("/batch").raise_for_status()
    (code,) = blocks("Atropos, the bridge")
    names: dict[str, Any] = {"model": model(), "tokenizer": TOKENIZER}
    code = at(service_url, code).replace("range(1000)", "range(2)")
    exec(compile(code.replace("http://127.0.0.1:8001", str(atropos_api.base_url)), "atropos", "exec"), names)
    counts = names["counts"]
    assert counts.pushed + counts.equal == 2
    assert atropos_api.get("/status").json()["queue_size"] == counts.pushed


@pytest.mark.slow
def test_atropos_class() -> None:
    """The command's options are those that Atropos makes of the class."""
    if not TRAINERS.exists():
        pytest.skip("not installed: make .venv-trainers/.ready")
    (commands,) = blocks("Atropos, an environment class", "console")
    command = commands.strip().splitlines()[-1].split()
    assert command[:4] == ["python", "-m", "rolloutgym.training.atropos_environment", "serve"]
    done = subprocess.run([TRAINERS, *command[1:4], "--help"], capture_output=True, text=True, timeout=120)
    options = {word for word in command if word.startswith("--")}
    assert len(options) == 3
    assert [option for option in options if f"{option} " not in done.stdout] == [], done.stdout[-3000:]
