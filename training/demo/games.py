"""What the demonstration trains on: a few tasks with data written fresh, and demonstrations of mixed worth.

Most demonstrations guess: they show the form of an answer and not how to find one. What is learned after them is
learned from reward.
"""

import random
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue


class Game(Protocol):
    """One environment's share of the demonstration."""

    environment: str
    options: Mapping[str, JsonValue]
    """Reset options."""
    stop_tags: tuple[str, ...]
    looked: str
    """A word of the model that shows that it looked before it answered."""
    look: str
    """What looking is, in words."""

    def write(self, folder: Path, seed: int) -> dict[str, str]:
        """Write tasks with splits `train` and `test`; the service's settings (environment variables) that load them."""
        ...

    def demonstrate(self, task_id: str, draws: random.Random) -> Generator[str, str, None]:
        """What a demonstrator says turn by turn; it is sent the environment's last message each time."""
        ...

    def words(self) -> list[str]:
        """Words that the model may need beyond those of the demonstrations."""
        ...
