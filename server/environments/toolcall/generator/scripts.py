"""The register of scripts. A module of scripts registers its own when it is imported."""

from collections.abc import Callable

from rolloutgym.server.environments.toolcall.generator.draft import Draft, Script, Split

SCRIPTS: dict[str, Script] = {}

_Write = Callable[[Draft], None]


def script(
    *domains: str,
    split: Split = "train",
    variants: int = 5,
    executable: bool = False,
    without: tuple[str, ...] = (),
    apart: tuple[str, ...] = (),
) -> Callable[[_Write], _Write]:
    """Register a function that writes one kind of dialogue over some domains."""

    def register(write: _Write) -> _Write:
        name = write.__name__.replace("_", "-")
        if name in SCRIPTS:
            raise ValueError(f"two scripts are called {name}")
        SCRIPTS[name] = Script(name, write, domains, split, variants, executable, without, apart)
        return write

    return register
