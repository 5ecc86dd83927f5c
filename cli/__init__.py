"""The command line, `rolloutgym`. Each command lives in a module of its own; `rolloutgym.cli.commands` joins them."""

import re
import sys
from importlib.metadata import requires


def main() -> None:
    """The console script. What it needs comes with extras: where one is missing, a line says so."""
    try:
        from rolloutgym.cli.commands import run

        sys.exit(run())
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "rolloutgym":
            raise
        extra = _extra_with(missing)
        sys.exit(f"rolloutgym: {missing} is not installed; this command needs: pip install 'rolloutgym[{extra}]'")


def _extra_with(module: str) -> str:
    """The first extra that installs `module`, else `server`, which brings the rest along."""
    for requirement in requires("rolloutgym") or ():
        found = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", requirement)
        if found and found[1].replace("-", "_") == module:
            return found[2]
    return "server"
