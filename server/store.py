"""Where episodes are remembered: a record is what an episode is, the live object only a cache of it.

A record holds enough to play its episode again: environment, task, seed, options, and every action with the answer that
was given. The session layer orders what happens to one episode inside this process; `acquire` and `release` order it
between processes that share a store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from rolloutgym.models import TruncationReason
from rolloutgym.server.errors import CapacityReached


class Key(NamedTuple):
    """Episode ids are names within their environment."""

    environment: str
    episode_id: str


class Taken(NamedTuple):
    """A step that was taken just now."""

    action: bytes | TruncationReason
    """JSON of the action, or the reason for which the trainer ended the episode."""
    answer: bytes
    """The step result as it was sent, JSON."""
    reward: float
    done: bool
    state: Mapping[str, JsonValue] | None = None
    """The environment's part of the public state, after the last step."""


@dataclass(slots=True)
class Record:
    """One episode, from one reset on. It only grows, and only in the hands of who acquired it.

    Steps lie in lists by field, which costs the garbage collector nothing: it does not look into bytes and numbers.
    """

    key: Key
    task_id: str
    seed: int
    options: bytes
    """The reset options, JSON."""
    first: bytes
    """The answer to the reset, JSON."""
    actions: list[bytes | TruncationReason] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    done: bool = False
    state: Mapping[str, JsonValue] | None = None
    """The environment's part of the public state, once the episode is over."""

    @property
    def step_count(self) -> int:
        return len(self.answers)

    def add(self, taken: Taken) -> None:
        self.actions.append(taken.action)
        self.answers.append(taken.answer)
        self.rewards.append(taken.reward)
        self.done = taken.done
        self.state = taken.state


class Store(Protocol):
    """Records by key, and the places of unfinished episodes. Each method may raise `StoreUnavailable`."""

    async def reserve(self, key: Key, capacity: int, *, instead_of: Key | None = None) -> None:
        """Take a place for an episode that is about to begin: its own if it has one, that of `instead_of` if given.
        `CapacityReached` where `capacity` places are taken."""

    async def unreserve(self, key: Key) -> None:
        """Give a place back: its episode did not begin."""

    async def save(self, record: Record) -> None:
        """Begin a record, in place of an earlier one with its key."""

    async def acquire(self, key: Key) -> Record | None:
        """Hold an episode against other processes, and read its record: the same object as before for as long as none
        of them has changed it. `EpisodeBusy` if one keeps it for too long."""

    async def release(self, key: Key) -> None:
        """Let other processes have it."""

    async def append(self, record: Record, taken: Taken) -> None:
        """Add a step, to the store and to `record`, or to neither. The last step gives the place back."""

    async def keep(self, key: Key, seconds: float) -> None:
        """An episode without further use lives so long from now. A store that only this process sees may leave that to
        `expire`."""

    async def expire(self, key: Key) -> None:
        """This process has seen no use of the episode for its time: forget it, unless another process may know more."""

    async def delete(self, key: Key) -> bool:
        """Forget the record and give its place back. False where there is none."""

    async def count(self) -> int:
        """Places taken."""

    async def close(self) -> None: ...


class MemoryStore:
    """Records that live and die with this process. No method suspends."""

    def __init__(self) -> None:
        self._records: dict[Key, Record] = {}
        self._places: set[Key] = set()

    async def reserve(self, key: Key, capacity: int, *, instead_of: Key | None = None) -> None:
        if key in self._places:
            return
        if len(self._places) - (instead_of in self._places) >= capacity:
            raise CapacityReached(capacity)
        self._places.add(key)

    async def unreserve(self, key: Key) -> None:
        self._places.discard(key)

    async def save(self, record: Record) -> None:
        self._records[record.key] = record

    async def acquire(self, key: Key) -> Record | None:
        return self._records.get(key)

    async def release(self, key: Key) -> None:
        return

    async def append(self, record: Record, taken: Taken) -> None:
        record.add(taken)
        if taken.done:
            self._places.discard(record.key)

    async def keep(self, key: Key, seconds: float) -> None:
        return

    async def expire(self, key: Key) -> None:
        await self.delete(key)

    async def delete(self, key: Key) -> bool:
        self._places.discard(key)
        return self._records.pop(key, None) is not None

    async def count(self) -> int:
        return len(self._places)

    async def close(self) -> None:
        return
