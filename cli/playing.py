"""One whole episode with a reference policy, over the wire; what `demo` prints and tests check."""

from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from pydantic import JsonValue

from rolloutgym.cli.policies.base import Policy
from rolloutgym.client import EnvironmentHandle
from rolloutgym.models import StopReason
from rolloutgym.server.environments.registry import AnyEnvironment


class Played(NamedTuple):
    """An episode's figures."""

    environment: str
    task_id: str
    turns: int
    total_reward: float
    success: bool | None
    stop_reason: StopReason | None
    components: dict[str, float]
    """Summed over the steps."""


def oracle(environment: str) -> Policy:
    """The policy that knows every answer of the environment."""
    policy: Policy = import_module(f"rolloutgym.cli.policies.{environment}").oracle()
    return policy


def play_episode(
    handle: EnvironmentHandle[Any, Any],
    local: AnyEnvironment,
    policy: Policy,
    *,
    task_id: str | None = None,
    split: str | None = None,
    index: int | None = None,
    seed: int | None = None,
    options: Mapping[str, JsonValue] | None = None,
) -> Played:
    """Play until the episode is done. `local` is the same environment in this process: only there is the answer."""
    components: Counter[str] = Counter()
    with handle.reset(task_id=task_id, split=split, index=index, seed=seed, options=options) as episode:
        assert episode.task_id is not None
        policy.start(local.tasks.get(episode.task_id), episode.observation)
        while not episode.done:
            result = episode.step(policy.act(episode.observation))
            components.update(result.observation.info.reward_components)
        info = episode.observation.info
        return Played(
            environment=handle.name,
            task_id=episode.task_id,
            turns=episode.step_count,
            total_reward=episode.total_reward,
            success=info.success,
            stop_reason=info.stop_reason,
            components=dict(components),
        )
