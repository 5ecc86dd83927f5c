"""What the server tells the zygote at its start, and what the zygote answers: one JSON object each. Standard library
only, as both sides read it.

It holds no secret and nothing of any task: whatever the zygote knows, each of its children can read in its own memory.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ZygotePlan:
    stdlib: list[str]
    """The interpreter's own import path: archive, library, extension modules."""
    packages: dict[str, str]
    """Top-level name → file or folder of each package that can be imported."""
    roots: list[str]
    """Files and folders that hold what a child may read: the standard library, the packages, shared libraries."""
    readable: list[str]
    """The same in finer pieces, without the folders inside `roots` that are not to be read."""
    listable: list[str]
    """Folders whose names may be listed without reading what is in them."""
    hidden: list[str]
    """Folders inside `roots` that a file tree of its own covers up."""
    scratch_root: str
    preload: list[str]
    """Modules imported before the first fork; one that is missing is skipped with a warning."""
    warm_up: str
    """Code run once after the preload, so that no child pays for caches that the first use fills."""
    service_filter: str
    """Hex of the zygote's seccomp filter; empty for none."""
    child_filter: str
    landlock: bool
    sealed: bool
    namespaces: bool
    private_uid: bool
    first_uid: int


@dataclass(frozen=True)
class ZygoteReport:
    landlock_abi: int
    """0 where Landlock is not in force."""
    namespaces: dict[str, int]
    """Kind → inode, which differs from the server's own where the zygote has one for itself."""
    private_uid: bool
    address_space: int
    """Bytes mapped by the zygote."""
    python: str
    warnings: list[str]
