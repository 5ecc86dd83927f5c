"""The one place where randomness starts: everything that draws is seeded from the episode's seed and named scopes."""

import hashlib
import random


def seeded_random(seed: int, *scope: str) -> random.Random:
    """A generator of its own for (seed, scope): the same on every machine, independent between scopes."""
    text = "\x1f".join((str(seed), *scope))
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))
