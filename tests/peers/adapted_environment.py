"""Our environment as an OpenEnv `Environment`, called as OpenEnv's own code calls any: from threads and from a loop.

In: `{"name", "reset", "actions"}`; writes what each way of calling saw.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from rolloutgym.server.openenv_adapter import Host

Json = dict[str, Any]


def seen(observation: Any) -> Json:
    found: Json = observation.model_dump(mode="json", exclude={"metadata"})
    return found


def play(host: Host, work: Json) -> list[Json]:
    environment = host.environment()
    actions = [host.action_type(**action) for action in work["actions"]]
    answers = [environment.reset(**work["reset"]), *(environment.step(action) for action in actions)]
    assert environment.state.step_count == len(actions)
    environment.close()
    environment.close()
    return [seen(answer) for answer in answers]


async def play_async(host: Host, work: Json) -> list[Json]:
    environment = await asyncio.to_thread(host.environment)
    actions = [host.action_type(**action) for action in work["actions"]]
    answers = [await environment.reset_async(**work["reset"])]
    answers += [await environment.step_async(action, timeout_s=30) for action in actions]
    await asyncio.to_thread(environment.close)
    return [seen(answer) for answer in answers]


async def play_together(host: Host, work: Json) -> list[list[Json]]:
    return await asyncio.gather(
        asyncio.to_thread(play, host, work), asyncio.to_thread(play, host, work), play_async(host, work)
    )


def fail_to_start(host: Host) -> str:
    """What the first session is told where the environment does not start."""

    async def fail() -> None:
        raise OSError("no room yet")

    start, host.core.start = host.core.start, fail
    try:
        host.environment()
    except OSError as error:
        return str(error)
    finally:
        host.core.start = start
    return ""


def children() -> int:
    """Processes of this one, by the thread that started them; a thread may end while its turn comes."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            count += len((task / "children").read_text(encoding="ascii").split())
    return count


def main() -> None:
    work = json.load(sys.stdin)
    host = Host(work["name"])
    found: Json = {"failed": fail_to_start(host)}
    found |= {"plays": asyncio.run(play_together(host, work)), "children": [children()]}
    unreset = host.environment()
    try:
        unreset.step(host.action_type(**work["actions"][0]))
    except Exception as error:  # noqa: BLE001, whatever it is
        found["unreset"] = str(error)
    host.stop()
    found["children"].append(children())
    json.dump(found, sys.stdout)


main()
