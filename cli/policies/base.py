"""What a reference policy is: it plays an episode with its task's answer at hand.

Reference policies check environments and drive the demo. They read the answer from the task object of the environment's
own data set, in this process; the service never sends it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import JsonValue

from rolloutgym.models import Action, Observation


class Policy(Protocol):
    """Plays one episode at a time, deterministically."""

    def start(self, task: Any, observation: Observation) -> None:
        """An episode of `task`, the environment's own task object, begins with `observation`."""
        ...

    def act(self, observation: Observation) -> Action | Mapping[str, JsonValue] | str:
        """The next action, given the latest observation (the first one right after `start`)."""
        ...
