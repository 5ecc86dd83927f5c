"""What leaves the service beside the trainer's numbers says nothing of a task's answer."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from rolloutgym.server.environments.registry import AnyEnvironment, build_environments
from rolloutgym.server.settings import Settings


@pytest.fixture(scope="module")
def environments() -> dict[str, AnyEnvironment]:
    return build_environments(Settings())


@pytest.fixture(scope="module")
def http(service_url: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service_url, timeout=60) as client:
        yield client


def secrets_of(name: str, task: Any) -> list[str]:
    """Pieces of a task's answer that a prompt does not happen to have."""
    if name == "sql":
        return [task.gold_sql]
    if name == "code":
        # A shorter one may stand anywhere by chance.
        return [task.answer] if len(task.answer) > 3 and task.answer not in task.prompt else []
    calls = [call for turn in task.steps for call in turn.calls]
    return [json.dumps(call.arguments) for call in calls if call.arguments]


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("sql", {"text": "QUERY: SELECT nothing FROM nowhere"}),
        ("sql", {"text": "ANSWER: no such answer"}),
        ("toolcall", {"tool_calls": [{"function": {"name": "nothing", "arguments": "{}"}}]}),
        (
            "code",
            {"text": "<code>import os; print(dict(os.environ), open('/proc/self/cmdline').read(), globals())</code>"},
        ),
        ("code", {"answer": "no such answer"}),
    ],
)
def test_nothing_of_the_answer_is_public(
    http: httpx2.Client, environments: dict[str, AnyEnvironment], name: str, action: Any
) -> None:
    tasks = [task for task in environments[name].tasks.of_split("test")[:10] if secrets_of(name, task)]
    assert len(tasks) > 4
    for task in tasks:
        secrets = secrets_of(name, task)
        episode = {"episode_id": f"secret-{name}"}
        first = http.post(f"/{name}/reset", json=episode | {"task_id": task.id}).json()
        step = http.post(f"/{name}/step", json=episode | {"action": action}).json()
        state = http.get(f"/{name}/state", params=episode).json()
        assert not {"gold", "answer", "solution", "expected"} & set(state)
        listed = http.post(f"/{name}/tasks", json={"split": "test"}).text
        shown = json.dumps([first["observation"], step["observation"]["messages"], state]) + listed
        assert [secret for secret in secrets if secret in shown or json.dumps(secret)[1:-1] in shown] == []
        http.delete(f"/{name}/episodes/secret-{name}")
