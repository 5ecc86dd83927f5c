"""Plays episodes with the `openreward` SDK, unchanged, as its standard input says; writes what it saw.

In: `{"url", "plays": [{"variant", "split", "index", "calls": [[name, input]]}], "locked_url", "key"}`.
"""

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from openreward import OpenReward
from openreward.api.environments.types import AuthenticationError, ToolCallError

Json = dict[str, Any]


def called(session: Any, name: str, arguments: Json) -> Json:
    try:
        return asdict(session.call_tool(name, arguments))
    except ToolCallError as error:
        return {"reason": error.reason, "detail": error.detail}


def play(client: OpenReward, work: Json) -> Json:
    environment = client.environments.get("rolloutgym", variant=work["variant"], base_url=work["url"])
    split, index = work["split"], work["index"]
    task = environment.get_task(split, index)
    found: Json = {
        "splits": environment.list_splits(),
        "num_tasks": environment.num_tasks(split),
        "tasks": len(environment.list_tasks(split)),
        "range": [one.task_spec for one in environment.get_task_range(split, 0, 2)],
        "task": task.task_spec,
        "environment": task.environment_name,
        "shared_tools": [tool.name for tool in environment.list_tools()],
    }
    task.task_spec = {**task.task_spec, "seed": 7}
    for session in (environment.session(task=task), environment.session(split=split, index=index)):
        with session:
            found.setdefault("prompts", []).append([block.text for block in session.get_prompt()])
            found["messages"] = session.get_messages(format="openai")
            found["tools"] = [tool.name for tool in session.list_tools()]
            found.setdefault("calls", []).append([called(session, *call) for call in work["calls"]])
            found["sid"] = session.sid
    return found


def main() -> None:
    work = json.load(sys.stdin)
    client = OpenReward()
    locked: Json = {"name": "any", "base_url": work["locked_url"]}
    found: Json = {str(one["variant"]): play(client, one | {"url": work["url"]}) for one in work["plays"]}
    try:
        client.environments.get(**locked).list_splits()
    except AuthenticationError:
        found["locked"] = True
    found["opened"] = OpenReward(api_key=work["key"]).environments.get(**locked).list_splits()
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    # The SDK's threads are no concern here.
    os._exit(0)


main()
