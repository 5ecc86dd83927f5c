"""Where episodes are remembered: a record is what an episode is, the live object only a cache of it.

A record holds enough to play its episode again: environment, task, seed, options, and every action with the answer that
was given. The session layer orders what happens to one episode inside this process. Between processes that share a
store nothing is locked: a write names the record that it goes on from, and is refused if that is not the present one.
Playing has no effect but its record, so whoever is refused has lost nothing but time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from pydantic import JsonValue

from rolloutgym.models import TruncationReason
from rolloutgym.server.errors import CapacityReached, EpisodeBusy


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
    state: Mapping[str, JsonValue]
    """The environment's part of the public state, after the step."""


@dataclass(slots=True)
class Record:
    """One episode, from one reset on. It only grows.

    Steps lie in lists by field, which costs the garbage collector nothing: it does not look into bytes and numbers.
    """

    key: Key
    task_id: str
    seed: int
    options: bytes
    """The reset options, JSON."""
    first: bytes
    """The answer to the reset, JSON."""
    state: Mapping[str, JsonValue]
    """The environment's part of the public state, after the last step so far."""
    actions: list[bytes | TruncationReason] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    done: bool = False
    generation: str = ""
    """A shared store's name for the reset that it began with."""
    revision: str = ""
    """A shared store's name for the write that made it what it is."""

    @property
    def step_count(self) -> int:
        return len(self.answers)

    def add(self, taken: Taken) -> None:
        self.actions.append(taken.action)
        self.answers.append(taken.answer)
        self.rewards.append(taken.reward)
        self.done = taken.done
        self.state = taken.state


class Overtaken(EpisodeBusy):
    """The record is not the present one any more, and nothing was written."""

    def __init__(self, key: Key) -> None:
        super().__init__("another request has changed the episode meanwhile", episode_id=key.episode_id)


class Store(Protocol):
    """Records by key, and the places of unfinished episodes. Each method may raise `StoreUnavailable`: then what it
    was to do has happened, or has not."""

    shared: ClassVar[bool]
    """Whether other processes use the records too."""

    async def load(self, key: Key, known: Record | None) -> Record | None:
        """The record as it is now, and a use of it: `known` itself where that is it, and another object of the same
        `generation` where steps were added to that."""

    async def reserve(self, key: Key, capacity: int, *, instead_of: Key | None = None) -> None:
        """Take a place for an episode that is about to begin: its own if it has one, that of `instead_of` if given.
        `CapacityReached` where `capacity` places are taken."""

    async def unreserve(self, key: Key) -> None:
        """Give a place back: its episode did not begin."""

    async def save(self, record: Record, instead_of: Record | None) -> None:
        """Begin a record, in place of an earlier one with its key. `Overtaken` if that is not what there is."""

    async def append(self, record: Record, taken: Taken) -> None:
        """Add a step, to the store and to `record`, or to neither: `Overtaken`. The last one gives the place back."""

    async def keep(self, key: Key, seconds: float) -> None:
        """An episode without further use lives so long from now. A store that only this process sees may leave that to
        `expire`."""

    async def let_go(self, key: Key, seconds: float) -> None:
        """As `keep`, for an episode that its client may have left, unless another process has used it since this one
        did."""

    async def expire(self, key: Key) -> None:
        """This process has seen no use of the episode for its time: forget it, unless another process may know more."""

    async def delete(self, key: Key) -> bool:
        """Forget the record and give its place back. False where there is none."""

    async def count(self) -> int:
        """Places taken."""

    async def close(self) -> None: ...


class MemoryStore:
    """Records that live and die with this process. No method suspends."""

    shared: ClassVar[bool] = False

    def __init__(self) -> None:
        self._records: dict[Key, Record] = {}
        self._places: set[Key] = set()

    async def load(self, key: Key, known: Record | None) -> Record | None:
        return self._records.get(key)

    async def reserve(self, key: Key, capacity: int, *, instead_of: Key | None = None) -> None:
        if key in self._places:
            return
        if len(self._places) - (instead_of in self._places) >= capacity:
            raise CapacityReached(capacity)
        self._places.add(key)

    async def unreserve(self, key: Key) -> None:
        self._places.discard(key)

    async def save(self, record: Record, instead_of: Record | None) -> None:
        if self._records.get(record.key) is not instead_of:
            raise Overtaken(record.key)
        self._records[record.key] = record
        self._places.add(record.key)

    async def append(self, record: Record, taken: Taken) -> None:
        if self._records.get(record.key) is not record:
            raise Overtaken(record.key)
        record.add(taken)
        if taken.done:
            self._places.discard(record.key)

    async def keep(self, key: Key, seconds: float) -> None:
        return

    async def let_go(self, key: Key, seconds: float) -> None:
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
