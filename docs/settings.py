"""Writes `docs/settings.md` from `rolloutgym.server.settings.Settings`; `make format` runs it."""

from pathlib import Path

from rolloutgym.cli.serve import metavar
from rolloutgym.server.settings import Settings

_HEAD = """# Settings

Every setting of the service is an environment variable and a flag of `rolloutgym serve`; the flag wins
(`ROLLOUTGYM_IDLE_TIMEOUT_S=60` is `--idle-timeout-s 60`). Lists are comma-separated. An empty variable counts as not
set; an unknown `ROLLOUTGYM_` variable or a value that does not fit ends the start with one line that says so.

| variable | takes | default | what it does |
|---|---|---|---|
"""


def page() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
        shown = "" if default is None or default == "" else f"`{default}`"
        takes = "true, false" if field.annotation is bool else metavar(field.annotation).replace("|", ", ")
        what = (field.description or "").replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `ROLLOUTGYM_{name.upper()}` | {takes} | {shown} | {what} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
