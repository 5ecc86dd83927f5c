"""`openenv.yaml` and its probe say what the default environment is."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolloutgym.models import SqlAction
from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.settings import Settings

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def manifest() -> Any:
    return yaml.safe_load((ROOT / "openenv.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def default() -> AnyEnvironment:
    settings = Settings(environments=("sql",))
    assert settings.default_env == "sql"
    return build_environments(settings)["sql"]


def test_the_manifest_declares_the_default_environment(manifest: Any, default: AnyEnvironment) -> None:
    capabilities = manifest["validation"]["capabilities"]
    assert capabilities["declared_tools"] == [tool.function.name for tool in default.tools()]
    counts = {split: len(default.tasks.of_split(split)) for split in default.tasks.splits()}
    assert capabilities["declared_task_count"] == counts


def test_the_declared_rewards_are_the_real_ones(manifest: Any, default: AnyEnvironment) -> None:
    least, most = manifest["validation"]["reward"]["range"]
    assert least <= default.reward_range()[0] < least + 0.1
    assert most == default.reward_range()[1]


def test_the_probes_actions_are_actions(manifest: Any) -> None:
    path = manifest["validation"]["execution"]["probe_path"]
    for action in json.loads((ROOT / path).read_text(encoding="utf-8"))["actions"]:
        SqlAction.model_validate(action)
