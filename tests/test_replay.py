"""The same seed and the same actions give the same episode, byte for byte: in another process, and after a loss."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolloutgym.models import ResetRequest
from rolloutgym.server.errors import Internal
from rolloutgym.server.metrics import Metrics
from rolloutgym.server.sessions import Limits, Sessions
from rolloutgym.server.store import Key, MemoryStore


def play(url: str, name: str, seed: int, actions: list[dict[str, Any]]) -> list[bytes]:
    """Every answer of one episode."""
    with httpx2.Client(base_url=url, timeout=60) as http:
        answers = [http.post(f"/{name}/reset", json={"episode_id": "same", "seed": seed}).content]
        for step, action in enumerate(actions):
            body = {"episode_id": "same", "action": action, "step": step}
            answers.append(http.post(f"/{name}/step", json=body).content)
        answers.append(http.get(f"/{name}/state?episode_id=same").content)
    return answers


def test_two_processes_give_the_same_episodes(noop_process: Callable[..., Any]) -> None:
    drawn = random.Random(7)
    actions: list[dict[str, Any]] = [{"add": drawn.random()} for _ in range(20)] + [
        {"text": "é\u2028🐍"},
        {"finish": True},
    ]
    one, two = noop_process(), noop_process()
    for seed in (0, 1, 2**63 - 1):
        first = play(one.url, "noop", seed, actions)
        assert first == play(two.url, "noop", seed, actions)
        assert json.loads(first[-2])["done"]


ACTIONS: dict[str, list[dict[str, Any]]] = {
    "sql": [
        {"action_type": "SAMPLE", "argument": "nothing"},
        {"text": "QUERY: SELECT name FROM sqlite_master ORDER BY name"},
        {"action_type": "QUERY", "argument": "SELECT 1, 'x', NULL, 0.1"},
        {"text": "I do not know"},
        {"action_type": "ANSWER", "argument": "42"},
    ],
    "toolcall": [{"text": "I cannot help with that."}, {"tool_calls": []}],
    "code": [
        {"code": "import random\nx = random.random()\nprint(x, hash('a'))"},
        {"text": "<code>print(x)</code>"},
        {"answer": "7"},
    ],
}


def test_two_processes_give_the_same_episodes_of_every_environment(
    service_process: Callable[..., Any], service_url: str
) -> None:
    other = service_process()
    for name, actions in ACTIONS.items():
        for seed in (1, 2):
            assert play(service_url, name, seed, actions) == play(other.url, name, seed, actions)


Plan = list[tuple[str, float]]


@given(
    st.lists(st.tuples(st.sampled_from(["step", "lose", "fail", "repeat", "state"]), st.floats(-10, 10)), max_size=30)
)
@settings(deadline=None, max_examples=60)
def test_losses_and_faults_do_not_change_an_episode(make_noop: Callable[[], Any], plan: Plan) -> None:
    """Whatever is lost, fails or is sent again in between: the answers are those of an undisturbed episode."""

    async def disturbed() -> list[bytes]:
        environment = make_noop()
        environment.faults["x"] = lambda: 1 / 0
        sessions = Sessions([environment], MemoryStore(), Limits(4, 60, 5), Metrics(["noop"]))
        record = await sessions.reset(environment, ResetRequest(episode_id="e", seed=3))
        answers = [record.first]
        for kind, add in plan:
            at = len(answers) - 1
            if kind == "step":
                answers.append(await sessions.step(environment, "e", environment.action_type(add=add), step=at))
            elif kind == "lose":
                sessions._sessions[Key("noop", "e")].drop()
            elif kind == "fail":
                with pytest.raises(Internal):
                    await sessions.step(environment, "e", environment.action_type(add=add, fault="x"), step=at)
            elif kind == "repeat" and at > 0:
                action = environment.action_type.model_validate_json(record.actions[at - 1])
                assert await sessions.step(environment, "e", action, step=at - 1) == answers[-1]
            elif kind == "state":
                assert json.loads(await sessions.state(environment, "e"))["step_count"] == at
        await sessions.stop()
        assert environment.open == 0
        return answers

    async def undisturbed() -> list[bytes]:
        environment = make_noop()
        sessions = Sessions([environment], MemoryStore(), Limits(4, 60, 5), Metrics(["noop"]))
        answers = [(await sessions.reset(environment, ResetRequest(episode_id="e", seed=3))).first]
        for kind, add in plan:
            if kind == "step":
                answers.append(await sessions.step(environment, "e", environment.action_type(add=add)))
        await sessions.stop()
        return answers

    assert asyncio.run(disturbed()) == asyncio.run(undisturbed())
