"""What becomes of a client's connections in a forked child, such as a worker of a data loader.

The child inherits them open. Were both to use them, each might read the other's answers; so the child makes its own.
Those of an asynchronous client end with their event loop, which a child does not inherit.
"""

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    def forked(self) -> None:
        """Called in the child, before anything else runs there: let go of all connections, without a word to anyone."""


_holders: WeakSet[Forked] = WeakSet()


def renew_in_children(holder: Forked) -> None:
    _holders.add(holder)


def _renew() -> None:
    for holder in list(_holders):
        holder.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_renew)
