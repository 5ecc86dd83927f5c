"""OpenEnv's launcher starts our image, and its client plays it. Standard input: `{"image", "plays": {environment:
{"reset", "actions"}}}`; each environment is the default one of a container of its own."""

import json
import sys
from typing import Any

from openenv.core import GenericEnvClient


def play(image: str, name: str, reset: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
    started = GenericEnvClient.from_docker_image(image, env_vars={"ROLLOUTGYM_DEFAULT_ENV": name})
    with started.sync() as client:
        client.reset(**reset)
        results = [client.step(action) for action in actions]
        return {
            "rewards": [result.reward for result in results],
            "done": results[-1].done,
            "state": client.state(),
        }


def main() -> None:
    work = json.load(sys.stdin)
    # The launcher talks of what it does.
    out, sys.stdout = sys.stdout, sys.stderr
    json.dump({name: play(work["image"], name, **one) for name, one in work["plays"].items()}, out)


main()
