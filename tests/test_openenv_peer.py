"""OpenEnv's own clients, server and validator against the service. They live in an environment of their own."""

from collections.abc import Callable
from typing import Any

import pytest

from rolloutgym.client import Client

pytestmark = pytest.mark.peers

Peer = Callable[..., Any]

RESET = {"seed": 7, "split": "train", "index": 0}
SQL = [
    {"text": "QUERY: SELECT 1"},
    {"action_type": "QUERY", "argument": "SELECT 2"},
    {"text": "no action at all"},
    {"action_type": "ANSWER", "argument": "42"},
]
ACTIONS: dict[str, list[dict[str, Any]]] = {
    "sql": SQL,
    "toolcall": [{"tool_calls": [{"function": {"name": "nothing", "arguments": "{}"}}], "content": "Hm."}],
    "code": [{"code": "print(6 * 7)"}, {"code": "nothing"}, {"text": "no action at all"}],
}
BASES = {"": "sql", "/sql": "sql", "/toolcall": "toolcall", "/code": "code"}
CALLS: dict[str, Any] = {"": ("query", {"sql": "SELECT 6 * 7"}), "/code": ("python", {"code": "6 * 7"})}


@pytest.fixture(scope="module")
def found(peer: Peer, service_url: str, full_url: str) -> Any:
    plays = [{"base": base, "reset": RESET, "actions": ACTIONS[name]} for base, name in BASES.items()]
    tools = {base: (RESET, *call) for base, call in CALLS.items()}
    return peer("openenv_clients", {"url": service_url, "plays": plays, "tools": tools, "full_url": full_url})


@pytest.mark.parametrize("base", BASES)
def test_every_client_of_openenv_plays_every_environment_as_ours_does(found: Any, service_url: str, base: str) -> None:
    name = BASES[base]
    with Client(service_url) as client, client.environment(name).reset(**RESET) as episode:  # type: ignore[arg-type]
        expected = [{"observation": episode.observation.model_dump(mode="json"), "reward": None, "done": False}]
        for action in ACTIONS[name]:
            result = episode.step(action)
            observation = result.observation.model_dump(mode="json")
            expected.append({"observation": observation, "reward": result.reward, "done": result.done})
        state = episode.state().model_dump(mode="json")
    plays = found["plays"][base]
    assert len(plays) == 5
    for play in plays:
        assert [strip(answer) for answer in play[:-1]] == [strip(answer) for answer in expected]
        assert play[-1].items() >= {"step_count": len(ACTIONS[name]), "done": True}.items()
        assert play[-1]["total_reward"] == state["total_reward"]
    assert len({play[-1]["episode_id"] for play in plays}) == 5


def strip(answer: Any) -> Any:
    """Without what a client that knows no field's default leaves out, or adds."""
    if isinstance(answer, dict):
        return {key: strip(value) for key, value in answer.items() if value is not None}
    return [strip(each) for each in answer] if isinstance(answer, list) else answer


def test_an_agents_client_calls_tools_on_the_trainers_session(found: Any) -> None:
    for base in CALLS:
        tools = found["tools"][base]
        assert "42" in tools["said"]
        # The call was a step; the mistake was none.
        assert tools["steps"] == 1
        assert set(tools["tools"]) == set(tools["shared"])
        assert not {"reset", "step", "state", "close"} & set(tools["tools"])
        assert CALLS[base][0] in tools["tools"]
        assert "reset" in tools["mistaken"]


def test_openenvs_clients_are_told_what_was_wrong(found: Any) -> None:
    for base in BASES:
        refusals = found["refusals"][base]
        assert "(code: EXECUTION_ERROR)" in refusals["step before reset"]
        assert "(code: EXECUTION_ERROR)" in refusals["state before reset"]
        assert "(code: VALIDATION_ERROR)" in refusals["unknown field of reset"]
        assert "(code: VALIDATION_ERROR)" in refusals["unknown field of action"]
        assert "(code: EXECUTION_ERROR)" in refusals["no such task"]
        assert refusals["steps"] == 0


def test_a_client_that_reconnected_unawares_is_not_rewarded(found: Any) -> None:
    assert "plays no episode yet" in found["reconnected"]


def test_openenvs_clients_are_told_of_capacity(found: Any) -> None:
    assert "CAPACITY_REACHED" in found["full"]["generic"]
    assert "places for live episodes are taken" in found["full"]["tools"]


@pytest.fixture(scope="module")
def full_url(serving: Any, make_noop: Callable[[], Any]) -> Any:
    """A service of one place."""
    with serving({"noop": make_noop()}, capacity=1) as url:
        yield url
