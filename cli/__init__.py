"""The command line, `rolloutgym`. Each command lives in a module of its own; `rolloutgym.cli.main` joins them."""

import sys


def main() -> None:
    """The console script. What it needs comes with extras: where one is missing, a line says so."""
    try:
        from rolloutgym.cli.main import run

        sys.exit(run())
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "rolloutgym":
            raise
        extra = "train" if missing in ("torch", "transformers", "trl", "accelerate", "datasets") else "server"
        sys.exit(f"rolloutgym: {missing} is not installed; this command needs: pip install 'rolloutgym[{extra}]'")
